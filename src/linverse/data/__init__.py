"""Images to learn from: idx files, folders, numpy archives, scikit-learn's digits; found, fetched, verified, split."""

from linverse.data.catalogue import FORMS, Description, cache_directory, describe
from linverse.data.decode import PixelFormat
from linverse.data.fetching import FetchError, fetch
from linverse.data.folder import load_folder
from linverse.data.idx import ChecksumError, read_idx
from linverse.data.images import ImageSet
from linverse.data.loading import load_images
from linverse.data.npz import load_npz

__all__ = [
    "FORMS",
    "ChecksumError",
    "Description",
    "FetchError",
    "ImageSet",
    "PixelFormat",
    "cache_directory",
    "describe",
    "fetch",
    "load_folder",
    "load_images",
    "load_npz",
    "read_idx",
]

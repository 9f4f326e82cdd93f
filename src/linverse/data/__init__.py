"""Images to learn from: idx files, folders, numpy archives, CIFAR-10, photographs, digits; found, fetched, verified, split."""

from linverse.data.catalogue import FORMS, cache_directory
from linverse.data.crops import PhotographCrops, load_crops
from linverse.data.decode import PixelFormat
from linverse.data.describing import Description, describe
from linverse.data.fetching import fetch
from linverse.data.folder import load_folder
from linverse.data.idx import ChecksumError, read_idx
from linverse.data.images import ImageSet
from linverse.data.loading import load_images
from linverse.data.mask_files import read_mask
from linverse.data.npz import load_npz
from linverse.data.packages import FetchError
from linverse.data.picture import Picture
from linverse.data.reading import read
from linverse.data.writing import write

__all__ = [
    "FORMS",
    "ChecksumError",
    "Description",
    "FetchError",
    "ImageSet",
    "PhotographCrops",
    "Picture",
    "PixelFormat",
    "cache_directory",
    "describe",
    "fetch",
    "load_crops",
    "load_folder",
    "load_images",
    "load_npz",
    "read",
    "read_idx",
    "read_mask",
    "write",
]

"""`load_images(name)`: one door to every data set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from linverse.data.catalogue import IDX_FILES, KNOWN, KnownSet, find_idx, homes, how_to_get, locate, unknown_name
from linverse.data.cifar import load_cifar
from linverse.data.decode import PixelFormat, conform
from linverse.data.digits import load_digits
from linverse.data.folder import load_folder
from linverse.data.idx import read_idx
from linverse.data.images import ImageSet
from linverse.data.npz import load_npz
from linverse.data.split import check_split
from linverse.data.usual_homes import read_tables, split_tables


def load_images(
    name: str,
    split: str = "train",
    *,
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    upscale: bool = False,
    root: Path | None = None,
    cache: Path | None = None,
) -> ImageSet:
    """A data set by name: `mnist`, `fashion-mnist`, `cifar10`, `digits`, `folder:PATH`, `npz:PATH`, `idx:PATH`,
    `datasets:PATH`.

    size      side, or (height, width): scaled to cover it, then cut to the centre; None leaves the images as they are
    channels  1 grey, 3 RGB; None leaves them
    upscale   whether images smaller than the size may be enlarged (otherwise they are an error)
    root      where to look for a named set instead of the cache and the system's places
    cache     for folders and npz: a directory to decode into once, mapped from disk afterwards (for sets larger than memory)
    """
    check_split(split)
    wanted = PixelFormat((size, size) if isinstance(size, int) else size, channels, upscale)
    form, colon, path = name.partition(":")
    if colon and form == "folder":
        return load_folder(Path(path).expanduser(), split, wanted, cache)
    if colon and form == "npz":
        return load_npz(Path(path).expanduser(), split, wanted, cache)
    if colon and form == "idx":
        return conformed(load_idx_files(name, Path(path).expanduser(), split), wanted)
    if colon and form == "datasets":
        return load_tables(Path(path).expanduser(), split, wanted)
    if name == "digits":
        return conformed(load_digits(split), wanted)
    if name == "cifar10":
        return conformed(load_cifar(split, root), wanted)
    if name == "photographs":
        raise ValueError("photographs are of any size: crops are drawn from them, see linverse.data.load_crops")
    if name not in KNOWN:
        raise unknown_name(name)
    return conformed(load_idx_files(name, _home(KNOWN[name], root), split, KNOWN[name]), wanted)


def load_idx_files(name: str, place: Path, split: str, known: KnownSet | None = None) -> ImageSet:
    """Images and labels of one split from a directory of idx files; those of a known set must be the published ones."""
    paths = {file: find_idx(place, file) for file in IDX_FILES[split]}
    arrays = []
    for file, path in paths.items():
        if path is None:
            raise FileNotFoundError(f"{place} has no {file} (.gz or not)")
        arrays.append(read_idx(path, known.sha256[file] if known else None))
    images, labels = arrays
    if images.ndim != 3 or labels.ndim != 1:
        raise ValueError(f"{place}: images are [N, H, W], labels [N]; got {tuple(images.shape)}, {tuple(labels.shape)}")
    note = f"{place}, sha256 right" if known else str(place)
    return ImageSet(name, images[:, None], labels.long(), split, notes=(note,))


def load_tables(path: Path, split: str, wanted: PixelFormat) -> ImageSet:
    """The pictures of one split of a folder of parquet or Arrow files."""
    files = split_tables(path, split)
    if not files:
        raise FileNotFoundError(
            f"{path} has no parquet or Arrow files of the split {split!r}, by their names or their folder's"
        )
    pictures, labels = read_tables(files)
    planar = [p[None] if p.ndim == 2 else p.transpose(2, 0, 1) for p in pictures]
    try:
        images = np.concatenate([conform(image[None], wanted) for image in planar])
    except ValueError as error:
        raise ValueError(
            f"{path}: {error}; pictures of one set have one size and kind: give size and channels"
        ) from error
    marks = None if labels is None else torch.from_numpy(labels)
    return ImageSet(
        f"datasets:{path}", torch.from_numpy(images), marks, split, notes=(f"{len(files)} tables of {path}",)
    )


def conformed(images: ImageSet, wanted: PixelFormat) -> ImageSet:
    """The set in another size or number of channels (in 256 levels, where it had fewer)."""
    if wanted.shape(images.shape) == images.shape:
        return images
    pixels = images.images
    if images.white != 255:
        pixels = (pixels.double() * (255 / images.white)).round().to(torch.uint8)
    try:
        changed = torch.from_numpy(conform(pixels.numpy(), wanted))
    except ValueError as error:
        raise ValueError(f"{images.name}: {error}") from error
    note = f"brought from {images.shape} to {tuple(changed.shape[1:])}"
    return replace(images, images=changed, white=255, notes=(*images.notes, note))


def _home(known: KnownSet, root: Path | None) -> Path:
    place = locate(known, root)
    if place is None:
        looked = ", ".join(str(home) for home in homes(known, root))
        raise FileNotFoundError(f"{known.name} was not found; looked in {looked}\n{how_to_get(known)}")
    return place

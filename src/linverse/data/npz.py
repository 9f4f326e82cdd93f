"""numpy archives of images: the batches of downsampled ImageNet, and any .npz with an array `images`.

- `data` [N, 3s²]: uint8 rows of a square RGB image, one colour plane after the other (train_data_batch_1.npz … and val_data.npz
  of ImageNet 64×64, where 3s² = 12288), with labels 1…1000;
- `images` [N, H, W], [N, H, W, C] or [N, C, H, W], uint8, C = 1 or 3; optional `labels` [N].

PATH is a file or a directory. In a directory, names beginning with train and with val or test say which images are held out;
otherwise one row in twenty is (split.py). Nothing is unpickled: arrays of objects are refused.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linverse.data.decode import Bytes, PixelFormat, Shape, conform
from linverse.data.images import ImageSet
from linverse.data.split import belongs, check_split, refuse_empty
from linverse.data.storage import fingerprint, in_memory, mapped, on_disk

BLOCK = 1024


@dataclass(frozen=True)
class Batch:
    """One file: which of its arrays holds the images, and which rows are of the split."""

    path: Path
    key: str
    layout: str  # "planes" [N, 3s²], "grey" [N, H, W], "last" [N, H, W, C], "first" [N, C, H, W]
    native: Shape
    count: int
    rows: NDArray[np.int64]


def load_npz(
    path: Path, split: str = "train", wanted: PixelFormat | None = None, cache: Path | None = None
) -> ImageSet:
    """The images of one split; with `cache`, unpacked once into a file of that directory and mapped from there."""
    wanted = wanted or PixelFormat()
    batches = [_inspect(file, split if hashed else None) for file, hashed in _split_files(path, split)]
    count = sum(len(batch.rows) for batch in batches)
    refuse_empty(count, split, path, "one row in twenty is held out: add images, or name the files train… and test…")
    shape = _common_shape(batches, wanted)
    if cache is None:
        images = in_memory(_blocks(batches, wanted), count, shape, f"npz {path}")
    else:
        stored = cache / f"npz-{fingerprint([batch.path for batch in batches], split, wanted)}.npy"
        images = mapped(stored) if stored.is_file() else on_disk(_blocks(batches, wanted), count, shape, stored)
    notes = (f"{count} images of {len(batches)} files: {path}",)
    return ImageSet(f"npz:{path}", images, _labels(batches), split, notes=notes)


def _split_files(path: Path, split: str) -> list[tuple[Path, bool]]:
    """The files to read, and whether a split by hash is still to be made within each."""
    check_split(split)
    files = sorted(path.glob("*.npz"), key=_natural_order) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise FileNotFoundError(f"there are no .npz files at {path}")
    named = {
        "train": [file for file in files if file.name.startswith("train")],
        "test": [file for file in files if file.name.startswith(("val", "test"))],
    }
    if not path.is_dir() or not (named["train"] and named["test"]):
        return [(file, True) for file in files]
    strangers = sorted(set(files) - {*named["train"], *named["test"]})
    if strangers:
        raise ValueError(f"{strangers[0]} is neither train…, val… nor test….npz; name it so or move it away")
    return [(file, False) for file in named[split]]


def _natural_order(file: Path) -> list[tuple[int, str]]:
    """batch_2 before batch_10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", file.name)]


def _inspect(path: Path, hash_split: str | None) -> Batch:
    """Read the header of the images only."""
    with _archive(path) as archive:
        names = {name.removesuffix(".npy") for name in archive.namelist()}
        key = next((key for key in ("images", "data") if key in names), None)
        if key is None:
            raise ValueError(f"has neither `images` nor `data`, but {sorted(names)}")
        with archive.open(f"{key}.npy") as stream:
            shape, dtype = _array_header(stream)
        if dtype != np.uint8:
            raise ValueError(f"`{key}` is {dtype}; images are uint8, 0 to 255")
        layout, native = _layout(key, shape)
    rows = [row for row in range(shape[0]) if hash_split is None or belongs(f"{path.name}:{row}", hash_split)]
    return Batch(path, key, layout, native, shape[0], np.array(rows, dtype=np.int64))


def _array_header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    return shape, dtype


def _layout(key: str, shape: tuple[int, ...]) -> tuple[str, Shape]:
    """Which axis is which, and [C, H, W]."""
    side = round((shape[1] / 3) ** 0.5) if len(shape) == 2 else 0
    if key == "data" and side and shape[1] == 3 * side * side:
        return "planes", (3, side, side)
    if len(shape) == 3:
        return "grey", (1, shape[1], shape[2])
    if len(shape) == 4 and (shape[3] in (1, 3)) != (shape[1] in (1, 3)):
        last = shape[3] in (1, 3)
        return ("last", (shape[3], shape[1], shape[2])) if last else ("first", (shape[1], shape[2], shape[3]))
    accepted = "`data` [N, 3·side²], `images` [N, H, W], [N, H, W, C] or [N, C, H, W] with C = 1 or 3"
    raise ValueError(f"`{key}` has shape {shape}; accepted are {accepted}")


def _common_shape(batches: list[Batch], wanted: PixelFormat) -> Shape:
    shapes = {wanted.shape(batch.native): batch.path for batch in batches}
    if len(shapes) > 1:
        listed = "; ".join(f"{path} holds {shape}" for shape, path in shapes.items())
        raise ValueError(f"the files differ: {listed}; give the size and channels that all shall have")
    return next(iter(shapes))


def _blocks(batches: list[Batch], wanted: PixelFormat) -> Iterator[Bytes]:
    """[n, C, H, W], a thousand at a time."""
    for batch in batches:
        if len(batch.rows) == 0:
            continue
        stored = _read(batch.path, batch.key)
        for rows in np.split(batch.rows, range(BLOCK, len(batch.rows), BLOCK)):
            try:
                yield conform(_channels_first(stored[rows], batch), wanted)
            except ValueError as error:
                raise ValueError(f"{batch.path}: {error}") from error


def _channels_first(stored: Bytes, batch: Batch) -> Bytes:
    if batch.layout == "last":
        return stored.transpose(0, 3, 1, 2)
    return stored.reshape(len(stored), *batch.native)


def _labels(batches: list[Batch]) -> Tensor | None:
    """Labels as the files have them, if every file has them."""
    found = []
    for batch in batches:
        with _archive(batch.path) as archive:
            if "labels.npy" not in archive.namelist():
                return None
        labels = _read(batch.path, "labels")
        if labels.size != batch.count or labels.shape[0] != batch.count:
            raise ValueError(f"{batch.path}: {batch.count} images but labels of shape {labels.shape}")
        found.append(labels.reshape(-1)[batch.rows])
    return torch.from_numpy(np.concatenate(found).astype(np.int64))


def _read(path: Path, key: str) -> NDArray[Any]:
    with _archive(path) as archive, archive.open(f"{key}.npy") as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """An open .npz; whatever is wrong inside is an error with its name."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, RuntimeError) as error:
        raise ValueError(f"{path}: {error}") from error

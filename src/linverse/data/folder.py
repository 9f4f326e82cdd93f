"""A folder of pictures of any sizes, searched to any depth.

A folder with `train` and `test` (or `val`, `valid`, `validation`) inside says itself which images are held out; otherwise one in
twenty is, by a hash of its path below the folder (split.py). A file that cannot be read stops the loading and is named: a data
set that silently lost images is another data set.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from uuid import uuid4

import numpy as np
from torch import Tensor

from linverse.data.decode import Bytes, Decoded, PixelFormat, Shape, decode
from linverse.data.images import ImageSet
from linverse.data.split import belongs, check_split, refuse_empty
from linverse.data.storage import fingerprint, in_memory, mapped, on_disk

EXTENSIONS = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff"})
HELD_OUT_FOLDERS = ("test", "val", "valid", "validation")
BLOCK = 256


def load_folder(
    path: Path, split: str = "train", wanted: PixelFormat | None = None, cache: Path | None = None
) -> ImageSet:
    """The pictures of one split; with `cache`, decoded once into a file of that directory and mapped from there."""
    wanted = wanted or PixelFormat()
    files = split_files(path, split)
    images, transparent = _Decoder(files, wanted).load(f"folder {path}", cache)
    notes = [f"{len(files)} image files of {path}"]
    if transparent:
        notes.append(f"{transparent} of {len(files)} images are transparent in places and were composited on black")
        warnings.warn(f"{path}: {notes[-1]}", stacklevel=3)
    return ImageSet(f"folder:{path}", images, split=split, notes=tuple(notes))


def find_images(path: Path) -> list[Path]:
    """All image files below a folder, sorted by their path; hidden ones are no images."""
    if not path.is_dir():
        raise FileNotFoundError(f"there is no folder {path}")
    found = [
        file
        for file in path.rglob("*")
        if file.suffix.lower() in EXTENSIONS
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
        and file.is_file()
    ]
    if not found:
        raise FileNotFoundError(
            f"there are no images in {path} (looked for {', '.join(sorted(EXTENSIONS))} at any depth)"
        )
    return sorted(found, key=lambda file: file.relative_to(path).as_posix())


def split_files(path: Path, split: str) -> list[Path]:
    """The files of one split, in a fixed order."""
    check_split(split)
    held_out = next((path / name for name in HELD_OUT_FOLDERS if (path / name).is_dir()), None)
    if held_out is not None and (path / "train").is_dir():
        return find_images(path / "train" if split == "train" else held_out)
    files = [file for file in find_images(path) if belongs(file.relative_to(path).as_posix(), split)]
    refuse_empty(len(files), split, path, "one image in twenty is held out: add images, or make folders train and test")
    return files


class _Decoder:
    """Decodes files to one shape, which the first of them decides where nothing was asked for, and counts transparent ones."""

    def __init__(self, files: list[Path], wanted: PixelFormat) -> None:
        self.files, self.wanted, self.transparent = files, wanted, 0
        self.shape: Shape = decode(files[0], wanted).shape
        if wanted.channels is None and self.shape[0] == 3:
            # grey pictures may join a set of colour ones; the other way round colour would be lost: that must be asked for
            self.wanted = replace(wanted, channels=3)

    def load(self, name: str, cache: Path | None) -> tuple[Tensor, int]:
        """uint8 [N, C, H, W] and how many were transparent in places."""
        if cache is None:
            return in_memory(self.blocks(), len(self.files), self.shape, name), self.transparent
        stem = f"folder-{fingerprint(self.files, self.wanted)}"
        path, facts = cache / f"{stem}.npy", cache / f"{stem}.json"
        if facts.is_file():  # written last: where it is, the images are whole
            return mapped(path), json.loads(facts.read_text())["transparent"]
        images = on_disk(self.blocks(), len(self.files), self.shape, path)
        partial = facts.with_suffix(f".{uuid4().hex}.partial")  # renamed when whole: another process may be looking
        partial.write_text(json.dumps({"transparent": self.transparent}))
        partial.replace(facts)
        return images, self.transparent

    def blocks(self) -> Iterator[Bytes]:
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:  # Pillow decodes and scales without Python's lock
            for start in range(0, len(self.files), BLOCK):
                files = self.files[start : start + BLOCK]
                pictures = list(pool.map(decode, files, repeat(self.wanted)))
                self._check(files, pictures)
                self.transparent += sum(picture.transparent for picture in pictures)
                yield np.stack([picture.pixels for picture in pictures])

    def _check(self, files: list[Path], pictures: list[Decoded]) -> None:
        for file, picture in zip(files, pictures, strict=True):
            if picture.shape != self.shape:
                raise ValueError(
                    f"the images differ: {self.files[0]} is {_words(self.shape)}, {file} is {_words(picture.shape)}; "
                    "give the size (a number, or height and width) and channels (1 or 3) that all shall have"
                )


def _words(shape: Shape) -> str:
    return f"{'grey' if shape[0] == 1 else 'RGB'} {shape[1]}×{shape[2]}"

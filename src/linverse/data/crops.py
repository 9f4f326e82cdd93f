"""Training crops out of whole pictures: random places, scales, mirrorings and quarter turns, as a function of (seed, step).

The pictures of a set lie one behind the other in one array of bytes, each at the scales 1, √2, 2 and 2√2 (reduced in linear light,
once, into a file of the cache that is mapped ever after), so that a crop is a copy and nothing else. For each crop of a step, five
uniform numbers choose

    the picture   with a probability ∝ √(its pixels): large ones have more to show, but not in proportion; `OWN_SIZE` times as often
                  if it was not reduced when it was gathered
    the scale     with `SCALE_WEIGHTS`; a scale at which the picture is smaller than the crop gives way to the next finer one
    the place     uniform
    the turn      one of the eight of the square

A step's crops depend on (seed, step) and nothing else: not on the steps before, nor on how many processes share them. Pictures that were
compressed with loss are learnt from at a reduced size (reduction.py); those of `linverse data photographs` have been reduced already.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from uuid import uuid4

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linverse.data.catalogue import cache_directory
from linverse.data.compression import was_compressed
from linverse.data.decode import PixelFormat, decode
from linverse.data.folder import split_files
from linverse.data.photographs import INDEX, NAME, photographs_home, read_index
from linverse.data.reduction import reduce, training_size
from linverse.data.split import check_split
from linverse.data.storage import fingerprint
from linverse.rng import keyed_generator

Bytes = NDArray[np.uint8]
SCALES = (1.0, 2**0.5, 2.0, 2**1.5)
SCALE_WEIGHTS = (0.55, 0.2, 0.15, 0.1)  # more than half at their own scale, which is what people bring
SMALLEST_LEVEL = 32  # pixels of the short side: a reduced picture that is smaller is not kept
OWN_SIZE = 3.0  # how much oftener a picture is drawn that was not reduced: few can be had, and people bring such ones


@dataclass(frozen=True)
class Level:
    """One picture at one scale: where its bytes [C, H, W] begin, and its size."""

    start: int
    height: int
    width: int


@dataclass(frozen=True, eq=False)
class PhotographCrops:
    """The pictures of one split of a set, for drawing crops."""

    name: str
    split: str
    channels: int  # 1 grey, 3 colour
    pixels: Bytes  # all pictures at all scales, one behind the other
    pictures: tuple[tuple[Level, ...], ...]  # of each picture, its levels from large to small
    files: tuple[str, ...]
    shown: tuple[bool, ...]  # of each picture, whether its pixels may be passed on
    own_size: tuple[bool, ...]  # of each picture, whether it is as the camera gave it
    digest: str  # of the pixels: another set has another one

    def __len__(self) -> int:
        return len(self.pictures)

    @property
    def megapixels(self) -> float:
        """Of the pictures at scale 1."""
        return sum(levels[0].height * levels[0].width for levels in self.pictures) / 1e6

    def crops(self, seed: int, step: int, count: int, size: int, rows: slice = slice(None)) -> Tensor:
        """The crops of a training step, float32 [n, C, size, size] in [0, 1]; of `count` in all, those of the given rows.

        >>> crops = load_crops("photographs")  # doctest: +SKIP
        >>> crops.crops(seed=0, step=1000, count=32, size=64).shape  # doctest: +SKIP
        torch.Size([32, 3, 64, 64])
        """
        generator = keyed_generator(seed, "crops", step)
        draws = torch.rand(count, 5, generator=generator, dtype=torch.float64).numpy()[rows]
        usable, cumulative = self._choices(size)
        chosen = np.searchsorted(cumulative, draws[:, 0] * cumulative[-1], side="right")
        scales = np.searchsorted(np.cumsum(SCALE_WEIGHTS)[:-1], draws[:, 1], side="right")
        out = np.empty((len(draws), self.channels, size, size), dtype=np.uint8)
        for row, (picture, scale, draw) in enumerate(zip(usable[chosen], scales, draws, strict=True)):
            level = self._level(self.pictures[picture], int(scale), size)
            out[row] = turned(self._cut(level, size, draw[2], draw[3]), int(8 * draw[4]))
        return torch.from_numpy(out).to(torch.float32).div_(255)

    def fixed(self, size: int, count: int, *, shown: bool = False) -> Tensor:
        """Crops that are always the same, upright and at scale 1: from each picture in turn, [count, C, size, size].

        `shown`: only of pictures that may be passed on, as many as were asked for or none.
        """
        usable, _ = self._choices(size)
        if shown:
            usable = np.array([number for number in usable if self.shown[number]], dtype=np.int64)
        if len(usable) == 0 or count == 0:
            return torch.empty(0, self.channels, size, size)
        draws = torch.rand(count, 2, generator=keyed_generator("fixed crops", size), dtype=torch.float64).tolist()
        cut = [
            self._cut(self.pictures[usable[number % len(usable)]][0], size, down, across)
            for number, (down, across) in enumerate(draws)
        ]
        return torch.from_numpy(np.stack(cut)).float() / 255

    def held_out(self, size: int, count: int, *, shown: bool = False) -> Tensor:
        """`fixed` crops of the pictures that are held out of training."""
        return self._held_out.fixed(size, count, shown=shown)

    def picture(self, number: int) -> Tensor:
        """A whole picture at scale 1, [1, C, H, W] in [0, 1]."""
        return torch.from_numpy(self._view(self.pictures[number][0]).copy())[None].float() / 255

    @cached_property
    def _held_out(self) -> PhotographCrops:
        return self if self.split == "test" else load_crops(self.name, "test", channels=self.channels)

    def _choices(self, size: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The pictures that hold a crop of this size, and the running sum of their weights; found once for each size."""
        if size not in self._chosen:
            self._chosen[size] = self._find_choices(size)
        return self._chosen[size]

    @cached_property
    def _chosen(self) -> dict[int, tuple[NDArray[np.int64], NDArray[np.float64]]]:
        return {}

    def _find_choices(self, size: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        if size < 1:
            raise ValueError(f"crops are at least one pixel wide; got {size}")
        areas = np.array(
            [lv[0].height * lv[0].width * (min(lv[0].height, lv[0].width) >= size) for lv in self.pictures]
        )
        usable = np.flatnonzero(areas)
        if len(usable) == 0:
            largest = max(min(levels[0].height, levels[0].width) for levels in self.pictures)
            raise ValueError(f"{self.name}: crops of {size}×{size} do not fit; the largest short side is {largest}")
        weights = np.sqrt(areas.astype(np.float64)) * np.where(self.own_size, OWN_SIZE, 1.0)
        return usable, np.cumsum(weights[usable])

    @staticmethod
    def _level(levels: tuple[Level, ...], scale: int, size: int) -> Level:
        """The wanted scale, or the coarsest finer one that holds the crop."""
        fitting = [level for level in levels[: scale + 1] if min(level.height, level.width) >= size]
        return fitting[-1]

    def _cut(self, level: Level, size: int, down: float, across: float) -> Bytes:
        top, left = int(down * (level.height - size + 1)), int(across * (level.width - size + 1))
        return self._view(level)[:, top : top + size, left : left + size]

    def _view(self, level: Level) -> Bytes:
        length = level.height * level.width * self.channels
        return self.pixels[level.start : level.start + length].reshape(self.channels, level.height, level.width)


def turned(crop: Bytes, which: int) -> Bytes:
    """One of the eight images of a square under turns and mirrorings, [C, S, S]."""
    if which & 4:
        crop = crop.transpose(0, 2, 1)
    if which & 2:
        crop = crop[:, ::-1]
    return crop[:, :, ::-1] if which & 1 else crop


def load_crops(
    name: str = NAME, split: str = "train", *, channels: int = 3, cache: Path | None = None
) -> PhotographCrops:
    """The pictures of `photographs` or of `folder:PATH`; decoded and reduced once into `cache` (default: linverse's own)."""
    check_split(split)
    if channels not in (1, 3):
        raise ValueError(f"channels is 1 (grey) or 3 (RGB); got {channels}")
    files, root = _files(name, split)
    home = cache or cache_directory() / "crops"
    stem = home / f"crops-{fingerprint(files, 'levels', 3, channels, SCALES)}"
    pixels, facts = stem.with_suffix(".bin"), stem.with_suffix(".json")
    if not facts.is_file():  # written last: where it is, the pixels are whole
        _store(files, channels, pixels, facts)
    stored = json.loads(facts.read_text())
    levels = tuple(tuple(Level(*level) for level in picture) for picture in stored["pictures"])
    names = tuple(file.relative_to(root).as_posix() for file in files)
    mapped = np.memmap(pixels, dtype=np.uint8, mode="r")
    shown, own_size = _noted(name, names)
    return PhotographCrops(name, split, channels, mapped, levels, names, shown, own_size, stored["digest"])


def _noted(name: str, files: Sequence[str]) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    """Whether each picture may be passed on, and whether it has its own size: by the index of the gathered ones.

    What is in a user's own folder is for the user to say, and none of it is drawn oftener.
    """
    if name != NAME:
        return (True,) * len(files), (False,) * len(files)
    index = {picture.file: picture for picture in read_index(photographs_home()).pictures}
    return tuple(index[file].may_be_shown for file in files), tuple(index[file].reduction <= 1 for file in files)


def _files(name: str, split: str) -> tuple[list[Path], Path]:
    """The files of a split, and the folder they are below."""
    form, colon, path = name.partition(":")
    if colon and form == "folder":
        folder = Path(path).expanduser()
        return split_files(folder, split), folder
    if name != NAME:
        raise ValueError(f"crops are drawn from {NAME!r} or folder:PATH; got {name!r}")
    home = photographs_home()
    if not (home / INDEX).is_file():
        raise FileNotFoundError(f"the photographs are not in {home}; `linverse data {NAME}` gathers them")
    return [home / picture.file for picture in read_index(home).of(split)], home


def _store(files: Sequence[Path], channels: int, pixels: Path, facts: Path) -> None:
    """Write all levels of all pictures, then the table that says where they are."""
    pixels.parent.mkdir(parents=True, exist_ok=True)
    partial = pixels.with_name(
        f"{pixels.stem}.{uuid4().hex}.partial"
    )  # renamed when whole: another process may be looking
    table: list[list[tuple[int, int, int]]] = []
    digest, start = hashlib.blake2b(digest_size=16), 0
    try:
        with partial.open("xb") as stream:
            for levels in _decoded(files, channels):
                rows = []
                for level in levels:
                    rows.append((start, level.shape[0], level.shape[1]))
                    content = level.transpose(2, 0, 1).tobytes()
                    digest.update(repr(level.shape).encode() + content)
                    stream.write(content)
                    start += len(content)
                table.append(rows)
        partial.replace(pixels)
        note = facts.with_name(f"{facts.stem}.{uuid4().hex}.partial")
        note.write_text(json.dumps({"pictures": table, "digest": digest.hexdigest()}))
        note.replace(facts)
    except OSError as error:
        raise OSError(f"could not write the decoded pictures to {pixels}: {error}") from error
    finally:
        partial.unlink(missing_ok=True)


def _decoded(files: Sequence[Path], channels: int) -> Iterator[list[Bytes]]:
    """The levels of each picture, in order; a few are worked on at once."""
    workers = min(4, os.cpu_count() or 1)
    with ThreadPoolExecutor(workers) as pool:  # Pillow and numpy work without Python's lock
        for start in range(0, len(files), 4 * workers):
            yield from pool.map(lambda file: _levels(file, channels), files[start : start + 4 * workers])


def _levels(file: Path, channels: int) -> list[Bytes]:
    """A picture at every scale, [H, W, C] each, from large to small."""
    whole = decode(file, PixelFormat(channels=channels)).pixels.transpose(1, 2, 0)
    height, width = training_size(whole.shape[0], whole.shape[1], lossy=was_compressed(file))
    largest = reduce(whole, (height, width))
    sizes = [(round(height / scale), round(width / scale)) for scale in SCALES]
    return [reduce(largest, size) for number, size in enumerate(sizes) if number == 0 or min(size) >= SMALLEST_LEVEL]

"""Where training images come from: sets of one size, drawn by permutations, or crops of whole pictures, drawn by (seed, step)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from linverse.data import load_images
from linverse.data.crops import load_crops
from linverse.models.bases import CropSource, ImageSource, Source
from linverse.training.config import TrainConfig

CHUNK = 512  # images hashed at a time


@dataclass(frozen=True, eq=False)
class FixedImages:
    """A few images in memory, [n, C, H, W] in [0, 1], and some like them that may be passed on with a model."""

    images: Tensor
    shown: Tensor

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, indices: Tensor) -> Tensor:
        return self.images[indices]


def load_sources(config: TrainConfig) -> tuple[Source, ImageSource]:
    """Training images and held-out ones of a configuration's data set, in the size that its model takes."""
    channels, height, width = config.model.shape
    if height is None or width is None:
        crops = load_crops(config.data, "train", channels=channels)
        size = config.crops[0]
        held_out = crops.held_out(size, max(config.evaluation_images, config.self_test_images))
        return crops, FixedImages(held_out, crops.held_out(size, config.reference_images, shown=True))
    train, test = (
        load_images(config.data, split, size=(height, width), channels=channels) for split in ("train", "test")
    )
    return train, test


def fingerprint(source: Source) -> str:
    """A hash of the training images: a run goes on with those that it began with, or says so."""
    known = getattr(source, "digest", None)  # sets of bytes know theirs
    if known is not None:
        return str(known)
    found = hashlib.sha256()
    if isinstance(source, CropSource):
        found.update(source.crops(0, 0, 64, 8).contiguous().numpy().data)
        return found.hexdigest()
    for rows in torch.arange(len(source)).split(CHUNK):
        found.update(source.batch(rows).contiguous().numpy().data)
    return found.hexdigest()


def some_images(source: Source, count: int, size: int, generator: torch.Generator) -> Tensor:
    """Training images at random: as many as were asked for, or as there are."""
    if isinstance(source, CropSource):
        return source.crops(int(torch.randint(2**31, (), generator=generator)), -1, count, size)
    chosen = torch.randperm(len(source), generator=generator)[:count]
    return source.batch(chosen)

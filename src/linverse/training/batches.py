"""Batches as a function of (seed, step): what a step sees does not depend on how the run came there, nor on how many processes share it.

Every process draws the whole batch and keeps its own rows.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from linverse.covariance import VarianceRange
from linverse.degradations import Box, Convolution, GaussianBlur, Masking
from linverse.models.bases import CropSource, Source
from linverse.models.losses import NoisyBatch
from linverse.rng import keyed_generator
from linverse.training.config import TrainConfig


@lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, size: int) -> Tensor:
    return torch.randperm(size, generator=keyed_generator(seed, "epoch", epoch))


def batch_indices(seed: int, step: int, batch: int, size: int) -> Tensor:
    """The images of a step: every epoch is a permutation of its own."""
    first, last = step * batch // size, ((step + 1) * batch - 1) // size
    order = torch.cat([_permutation(seed, epoch, size) for epoch in range(first, last + 1)])
    start = step * batch - first * size
    return order[start : start + batch]


def draw_parts(
    config: TrainConfig, x: Tensor, generator: torch.Generator, rows: slice = slice(None)
) -> list[NoisyBatch]:
    """Σ, noise and, where the network is conditional, its measurement for a batch, by basis; only the given rows are kept.

    Everything is drawn for the whole batch first: what a sample sees does not depend on who else keeps it.
    """
    shape = (x.shape[1], x.shape[2], x.shape[3])
    limits = VarianceRange(config.model.minimum, config.model.maximum)
    drawn = config.covariances.sample(len(x), shape, limits, generator)
    noise = torch.randn(x.shape, generator=generator, dtype=x.dtype)
    seen = draw_condition(x, config.condition, generator)
    mine = torch.zeros(len(x), dtype=torch.bool)
    mine[rows] = True
    parts = []
    for cov, index in drawn:
        keep = mine[index]
        if bool(keep.any()):
            chosen = index[keep]
            condition = None if seen is None else seen[chosen]
            parts.append(NoisyBatch(x[chosen], cov[keep].to(x.dtype), noise[chosen], condition))
    return parts


def training_images(config: TrainConfig, images: Source, step: int) -> Tensor:
    """The images of a step."""
    if isinstance(images, CropSource):
        return images.crops(config.seed, step, config.batch_at(step), config.crop_at(step))
    return images.batch(batch_indices(config.seed, step, config.batch, len(images)))


def training_parts(
    config: TrainConfig, images: Source, step: int, rank: int = 0, processes: int = 1
) -> list[NoisyBatch]:
    """The parts of a step that fall to one process."""
    x = training_images(config, images, step)
    if len(x) % processes:
        raise ValueError(f"a batch of {len(x)} cannot be shared by {processes} processes")
    generator = keyed_generator(config.seed, "step", step)
    if config.flips:
        flip = torch.rand(len(x), 1, 1, 1, generator=generator) < 0.5
        x = torch.where(flip, x.flip(-1), x)
    if config.double:
        x = x.double()
    share = len(x) // processes
    rows = slice(rank * share, (rank + 1) * share)
    if step < config.isotropic_first:
        config = replace(config, covariances=config.covariances.isotropic_part())
    return draw_parts(config, x, generator, rows)


def draw_condition(x: Tensor, kind: str, generator: torch.Generator) -> Tensor | None:
    """The measurement that a conditional network sees: a masked (with its mask) or blurred image with its noise, in pixels."""
    if kind == "none":
        return None
    side = min(x.shape[2:])
    operator: Masking | Convolution = (
        Box(max(1, round(20 / 28 * side)), sigma=1e-3) if kind == "inpainting" else GaussianBlur(0.8, sigma=1e-2)
    )
    return operator.condition(operator.measure(x, generator))

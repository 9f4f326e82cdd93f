"""Distributions of noise that varies from pixel to pixel: masks of every shape, patches, Bayer patterns.

Variances are log-uniform, inside and outside of a mask drawn independently (paper, appendix "Distribution covariances used for
training"), except for a share `hidden` of some families.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from linverse.covariance import Covariance, SpatialCovariance, VarianceRange
from linverse.degradations.masks import centre_box
from linverse.training.covariances.interface import (
    Shape,
    check_choice,
    check_ends,
    check_hidden,
    level_pairs,
    log_uniform,
    two_levels,
)


@dataclass(frozen=True)
class Isotropic:
    """λ·I in pixels, λ log-uniform between `faintest` and `loudest` (0: the model's own limits)."""

    kind: ClassVar[str] = "isotropic"
    faintest: float = 0.0
    loudest: float = 0.0

    def __post_init__(self) -> None:
        check_ends("the variances of isotropic noise", self.faintest, self.loudest or math.inf)

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> Covariance:
        low, high = max(self.faintest, limits.minimum), min(self.loudest or math.inf, limits.maximum)
        levels = log_uniform((n, 1, 1, 1), VarianceRange(low, high), generator).expand(n, 1, *shape[1:])
        return SpatialCovariance(levels.contiguous(), shape[0])


@dataclass(frozen=True)
class CentreBox:
    """A centred square of side `smallest`…`largest` (0: up to the shorter side of the image)."""

    kind: ClassVar[str] = "box"
    smallest: int = 1
    largest: int = 0

    def __post_init__(self) -> None:
        check_ends("the sides of a box", self.smallest, self.largest or math.inf, least=1)

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> Covariance:
        _, height, width = shape
        largest = self.largest or min(height, width)
        side = torch.randint(self.smallest, largest + 1, (n, 1, 1), generator=generator)
        return SpatialCovariance(two_levels(centre_box(side, height, width), limits, generator), shape[0])


@dataclass(frozen=True)
class HalfMasks:
    """A band of 1…N full rows ("horizontal") or columns ("vertical") at either end, or `smallest`…`largest` of them."""

    kind: ClassVar[str] = "half"
    direction: str = "horizontal"
    smallest: int = 1
    largest: int = 0

    def __post_init__(self) -> None:
        check_choice("the direction of a half mask", self.direction, ("horizontal", "vertical"))
        check_ends("the depths of a half mask", self.smallest, self.largest or math.inf, least=1)

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> Covariance:
        _, height, width = shape
        length = height if self.direction == "horizontal" else width
        depth = torch.randint(self.smallest, (self.largest or length) + 1, (n, 1), generator=generator)
        at_end = torch.rand((n, 1), generator=generator) < 0.5
        index = torch.arange(length)[None, :]
        band = torch.where(at_end, index >= length - depth, index < depth)
        line = band[:, :, None] if self.direction == "horizontal" else band[:, None, :]
        return SpatialCovariance(two_levels(line.expand(n, height, width), limits, generator), shape[0])


@dataclass(frozen=True)
class RandomPixelMasks:
    """Each pixel inside with a probability drawn uniformly in [least, most] for the image."""

    kind: ClassVar[str] = "pixels"
    least: float = 0.05
    most: float = 0.95
    hidden: float = 0.0

    def __post_init__(self) -> None:
        check_ends("the share of random pixels", self.least, self.most, most=1)
        check_hidden(self.hidden)

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> Covariance:
        share = self.least + (self.most - self.least) * torch.rand((n, 1, 1), generator=generator)
        inside = torch.rand((n, *shape[1:]), generator=generator) < share
        return SpatialCovariance(two_levels(inside, limits, generator, self.hidden), shape[0])


@dataclass(frozen=True)
class Patches:
    """An independent variance for every b×b patch, b drawn from `sizes` (those that tile the image)."""

    kind: ClassVar[str] = "patches"
    sizes: tuple[int, ...] = (1, 2, 4, 7, 14, 28)

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> Covariance:
        channels, height, width = shape
        sizes = [b for b in self.sizes if height % b == 0 and width % b == 0]
        if not sizes:
            raise ValueError(f"none of the patch sizes {self.sizes} tiles a {height}×{width} image")
        choice = torch.randint(len(sizes), (n, 1, 1), generator=generator)
        levels = log_uniform((n, height, width), limits, generator)
        out = levels
        for index, b in enumerate(sizes):
            tiled = levels[:, ::b, ::b].repeat_interleave(b, dim=1).repeat_interleave(b, dim=2)
            out = torch.where(choice == index, tiled, out)
        return SpatialCovariance(out[:, None], channels)


@dataclass(frozen=True)
class Boxes:
    """One to `most` rectangles anywhere, their sides log-uniform from 2 pixels to the image's."""

    kind: ClassVar[str] = "boxes"
    most: int = 3
    hidden: float = 0.0

    def __post_init__(self) -> None:
        check_hidden(self.hidden)

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> Covariance:
        inside = torch.zeros(n, *shape[1:], dtype=torch.bool)
        count = torch.randint(1, self.most + 1, (n,), generator=generator)
        for number in range(self.most):
            rows, columns = (self._span(n, size, generator) for size in shape[1:])
            box = rows[:, :, None] & columns[:, None, :]
            inside |= box & (number < count)[:, None, None]
        return SpatialCovariance(two_levels(inside, limits, generator, self.hidden), shape[0])

    @staticmethod
    def _span(n: int, size: int, generator: torch.Generator | None) -> Tensor:
        length = 2 * (size / 2) ** torch.rand(n, 1, generator=generator)
        start = torch.rand(n, 1, generator=generator) * (size - length + 1)
        index = torch.arange(size)[None]
        return (index >= start.floor()) & (index < (start + length).floor())


@dataclass(frozen=True)
class Strokes:
    """Lines of some width: a few long ones (scratches) or many short ones in rows (writing), an even chance of either."""

    kind: ClassVar[str] = "strokes"
    scratches: int = 4
    letters: int = 40
    widest: float = 6.0
    hidden: float = 0.0

    def __post_init__(self) -> None:
        check_hidden(self.hidden)

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> Covariance:
        writing = torch.rand(n, generator=generator) < 0.5
        inside = torch.where(
            writing[:, None, None], self._writing(n, shape, generator), self._scratches(n, shape, generator)
        )
        return SpatialCovariance(two_levels(inside, limits, generator, self.hidden), shape[0])

    def _scratches(self, n: int, shape: Shape, generator: torch.Generator | None) -> Tensor:
        size = torch.tensor(shape[1:], dtype=torch.float32)
        ends = torch.rand(2, n, self.scratches, 2, generator=generator) * 1.4 * size - 0.2 * size
        width = self.widest ** torch.rand(n, self.scratches, generator=generator)
        drawn = torch.rand(n, self.scratches, generator=generator) < 0.6
        drawn[:, 0] = True
        return near_segments(ends[0], ends[1], torch.where(drawn, width, -1.0), shape)

    def _writing(self, n: int, shape: Shape, generator: torch.Generator | None) -> Tensor:
        height = 5 + 7 * torch.rand(n, 1, 1, generator=generator)  # of a letter, pixels
        size = torch.tensor(shape[1:], dtype=torch.float32)
        places = torch.rand(n, self.letters, 2, generator=generator) * size
        lines = (places[..., :1] / (1.8 * height)).floor() * 1.8 * height
        start = torch.cat(
            [lines + height * torch.rand(n, self.letters, 1, generator=generator), places[..., 1:]], dim=2
        )
        reach = height * (torch.rand(n, self.letters, 2, generator=generator) - 0.5) * torch.tensor([2.0, 1.2])
        width = (1 + torch.rand(n, 1, generator=generator)).expand(-1, self.letters)
        return near_segments(start, start + reach, width, shape)


def near_segments(start: Tensor, end: Tensor, width: Tensor, shape: Shape) -> Tensor:
    """[n, k, 2] ends (row, column) and [n, k] widths → [n, H, W]: pixels within half a width of any segment."""
    rows, columns = torch.meshgrid(torch.arange(shape[1]), torch.arange(shape[2]), indexing="ij")
    points = torch.stack([rows, columns], dim=-1).to(start.dtype)
    inside = torch.zeros(len(start), *shape[1:], dtype=torch.bool)
    for k in range(start.shape[1]):
        origin, along = start[:, None, None, k], (end - start)[:, None, None, k]
        share = ((points - origin) * along).sum(-1) / along.square().sum(-1).clamp_min(1e-6)
        nearest = origin + share.clamp(0, 1)[..., None] * along
        inside |= (points - nearest).norm(dim=-1) <= 0.5 * width[:, k, None, None]
    return inside


@dataclass(frozen=True)
class BayerPatterns:
    """A colour filter array: each pixel shows one of three colours, by one of the four 2×2 patterns; variances of their own by channel."""

    kind: ClassVar[str] = "bayer"
    hidden: float = 0.0

    def __post_init__(self) -> None:
        check_hidden(self.hidden)

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> Covariance:
        channels, height, width = shape
        if channels != 3:
            raise ValueError(f"a Bayer pattern needs colour images; these have {channels} channels")
        down, right = torch.randint(2, (2, n, 1, 1), generator=generator)
        rows = (torch.arange(height)[None, :, None] + down) % 2
        columns = (torch.arange(width)[None, None, :] + right) % 2
        seen = torch.stack([(rows == 0) & (columns == 0), rows != columns, (rows == 1) & (columns == 1)], dim=1)
        unseen, shown = level_pairs(n, limits, generator, self.hidden)[..., None, None, None]
        return SpatialCovariance(torch.where(seen, shown, unseen), channels)

"""Scanners: tomography, and cameras that see an image through patterns. Neither is diagonal in a basis of ours.

Tomography (parallel beam): at angle θ pixel (i, j) falls on the detector at t = (j − j₀)cos θ + (i − i₀)sin θ and is shared out linearly
between the two cells beside t. Lengths are in image widths: a ray's reading is its line integral, the mean of a constant image.

Patterns: y = Px, P of m rows.
    gaussian    independent N(0, 1/d) entries; a dense matrix, for d ≤ 1024
    scrambled   m random rows of the orthonormal Hadamard matrix on pixels of random sign: as good, in d·log d operations and no memory
    hadamard    the m coarsest rows of the Hadamard matrix itself: what a single-pixel camera shows
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from linverse.degradations.base import Size, size_of
from linverse.degradations.operators import GeneralOperator, Shape, positive_sigma
from linverse.rng import keyed_generator

LARGEST_DENSE = 1024  # pixels
Patterns = Literal["gaussian", "scrambled", "hadamard"]


def _check_size(x: Tensor, size: Size) -> None:
    if size_of(x) != tuple(size):
        raise ValueError(f"the image is {x.shape[2]}×{x.shape[3]}; this scanner is made for {size[0]}×{size[1]}")


@dataclass(frozen=True)
class Tomography(GeneralOperator):
    """Line integrals of images of `size` under `angles` directions, evenly spaced over a half turn: data are [B, C, angles, cells].

    >>> import torch, linverse as lv
    >>> lv.Tomography((28, 28), angles=30, sigma=0.05).operator(torch.ones(1, 1, 28, 28)).shape
    torch.Size([1, 1, 30, 42])
    """

    size: Size
    angles: int = 30
    sigma: float = 0.05

    def __post_init__(self) -> None:
        positive_sigma(self.sigma)
        if self.angles < 1 or min(self.size) < 1:
            raise ValueError(f"tomography takes at least one angle and one pixel; got {self.angles} and {self.size}")

    @property
    def cells(self) -> int:
        """Of the detector: the image's diagonal, and one on each side."""
        return math.ceil(math.hypot(*self.size)) + 2

    def operator(self, x: Tensor) -> Tensor:
        _check_size(x, self.size)
        index, weight = _rays(self.size, self.angles, self.cells)
        shared = x.flatten(2)[:, :, None, None] * weight.to(x)  # [B, C, 2, angles, pixels]
        out = x.new_zeros(*x.shape[:2], self.angles * self.cells)
        return out.index_add(2, index.flatten().to(x.device), shared.flatten(2)).unflatten(2, (self.angles, self.cells))

    def adjoint(self, r: Tensor) -> Tensor:
        if tuple(r.shape[2:]) != (self.angles, self.cells):
            raise ValueError(
                f"the sinogram has shape {tuple(r.shape)}; {self.angles} angles of a {self.size[0]}×{self.size[1]} image are "
                f"[batch, channels, {self.angles}, {self.cells}]"
            )
        index, weight = _rays(self.size, self.angles, self.cells)
        picked = r.flatten(2)[:, :, index.to(r.device)] * weight.to(r)
        return picked.sum(dim=(2, 3)).unflatten(2, self.size)

    def image_shape(self, raw: Tensor) -> Shape:
        return raw.shape[1], *self.size


@lru_cache(maxsize=4)
def _rays(size: Size, angles: int, cells: int) -> tuple[Tensor, Tensor]:
    """Which two cells every pixel falls on at every angle, and with what weight: [2, angles, pixels] each."""
    theta = torch.arange(angles, dtype=torch.float64)[:, None, None] * (math.pi / angles)
    rows, columns = (torch.arange(n, dtype=torch.float64) - (n - 1) / 2 for n in size)
    t = columns[None, None, :] * theta.cos() + rows[None, :, None] * theta.sin() + (cells - 1) / 2
    left = t.floor()
    share = (t - left).flatten(1)
    index = left.long().flatten(1) + cells * torch.arange(angles)[:, None]
    return torch.stack([index, index + 1]), torch.stack([1 - share, share]) / max(size)


@dataclass(frozen=True)
class CompressedSensing(GeneralOperator):
    """A `share` of as many numbers as there are pixels, each the image's product with a pattern: data are [B, C, m].

    >>> import torch, linverse as lv
    >>> lv.CompressedSensing((28, 28), share=0.25, sigma=0.05).operator(torch.ones(1, 1, 28, 28)).shape
    torch.Size([1, 1, 196])
    """

    size: Size
    share: float = 0.25
    sigma: float = 0.05
    patterns: Patterns = "gaussian"
    seed: int = 0

    def __post_init__(self) -> None:
        positive_sigma(self.sigma)
        if not 0 < self.share <= 1:
            raise ValueError(f"share is a share of the pixels in (0, 1]; got {self.share}")
        if self.patterns not in ("gaussian", "scrambled", "hadamard"):
            raise ValueError(f"patterns are {self.patterns!r}; they can be gaussian, scrambled or hadamard")
        if self.patterns == "gaussian" and self.pixels > LARGEST_DENSE:
            raise ValueError(
                f"gaussian patterns of a {self.size[0]}×{self.size[1]} image are a dense matrix; beyond {LARGEST_DENSE} pixels take "
                'patterns="scrambled", which needs none'
            )

    @property
    def pixels(self) -> int:
        return self.size[0] * self.size[1]

    @property
    def count(self) -> int:
        """m."""
        return max(1, round(self.share * self.pixels))

    def operator(self, x: Tensor) -> Tensor:
        _check_size(x, self.size)
        if self.patterns == "gaussian":
            return x.flatten(2) @ _gaussian_patterns(self.count, self.pixels, self.seed).to(x).mT
        rows, signs = (t.to(x.device) for t in self._hadamard())
        height, width = self.padded
        padded = torch.nn.functional.pad(x * signs.to(x), (0, width - self.size[1], 0, height - self.size[0]))
        return hadamard(padded.flatten(2))[:, :, rows]

    def adjoint(self, r: Tensor) -> Tensor:
        if r.shape[-1] != self.count:
            raise ValueError(
                f"the data have shape {tuple(r.shape)}; {self.count} patterns give [batch, channels, {self.count}]"
            )
        if self.patterns == "gaussian":
            return (r @ _gaussian_patterns(self.count, self.pixels, self.seed).to(r)).unflatten(2, self.size)
        rows, signs = (t.to(r.device) for t in self._hadamard())
        spread = r.new_zeros(*r.shape[:2], math.prod(self.padded)).index_copy(2, rows, r)
        image = hadamard(spread).unflatten(2, self.padded)
        return image[:, :, : self.size[0], : self.size[1]] * signs.to(r)

    @property
    def padded(self) -> Size:
        """The powers of two that hold the image: Hadamard matrices have no other sizes."""
        height, width = (1 << (n - 1).bit_length() for n in self.size)
        return height, width

    def _hadamard(self) -> tuple[Tensor, Tensor]:
        """Which rows, [m], and the sign of each pixel, [H, W]."""
        generator = keyed_generator("patterns", self.seed)
        if self.patterns == "hadamard":
            down, across = (sign_changes(n) / n for n in self.padded)
            coarse = (down[:, None] + across[None, :]).flatten()
            return coarse.argsort(stable=True)[: self.count], torch.ones(self.size)
        signs = 2.0 * torch.randint(2, self.size, generator=generator) - 1
        return torch.randperm(math.prod(self.padded), generator=generator)[: self.count], signs

    def image_shape(self, raw: Tensor) -> Shape:
        return raw.shape[1], *self.size


def patterns_for(size: Size) -> Patterns:
    """Gaussian ones as long as their matrix is small."""
    return "gaussian" if size[0] * size[1] <= LARGEST_DENSE else "scrambled"


@lru_cache(maxsize=4)
def _gaussian_patterns(count: int, pixels: int, seed: int) -> Tensor:
    noise = torch.randn(count, pixels, generator=keyed_generator("patterns", seed), dtype=torch.float64)
    return noise / math.sqrt(pixels)


@lru_cache(maxsize=8)
def sign_changes(length: int) -> Tensor:
    """Of each row of the Hadamard matrix, [n]: how fine a pattern it is."""
    return (hadamard(torch.eye(length)).sign().diff(dim=1) != 0).sum(dim=1)


def hadamard(x: Tensor) -> Tensor:
    """The orthonormal Walsh–Hadamard transform of the last axis, a power of two long; symmetric and its own inverse.

    >>> hadamard(torch.tensor([1.0, 0.0, 0.0, 0.0]))
    tensor([0.5000, 0.5000, 0.5000, 0.5000])
    """
    length, width = x.shape[-1], 1
    while width < length:
        pairs = x.unflatten(-1, (-1, 2, width))
        a, b = pairs.unbind(dim=-2)
        x = torch.stack([a + b, a - b], dim=-2).flatten(-3)
        width *= 2
    return x / math.sqrt(length)

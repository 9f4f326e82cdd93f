"""Stationary noise with reflecting boundaries, on the whole image or block by block: Q = orthonormal DCT-II in both axes.

A blur is exactly diagonal here iff its kernel has odd length, is even in each axis separately, and the image is continued by
half-sample symmetry (numpy's "symmetric"). On b×b blocks the box mean of ×b super-resolution is exactly diagonal: it measures
the DC coefficient of each block and nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from linverse.covariance.base import Covariance


@lru_cache(maxsize=64)
def dct_matrix(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[n, n], rows = orthonormal DCT-II vectors: D[k, j] = √(2/n)·cos(π k (j + ½)/n), D[0, j] = 1/√n."""
    with torch.inference_mode(False):  # the kept matrix must serve gradients even if its first use wants none
        index = torch.arange(n, dtype=torch.float64)
        matrix = torch.cos(math.pi * index[:, None] * (index[None, :] + 0.5) / n) * math.sqrt(2.0 / n)
        matrix[0] /= math.sqrt(2.0)
        return matrix.to(dtype=dtype, device=device)


@lru_cache(maxsize=64)
def block_dct_matrix(n: int, block: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[n, n]: the DCT of each run of `block` entries. A dense product of this size beats rearranging tiles."""
    with torch.inference_mode(False):  # a matrix kept from inference mode would break gradients later
        return torch.block_diag(*[dct_matrix(block, dtype, device)] * (n // block))


def dct_frequencies(height: int, width: int, like: Tensor) -> Tensor:
    """[2, H, W]: frequency of each DCT coefficient, cycles a pixel, in [0, ½)."""
    vertical = torch.arange(height, dtype=like.dtype, device=like.device) / (2 * height)
    horizontal = torch.arange(width, dtype=like.dtype, device=like.device) / (2 * width)
    return torch.stack(torch.meshgrid(vertical, horizontal, indexing="ij"))


@dataclass(frozen=True, eq=False, repr=False)
class DCTCovariance(Covariance):
    """Σ diagonal in the DCT-II basis of the whole image."""

    def analysis(self, x: Tensor) -> Tensor:
        rows, columns = (dct_matrix(n, x.dtype, x.device) for n in self.size)
        return rows @ x @ columns.mT

    def synthesis(self, z: Tensor) -> Tensor:
        rows, columns = (dct_matrix(n, z.dtype, z.device) for n in self.size)
        return rows.mT @ z @ columns

    @property
    def basis(self) -> str:
        return "dct"

    def frequencies(self) -> Tensor:
        return dct_frequencies(*self.size, self.log_variance)


@dataclass(frozen=True, eq=False, repr=False)
class BlockDCTCovariance(Covariance):
    """Σ diagonal in the DCT-II basis of `block`×`block` tiles; coefficient (u, v) of a tile sits at its pixel (u, v)."""

    block: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        height, width = self.size
        if self.block < 1 or height % self.block or width % self.block:
            raise ValueError(f"blocks of {self.block}×{self.block} do not tile a {height}×{width} image")

    def analysis(self, x: Tensor) -> Tensor:
        rows, columns = (block_dct_matrix(n, self.block, x.dtype, x.device) for n in self.size)
        return rows @ x @ columns.mT

    def synthesis(self, z: Tensor) -> Tensor:
        rows, columns = (block_dct_matrix(n, self.block, z.dtype, z.device) for n in self.size)
        return rows.mT @ z @ columns

    @property
    def basis(self) -> str:
        return f"block-dct-{self.block}"

    def frequencies(self) -> Tensor:
        return dct_frequencies(self.block, self.block, self.log_variance)

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


LARGEST_PRODUCT = 640  # pixels a side up to which a product of matrices is as fast as Fourier transforms


def dct2(x: Tensor) -> Tensor:
    """The orthonormal DCT-II of the last two dimensions."""
    height, width = x.shape[-2:]
    down = _by_fourier(x) if height > LARGEST_PRODUCT else dct_matrix(height, x.dtype, x.device) @ x
    return _by_fourier(down.mT).mT if width > LARGEST_PRODUCT else down @ dct_matrix(width, x.dtype, x.device).mT


def inverse_dct2(z: Tensor) -> Tensor:
    """The inverse, and transpose, of `dct2`."""
    height, width = z.shape[-2:]
    down = _back_by_fourier(z) if height > LARGEST_PRODUCT else dct_matrix(height, z.dtype, z.device).mT @ z
    return _back_by_fourier(down.mT).mT if width > LARGEST_PRODUCT else down @ dct_matrix(width, z.dtype, z.device)


def _by_fourier(x: Tensor) -> Tensor:
    """Along the next to last dimension.

    Even entries, then odd ones from the end, have a Fourier transform that, turned by πk/2n, has the DCT as its real part.
    """
    folded = torch.cat([x[..., ::2, :], x[..., 1::2, :].flip(-2)], dim=-2)
    return (torch.fft.fft(folded, dim=-2) * _turns(x.shape[-2], x.dtype, x.device)).real


def _back_by_fourier(z: Tensor) -> Tensor:
    """The transpose: Fourier matrices are symmetric."""
    n = z.shape[-2]
    folded = torch.fft.fft(z * _turns(n, z.dtype, z.device), dim=-2).real
    first, last = folded.split([(n + 1) // 2, n // 2], dim=-2)
    paired = torch.stack([first[..., : n // 2, :], last.flip(-2)], dim=-2).flatten(-3, -2)
    return torch.cat([paired, first[..., n // 2 :, :]], dim=-2)


@lru_cache(maxsize=64)
def _turns(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """√(2/n)·exp(−iπk/2n), [n, 1], the first by √½ less."""
    with torch.inference_mode(False):
        angle = -math.pi * torch.arange(n, dtype=torch.float64)[:, None] / (2 * n)
        turns = torch.polar(torch.full_like(angle, math.sqrt(2.0 / n)), angle)
        turns[0] /= math.sqrt(2.0)
        return turns.to(dtype=dtype.to_complex(), device=device)


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
        return dct2(x)

    def synthesis(self, z: Tensor) -> Tensor:
        return inverse_dct2(z)

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

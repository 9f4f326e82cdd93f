"""Stationary noise with periodic boundaries: Q = Re F − Im F of the joint two-dimensional orthonormal DFT (Hartley).

Q is real, symmetric and its own inverse for every H×W. Every stationary covariance is diagonal in it, with an even
spectrum λ(k) = λ(−k). (One-dimensional Hartley transforms per axis are *not* this: they mix k and its mirror image.)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from linverse.covariance.base import Covariance


def hartley(x: Tensor) -> Tensor:
    """The two-dimensional orthonormal Hartley transform of the last two axes."""
    spectrum = torch.fft.fft2(x, norm="ortho")
    return spectrum.real - spectrum.imag


def grid_frequencies(height: int, width: int, like: Tensor) -> Tensor:
    """[2, H, W]: signed vertical and horizontal frequency of each DFT coefficient, cycles a pixel."""
    vertical = torch.fft.fftfreq(height, dtype=like.dtype, device=like.device)
    horizontal = torch.fft.fftfreq(width, dtype=like.dtype, device=like.device)
    return torch.stack(torch.meshgrid(vertical, horizontal, indexing="ij"))


def mirrored(values: Tensor) -> Tensor:
    """values(−k) for values on the DFT grid: a spectrum is stationary when this changes nothing."""
    return torch.roll(values.flip(-2, -1), shifts=(1, 1), dims=(-2, -1))


@dataclass(frozen=True, eq=False, repr=False)
class FourierCovariance(Covariance):
    """Σ diagonal in the Hartley basis."""

    def analysis(self, x: Tensor) -> Tensor:
        return hartley(x)

    def synthesis(self, z: Tensor) -> Tensor:
        return hartley(z)

    @property
    def basis(self) -> str:
        return "fourier"

    def frequencies(self) -> Tensor:
        return grid_frequencies(*self.size, self.log_variance)

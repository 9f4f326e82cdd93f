"""Bases in which the stationary Gaussian counts as diagonal, and what it makes of noise there, coefficient by coefficient.

The DCT of the whole picture, and the Hartley transform for periodic noise, both of opponent colours (luma and two chromas); and how much of
a DCT vector lies where in the other bases.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from linverse.covariance import Covariance, FourierCovariance
from linverse.covariance.dct import block_dct_matrix, dct2, dct_frequencies, dct_matrix, inverse_dct2
from linverse.covariance.fourier import grid_frequencies, hartley
from linverse.models.bases.spectrum import MEAN_RADIUS
from linverse.models.bases.tree import COARSE_SIDE, TOLERATED

COARSE = 1 / COARSE_SIDE  # see `log_tolerance`; cycles per pixel

Correction = tuple[Tensor, Tensor]  # Δ [B], float64, and ∂Δ/∂w as an image


@lru_cache(maxsize=8)
def opponent_colours(channels: int) -> Tensor:
    """[C, C] orthonormal, float64: luma and two chromas for colour, the identity otherwise."""
    if channels != 3:
        return torch.eye(channels, dtype=torch.float64)
    rows = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, -2.0, 1.0]], dtype=torch.float64)
    return rows / rows.norm(dim=1, keepdim=True)


@lru_cache(maxsize=64)
def block_shares(size: int, block: int) -> Tensor:
    """[N, b]: the share of a DCT vector of length N that lies in coefficient u of its b-blocks, over all blocks; rows add up to one."""
    double, cpu = torch.float64, torch.device("cpu")
    overlap = dct_matrix(size, double, cpu) @ block_dct_matrix(size, block, double, cpu).mT
    return overlap.square().unflatten(1, (-1, block)).sum(1)


@lru_cache(maxsize=64)
def fourier_shares(size: int) -> Tensor:
    """[N, N]: the share of a DCT vector of length N that lies at each DFT frequency; rows add up to one."""
    return torch.fft.fft(dct_matrix(size, torch.float64, torch.device("cpu")), norm="ortho").abs().square()


def opponent(x: Tensor, *, back: bool = False) -> Tensor:
    """Colour channels [B, C, H, W] → opponent colours, or back."""
    return torch.einsum("co,bcyx->boyx" if back else "oc,bcyx->boyx", opponent_colours(x.shape[1]).to(x), x)


class Frame(ABC):
    """A basis in which C counts as diagonal: images ↔ coefficients of opponent colours, and the radius of their frequencies."""

    @abstractmethod
    def coefficients(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def image(self, z: Tensor) -> Tensor: ...

    @abstractmethod
    def radius(self, size: tuple[int, int]) -> Tensor: ...


class DctFrame(Frame):
    """The DCT of the whole picture."""

    def coefficients(self, x: Tensor) -> Tensor:
        return dct2(opponent(x))

    def image(self, z: Tensor) -> Tensor:
        return opponent(inverse_dct2(z), back=True)

    def radius(self, size: tuple[int, int]) -> Tensor:
        return torch.hypot(*dct_frequencies(*size, torch.zeros((), dtype=torch.float64)))


class HartleyFrame(Frame):
    """The basis of periodic noise."""

    def coefficients(self, x: Tensor) -> Tensor:
        return hartley(opponent(x))

    def image(self, z: Tensor) -> Tensor:
        return opponent(hartley(z), back=True)

    def radius(self, size: tuple[int, int]) -> Tensor:
        return torch.hypot(*grid_frequencies(*size, torch.zeros((), dtype=torch.float64)))


DCT, HARTLEY = DctFrame(), HartleyFrame()


@lru_cache(maxsize=16)
def log_tolerance(frame: Frame, size: tuple[int, int]) -> Tensor:
    """log of how much less than the mean coefficient one may be known before it is damped, [H, W], float64.

    4 from a wavelength of 16 pixels on, and 4(16f)² below: what a network errs by is alike over some pixels around, so that it adds up in
    coarser waves; without the square the mean grey value of a picture of d pixels would be moved by √d times that.
    """
    radius = frame.radius(size)
    radius[0, 0] = MEAN_RADIUS / math.sqrt(math.prod(size))
    return math.log(TOLERATED) + 2 * (radius / COARSE).clamp_max(1).log()


@dataclass(frozen=True)
class Shrinkage:
    """What a diagonal Gaussian of variances ρC̄ makes of noise with φ and 1−φ (each of its frame's shape, by opponent colour)."""

    frame: Frame
    ratio: Tensor
    left: Tensor
    lost: Tensor

    @property
    def denominator(self) -> Tensor:
        return self.lost + self.left * self.ratio

    def turned(self, z: Tensor) -> Tensor:
        """A ŵ of coefficients ŵ."""
        return z * ((1 - self.ratio) / self.denominator)

    def energy(self, z: Tensor, turned: Tensor) -> Tensor:
        """½ Σ_k { ŵ_k² A_k + log(1 − φ_k + φ_kρ_k) }, [B], float64."""
        quadratic = (z * turned).flatten(1).sum(dim=1, dtype=torch.float64)
        return 0.5 * (quadratic + self.denominator.log().expand_as(z).flatten(1).sum(dim=1, dtype=torch.float64))

    def correction(self, white: Tensor) -> Correction:
        """Δ and ∂Δ/∂w of an image w."""
        z = self.frame.coefficients(white)
        turned = self.turned(z)
        return self.energy(z, turned), self.frame.image(turned)

    @property
    def measured(self) -> Tensor:
        """tr C(C+Σ)⁻¹/d, [B, 1, 1, 1]."""
        return (self.left * self.ratio / self.denominator).mean(dim=(1, 2, 3), keepdim=True)

    def steadied(self, x: Tensor) -> Tensor:
        """An image less what of it is hardly known: each coefficient times (1 + (V·V/C ÷ t·V̄)⁴)^(−⅛).

        V is its posterior variance, V̄ the mean of V, t the tolerance at its frequency.
        """
        unknown = self.lost / self.denominator
        variance = self.ratio * unknown
        excess = (variance * unknown).log() - variance.mean(dim=(1, 2, 3), keepdim=True).log()
        tolerated = log_tolerance(self.frame, (x.shape[2], x.shape[3])).to(x)
        return self.frame.image(self.frame.coefficients(x) * torch.exp(-0.125 * F.softplus(4 * (excess - tolerated))))


def on_dct_grid(values: Tensor, cov: Covariance) -> Tensor:
    """d_kᵀ(Q diag(v) Qᵀ)d_k for every DCT vector d_k: values of log λ's shape → [B, c, H, W] on the DCT grid."""
    height, width = cov.size
    if isinstance(cov, FourierCovariance):
        rows, columns = (fourier_shares(n).to(values) for n in (height, width))
        return rows @ mirrored_mean(values) @ columns.mT
    bh, bw = cov.frequencies().shape[1:]
    rows, columns = block_shares(height, bh).to(values), block_shares(width, bw).to(values)
    return rows @ cov.blocks(values).mean(dim=(2, 4)) @ columns.mT


def spread_over(power: Tensor, cov: Covariance) -> Tensor:
    """The adjoint: powers on the DCT grid [1, c, H, W] → variances of the coefficients in Σ's basis (those of a mean block)."""
    height, width = cov.size
    if isinstance(cov, FourierCovariance):
        rows, columns = (fourier_shares(n).to(power) for n in (height, width))
        return mirrored_mean(rows.mT @ power @ columns)
    bh, bw = cov.frequencies().shape[1:]
    rows, columns = block_shares(height, bh).to(power), block_shares(width, bw).to(power)
    block = rows.mT @ power @ columns * (bh * bw / (height * width))
    return block.tile(1, 1, height // bh, width // bw)


def mirrored_mean(values: Tensor) -> Tensor:
    """The mean of a function on the DFT grid over (±k_y, ±k_x): a DCT vector does not know the sign of its frequencies."""
    across = torch.roll(values.flip(-1), 1, -1)
    both = 0.5 * (values + across)
    return 0.5 * (both + torch.roll(both.flip(-2), 1, -2))

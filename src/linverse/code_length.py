"""How many bits would a picture take? The code length of 8-bit images under an energy (mathematics §13).

A byte b stands for a cell of values: [b−½, b+½]/255, reaching to −∞ for b = 0 and to +∞ for b = 255. For any q inside of the cell
    −log₂ P(b) ≤ E_q[U(y, λI) + log q(y|b)] / log 2,
a true upper bound if exp(−U) integrates to one; λ is the energy's floor. The best q that is independent from value to value is
exp(−U) itself, along each value with the others at their means: about N(c, 1/h) cut to the cell, with the curvature
h = (1 − Var[x|y]/λ)/λ and c where that parabola has its lowest point. Both are read off the energy, at the bytes and once more at q's mean
(a q as narrow as the noise, N(b, λ), costs 0.15 bits of photographs more: an energy that does not know the lattice of bytes is nearly flat
across a cell). Divided by the number of values it is the bits per dimension that likelihoods are published in, and can be set beside PNG,
WebP and JPEG-XL on the same pictures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.energy import Energy, check_shapes, evaluate_in_basis, floor_covariance
from linverse.rng import keyed_generator

HALF_CELL = 0.5 / 255
ROUNDS = 2  # evaluations that q is made of
LEAST_CURVATURE = 0.1  # of 1/λ
BEYOND = 2.0  # standard deviations beyond the cell that c may lie


@dataclass(frozen=True)
class CodeLength:
    """Bits per dimension of each image [B], the mean over draws of y; `error` is its standard error over draws."""

    bits: Tensor
    error: Tensor

    @property
    def mean(self) -> float:
        return float(self.bits.mean())

    def __repr__(self) -> str:
        spread = float(self.bits.std()) / math.sqrt(len(self.bits)) if len(self.bits) > 1 else float(self.error.mean())
        return f"CodeLength({self.mean:.3f} ± {spread:.3f} bits/dim over {len(self.bits)} images)"


def code_length(
    energy: Energy, x: Tensor, draws: int = 4, *, generator: torch.Generator | None = None, chunk: int = 64
) -> CodeLength:
    """An upper bound of the bits per dimension that images of bytes take, x = b/255 in [0, 1], [B, C, H, W].

    >>> import torch, linverse as lv
    >>> from linverse.code_length import code_length
    >>> from linverse.data.examples import load_examples
    >>> boots = load_examples("fashion-mnist").batch(torch.arange(2))
    >>> bool(code_length(lv.load("fashion-mnist"), boots).mean < 5)
    True
    """
    _check_bytes(x)
    generator = generator or keyed_generator("code length")
    parts = [_draws(energy, part, draws, generator) for part in x.split(chunk)]
    bits = torch.cat(parts, dim=1) / (x[0].numel() * math.log(2))
    return CodeLength(bits.mean(0), bits.std(0) / math.sqrt(draws) if draws > 1 else torch.full_like(bits[0], math.nan))


def are_bytes(x: Tensor) -> bool:
    """Whether all values are k/255 in [0, 1]."""
    return float((x * 255 - (x * 255).round()).abs().max()) <= 1e-3 and float(x.min()) >= 0 and float(x.max()) <= 1


def _check_bytes(x: Tensor) -> None:
    if not are_bytes(x):
        raise ValueError("a code length is that of 8-bit images: give bytes/255, values k/255 in [0, 1]")


def _draws(energy: Energy, x: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    """U(y, λI) + log q(y|b), nats, [draws, n]."""
    cov = floor_covariance(energy, x).expand(len(x))
    check_shapes(energy, x, cov)
    noise, rows = best_noise(energy, x, cov), []
    for _ in range(draws):
        drawn, log_density = noise.draw(generator)
        with torch.no_grad():
            rows.append(energy((x.double() + drawn).to(x.dtype), cov) + log_density.sum(dim=(1, 2, 3)))
    return torch.stack(rows)


@dataclass(frozen=True)
class CellNoise:
    """What is added to bytes: for each value N(centre, std²), cut to what its cell has on either side, all float64."""

    centre: Tensor
    std: Tensor
    low: Tensor
    high: Tensor

    @classmethod
    def around(cls, x: Tensor, centre: Tensor, std: Tensor) -> CellNoise:
        """For bytes x; a centre far beyond the cell is brought nearer, where a cut normal is still well told."""
        edge = torch.full_like(x, HALF_CELL, dtype=torch.float64)
        low = torch.where(x <= 0.5 * HALF_CELL, -math.inf, -edge)
        high = torch.where(x >= 1 - 0.5 * HALF_CELL, math.inf, edge)
        return cls(torch.clamp(centre, low - BEYOND * std, high + BEYOND * std), std, low, high)

    def _ends(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The cell's ends in standard deviations, the normal's distribution below the first, its mass between them."""
        first, last = (self.low - self.centre) / self.std, (self.high - self.centre) / self.std
        below = torch.special.ndtr(first)
        return first, last, below, torch.special.ndtr(last) - below

    def mean(self) -> Tensor:
        first, last, _, mass = self._ends()
        density_left, density_right = (torch.exp(-0.5 * t.square()) / math.sqrt(2 * math.pi) for t in (first, last))
        return self.centre + self.std * (density_left - density_right) / mass

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Noise, by the inverse of its distribution, and its log density."""
        _, _, below, mass = self._ends()
        uniform = torch.rand(mass.shape, generator=generator, dtype=torch.float64).clamp(1e-12, 1 - 1e-12)
        normal = torch.special.ndtri(below + mass * uniform.to(mass.device))
        log_density = -0.5 * normal.square() - (math.sqrt(2 * math.pi) * self.std * mass).log()
        return self.centre + self.std * normal, log_density


def best_noise(energy: Energy, x: Tensor, cov: Covariance) -> CellNoise:
    """q of bytes x under white noise: c and h from the energy's gradient and posterior variance."""
    variance = cov.variance.double().mean(dim=(1, 2, 3), keepdim=True)
    offset = torch.zeros_like(x, dtype=torch.float64)
    for _ in range(ROUNDS):
        found = evaluate_in_basis(energy, cov.analysis((x.double() + offset).to(x.dtype)), cov).detach()
        known = found.variance_by_pixel.double() / variance
        std = (variance / (1 - known).clamp_min(LEAST_CURVATURE)).sqrt().expand_as(offset)
        noise = CellNoise.around(x, offset - std.square() * found.score.double(), std)
        offset = noise.mean()
    return noise

"""How many bits would a picture take? The code length of 8-bit images under an energy (mathematics §13).

A byte b stands for a cell of values: [b−½, b+½]/255, reaching to −∞ for b = 0 and to +∞ for b = 255. For any q inside of the cell
    −log₂ P(b) ≤ E_q[U(y, λI) + log q(y|x)] / log 2,
a true upper bound if exp(−U) integrates to one. q is N(x, λ) cut to the cell, λ the energy's floor. Divided by the number of values it is
the bits per dimension that likelihoods are published in, and can be set beside PNG, WebP and JPEG-XL on the same pictures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from linverse.energy import Energy, check_shapes, floor_covariance
from linverse.rng import keyed_generator

HALF_CELL = 0.5 / 255


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


@torch.no_grad()
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
    """U(y, λI) + log q(y|x), nats, [draws, n]."""
    cov = floor_covariance(energy, x).expand(len(x))
    check_shapes(energy, x, cov)
    std = math.sqrt(energy.range.minimum)
    rows = []
    for _ in range(draws):
        noise, log_mass = truncated_noise(x, std, generator)
        log_density = -0.5 * (noise / std).square() - math.log(std * math.sqrt(2 * math.pi)) - log_mass
        y = (x.double() + noise).to(x.dtype)
        rows.append(energy(y, cov) + log_density.sum(dim=(1, 2, 3)))
    return torch.stack(rows)


def truncated_noise(x: Tensor, std: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Noise N(0, std²) cut to each value's cell, by the inverse of its distribution, and the log of the cell's mass; float64."""
    edge = torch.full_like(x, HALF_CELL, dtype=torch.float64)
    low = torch.where(x <= 0.5 * HALF_CELL, torch.full_like(edge, -math.inf), -edge)
    high = torch.where(x >= 1 - 0.5 * HALF_CELL, torch.full_like(edge, math.inf), edge)
    below, above = torch.special.ndtr(low / std), torch.special.ndtr(high / std)
    uniform = torch.rand(x.shape, generator=generator, dtype=torch.float64)
    noise = torch.special.ndtri(below + (above - below) * uniform.clamp(1e-12, 1 - 1e-12)) * std
    return noise, (above - below).log()

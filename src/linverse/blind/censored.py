"""Pictures of b bits as noisy images: what clipping and rounding leave of y = x + σn (mathematics §12).

A file holds clip(round(y/δ))·δ. Rounding adds δ²/12 to the variance. A pixel at the end of the scale says only y ≤ δ/2 or y ≥ 1 − δ/2: its
y is not known, and is drawn from exp(−U(y, λI)) on that half-line, the others being held. With z the image at the level aλ, 0 < a < 1,
    z | y   ≈ N(ay + (1−a)E[x|y], a(1−a)λ + (1−a)²Var[x|y])      one step down the isotropic path, "matched" (mathematics §7)
    y | z   = N(z, (1−a)λ) on the half-line                       exact, pixel by pixel
is a Gibbs sampler that costs one evaluation of the energy a sweep and no search over x. It is exact where pixels are independent and
Gaussian, and as a → 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from linverse.covariance import identity
from linverse.energy import Energy, Evaluation, evaluate_in_basis
from linverse.rng import normal_like

SHRINK = 0.5  # a


@dataclass(frozen=True)
class CensoredImages:
    """Images y [B, C, H, W]; where `dark` they are at most `half`, where `bright` at least 1 − `half`, and not known otherwise."""

    y: Tensor
    dark: Tensor
    bright: Tensor
    step: float

    @classmethod
    def of(cls, pixels: Tensor, step: float | None) -> CensoredImages:
        """Pixels as a file of levels `step` apart has them (None: of floating point, nothing is clipped)."""
        if step is None:
            nowhere = torch.zeros_like(pixels, dtype=torch.bool)
            return cls(pixels, nowhere, nowhere, 0.0)
        return cls(pixels, pixels <= 0.25 * step, pixels >= 1 - 0.25 * step, step)

    @property
    def half(self) -> float:
        """Half of the distance between two levels."""
        return 0.5 * self.step

    @property
    def rounding_variance(self) -> float:
        """δ²/12."""
        return self.step**2 / 12

    @property
    def censored(self) -> Tensor:
        """True where y is not known."""
        return self.dark | self.bright

    @property
    def share(self) -> float:
        """How much of the images is not known."""
        return float(self.censored.double().mean())

    def drawn(self, centre: Tensor, variance: float, generator: torch.Generator | None) -> CensoredImages:
        """The unknown pixels afresh, from N(centre, variance) on their half-lines."""
        root = math.sqrt(variance)
        below = centre + root * truncated_normal((self.half - centre) / root, generator)
        above = centre - root * truncated_normal((centre - (1 - self.half)) / root, generator)
        return replace(self, y=torch.where(self.dark, below, torch.where(self.bright, above, self.y)))

    def with_noise(self, variance: float, generator: torch.Generator | None) -> CensoredImages:
        """N(0, variance) on the pixels that are known: what lifts them to an energy's floor."""
        noisy = self.y + math.sqrt(variance) * normal_like(self.y, generator)
        return replace(self, y=torch.where(self.censored, self.y, noisy))


def truncated_normal(bound: Tensor, generator: torch.Generator | None) -> Tensor:
    """v ~ N(0, 1) given v ≤ bound, by inverting the distribution in logarithms; below −6 by its exponential tail."""
    device = generator.device if generator is not None else bound.device
    u = torch.rand(bound.shape, generator=generator, dtype=torch.float64, device=device).to(bound.device)
    u, b = u.clamp_min(1e-12), bound.double()
    ordinary = torch.special.ndtri((u * torch.special.ndtr(b.clamp_min(-6))).clamp_min(1e-300))
    tail = b + u.log() / b.abs().clamp_min(6.0)
    return torch.where(b < -6, tail, ordinary).to(bound)


def sweep(
    energy: Energy, images: CensoredImages, variance: float, generator: torch.Generator | None, shrink: float = SHRINK
) -> tuple[Evaluation, CensoredImages]:
    """U and its derivatives at these y under white noise λ = `variance`, and the images with their unknown pixels drawn anew."""
    cov = identity("spatial", images.y.shape, images.y).isotropic(variance).expand(len(images.y))
    found = evaluate_in_basis(energy, images.y, cov)
    if not bool(images.censored.any()):
        return found, images
    spread = found.variance_by_pixel.clamp(0, variance)
    mean = shrink * images.y + (1 - shrink) * found.mean
    between = shrink * (1 - shrink) * variance + (1 - shrink) ** 2 * spread
    z = mean + between.sqrt() * normal_like(mean, generator)
    return found, images.drawn(z, (1 - shrink) * variance, generator)

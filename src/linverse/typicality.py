"""Is this measurement like what the model knows? Error bars mean little without an answer.

Typicality compares U(y, Σ) with its distribution over *held-out* images under the same Σ: y = x + N(0, Σ). Where y's energy lies in
either tail, the image is unlike the training data (too high), or the noise is not what was said (too low, for white noise that is
overstated). For y to be judged alone its rank among n reference energies is a p-value, uniform if y is typical.

A Σ of an unusual shape is judged by the covariance score: on held-out images whose noise is known, E[κ] = 0 and the regression of
½(1−ε²) on κ has slope 1 wherever the model is calibrated.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.energy import Energy, evaluate, group_mean
from linverse.rng import normal_like


@dataclass(frozen=True)
class Typicality:
    """Where energies [B] lie among those of reference images: `z`-scores and two-sided `p` values, [B]."""

    energy: Tensor
    reference: Tensor
    z: Tensor
    p: Tensor

    def unusual(self, level: float = 0.01) -> Tensor:
        """[B], True where the measurement is unlike the reference; n references resolve levels down to 2/(n+1)."""
        return self.p <= level

    def describe(self, level: float = 0.01) -> list[str]:
        """A sentence for each measurement."""
        lines = []
        for z, p, odd in zip(self.z.tolist(), self.p.tolist(), self.unusual(level).tolist(), strict=True):
            if not odd:
                lines.append(f"typical of what the model knows (p = {p:.2f})")
            elif z > 0:
                lines.append(
                    f"unlike what the model knows: less probable than held-out images by {z:.1f} sd (p = {p:.3f})"
                )
            else:
                lines.append(
                    f"suspiciously probable: {-z:.1f} sd below held-out images (p = {p:.3f}); is the noise as stated?"
                )
        return lines


@torch.no_grad()
def typicality(
    energy: Energy,
    y: Tensor,
    cov: Covariance,
    reference: Tensor,
    generator: torch.Generator | None = None,
    chunk: int = 128,
) -> Typicality:
    """Compare U(y, Σ) of each row with held-out images `reference` [n, C, H, W] under that Σ (one for all rows, or one a row)."""
    if len(reference) < 20:
        raise ValueError(f"typicality needs at least 20 held-out images to compare with; got {len(reference)}")
    observed = energy(y, cov.expand(len(y)) if cov.batch == 1 else cov)
    shared = cov.batch == 1 or bool((cov.log_variance == cov.log_variance[:1]).all())
    groups = [cov[:1]] if shared else [cov[i : i + 1] for i in range(cov.batch)]
    expected = torch.stack([_energies(energy, reference, group, generator, chunk) for group in groups])  # [1 or B, n]
    z = (observed - expected.mean(dim=1)) / expected.std(dim=1)
    count = expected.shape[1]
    below = (expected < observed[:, None]).sum(dim=1)
    tail = torch.minimum(below, count - below).double()
    return Typicality(observed, expected, z, (2 * (tail + 1) / (count + 1)).clamp_max(1.0))


def _energies(energy: Energy, x: Tensor, cov: Covariance, generator: torch.Generator | None, chunk: int) -> Tensor:
    values = []
    for part in x.split(chunk):
        noise = cov.expand(len(part))
        values.append(energy(part + noise.colour(normal_like(part, generator)), noise))
    return torch.cat(values)


@dataclass(frozen=True)
class Calibration:
    """How well an energy knows a Σ: `bias` = E[κ] (0), `slope` of ½(1−ε²) on κ (1), and their standard errors over images."""

    bias: float
    bias_error: float
    slope: float
    slope_error: float


def calibration(
    energy: Energy, cov: Covariance, reference: Tensor, generator: torch.Generator | None = None
) -> Calibration:
    """Judge one Σ (batch 1) on held-out images with known noise."""
    cov = cov.expand(len(reference))
    noise = normal_like(reference, generator)
    kappa = evaluate(energy, reference + cov.colour(noise), cov).cov_score.double()
    target = group_mean(0.5 * (1 - noise.double().square()), cov)
    means = kappa.mean(dim=(1, 2, 3))
    products, squares = ((kappa * other).mean(dim=(1, 2, 3)) for other in (target, kappa))
    slope = products.sum() / squares.sum()
    root = len(reference) ** 0.5
    slope_error = (products - slope * squares).std() / (root * squares.mean())
    return Calibration(float(means.mean()), float(means.std()) / root, float(slope), float(slope_error))

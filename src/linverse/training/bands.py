"""Self-tests that cannot hide (mathematics §15): the covariance score by band of noise, measured and hidden apart, family by family.

At λ ≫ C the target ½(1−ε²) *is* κ up to C/λ: hidden coefficients alone push a pooled slope to 1. So coefficients are sorted by λ/C_i, C_i
the images' own variance of that coefficient, and told apart by whether they were measured. For each group, over images with known noise:
    mean         E[κ] = 0
    slope        of ½(1−ε²) on κ: 1
    variance     E[(x−x̂)²]/E[λ(1−2κ−e²)]: 1
each with its standard error over images; a slope whose error exceeds `TESTABLE` says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.degradations import (
    Box,
    Degradation,
    Denoising,
    GaussianBlur,
    HalfMask,
    MotionBlur,
    PowerLawNoise,
    RandomPixels,
    SuperResolution,
)
from linverse.energy import Energy, evaluate, group_mean
from linverse.metrics.bootstrap import jackknife_error
from linverse.progress import Progress, silent
from linverse.rng import keyed_generator, normal_like

EDGES = (1e-3, 1e-1, 10.0)  # of λ/C
BANDS = ("λ < 10⁻³C", "10⁻³C … 10⁻¹C", "10⁻¹C … 10C", "λ > 10C")
TESTABLE = 0.03  # the largest standard error of a slope that says something


@dataclass(frozen=True)
class NoiseExample:
    """Noise that a model is tested with, and the kinds of training noise by which it counts as seen."""

    name: str
    make: Callable[[tuple[int, int]], Degradation]
    kinds: tuple[str, ...]


def _side(size: tuple[int, int], share: float) -> int:
    return max(1, round(share * min(size)))


NOISE_EXAMPLES = (  # the experiment `one-shot` judges means and error bars under the same
    NoiseExample("white noise 0.1", lambda size: Denoising(0.1), ("isotropic",)),
    NoiseExample("white noise 0.5", lambda size: Denoising(0.5), ("isotropic",)),
    NoiseExample("box", lambda size: Box(_side(size, 5 / 7), sigma=0.01), ("box", "boxes")),
    NoiseExample("half", lambda size: HalfMask(sigma=0.01), ("half", "boxes")),
    NoiseExample("70 % missing", lambda size: RandomPixels(0.7, sigma=0.01), ("pixels",)),
    NoiseExample("blur 0.8", lambda size: GaussianBlur(0.8, sigma=0.01), ("gaussian-blur",)),
    NoiseExample("blur 1.5", lambda size: GaussianBlur(1.5, sigma=0.01), ("gaussian-blur",)),
    NoiseExample("×4", lambda size: SuperResolution(4, sigma=0.01), ("super-resolution",)),
    NoiseExample("motion 0.002", lambda size: MotionBlur(_side(size, 15 / 64), sigma=0.002), ("motion-blur",)),
    NoiseExample("motion 0.02", lambda size: MotionBlur(_side(size, 15 / 64), sigma=0.02), ("motion-blur",)),
    NoiseExample("pink noise 0.1", lambda size: PowerLawNoise(0.1, exponent=1.0), ()),
    NoiseExample("blue noise 0.1", lambda size: PowerLawNoise(0.1, exponent=-1.0), ()),
)


@dataclass(frozen=True)
class BandTest:
    """One group of coefficients. Standard errors are over images; `count` is the mean number of coefficients of an image."""

    family: str
    seen: bool
    measured: bool
    band: str
    count: float
    mean: float
    mean_error: float
    slope: float
    slope_error: float
    variance_ratio: float
    variance_error: float

    @property
    def testable(self) -> bool:
        """Whether the slope says something."""
        return self.slope_error <= TESTABLE

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def row(self) -> tuple[str, str, str, str, str]:
        """Family, group, mean, slope and variance ratio, as a person reads them."""
        group = f"{'measured' if self.measured else 'hidden'}, {self.band}"
        slope = f"{self.slope:.2f} ± {self.slope_error:.2f}" if self.testable else "not testable"
        name = self.family if self.seen else f"{self.family} (unseen)"
        return (
            name,
            group,
            f"{self.mean:+.3f} ± {self.mean_error:.3f}",
            slope,
            f"{self.variance_ratio:.2f} ± {self.variance_error:.2f}",
        )


def band_tests(
    energy: Energy,
    x: Tensor,
    kinds: tuple[str, ...],
    families: tuple[NoiseExample, ...] = NOISE_EXAMPLES,
    *,
    chunk: int = 32,
    progress: Progress = silent,
) -> list[BandTest]:
    """Every group of every family whose basis the energy knows, on held-out images x; `kinds` are those of its training noise."""
    tests = []
    for number, family in enumerate(families):
        cov, measured = _noise(energy, family, x)
        if cov is not None:
            seen = any(kind in kinds for kind in family.kinds)
            sums = torch.cat(
                [_sums(energy, part, cov, measured, family.name, i) for i, part in enumerate(x.split(chunk))]
            )
            tests += _summaries(sums, family.name, seen)
        progress("self-test by band", number + 1, len(families))
    return tests


def _noise(energy: Energy, family: NoiseExample, x: Tensor) -> tuple[Covariance | None, Tensor]:
    """Σ of a family (batch 1) and what it measured, or None where the energy does not know its basis."""
    try:
        measurement = family.make((x.shape[2], x.shape[3])).measure(x[:1].clamp(0, 1), keyed_generator("band"))
    except ValueError:  # a kernel larger than the picture, blocks that do not tile it
        return None, x
    known = energy.range.bases
    if known and measurement.template.basis not in known:
        return None, x
    return measurement.covariance(energy.range), measurement.measured


def _sums(energy: Energy, x: Tensor, cov: Covariance, measured: Tensor, name: str, part: int) -> Tensor:
    """[n, 2, bands, 7]: of each image, by measured and band: count, κ, target, κ², κ·target, (x−x̂)², variance."""
    cov = cov.expand(len(x))
    noise = normal_like(x, keyed_generator("band", name, part))
    result = evaluate(energy, x + cov.colour(noise), cov)
    kappa, target = result.cov_score.double(), group_mean(0.5 * (1 - noise.double().square()), cov)
    error = group_mean((cov.analysis(x) - result.mean_coefficients).double().square(), cov)
    prior = group_mean(energy.gaussian(cov)[1].expand_as(x), cov)
    band = torch.bucketize((cov.variance / prior).contiguous(), torch.tensor(EDGES, dtype=prior.dtype))
    values = torch.stack(
        [torch.ones_like(kappa), kappa, target, kappa.square(), kappa * target, error, result.variance.double()]
    )
    seen = measured.expand_as(kappa)
    masks = [inside & (band == number) for inside in (seen, ~seen) for number in range(len(BANDS))]
    sums = torch.stack([(values * mask).sum(dim=(2, 3, 4)).mT for mask in masks], dim=1)
    return sums.unflatten(1, (2, len(BANDS)))


def _summaries(sums: Tensor, family: str, seen: bool) -> list[BandTest]:
    tests = []
    for row, measured in enumerate((True, False)):
        for number, band in enumerate(BANDS):
            group = sums[:, row, number]
            if float(group[:, 0].mean()) >= 1:
                estimates = jackknife(_estimates, group)
                tests.append(BandTest(family, seen, measured, band, float(group[:, 0].mean()), *estimates))
    return tests


def _estimates(group: Tensor) -> Tensor:
    """Mean of κ, slope and variance ratio from the sums over images, [..., 7] → [..., 3]."""
    count, kappa, target, square, product, error, variance = group.unbind(-1)
    mean = kappa / count
    slope = (product / count - mean * target / count) / (square / count - mean.square()).clamp_min(1e-30)
    return torch.stack([mean, slope, error / variance.clamp_min(1e-30)], dim=-1)


def jackknife(estimate: Callable[[Tensor], Tensor], rows: Tensor) -> list[float]:
    """Each estimate from the sum over rows, followed by its standard error over rows: [e₁, se₁, e₂, se₂, …]."""
    total = rows.sum(0)
    whole, without = estimate(total), estimate(total - rows)
    errors = jackknife_error(without).tolist()
    return [value for pair in zip(whole.tolist(), errors, strict=True) for value in pair]


def worst(tests: list[BandTest], *, seen: bool = True) -> dict[str, float]:
    """The largest |mean| and the slopes' extremes over testable groups of families seen (or unseen)."""
    chosen = [t for t in tests if t.seen == seen]
    slopes = [t.slope for t in chosen if t.testable] or [math.nan]
    return {
        "mean": max((abs(t.mean) for t in chosen), default=math.nan),
        "lowest slope": min(slopes),
        "highest slope": max(slopes),
    }

"""Images, lifts and a test of variances that the suites of degradations and measurements share."""

from __future__ import annotations

import math

import torch
from scipy.stats import chi2
from torch import Tensor

from linverse.covariance import VarianceRange
from linverse.measurement import Lifted, Measurement
from linverse.rng import keyed_generator

SHAPE = (2, 6, 6)
LIMITS = VarianceRange(1e-6, 1e3)
LIMITS_TOP = math.log(LIMITS.maximum)
ALARM = 1e-6


def image(batch: int = 2, shape: tuple[int, int, int] = SHAPE, seed: int = 0) -> Tensor:
    return torch.rand(batch, *shape, generator=keyed_generator("image", seed), dtype=torch.float64)


def prior(mean: float = 0.4, variance: float = 0.1) -> tuple[Tensor, Tensor]:
    """m and C of the data, the same for all coefficients."""
    return torch.full((1, 1, 1, 1), mean).double(), torch.full((1, 1, 1, 1), variance).double()


def lift(
    measurement: Measurement, limits: VarianceRange = LIMITS, seed: int | None = 0, random_fill: bool = True
) -> Lifted:
    generator = None if seed is None else keyed_generator("lift", seed)
    return measurement.lift(limits, prior(), generator, random_fill=random_fill)


def assert_variance(samples: Tensor, variance: Tensor | float) -> None:
    """Columns of centred normal samples [n, k] have the given variances: each Σx²/λ is χ²_n."""
    n, k = samples.shape
    statistic = (samples.square() / variance).sum(0)
    assert float(statistic.min()) > chi2.ppf(ALARM / k, n)
    assert float(statistic.max()) < chi2.isf(ALARM / k, n)

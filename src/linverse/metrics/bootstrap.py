"""Confidence intervals by resampling images with replacement (Efron & Tibshirani 1993).

With θ* the statistic of a resample, the percentile interval is [θ*_(α/2), θ*_(1−α/2)], the basic one [2θ̂ − θ*_(1−α/2), 2θ̂ − θ*_(α/2)].
Distances of distributions are biased upwards, and those of resamples doubly so: the basic interval takes the bias out, the
percentile one doubles it. Both are too narrow for few images by √((n−1)/n) and for want of Student's t; Hesterberg's remedy ("What
teachers should know about the bootstrap", 2015) is to cut at Φ(−√(n/(n−1)) t_{α/2,n−1}) instead of α/2, which makes intervals for
means right for 10 images as for 1000.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from linverse.extras import require
from linverse.rng import keyed_generator

Method = Literal["percentile", "basic"]
INDICES = 1 << 22  # indices drawn at once: bounds the memory


@dataclass(frozen=True)
class Interval:
    """An estimate and the ends of its confidence interval."""

    estimate: float
    low: float
    high: float
    level: float = 0.95

    def __str__(self) -> str:
        return f"{self.estimate:.4g} [{self.low:.4g}, {self.high:.4g}]"


def jackknife_error(without: Tensor) -> Tensor:
    """√((n−1)/n Σ(v − v̄)²): standard errors of statistics from their values with one of n rows or blocks left out, [n, …]."""
    n = len(without)
    return ((n - 1) / n * (without - without.mean(0)).square().sum(0)).sqrt()


def expanded_tail(level: float, count: int) -> float:
    """The tail Φ(−√(n/(n−1)) t_{α/2,n−1}) at which n values' resamples are cut."""
    stats = require("scipy.stats", "evaluate")
    return float(stats.norm.cdf(-((count / (count - 1)) ** 0.5) * stats.t.ppf(0.5 + 0.5 * level, count - 1)))


def _check(values: Tensor, level: float, resamples: int) -> None:
    if values.ndim == 0 or len(values) < 2:
        raise ValueError(f"values have shape {tuple(values.shape)}; an interval needs at least two of them")
    if not bool(values.isfinite().all()):
        raise ValueError(
            "values hold infinities or NaN (the PSNR of equal images is +inf); leave those out or cap them"
        )
    if not 0 < level < 1 or resamples < 100:
        raise ValueError(f"level is between 0 and 1 and resamples ≥ 100; got {level} and {resamples}")


def _interval(estimate: float, replicates: Tensor, level: float, count: int, method: Method) -> Interval:
    """Cut the resampled statistics."""
    tail = expanded_tail(level, count)
    ends = torch.quantile(replicates.double(), torch.tensor([tail, 1 - tail], dtype=torch.float64))
    low, high = float(ends[0]), float(ends[1])
    if method == "basic":
        low, high = 2 * estimate - high, 2 * estimate - low
    return Interval(estimate, low, high, level)


def bootstrap_mean(
    values: Tensor, level: float = 0.95, resamples: int = 2000, generator: torch.Generator | None = None
) -> Interval:
    """The mean of per-image values [B] with its confidence interval. Without a generator the result is reproducible.

    For two methods on the same images give their differences: the images' own spread then drops out.
    """
    if values.ndim != 1:
        raise ValueError(f"values have shape {tuple(values.shape)}; one value per image, [B], is needed")
    _check(values, level, resamples)
    values, count = values.detach().double().cpu(), len(values)
    generator = generator or keyed_generator("bootstrap")
    rows = max(INDICES // count, 1)
    sizes = [min(rows, resamples - start) for start in range(0, resamples, rows)]
    means = [values[torch.randint(count, (size, count), generator=generator)].mean(1) for size in sizes]
    return _interval(float(values.mean()), torch.cat(means), level, count, "percentile")


def bootstrap_statistic(
    values: Tensor,
    statistic: Callable[[Tensor], Tensor],
    level: float = 0.95,
    resamples: int = 1000,
    generator: torch.Generator | None = None,
    method: Method = "percentile",
) -> Interval:
    """Any statistic, a scalar function of values [B, …], resampled along the first axis."""
    _check(values, level, resamples)
    generator = generator or keyed_generator("bootstrap")
    replicates = [float(statistic(_resample(values, generator))) for _ in range(resamples)]
    return _interval(
        float(statistic(values)), torch.tensor(replicates, dtype=torch.float64), level, len(values), method
    )


def bootstrap_two_samples(
    x: Tensor,
    y: Tensor,
    statistic: Callable[[Tensor, Tensor], Tensor],
    level: float = 0.95,
    resamples: int = 200,
    generator: torch.Generator | None = None,
    method: Method = "basic",
) -> Interval:
    """A statistic of two independent sets [N, …], [M, …], such as `frechet_from_features` of their features."""
    for values in (x, y):
        _check(values, level, resamples)
    generator = generator or keyed_generator("bootstrap")
    draws = ((_resample(x, generator), _resample(y, generator)) for _ in range(resamples))
    replicates = [float(statistic(*draw)) for draw in draws]
    return _interval(
        float(statistic(x, y)), torch.tensor(replicates, dtype=torch.float64), level, min(len(x), len(y)), method
    )


def _resample(values: Tensor, generator: torch.Generator) -> Tensor:
    """As many members, drawn with replacement."""
    index = torch.randint(len(values), (len(values),), generator=generator, device=generator.device)
    return values[index.to(values.device)]

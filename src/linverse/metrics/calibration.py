"""Is a posterior as sure as it should be? Coverage and width of its credible intervals, pixel by pixel.

Let x₁ … x_S be samples of a posterior and x₀ the truth. If they come from the same distribution, the rank of x₀ among the samples is
uniform on 0 … S (Talts et al. 2018), hence the interval between the k-th least and the k-th greatest sample holds x₀ with
probability exactly 1 − 2k/(S+1). The central interval of level p is therefore cut at the positions k = (S+1)(1−p)/2 from either end,
between samples by linear interpolation. (`torch.quantile` cuts at 1 + (S−1)(1−p)/2 instead: with 20 samples its 90 % interval covers
81 %.) Samples are [B, S, C, H, W], truths [B, C, H, W]; `where` chooses the pixels that count (those that were not measured, say).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


def check_samples(samples: Tensor, truth: Tensor) -> None:
    """Refuse samples that do not fit the truth."""
    if samples.ndim != truth.ndim + 1 or samples.shape[0] != truth.shape[0] or samples.shape[2:] != truth.shape[1:]:
        raise ValueError(
            f"samples have shape {tuple(samples.shape)} and truth {tuple(truth.shape)}; needed are [B, S, …] and [B, …]"
        )
    for name, values in (("samples", samples), ("truth", truth)):
        if not bool(values.isfinite().all()):
            raise ValueError(f"{name} hold values that are not finite")


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level is a probability between 0 and 1; got {level}")


def credible_interval(samples: Tensor, level: float = 0.9) -> tuple[Tensor, Tensor]:
    """Lower and upper end, [B, …], of the central interval that holds the truth with probability `level`."""
    _check_level(level)
    count = samples.shape[1]
    position = (count + 1) * (1 - level) / 2  # of the lower end, counted from 1
    if position < 1 - 1e-9:
        needed = math.ceil(2 / (1 - level) - 1 - 1e-9)
        raise ValueError(f"{count} samples cannot bound an interval of level {level}; at least {needed} are needed")
    ordered = samples.sort(dim=1).values
    return _order_statistic(ordered, position), _order_statistic(ordered, count + 1 - position)


def _order_statistic(ordered: Tensor, position: float) -> Tensor:
    """The sorted samples at a position between 1 and S that need not be whole."""
    below = min(max(math.floor(position + 1e-9), 1), ordered.shape[1])
    above = min(below + 1, ordered.shape[1])
    return torch.lerp(ordered[:, below - 1], ordered[:, above - 1], max(position - below, 0.0))


def gaussian_interval(mean: Tensor, std: Tensor, level: float = 0.9) -> tuple[Tensor, Tensor]:
    """mean ± z·std: the central interval of a Gaussian with the one-shot moments."""
    _check_level(level)
    z = float(torch.special.ndtri(torch.tensor(0.5 + 0.5 * level, dtype=torch.float64)))
    return mean - z * std, mean + z * std


def student_interval(samples: Tensor, level: float = 0.9) -> tuple[Tensor, Tensor]:
    """mean ± t·std·√(1 + 1/S) of samples [B, S, …]: where few Gaussian samples expect the truth, t of Student's law with S−1 degrees."""
    _check_level(level)
    count = samples.shape[1]
    if count < 2:
        raise ValueError(f"a spread is known from two samples on; got {count}")
    mean, std = samples.mean(1), samples.std(1)
    reach = student_quantile(count - 1, 0.5 + 0.5 * level) * math.sqrt(1 + 1 / count)
    return mean - reach * std, mean + reach * std


def student_quantile(degrees: int, probability: float) -> float:
    """Where Student's distribution function reaches a probability ≥ ½, by the integral of cosⁿ⁻¹: t = √n tan θ."""
    angles = torch.linspace(0, math.pi / 2, 20_001, dtype=torch.float64)
    density = torch.cos(angles) ** (degrees - 1)
    below = torch.cumulative_trapezoid(density, angles)
    wanted = float(below[-1]) * (2 * probability - 1)
    at = int(torch.searchsorted(below, wanted))
    before = float(below[at - 1]) if at else 0.0
    share = (wanted - before) / (float(below[at]) - before)
    return math.sqrt(degrees) * math.tan(float(angles[at]) + share * float(angles[1]))


def _mean_where(values: Tensor, where: Tensor | None) -> Tensor:
    """Mean over all axes but the first, of the chosen entries only, [B], float64."""
    values = values.double()
    weights = torch.ones_like(values) if where is None else where.to(values).expand_as(values)
    total = weights.flatten(1).sum(1)
    if not bool((total > 0).all()):
        raise ValueError("`where` chooses no pixel of some images")
    return (values * weights).flatten(1).sum(1) / total


def coverage(interval: tuple[Tensor, Tensor], truth: Tensor, where: Tensor | None = None) -> Tensor:
    """Fraction of the pixels of each image whose truth lies in its interval, [B]; its expectation is the level."""
    low, high = interval
    return _mean_where((low <= truth) & (truth <= high), where)


def interval_width(interval: tuple[Tensor, Tensor], where: Tensor | None = None) -> Tensor:
    """Mean width of the intervals of each image, [B]: of two posteriors with the right coverage the narrower one knows more."""
    low, high = interval
    return _mean_where(high - low, where)


@dataclass(frozen=True)
class CoverageCurve:
    """Coverage against level: on the diagonal if calibrated, below it if over-confident.

    `error` is the standard error over images (pixels of one image are not independent); `values` are the coverages of each image, [L, B].
    """

    levels: Tensor
    coverage: Tensor
    error: Tensor
    values: Tensor

    @property
    def calibration_error(self) -> float:
        """Mean distance from the diagonal."""
        return float((self.coverage - self.levels).abs().mean())


def coverage_curve(
    samples: Tensor, truth: Tensor, levels: Tensor | None = None, where: Tensor | None = None
) -> CoverageCurve:
    """Coverage at several levels (default: the levels 1 − 2k/(S+1), k ≥ 1, at which it is exact for S samples)."""
    check_samples(samples, truth)
    count = samples.shape[1]
    if levels is None:
        levels = 1 - 2 * torch.arange(count // 2, 0, -1, dtype=torch.float64) / (count + 1)
    values = torch.stack([coverage(credible_interval(samples, float(p)), truth, where) for p in levels])
    error = values.std(1) / values.shape[1] ** 0.5 if values.shape[1] > 1 else torch.full_like(levels, math.inf)
    return CoverageCurve(levels.double(), values.mean(1), error, values)


def rank_statistics(samples: Tensor, truth: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Number of samples below the truth, [B, …], integers 0 … S, uniform if calibrated; ties are broken at random."""
    check_samples(samples, truth)
    below = (samples < truth[:, None]).sum(1)
    ties = (samples == truth[:, None]).sum(1)
    device = generator.device if generator is not None else truth.device
    uniform = torch.rand(truth.shape, generator=generator, dtype=torch.float64, device=device).to(truth.device)
    return below + ((ties + 1) * uniform).floor().long().clamp_max(ties)


def rank_histogram(ranks: Tensor, samples: int) -> Tensor:
    """Frequency of each rank 0 … S, [S+1], summing to one: flat if calibrated, ∪ if over-confident, ∩ if under-confident."""
    if int(ranks.min()) < 0 or int(ranks.max()) > samples:
        raise ValueError(
            f"ranks among {samples} samples are 0 … {samples}; got {int(ranks.min())} … {int(ranks.max())}"
        )
    return torch.bincount(ranks.flatten(), minlength=samples + 1).double() / ranks.numel()

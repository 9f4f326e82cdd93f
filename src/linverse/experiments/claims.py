"""What the paper claims, and the rule that decides, written down before the run.

A claim compares named quantities of the record with bounds. Each quantity NAME has a 95 % interval, NAME_low to NAME_high, over what was
random (images, samples, repetitions):
    confirmed           every interval lies wholly on the claimed side of its bound
    refuted             one of them lies wholly on the other side
    not testable here   neither: an interval holds its bound, or something that the claim speaks of cannot be had
    not judged          a quick run: its counts are too small for a verdict
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from linverse.metrics import Interval, bootstrap_mean, bootstrap_statistic
from linverse.metrics.bootstrap import jackknife_error

CONFIRMED, REFUTED, UNTESTABLE, NOT_JUDGED = "confirmed", "refuted", "not testable here", "not judged"


@dataclass(frozen=True)
class Condition:
    """A quantity of the record above or below a bound."""

    quantity: str
    relation: Literal["above", "below"]
    bound: float = 0.0

    def text(self) -> str:
        return f"{self.quantity} {self.relation} {self.bound:g}"

    def holds(self, metrics: dict[str, float]) -> bool | None:
        """Whether the interval lies wholly on the claimed side (True), wholly on the other (False), or holds the bound (None)."""
        low, high = metrics.get(f"{self.quantity}_low"), metrics.get(f"{self.quantity}_high")
        if low is None or high is None:
            return None
        above = True if low > self.bound else False if high < self.bound else None
        return above if above is None or self.relation == "above" else not above

    def found(self, metrics: dict[str, float]) -> str:
        """The quantity as it was found, with its interval."""
        values = [metrics.get(f"{self.quantity}{end}") for end in ("", "_low", "_high")]
        if any(value is None for value in values):
            return f"{self.quantity} was not measured"
        value, low, high = values
        return f"{self.quantity} is {value:.3g} [{low:.3g}, {high:.3g}]"


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and the comparisons that must all hold; `untestable` says why there are none."""

    text: str
    rule: tuple[Condition, ...] = ()
    untestable: str = ""

    def judge(self, metrics: dict[str, float], quick: bool) -> dict[str, Any]:
        """The verdict as the record keeps it."""
        return {
            "claim": self.text,
            "rule": " and ".join(c.text() for c in self.rule),
            "verdict": self.verdict(metrics, quick),
            "because": self.untestable or "; ".join(dict.fromkeys(c.found(metrics) for c in self.rule)),
        }

    def verdict(self, metrics: dict[str, float], quick: bool) -> str:
        if quick:
            return NOT_JUDGED
        answers = [c.holds(metrics) for c in self.rule]
        if self.untestable or not answers:
            return UNTESTABLE
        if False in answers:
            return REFUTED
        return UNTESTABLE if None in answers else CONFIRMED


# --- intervals as a record keeps them ------------------------------------------------------------------------------------------------


def interval_metrics(name: str, interval: Interval) -> dict[str, float]:
    """NAME, NAME_low and NAME_high."""
    return {name: interval.estimate, f"{name}_low": interval.low, f"{name}_high": interval.high}


def interval_of(metrics: dict[str, float], name: str) -> Interval:
    """The inverse of `interval_metrics`."""
    return Interval(metrics[name], metrics[f"{name}_low"], metrics[f"{name}_high"])


def mean_interval(values: Tensor) -> Interval:
    """The mean of [N] values; of fewer than two, or of equal ones, an interval without width."""
    values = values.detach().double().flatten()
    if len(values) < 2 or bool((values == values[0]).all()):
        value = float(values.mean())
        return Interval(value, value, value)
    return bootstrap_mean(values)


def median_interval(values: Tensor) -> Interval:
    """The median of [N] values."""
    values = values.detach().double().flatten()
    if len(values) < 2 or bool((values == values[0]).all()):
        return mean_interval(values)
    return bootstrap_statistic(values, lambda v: v.quantile(0.5))


def share_interval(successes: Tensor) -> Interval:
    """The share of True in [N], with Wilson's interval (1927), which has a width even where all are alike."""
    count, share, z = len(successes), float(successes.double().mean()), 1.959964
    centre = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half))


def from_standard_error(value: float, error: float) -> Interval:
    """value ± 1.96 standard errors."""
    return Interval(value, value - 1.959964 * error, value + 1.959964 * error)


def jackknife_intervals(values: Tensor, whole: Tensor) -> list[Interval]:
    """Intervals of statistics from those with one of g blocks left out, [g, K], and those of all, [K]."""
    pairs = zip(whole.tolist(), jackknife_error(values).tolist(), strict=True)
    return [from_standard_error(value, error) for value, error in pairs]


def correlation(pairs: Tensor) -> Tensor:
    """Spearman's rank correlation of [N, 2]."""
    ranks = pairs.double().argsort(dim=0).argsort(dim=0).double()
    return torch.corrcoef(ranks.mT)[0, 1]

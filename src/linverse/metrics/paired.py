"""Two methods judged on the same images: error rates with their standard errors, and McNemar's exact test.

The rate of n verdicts has the standard error √(p(1−p)/n). Of two methods only the images on which they differ tell which is better: if
neither is, b errors of the first alone and c of the second alone are tosses of a fair coin, b ~ Binomial(b + c, ½)
(McNemar 1947). The p-value is two-sided: the probability of a split at least as uneven.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Rate:
    """A share of errors and its standard error."""

    value: float
    standard_error: float


def error_rate(wrong: Tensor) -> Rate:
    """The share of wrong verdicts, boolean [N]."""
    value = float(wrong.double().mean())
    return Rate(value, math.sqrt(value * (1 - value) / len(wrong)))


@dataclass(frozen=True)
class Comparison:
    """`first_only` and `second_only` count the images on which just that method errs; `difference` is first − second, in rates."""

    first_only: int
    second_only: int
    difference: float
    p_value: float


def mcnemar(first: Tensor, second: Tensor) -> Comparison:
    """Compare wrong verdicts of two methods on the same images, boolean [N] each."""
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(f"verdicts have shapes {tuple(first.shape)} and {tuple(second.shape)}; both are [N]")
    b, c = int((first & ~second).sum()), int((second & ~first).sum())
    return Comparison(b, c, (b - c) / len(first), fair_coin_p_value(b, c))


def fair_coin_p_value(b: int, c: int) -> float:
    """P(a split at least as uneven as b : c | fair coin) = min(1, 2 P(X ≤ min(b, c))), X ~ Binomial(b + c, ½)."""
    tosses = b + c
    tail = sum(math.comb(tosses, k) for k in range(min(b, c) + 1))
    return min(1.0, 2 * tail / 2**tosses)  # whole numbers: exact for any number of tosses

"""Units, said once: densities are in nats, pixels in [0, 1], noise inside the library is a variance.

Public functions take the noise as `sigma`, a standard deviation; everything below them holds variances.
"""

from __future__ import annotations

import math

from torch import Tensor

DECIBELS_PER_NAT = 10.0 / math.log(10.0)


def check_number(name: str, value: object, *, whole: bool = False) -> None:
    """Refuse what is no single number: a word, a list, None, a tensor of several."""
    kinds = (int,) if whole else (int, float)
    single = value.item() if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else value
    if not isinstance(single, kinds) or isinstance(single, bool):
        raise TypeError(f"{name} is a {'whole ' if whole else ''}number; got {value!r:.60}")


def variance_from_sigma(sigma: float) -> float:
    """σ → σ², refusing what is not a standard deviation."""
    check_number("sigma", sigma)
    if not (math.isfinite(sigma) and sigma >= 0):
        raise ValueError(f"sigma is a standard deviation and must be finite and ≥ 0; got {sigma}")
    return sigma * sigma


def bits_per_dim(log_density: Tensor, dim: int, levels: int | None = None) -> Tensor:
    """−log₂ p per dimension; with `levels` = 256, of the probability of an 8-bit pixel rather than of a density on [0, 1]."""
    offset = math.log2(levels) if levels else 0.0
    return -log_density / (dim * math.log(2.0)) + offset


def decibels_per_dim(log_density: Tensor, dim: int) -> Tensor:
    """10·log₁₀ p per dimension, the unit of the paper's density plots."""
    return log_density * (DECIBELS_PER_NAT / dim)

"""What a training distribution over Σ is, and how variances are drawn: log-uniform between the limits of the model."""

from __future__ import annotations

import math
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from linverse.covariance import Covariance, VarianceRange

Shape = tuple[int, int, int]


class CovarianceDistribution(Protocol):
    """Draws n covariances of one basis for images of shape [C, H, W]; `kind` names it in a configuration."""

    kind: ClassVar[str]

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> Covariance: ...


def log_uniform(shape: tuple[int, ...], limits: VarianceRange, generator: torch.Generator | None) -> Tensor:
    """log λ uniform between the logarithms of the limits."""
    low, high = math.log(limits.minimum), math.log(limits.maximum)
    return low + (high - low) * torch.rand(shape, generator=generator)


def check_ends(name: str, low: float, high: float, least: float = 0.0, most: float = math.inf) -> None:
    """Refuse an interval [low, high] of a distribution that is empty or reaches out of [least, most]."""
    if not least <= low <= high <= most:
        raise ValueError(f"{name} must satisfy {least:g} ≤ lower end ≤ upper end ≤ {most:g}; got {low:g} and {high:g}")


def check_choice(name: str, given: str, accepted: tuple[str, ...]) -> None:
    """Refuse a word that is none of those accepted."""
    if given not in accepted:
        raise ValueError(f"{name} can be {' or '.join(accepted)}; got {given!r}")


def two_levels(inside: Tensor, limits: VarianceRange, generator: torch.Generator | None) -> Tensor:
    """[n, H, W] boolean masks → log λ with one level inside and one outside, [n, 1, H, W]."""
    levels = log_uniform((2, inside.shape[0], 1, 1), limits, generator)
    return torch.where(inside, levels[0], levels[1])[:, None]

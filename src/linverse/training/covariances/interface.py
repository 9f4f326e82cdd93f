"""What a training distribution over Σ is, and how variances are drawn: log-uniform between the limits of the model."""

from __future__ import annotations

import math
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from linverse.covariance import Covariance, VarianceRange

Shape = tuple[int, int, int]
LOUD, FAINT = 1.0, 1e-3  # variances from which on a pixel counts as hidden, and up to which as measured


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


def check_hidden(share: float) -> None:
    """Refuse a share of masks that hide which is none."""
    check_ends("the share of masks that hide what is inside", 0.0, share, most=1)


def check_choice(name: str, given: str, accepted: tuple[str, ...]) -> None:
    """Refuse a word that is none of those accepted."""
    if given not in accepted:
        raise ValueError(f"{name} can be {' or '.join(accepted)}; got {given!r}")


def level_pairs(n: int, limits: VarianceRange, generator: torch.Generator | None, hidden: float = 0.0) -> Tensor:
    """n pairs of log λ, [2, n]: inside a mask and outside of it.

    A share `hidden` of them is what restorations ask for, and rare among pairs drawn independently: next to nothing is known inside,
    and the noise outside is faint.
    """
    pairs = log_uniform((2, n), limits, generator)
    if hidden:
        loud = log_uniform((n,), VarianceRange(min(LOUD, limits.maximum), limits.maximum), generator)
        faint = log_uniform((n,), VarianceRange(limits.minimum, max(FAINT, limits.minimum)), generator)
        pairs = torch.where(torch.rand(n, generator=generator) < hidden, torch.stack([loud, faint]), pairs)
    return pairs


def two_levels(inside: Tensor, limits: VarianceRange, generator: torch.Generator | None, hidden: float = 0.0) -> Tensor:
    """[n, H, W] boolean masks → log λ with one level inside and one outside (`level_pairs`), [n, 1, H, W]."""
    within, without = level_pairs(len(inside), limits, generator, hidden)[..., None, None]
    return torch.where(inside, within, without)[:, None]

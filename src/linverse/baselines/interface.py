"""One interface for every solver of y_raw = Hx + σv, so that they can be compared and users can add their own:

    solve(model, degradation, y_raw, generator, **settings) → Solution(samples, evaluations, gradients, seconds)

`model` is what the method needs: an energy, an isotropic denoiser, a conditional one, or nothing. `y_raw` is the raw data as
`degradation.measure(x).raw` gives it, [B, …]; one sample comes back for each row. `generator` is the only source of randomness.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from linverse.covariance import VarianceRange
from linverse.degradations import Degradation
from linverse.measurement import Measurement
from linverse.operator_measurement import OperatorMeasurement


@dataclass(frozen=True)
class Solution:
    """`samples` [B, C, H, W]; `evaluations` of the network and `gradients` through it for one sample; `seconds` for the batch."""

    samples: Tensor
    evaluations: int
    gradients: int
    seconds: float


class NotApplicable(ValueError):
    """A method that cannot be used on this degradation, or not with this model: it is left out, not broken."""


def in_a_basis(measurement: Measurement, method: str) -> Measurement:
    """The measurement, for methods that work coefficient by coefficient."""
    if isinstance(measurement, OperatorMeasurement):
        raise NotApplicable(
            f"{method} needs an operator that a basis diagonalises; this one is known by Hx and Hᵀr only"
        )
    return measurement


class Solver(Protocol):
    """Any of the methods here, or a user's own."""

    def __call__(
        self, model: Any, degradation: Degradation, y_raw: Tensor, generator: torch.Generator | None, /, **settings: Any
    ) -> Solution: ...


@runtime_checkable
class IsotropicDenoiser(Protocol):
    """x̂ = E[x | y] for y = x + √λ v: `models.denoiser.Denoiser`, or an energy through `denoisers.EnergyDenoiser`."""

    @property
    def range(self) -> VarianceRange:
        """The variances λ for which it is known."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """[C, H, W] of the images."""

    def __call__(self, y: Tensor, variance: float) -> Tensor:
        """x̂, [B, C, H, W]."""


@runtime_checkable
class ConditionalDenoiser(Protocol):
    """x̂ = E[x | y, measurement]: a network trained for one degradation."""

    @property
    def range(self) -> VarianceRange:
        """The variances λ for which it is known."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """[C, H, W] of the images."""

    def __call__(self, y: Tensor, variance: float, condition: Tensor) -> Tensor:
        """x̂, [B, C, H, W]."""


Mean = Callable[[Tensor, float], Tensor]  # (x_t, λ_t) → an estimate of x

"""What a corrector samples: a log-density known up to a constant, its gradient, and a preconditioner.

On the path, at level t, a corrector must leave p(x_t | y) invariant (paper §4.2.2):
    π_t(x) ∝ exp(−U(x, Σ_t)) N(y; x, Σ_T − Σ_t),          λ_T − λ_t = −λ_T·expm1(log λ_t − log λ_T).
Its curvature is at most 1/M with M = λ_t(1−a), a = λ_t/λ_T, and with that preconditioner nothing is singular:
    M∇log π_t = (1−a)·x̂ + a·y − x.
Coefficients whose λ has not moved (a = 1) are pinned at y: M = 0 there, and they leave the Gaussian and both proposal densities.

For any linear operator H, diagonal in no basis, z = x + ρv has π(z) ∝ exp(−U(z, ρ²I)) N(y_raw; Hz, σ²I − ρ²HHᵀ) if ρ‖H‖ < σ.

A temperature T makes it π^{1/T}, prior and likelihood alike: M ← T·M leaves M∇log π as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from linverse.conjugate_gradients import conjugate_gradients
from linverse.covariance import Covariance
from linverse.operator_measurement import OperatorMeasurement
from linverse.sampling.evaluator import Evaluate, Iterate


class Target(Protocol):
    """π^{1/T} over coefficients z [B, C, H, W]."""

    @property
    def temperature(self) -> float:
        """T."""

    @property
    def scale(self) -> Tensor:
        """M^{1/2}, broadcastable to z; 0 where a coefficient is pinned."""

    def evaluate(self, z: Tensor) -> Iterate:
        """One evaluation of the energy."""

    def drift(self, here: Iterate) -> Tensor:
        """M∇log π^{1/T}, of z's shape, 0 where pinned."""

    def log_ratio(self, old: Iterate, new: Iterate) -> Tensor:
        """log π^{1/T}(new) − log π^{1/T}(old), [B], float64."""


def _check_temperature(temperature: float) -> None:
    if not (math.isfinite(temperature) and temperature > 0):
        raise ValueError(f"a temperature is positive and finite; got {temperature}")


def _total(values: Tensor) -> Tensor:
    return values.sum(dim=(1, 2, 3))


@dataclass(frozen=True)
class PathTarget:
    """π_t of a posterior: `y` are the measurement's coefficients, `log_start` log λ_T, `log_variance` log λ_t."""

    evaluator: Evaluate
    y: Tensor
    log_start: Tensor
    log_variance: Tensor
    temperature: float = 1.0

    def __post_init__(self) -> None:
        _check_temperature(self.temperature)
        if bool((self.log_variance > self.log_start).any()):
            raise ValueError("a level of a path cannot be noisier than the measurement: some λ_t exceeds λ_T")

    @property
    def _gap(self) -> Tensor:
        """1 − a."""
        return -torch.expm1(self.log_variance - self.log_start)

    @property
    def scale(self) -> Tensor:
        return (self.temperature * self.log_variance.exp() * self._gap).sqrt()

    def evaluate(self, z: Tensor) -> Iterate:
        return self.evaluator(z, self.log_variance)

    def drift(self, here: Iterate) -> Tensor:
        gap = self._gap
        drift = here.mean - here.z + (1 - gap) * (self.y - here.mean)
        return torch.where(gap > 0, drift, torch.zeros_like(drift))

    def log_ratio(self, old: Iterate, new: Iterate) -> Tensor:
        gap = self._gap.double()
        y, a, b = self.y.double(), old.z.double(), new.z.double()
        # a product of differences: squares of y − x would cancel
        twice = (b - a) * (2 * y - a - b) * torch.where(gap > 0, torch.exp(-self.log_start.double()) / gap, 0.0)
        return (old.energy - new.energy + 0.5 * _total(twice)) / self.temperature


@dataclass(frozen=True)
class OperatorTarget:
    """exp(−U(z, ρ²I)) N(y_raw; Hz, σ²I − ρ²HHᵀ), `cov` = ρ²I with ρ²‖H‖² < σ²: the law of z = x + ρv given the data (mathematics §14)."""

    evaluator: Evaluate
    cov: Covariance
    seen: OperatorMeasurement
    temperature: float = 1.0

    def __post_init__(self) -> None:
        _check_temperature(self.temperature)
        if self._variance * self.seen.linear.gain >= self.seen.variance:
            raise ValueError(
                f"ρ²‖H‖² = {self._variance * self.seen.linear.gain:.3g} is not below σ² = {self.seen.variance:.3g}: z then has more "
                "noise than the data, and no density of its own"
            )

    @property
    def _variance(self) -> float:
        return float(self.cov.log_variance.flatten()[0].exp())

    @property
    def _preconditioner(self) -> float:
        """1/(1/ρ² + ‖H‖²/(σ² − ρ²‖H‖²)): no direction is steeper."""
        gain = self.seen.linear.gain
        return 1 / (1 / self._variance + gain / (self.seen.variance - self._variance * gain))

    @property
    def scale(self) -> Tensor:
        return torch.full_like(self.cov.log_variance, math.sqrt(self.temperature * self._preconditioner))

    def evaluate(self, z: Tensor) -> Iterate:
        return self.evaluator(z, self.cov.log_variance)

    def _weighed(self, residual: Tensor) -> Tensor:
        """(σ²I − ρ²HHᵀ)⁻¹ r."""
        linear = self.seen.linear

        def matrix(w: Tensor) -> Tensor:
            return self.seen.variance * w - self._variance * linear.forward(linear.adjoint(w))

        return conjugate_gradients(matrix, residual, tolerance=1e-6).solution

    def drift(self, here: Iterate) -> Tensor:
        pull = self.seen.adjoint(self._weighed(self.seen.residual(self.cov.synthesis(here.z))))
        return self._preconditioner * ((here.mean - here.z) / self._variance + self.cov.analysis(pull))

    def log_ratio(self, old: Iterate, new: Iterate) -> Tensor:
        before, after = (self.seen.residual(self.cov.synthesis(p.z)) for p in (old, new))
        # a product of differences: squares of the residuals would cancel
        product = (before - after).double() * self._weighed(before + after).double()
        return (old.energy - new.energy + 0.5 * product.flatten(1).sum(dim=1)) / self.temperature

"""What a corrector samples: a log-density known up to a constant, its gradient, and a preconditioner.

On the path, at level t, a corrector must leave p(x_t | y) invariant (paper §4.2.2):
    π_t(x) ∝ exp(−U(x, Σ_t)) N(y; x, Σ_T − Σ_t),          λ_T − λ_t = −λ_T·expm1(log λ_t − log λ_T).
Its curvature is at most 1/M with M = λ_t(1−a), a = λ_t/λ_T, and with that preconditioner nothing is singular:
    M∇log π_t = (1−a)·x̂ + a·y − x.
Coefficients whose λ has not moved (a = 1) are pinned at y: M = 0 there, and they leave the Gaussian and both proposal densities.

For any linear operator H, diagonal in no basis: π(x) ∝ exp(−U(x, Σ)) N(y_raw; Hx, σ²I).

A temperature T makes it π^{1/T}, prior and likelihood alike: M ← T·M leaves M∇log π as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.degradations.operators import Linear
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
    """exp(−U(x, Σ)) N(y_raw; Hx, `noise`·I), `noise` a variance and `gain` ≥ ‖HᵀH‖, for z the coefficients of x in Σ's basis.

    Σ is the prior's own blur and must be small: exact for x at that floor, and close to the posterior of a clean x if
    noise ≫ λ·gain.
    """

    evaluator: Evaluate
    cov: Covariance
    operator: Linear
    adjoint: Linear
    raw: Tensor
    noise: float
    gain: float
    temperature: float = 1.0

    def __post_init__(self) -> None:
        _check_temperature(self.temperature)

    @property
    def _preconditioner(self) -> Tensor:
        """1/(1/λ + ‖H‖²/σ²): no direction is steeper."""
        log_likelihood = math.log(self.gain / self.noise)
        return torch.exp(
            -torch.logaddexp(-self.cov.log_variance, torch.full_like(self.cov.log_variance, log_likelihood))
        )

    @property
    def scale(self) -> Tensor:
        return (self.temperature * self._preconditioner).sqrt()

    def evaluate(self, z: Tensor) -> Iterate:
        return self.evaluator(z, self.cov.log_variance)

    def drift(self, here: Iterate) -> Tensor:
        residual = self.raw - self.operator(self.cov.synthesis(here.z))
        likelihood = self.cov.analysis(self.adjoint(residual)) / self.noise
        prior = (here.mean - here.z) * torch.exp(-self.cov.log_variance)
        return self._preconditioner * (prior + likelihood)

    def log_ratio(self, old: Iterate, new: Iterate) -> Tensor:
        before, after = (self.operator(self.cov.synthesis(p.z)).double() for p in (old, new))
        twice = ((after - before) * (2 * self.raw.double() - before - after)).flatten(1).sum(dim=1) / self.noise
        return (old.energy - new.energy + 0.5 * twice) / self.temperature

"""An energy evaluated in Σ's eigenbasis: where samplers work.

Every step of a sampler acts on coefficients z = Qᵀx one by one, given the Tweedie mean x̂ = E[x|x_t], the variance Var[x_i|x_t], the
covariance score κ and the energy U. An `Iterate` holds them; `Evaluator` makes iterates, counts the evaluations it spends, and stops with
a clear message when the energy is not finite. One evaluation changes the basis twice: z to pixels for the network, its gradient back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.energy import Energy, evaluate_in_basis
from linverse.sampling.paths import span


@dataclass(frozen=True)
class Iterate:
    """Where a sampler is, coefficients `z` [B, C, H, W] at level `log_variance` [1|B, 1|C, H, W], and what the energy says there.

    `mean` are the coefficients of E[x|x_t]; `variance` and `cov_score` have log λ's channels; `energy` is [B], nats, float64.
    """

    z: Tensor
    log_variance: Tensor
    mean: Tensor
    variance: Tensor
    cov_score: Tensor
    energy: Tensor

    def where(self, mine: Tensor, other: Iterate) -> Iterate:
        """Row by row: self where `mine` [B], else `other` (at the same level)."""
        rows = mine.reshape(-1, 1, 1, 1)
        pairs = ((self.z, other.z), (self.mean, other.mean), (self.variance, other.variance))
        z, mean, variance = (torch.where(rows, a, b) for a, b in pairs)
        cov_score = torch.where(rows, self.cov_score, other.cov_score)
        return Iterate(z, self.log_variance, mean, variance, cov_score, torch.where(mine, self.energy, other.energy))


Evaluate = Callable[[Tensor, Tensor], Iterate]  # (z, log λ) → what the energy says there


@dataclass
class Evaluator:
    """evaluator(z, log λ) → Iterate. `label` says where in a run it is, for error messages."""

    energy: Energy
    template: Covariance
    label: str = ""
    evaluations: int = field(default=0, init=False)

    def __call__(self, z: Tensor, log_variance: Tensor) -> Iterate:
        cov = self.template.with_log_variance(log_variance.expand(z.shape[0], -1, -1, -1))
        self.evaluations += 1
        found = evaluate_in_basis(self.energy, z, cov)  # Σ is checked once for a whole path, not at every step
        iterate = Iterate(z, log_variance, found.mean_coefficients, found.variance, found.cov_score, found.energy)
        self._check(iterate)
        return iterate

    def _check(self, iterate: Iterate) -> None:
        # whatever else is NaN spoils the next iterate, and so the next energy
        finite = [math.isfinite(value) for value in iterate.energy.tolist()]
        if all(finite):
            return
        raise FloatingPointError(
            f"the energy is NaN or infinite{self.label and ' at ' + self.label}, for {finite.count(False)} of {len(finite)} "
            f"samples, where Σ_t has variances in {span(iterate.log_variance)}"
        )

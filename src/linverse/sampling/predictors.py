"""Predictors: from Σ_t down to Σ_{t−1}, coefficient by coefficient (mathematics §7; paper, algorithm 2).

With a = λ_{t−1}/λ_t = e^{−h} and x̂ the Tweedie mean, started at x_T = y each of these samples p(x|y) as the steps get small:

    Euler        a·x + (1−a)x̂ + N(0, λ_t(1−a))                         the paper's; too wide
    Ancestral    a·x + (1−a)x̂ + N(0, λ_{t−1}(1−a))                     too narrow
    Matched      a·x + (1−a)x̂ + N(0, λ_{t−1}(1−a) + (1−a)²Var[x|x_t])  exact at any step for a Gaussian diagonal in Q
    TwoStep…     ancestral with x̂ + ½min(h/h', 1)(x̂ − x̂') for x̂, ' the step before
    …FlowHeun    the ODE dx/dlog λ = ½(x − x̂): no noise

Within a step x̂ is a martingale driven by the same noise as x. Matched makes up for that where x̂_i hangs on x_i alone, the two-step rule
also where coefficients are correlated, one step late. A coefficient whose λ stands still (h = 0) does not change at all.
`order` is the order of the error of means and covariances in the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from linverse.sampling.evaluator import Evaluate, Iterate

LARGEST_RATIO = 1.0  # of steps h/h': a coefficient that has only begun to move says little about where its x̂ goes


@dataclass(frozen=True)
class PreviousStep:
    """What the step before did: the change of x̂ over it, and its h."""

    change: Tensor
    h: Tensor


class Predictor(Protocol):
    """One step; `evaluations` are those that it spends besides the one that made `here`."""

    order: ClassVar[int]
    evaluations: ClassVar[int]
    noisy: ClassVar[bool]

    def step(
        self, here: Iterate, log_next: Tensor, previous: PreviousStep | None, noise: Tensor, evaluate: Evaluate
    ) -> Tensor:
        """Coefficients at the level `log_next`; `noise` is standard normal, of z's shape."""


def decrease(here: Iterate, log_next: Tensor) -> tuple[Tensor, Tensor]:
    """h = −Δlog λ ≥ 0 and 1 − a = 1 − e^{−h}."""
    h = here.log_variance - log_next
    return h, -torch.expm1(-h)


def _move(z: Tensor, target: Tensor, share: Tensor, variance: Tensor, noise: Tensor) -> Tensor:
    """a·z + (1−a)·target + noise of the given variance; exactly z where both are 0."""
    return z + share * (target - z) + variance.sqrt() * noise


@dataclass(frozen=True)
class Euler:
    """The paper's step: the score times −ΔΣ, and noise of covariance −ΔΣ."""

    order: ClassVar[int] = 1
    evaluations: ClassVar[int] = 0
    noisy: ClassVar[bool] = True

    def step(
        self, here: Iterate, log_next: Tensor, previous: PreviousStep | None, noise: Tensor, evaluate: Evaluate
    ) -> Tensor:
        _, share = decrease(here, log_next)
        return _move(here.z, here.mean, share, here.log_variance.exp() * share, noise)


@dataclass(frozen=True)
class Ancestral:
    """The law of x_{t−1} given x_t if x were x̂."""

    order: ClassVar[int] = 1
    evaluations: ClassVar[int] = 0
    noisy: ClassVar[bool] = True

    def step(
        self, here: Iterate, log_next: Tensor, previous: PreviousStep | None, noise: Tensor, evaluate: Evaluate
    ) -> Tensor:
        _, share = decrease(here, log_next)
        return _move(here.z, here.mean, share, log_next.exp() * share, noise)


@dataclass(frozen=True)
class Matched:
    """The law of x_{t−1} given x_t, of the right mean and variance in each coefficient, without their correlations."""

    order: ClassVar[int] = 1
    evaluations: ClassVar[int] = 0
    noisy: ClassVar[bool] = True

    def step(
        self, here: Iterate, log_next: Tensor, previous: PreviousStep | None, noise: Tensor, evaluate: Evaluate
    ) -> Tensor:
        _, share = decrease(here, log_next)
        variance = log_next.exp() * share + share.square() * here.variance
        return _move(here.z, here.mean, share, variance, noise)


@dataclass(frozen=True)
class TwoStepAncestral:
    """The default: second order for one evaluation a step. Its first step, and the first of each coefficient, is ancestral."""

    order: ClassVar[int] = 2
    evaluations: ClassVar[int] = 0
    noisy: ClassVar[bool] = True

    def step(
        self, here: Iterate, log_next: Tensor, previous: PreviousStep | None, noise: Tensor, evaluate: Evaluate
    ) -> Tensor:
        h, share = decrease(here, log_next)
        mean = here.mean
        if previous is not None:
            ratio = torch.where(previous.h > 0, h / torch.where(previous.h > 0, previous.h, 1.0), 0.0)
            mean = mean + 0.5 * ratio.clamp_max(LARGEST_RATIO) * previous.change
        return _move(here.z, mean, share, log_next.exp() * share, noise)


@dataclass(frozen=True)
class ProbabilityFlowHeun:
    """Heun's method for dx/dlog λ = ½(x − x̂), exact in x (exponential integrator); two evaluations a step, no noise.

    The flow carries p(·|Σ_T) to p(·|Σ_0). It is valid where x_T is a *draw* of p(y|Σ_T): for generation, and for posteriors whose
    measured coefficients are held at their λ (`paths.held`) while the others are drawn afresh for every sample. For one
    fixed y it gives one point, not a posterior sample.
    """

    order: ClassVar[int] = 2
    evaluations: ClassVar[int] = 1
    noisy: ClassVar[bool] = False

    def step(
        self, here: Iterate, log_next: Tensor, previous: PreviousStep | None, noise: Tensor, evaluate: Evaluate
    ) -> Tensor:
        half = 0.5 * (here.log_variance - log_next)
        share = -torch.expm1(-half)
        straight = here.z + share * (here.mean - here.z)
        ahead = evaluate(straight, log_next)
        # the integral of ½e^{−(h−s)/2}·s/h over the step: the weight of x̂'s change; h/4 where h is small
        weight = torch.where(half > 1e-3, 1 - share / torch.where(half > 0, half, 1.0), 0.5 * half - half.square() / 6)
        return straight + weight * (ahead.mean - here.mean)

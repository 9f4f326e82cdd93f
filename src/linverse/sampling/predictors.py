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

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from linverse.sampling.evaluator import Evaluate, Iterate

LARGEST_RATIO = 1.0  # of steps h/h': a coefficient that has only begun to move says little about where its x̂ goes


@dataclass(frozen=True)
class StepSizes:
    """How far a step goes, of each coefficient: what it needs of Σ_t, Σ_{t−1} and the step before, and nothing of the state.

    `log_next` log λ_{t−1}; `h` = −Δlog λ ≥ 0; `share` 1−a = 1−e^{−h}; `spread` √(λ_{t−1}(1−a)), the ancestral noise; `ratio` ½min(h/h', 1),
    0 where the step before stood still. All of log λ's shape, or of several steps at once, stacked in front.
    """

    log_next: Tensor
    h: Tensor
    share: Tensor
    spread: Tensor
    ratio: Tensor

    def unstacked(self) -> Iterator[StepSizes]:
        """Step by step."""
        return (StepSizes(*fields) for fields in zip(*(field.unbind(0) for field in vars(self).values()), strict=True))


def step_sizes(log_now: Tensor, log_next: Tensor, h_before: Tensor) -> StepSizes:
    """From log λ_t to log λ_{t−1}, after a step of `h_before` (0 at the start)."""
    h = log_now - log_next
    share = -torch.expm1(-h)
    ratio = torch.where(h_before > 0, 0.5 * (h / h_before).clamp_max(LARGEST_RATIO), 0.0)
    return StepSizes(log_next, h, share, (log_next.exp() * share).sqrt(), ratio)


class Predictor(Protocol):
    """One step; `evaluations` are those that it spends besides the one that made `here`."""

    order: ClassVar[int]
    evaluations: ClassVar[int]
    noisy: ClassVar[bool]

    def step(self, here: Iterate, size: StepSizes, change: Tensor | None, noise: Tensor, evaluate: Evaluate) -> Tensor:
        """Coefficients at the next level; `change` is that of x̂ over the step before, `noise` standard normal, of z's shape."""


def _move(z: Tensor, target: Tensor, size: StepSizes, spread: Tensor, noise: Tensor) -> Tensor:
    """a·z + (1−a)·target + `spread`·noise; exactly z where the level stands still."""
    return torch.addcmul(torch.lerp(z, target, size.share), spread, noise)


@dataclass(frozen=True)
class Euler:
    """The paper's step: the score times −ΔΣ, and noise of covariance −ΔΣ."""

    order: ClassVar[int] = 1
    evaluations: ClassVar[int] = 0
    noisy: ClassVar[bool] = True

    def step(self, here: Iterate, size: StepSizes, change: Tensor | None, noise: Tensor, evaluate: Evaluate) -> Tensor:
        return _move(here.z, here.mean, size, torch.exp(0.5 * size.h) * size.spread, noise)


@dataclass(frozen=True)
class Ancestral:
    """The law of x_{t−1} given x_t if x were x̂."""

    order: ClassVar[int] = 1
    evaluations: ClassVar[int] = 0
    noisy: ClassVar[bool] = True

    def step(self, here: Iterate, size: StepSizes, change: Tensor | None, noise: Tensor, evaluate: Evaluate) -> Tensor:
        return _move(here.z, here.mean, size, size.spread, noise)


@dataclass(frozen=True)
class Matched:
    """The law of x_{t−1} given x_t, of the right mean and variance in each coefficient, without their correlations."""

    order: ClassVar[int] = 1
    evaluations: ClassVar[int] = 0
    noisy: ClassVar[bool] = True

    def step(self, here: Iterate, size: StepSizes, change: Tensor | None, noise: Tensor, evaluate: Evaluate) -> Tensor:
        spread = (size.spread.square() + size.share.square() * here.variance).sqrt()
        return _move(here.z, here.mean, size, spread, noise)


@dataclass(frozen=True)
class TwoStepAncestral:
    """The default: second order for one evaluation per step. Its first step, and the first of each coefficient, is ancestral."""

    order: ClassVar[int] = 2
    evaluations: ClassVar[int] = 0
    noisy: ClassVar[bool] = True

    def step(self, here: Iterate, size: StepSizes, change: Tensor | None, noise: Tensor, evaluate: Evaluate) -> Tensor:
        mean = here.mean if change is None else torch.addcmul(here.mean, size.ratio, change)
        return _move(here.z, mean, size, size.spread, noise)


@dataclass(frozen=True)
class ProbabilityFlowHeun:
    """Heun's method for dx/dlog λ = ½(x − x̂), exact in x (exponential integrator); two evaluations per step, no noise.

    The flow carries p(·|Σ_T) to p(·|Σ_0). It is valid where x_T is a *draw* of p(y|Σ_T): for generation, and for posteriors whose
    measured coefficients are held at their λ (`paths.held`) while the others are drawn afresh for every sample. For one
    fixed y it gives one point, not a posterior sample.
    """

    order: ClassVar[int] = 2
    evaluations: ClassVar[int] = 1
    noisy: ClassVar[bool] = False

    def step(self, here: Iterate, size: StepSizes, change: Tensor | None, noise: Tensor, evaluate: Evaluate) -> Tensor:
        half = 0.5 * size.h
        share = -torch.expm1(-half)
        straight = here.z + share * (here.mean - here.z)
        ahead = evaluate(straight, size.log_next)
        # the integral of ½e^{−(h−s)/2}·s/h over the step: the weight of x̂'s change; h/4 where h is small
        weight = torch.where(half > 1e-3, 1 - share / torch.where(half > 0, half, 1.0), 0.5 * half - half.square() / 6)
        return straight + weight * (ahead.mean - here.mean)

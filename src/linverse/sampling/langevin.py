"""Langevin correctors: kernels that move samples of a target π along its gradient, with a preconditioner M.

    x' = x + ½η M∇log π(x) + √η M^{1/2} v,   v ~ N(0, I)
ULA takes every x' and is biased at any step size η. MALA accepts it, chain by chain, with probability
    min(1, π(x')q(x|x') / π(x)q(x'|x)),
    log q(x|x') − log q(x'|x) = −½√η⟨v, s⟩ − (η/8)‖s‖²,   s = M^{1/2}(∇log π(x) + ∇log π(x')),
which leaves π invariant as long as η and M depend on neither x, v nor other chains: η is adapted to an acceptance of 0.574 by dual
averaging (Hoffman & Gelman 2014) in a warm-up that does not count, then frozen.

`SignalToNoiseULA` is the paper's corrector (algorithm 2), under its own name because its step depends on x and v.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from linverse.rng import normal_like
from linverse.sampling.evaluator import Iterate
from linverse.sampling.targets import Target

OPTIMAL_ACCEPTANCE = 0.574  # Roberts & Rosenthal 1998


@dataclass(frozen=True)
class ChainState:
    """Where the chains are, with what was evaluated there."""

    iterate: Iterate
    drift: Tensor


@dataclass(frozen=True)
class KernelInfo:
    """Of each chain, [B]: acceptance probability, whether it moved, step size, and U after the step."""

    acceptance: Tensor
    accepted: Tensor
    step_size: Tensor
    energy: Tensor


class Kernel(Protocol):
    """A Markov kernel on the coefficients of a target."""

    def init(self, x: Tensor, target: Target) -> ChainState:
        """Evaluate the target where the chains start."""

    def step(
        self, state: ChainState, target: Target, generator: torch.Generator | None
    ) -> tuple[ChainState, KernelInfo]:
        """One move of every chain: one evaluation of the energy."""


def begin_chain(iterate: Iterate, target: Target) -> ChainState:
    """A state from an iterate that was evaluated already."""
    return ChainState(iterate, target.drift(iterate))


def _white(drift: Tensor, scale: Tensor) -> Tensor:
    """M^{-1/2} drift = M^{1/2}∇log π, float64; 0 where pinned."""
    scale = scale.double()
    return torch.where(scale > 0, drift.double() / torch.where(scale > 0, scale, 1.0), 0.0)


def _total(values: Tensor) -> Tensor:
    return values.sum(dim=(1, 2, 3))


@dataclass(frozen=True, eq=False)
class ULA:
    """Unadjusted Langevin. `step_size` η: a number, or one per chain [B]; by default d^{−1/3}."""

    step_size: float | Tensor | None = None

    def init(self, x: Tensor, target: Target) -> ChainState:
        return begin_chain(target.evaluate(x), target)

    def steps_like(self, z: Tensor) -> Tensor:
        """η of each chain, [B]."""
        value = z[0].numel() ** (-1 / 3) if self.step_size is None else self.step_size
        return torch.as_tensor(value, dtype=z.dtype, device=z.device).expand(z.shape[0])

    def propose(self, state: ChainState, target: Target, noise: Tensor) -> ChainState:
        """x' and what is known there."""
        eta = self.steps_like(noise).reshape(-1, 1, 1, 1)
        z = state.iterate.z + 0.5 * eta * state.drift + eta.sqrt() * target.scale * noise
        return begin_chain(target.evaluate(z), target)

    def step(
        self, state: ChainState, target: Target, generator: torch.Generator | None
    ) -> tuple[ChainState, KernelInfo]:
        proposal = self.propose(state, target, normal_like(state.iterate.z, generator))
        return proposal, _certain(proposal, self.steps_like(proposal.iterate.z))


def _certain(state: ChainState, step_size: Tensor) -> KernelInfo:
    """The info of a kernel that accepts everything."""
    ones = torch.ones_like(state.iterate.energy)
    return KernelInfo(ones, ones.bool(), step_size, state.iterate.energy)


@dataclass(frozen=True, eq=False)
class MALA(ULA):
    """Metropolis-adjusted Langevin: exact at any step size."""

    def log_proposal_ratio(self, state: ChainState, proposal: ChainState, noise: Tensor, target: Target) -> Tensor:
        """log q(x|x') − log q(x'|x), [B], float64."""
        eta = self.steps_like(noise).double()
        s = _white(state.drift + proposal.drift, target.scale)
        return -0.5 * eta.sqrt() * _total(noise.double() * s) - eta / 8 * _total(s.square())

    def log_acceptance(self, state: ChainState, proposal: ChainState, noise: Tensor, target: Target) -> Tensor:
        """log of π(x')q(x|x') / π(x)q(x'|x), [B]."""
        log_ratio = target.log_ratio(state.iterate, proposal.iterate)
        return log_ratio + self.log_proposal_ratio(state, proposal, noise, target)

    def step(
        self, state: ChainState, target: Target, generator: torch.Generator | None
    ) -> tuple[ChainState, KernelInfo]:
        noise = normal_like(state.iterate.z, generator)
        proposal = self.propose(state, target, noise)
        acceptance = self.log_acceptance(state, proposal, noise, target).clamp_max(0).exp()
        accepted = _uniform_like(acceptance, generator) < acceptance
        iterate = proposal.iterate.where(accepted, state.iterate)
        drift = torch.where(accepted.reshape(-1, 1, 1, 1), proposal.drift, state.drift)
        return ChainState(iterate, drift), KernelInfo(acceptance, accepted, self.steps_like(noise), iterate.energy)


def _uniform_like(x: Tensor, generator: torch.Generator | None) -> Tensor:
    device = generator.device if generator is not None else x.device
    return torch.rand(x.shape, generator=generator, dtype=x.dtype, device=device).to(x.device)


@dataclass(frozen=True, eq=False)
class SignalToNoiseULA:
    """The paper's corrector: ε = 2(r‖v‖/‖g‖)², x' = x + εg + √(2Tε)v with g = ∇log π over the coefficients that are not pinned.

    The step depends on the state and on the noise, so that it cannot be Metropolised; norms are taken chain by chain.
    """

    r: float = 0.15

    def init(self, x: Tensor, target: Target) -> ChainState:
        return begin_chain(target.evaluate(x), target)

    def step(
        self, state: ChainState, target: Target, generator: torch.Generator | None
    ) -> tuple[ChainState, KernelInfo]:
        z = state.iterate.z
        free = target.scale > 0
        noise = torch.where(free, normal_like(z, generator), 0.0)
        gradient = target.temperature * torch.where(
            free, state.drift / torch.where(free, target.scale, 1.0).square(), 0.0
        )
        norms = [_total(t.double().square()).sqrt() for t in (noise, gradient)]
        epsilon = (2 * (self.r * norms[0] / norms[1]).square()).to(z.dtype)
        rows = epsilon.reshape(-1, 1, 1, 1)
        z = z + rows * gradient + (2 * target.temperature * rows).sqrt() * noise
        moved = begin_chain(target.evaluate(z), target)
        return moved, _certain(moved, epsilon)


# --- adaptation, before anything counts ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DualAveraging:
    """log η that drives a mean acceptance to `wanted`: the iterate `log_step`, and its weighted average to keep in the end."""

    log_start: Tensor
    log_step: Tensor
    log_average: Tensor
    error: Tensor
    count: int = 0
    wanted: float = OPTIMAL_ACCEPTANCE

    @staticmethod
    def begin(step_size: Tensor, wanted: float = OPTIMAL_ACCEPTANCE) -> DualAveraging:
        log_step = step_size.double().log()
        return DualAveraging(log_step, log_step, log_step, torch.zeros_like(log_step), wanted=wanted)

    def update(self, acceptance: Tensor, rate: float = 0.05, delay: float = 10.0, decay: float = 0.75) -> DualAveraging:
        count = self.count + 1
        error = torch.lerp(self.error, self.wanted - acceptance, torch.full_like(acceptance, 1 / (count + delay)))
        log_step = self.log_start - math.sqrt(count) / rate * error
        log_average = torch.lerp(self.log_average, log_step, torch.full_like(acceptance, count**-decay))
        return replace(self, log_step=log_step, log_average=log_average, error=error, count=count)


def warm_up(
    kernel: MALA,
    state: ChainState,
    target: Target,
    steps: int,
    generator: torch.Generator | None = None,
    *,
    wanted: float = OPTIMAL_ACCEPTANCE,
    pooled: bool = True,
) -> tuple[ChainState, MALA]:
    """`steps` adaptive moves, and the kernel with its step size frozen: one for all chains, or (not `pooled`) one per chain."""
    step_size = kernel.steps_like(state.iterate.z).double()
    averaging = DualAveraging.begin(step_size.mean().reshape(1) if pooled else step_size, wanted)
    for _ in range(steps):
        trial = replace(kernel, step_size=averaging.log_step.exp().expand_as(step_size))
        state, info = trial.step(state, target, generator)
        averaging = averaging.update(info.acceptance.mean().reshape(1) if pooled else info.acceptance)
    frozen = averaging.log_average.exp()
    return state, replace(kernel, step_size=float(frozen) if pooled else frozen)

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from problems import DIM, SHAPE, Problem, discrepancy, draw, prior, problem
from torch import Tensor
from torch.distributions import Normal

from linverse.operator_measurement import LinearMap, OperatorMeasurement
from linverse.rng import keyed_generator
from linverse.sampling import (
    MALA,
    ULA,
    ChainState,
    Kernel,
    OperatorTarget,
    PathTarget,
    SignalToNoiseULA,
    Target,
    clamped,
    warm_up,
)
from linverse.sampling.evaluator import Evaluator, Iterate
from linverse.sampling.langevin import DualAveraging
from oracles import Law

CHAINS = 5000


def level(task: Problem, temperature: float = 1.0, share: float = 0.57) -> tuple[PathTarget, Law, Tensor]:
    """π_t in the middle of a clamped path, its exact law, and the coefficients (pixels here) that are free."""
    path = clamped(task.cov, 1e-4, 100)
    log_variance = path.log_variance[round(100 * share)]
    target = PathTarget(Evaluator(task.energy, task.cov), task.y, task.cov.log_variance, log_variance, temperature)
    noise, floor = task.cov.variance.flatten(), log_variance.exp().flatten()
    law = prior(len(task.energy.means))[1]
    blurred = Law(law.log_weights, law.means, law.covariances + torch.diag(floor))
    exact = blurred.posterior(task.y, torch.eye(DIM).double(), torch.diag(noise - floor))
    return target, exact, (noise > floor).nonzero().flatten()


def after(kernel: Kernel, target: Target, exact: Law, free: Tensor, steps: int = 20) -> float:
    """Discrepancy after some moves from exact samples."""
    generator = keyed_generator("mala")
    state = kernel.init(draw(exact, CHAINS, generator), target)
    for _ in range(steps):
        state, _ = kernel.step(state, target, generator)
    return discrepancy(state.iterate.z.flatten(1)[:, free], exact.coordinates(free))


# --- targets ---------------------------------------------------------------------------------------------------------------


def log_density(task: Problem, target: PathTarget, z: Tensor) -> Tensor:
    """log π_t up to a constant, the long way."""
    cov = task.cov.with_log_variance(target.log_variance).expand(len(z))
    gap = (task.cov.variance - target.log_variance.exp()).expand_as(z)
    likelihood = torch.where(gap > 0, -0.5 * (task.y - z).square() / torch.where(gap > 0, gap, 1.0), 0.0).sum(
        dim=(1, 2, 3)
    )
    return (-task.energy(z, cov) + likelihood) / target.temperature


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_path_targets_gradient_and_ratio(temperature: float) -> None:
    task = problem("mask", 3)
    target, exact, free = level(task, temperature)
    assert 0 < len(free) < DIM  # some are pinned
    a, b = (draw(exact, 5, keyed_generator("pair", i)) for i in range(2))
    a.requires_grad_()
    (gradient,) = torch.autograd.grad(log_density(task, target, a).sum(), a)
    a = a.detach()
    drift = target.drift(target.evaluate(a))
    expected = (target.scale.square() * gradient).flatten(1)
    torch.testing.assert_close(drift.flatten(1)[:, free], expected[:, free], rtol=1e-8, atol=1e-12)
    pinned = [i for i in range(DIM) if i not in free.tolist()]
    assert float(drift.flatten(1)[:, pinned].abs().max()) == 0 == float(target.scale.flatten()[pinned].max())
    ratio = target.log_ratio(target.evaluate(a), target.evaluate(b))
    torch.testing.assert_close(ratio, log_density(task, target, b) - log_density(task, target, a), rtol=1e-8, atol=1e-8)


def test_the_ratio_of_float32_chains_is_accurate() -> None:
    task = problem("mask", 3)
    target, exact, _ = level(task)
    near = draw(exact, 50, keyed_generator("near")).float().double()
    far = (near + 1e-3 * torch.randn(near.shape, generator=keyed_generator("far")).double()).float().double()
    single = replace(
        target, y=task.y.float(), log_start=target.log_start.float(), log_variance=target.log_variance.float()
    )

    def ratio(t: PathTarget, dtype: torch.dtype) -> Tensor:
        return t.log_ratio(*(replace(target.evaluate(z), z=z.to(dtype)) for z in (near, far)))

    # y is rounded too, which moves the likelihood itself by about this much
    assert float((ratio(single, torch.float32) - ratio(target, torch.float64)).abs().max()) < 1e-4


def operator_target(temperature: float = 1.0) -> tuple[OperatorTarget, Tensor, Law]:
    energy, law = prior(3)
    matrix = 0.5 * torch.randn(5, DIM, generator=keyed_generator("H"), dtype=torch.float64)
    cov = problem("mask", 3).cov.isotropic(1e-2)
    raw = torch.randn(1, 5, generator=keyed_generator("raw"), dtype=torch.float64)

    def forward(x: Tensor) -> Tensor:
        return x.flatten(1) @ matrix.mT

    def backward(r: Tensor) -> Tensor:
        return (r @ matrix).reshape(-1, *SHAPE)

    seen = OperatorMeasurement(raw, LinearMap(forward, backward, torch.zeros(1, *SHAPE).double()), 0.2)
    target = OperatorTarget(Evaluator(energy, cov), cov, seen, temperature)
    blurred = Law(law.log_weights, law.means, law.covariances + 1e-2 * torch.eye(DIM))
    return target, matrix, blurred


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_operator_targets_gradient_and_ratio(temperature: float) -> None:
    target, matrix, blurred = operator_target(temperature)
    exact = blurred.posterior(target.seen.raw, matrix, 0.2 * torch.eye(5).double() - 1e-2 * matrix @ matrix.mT)
    a, b = (draw(exact, 5, keyed_generator("pair", i)) for i in range(2))
    a.requires_grad_()
    (gradient,) = torch.autograd.grad((exact.log_density(a) / temperature).sum(), a)
    a = a.detach()
    torch.testing.assert_close(target.drift(target.evaluate(a)), target.scale.square() * gradient, rtol=1e-4, atol=1e-6)
    ratio = target.log_ratio(target.evaluate(a), target.evaluate(b))
    torch.testing.assert_close(ratio, (exact.log_density(b) - exact.log_density(a)) / temperature, rtol=1e-4, atol=1e-4)


def test_mala_on_any_linear_operator_leaves_its_posterior_invariant() -> None:
    target, matrix, blurred = operator_target()
    exact = blurred.posterior(target.seen.raw, matrix, 0.2 * torch.eye(5).double() - 1e-2 * matrix @ matrix.mT)
    everything = torch.arange(DIM)
    assert after(MALA(4.0), target, exact, everything) < 1
    assert after(ULA(4.0), target, exact, everything) > 1


# --- MALA ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_proposal_ratio_equals_that_of_the_explicit_densities(temperature: float) -> None:
    task = problem("mask", 3)
    target, exact, free = level(task, temperature)
    kernel = MALA(torch.tensor([0.3, 0.9, 1.7]).double())
    state = kernel.init(draw(exact, 3, keyed_generator("explicit")), target)
    noise = torch.randn(3, *SHAPE, generator=keyed_generator("v"), dtype=torch.float64)
    proposal = kernel.propose(state, target, noise)
    eta = kernel.steps_like(noise).reshape(-1, 1)
    width = eta.sqrt() * target.scale.flatten()[free]

    def log_q(to: ChainState, given: ChainState) -> Tensor:
        centre = (given.iterate.z + 0.5 * eta.reshape(-1, 1, 1, 1) * given.drift).flatten(1)[:, free]
        return Normal(centre, width).log_prob(to.iterate.z.flatten(1)[:, free]).sum(dim=1)

    explicit = log_q(state, proposal) - log_q(proposal, state)
    torch.testing.assert_close(
        kernel.log_proposal_ratio(state, proposal, noise, target), explicit, rtol=1e-9, atol=1e-9
    )


class WithoutProposalRatio(MALA):
    def log_proposal_ratio(self, state: ChainState, proposal: ChainState, noise: Tensor, target: Target) -> Tensor:
        return torch.zeros(len(noise), dtype=torch.float64)


class StateDependentStep(MALA):
    """The signal-to-noise rule inside MALA: η is a function of the state, and its normaliser is ignored."""

    def _frozen(self, state: ChainState, target: Target, noise: Tensor) -> MALA:
        free = target.scale > 0
        gradient = torch.where(free, state.drift / target.scale, 0.0).flatten(1).norm(dim=1)
        return MALA((self.steps_like(noise) * (noise * free).flatten(1).norm(dim=1) / gradient).clamp_max(8.0))

    def propose(self, state: ChainState, target: Target, noise: Tensor) -> ChainState:
        return self._frozen(state, target, noise).propose(state, target, noise)

    def log_proposal_ratio(self, state: ChainState, proposal: ChainState, noise: Tensor, target: Target) -> Tensor:
        return self._frozen(state, target, noise).log_proposal_ratio(state, proposal, noise, target)


class WithoutMeasurement(PathTarget):
    def log_ratio(self, old: Iterate, new: Iterate) -> Tensor:
        return old.energy - new.energy


def test_mala_leaves_the_exact_posterior_invariant_and_the_test_can_tell() -> None:
    task = problem("mask", 3)
    target, exact, free = level(task, share=0.7)  # where what was measured is free, and the measurement counts
    eta = 3.0
    generator = keyed_generator("acceptance")
    state = MALA(eta).init(draw(exact, 1000, generator), target)
    assert 0.3 < float(MALA(eta).step(state, target, generator)[1].acceptance.mean()) < 0.9
    assert after(MALA(eta), target, exact, free) < 1
    assert after(ULA(eta), target, exact, free) > 1
    assert after(WithoutProposalRatio(eta), target, exact, free) > 1
    assert after(StateDependentStep(eta), target, exact, free) > 1
    dropped = WithoutMeasurement(target.evaluator, target.y, target.log_start, target.log_variance)
    assert after(MALA(eta), dropped, exact, free) > 1


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_temperature_heats_prior_and_likelihood_alike(temperature: float) -> None:
    task = problem("mask", 1)
    target, exact, free = level(task, temperature)
    # the power of a Gaussian is a Gaussian of scaled covariance
    heated = Law(exact.log_weights, exact.means, temperature * exact.covariances)
    assert after(MALA(1.2), target, heated, free) < 1
    assert after(MALA(1.2), target, exact, free) > 1


def test_chains_do_not_see_each_other() -> None:
    task = problem("mask", 3)
    target, exact, _ = level(task)
    z = draw(exact, 6, keyed_generator("six"))
    other = z.clone()
    other[1:] += 3.0
    ends = []
    for begin in (z, other):
        generator, state = keyed_generator("same"), MALA(1.0).init(begin, target)
        for _ in range(10):
            state, _ = MALA(1.0).step(state, target, generator)
        ends.append(state.iterate.z)
    assert torch.equal(ends[0][0], ends[1][0])
    assert not torch.equal(ends[0][1], ends[1][1])


@pytest.mark.parametrize("kernel", [ULA(0.5), MALA(0.5), SignalToNoiseULA(0.15)], ids=lambda k: type(k).__name__)
def test_pinned_coefficients_do_not_move_and_states_stay_consistent(kernel: Kernel) -> None:
    task = problem("mask", 3)
    target, exact, free = level(task)
    z = draw(exact, 20, keyed_generator("pinned"))
    pinned = torch.ones(DIM, dtype=torch.bool)
    pinned[free] = False
    z.flatten(1)[:, pinned] = task.y.flatten()[pinned]
    state, generator = kernel.init(z, target), keyed_generator("steps")
    for _ in range(5):
        state, info = kernel.step(state, target, generator)
    assert torch.equal(state.iterate.z.flatten(1)[:, pinned], z.flatten(1)[:, pinned])
    assert not torch.equal(state.iterate.z, z)
    fresh = kernel.init(state.iterate.z, target)
    torch.testing.assert_close(fresh.drift, state.drift)
    torch.testing.assert_close(fresh.iterate.energy, state.iterate.energy)
    torch.testing.assert_close(info.energy, state.iterate.energy)
    assert info.acceptance.shape == info.accepted.shape == info.step_size.shape == (20,)


def test_the_papers_step_rule() -> None:
    """ε = 2(r‖v‖/‖g‖)²; x' = x + εg + √(2Tε)v, chain by chain."""
    task = problem("mask", 3)
    target, exact, free = level(task, temperature=0.9)
    z = draw(exact, 4, keyed_generator("snr")).requires_grad_()
    cold = level(task)[0]
    (g,) = torch.autograd.grad(log_density(task, cold, z).sum(), z)
    z = z.detach()
    mask = torch.zeros(DIM, dtype=torch.float64)
    mask[free] = 1
    mask = mask.reshape(SHAPE)
    v = torch.randn(z.shape, generator=keyed_generator("same"), dtype=torch.float64) * mask
    g = g * mask
    epsilon = 2 * (0.15 * v.flatten(1).norm(dim=1) / g.flatten(1).norm(dim=1)).square()
    rows = epsilon.reshape(-1, 1, 1, 1)
    expected = z + rows * g + (2 * 0.9 * rows).sqrt() * v
    kernel = SignalToNoiseULA(0.15)
    state, info = kernel.step(kernel.init(z, target), target, keyed_generator("same"))
    torch.testing.assert_close(info.step_size, epsilon)
    torch.testing.assert_close(state.iterate.z, expected)


@pytest.mark.parametrize("pooled", [True, False])
def test_dual_averaging_finds_the_wanted_acceptance(pooled: bool) -> None:
    task = problem("mask", 3)
    target, exact, _ = level(task)
    generator = keyed_generator("adapt")
    chains = 200 if pooled else 20
    state = MALA(0.01).init(draw(exact, chains, generator), target)
    state, kernel = warm_up(MALA(0.01), state, target, 300, generator, pooled=pooled)
    assert isinstance(kernel.step_size, float) == pooled
    acceptance = []
    for _ in range(200):
        state, info = kernel.step(state, target, generator)
        acceptance.append(info.acceptance)
    assert float(torch.stack(acceptance).mean()) == pytest.approx(0.574, abs=0.04 if pooled else 0.08)


def test_dual_averaging_follows_hoffman_and_gelman() -> None:
    averaging = DualAveraging.begin(torch.tensor([0.5]), wanted=0.6)
    h, log_step, log_average = 0.0, math.log(0.5), math.log(0.5)
    for m, acceptance in enumerate((0.1, 0.9, 0.4), start=1):
        averaging = averaging.update(torch.tensor([acceptance]).double())
        h = (1 - 1 / (m + 10)) * h + (0.6 - acceptance) / (m + 10)
        log_step = math.log(0.5) - math.sqrt(m) / 0.05 * h
        log_average = m**-0.75 * log_step + (1 - m**-0.75) * log_average
    assert float(averaging.log_step) == pytest.approx(log_step)
    assert float(averaging.log_average) == pytest.approx(log_average)


def test_bad_targets_are_refused() -> None:
    task = problem("mask", 1)
    target, _, _ = level(task)
    with pytest.raises(ValueError, match="temperature"):
        replace(target, temperature=0.0)
    with pytest.raises(ValueError, match="cannot be noisier"):
        replace(target, log_variance=target.log_start + 1)

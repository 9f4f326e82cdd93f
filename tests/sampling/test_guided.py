from __future__ import annotations

import math

import pytest
import torch
from problems import discrepancy, problem
from torch import Tensor

from linverse.analytic import GaussianMixture
from linverse.covariance import SpatialCovariance, VarianceRange
from linverse.rng import keyed_generator
from linverse.sampling import (
    MALA,
    KernelInfo,
    MagnitudeStep,
    MirrorStep,
    PathTarget,
    Rule,
    TwoStepAncestral,
    VarianceStep,
    freeze,
    sample,
)
from linverse.sampling.evaluator import Iterate
from linverse.sampling.guided import join_paths
from linverse.sampling.langevin import begin_chain
from linverse.sampling.paths import geometric
from linverse.sampling.run import GuidedSchedule, Run

FLOOR = 1e-3
RULES: dict[str, Rule] = {
    "mirror": MirrorStep(slowest=0.1, fastest=0.3, gamma=0.6),
    "magnitude": MagnitudeStep(slowest=0.1, fastest=0.3, gamma=0.3),
    "variance": VarianceStep(slowest=0.1, fastest=0.3, tolerance=0.1),
}


def iterate(kappa: Tensor, variance: Tensor, log_variance: Tensor) -> Iterate:
    return Iterate(kappa, log_variance, kappa, variance, kappa, torch.zeros(1))


def test_the_rules() -> None:
    kappa = torch.tensor([-40.0, -0.2, 0.0, 0.5]).reshape(1, 1, 1, 4)
    log_variance = torch.zeros(1, 1, 1, 4)
    here = iterate(kappa, torch.tensor([0.0, 0.1, 1.0, 4.0]).reshape(1, 1, 1, 4), log_variance)
    floor = torch.full_like(log_variance, -10.0)

    def rates(rule: Rule) -> list[float]:
        return (log_variance - rule.next_level(here, floor)).flatten().tolist()

    options = {"slowest": 0.05, "fastest": 1.0}
    assert rates(MirrorStep(**options, gamma=2.0)) == pytest.approx([0.05, 0.05, 0.05, math.log(2)])
    assert rates(MagnitudeStep(**options, gamma=2.0)) == pytest.approx([1.0, math.log(1.4), 0.05, math.log(2)])
    variance = rates(VarianceStep(**options, tolerance=0.1))
    assert variance == pytest.approx([1.0, math.log(2), math.log(1.1), 0.05])
    near = torch.full_like(log_variance, -0.02)
    assert MirrorStep().next_level(here, near).flatten().tolist() == pytest.approx([-0.02] * 4)
    above = torch.full_like(log_variance, 1.0)
    assert torch.equal(MirrorStep().next_level(here, above), log_variance)


@pytest.mark.parametrize("name", RULES)
def test_guided_paths_end_never_rise_and_give_the_same_law(name: str) -> None:
    task = problem("mask", 3)
    rule = RULES[name]
    chains = 1000
    result = sample(
        task.energy, task.many(chains), task.cov, rule, floor=FLOOR, finish="sample", generator=keyed_generator(name)
    )
    path = result.path
    assert path.batch == chains
    assert bool((path.log_variance.diff(dim=0) <= 0).all())
    torch.testing.assert_close(path.log_variance[-1].max(), torch.tensor(math.log(FLOOR)).double())
    assert path.steps <= rule.most_steps(task.cov.log_variance, torch.tensor(math.log(FLOOR)))
    assert path.steps == result.evaluations - 1
    assert float(path.log_variance[len(path.log_variance) // 2].std(dim=0).max()) > 0  # each sample has its own
    assert discrepancy(result.samples, task.law) < 1


def test_slow_rates_bound_the_steps() -> None:
    task = problem("mask", 1)
    rule = MirrorStep(slowest=0.5, fastest=0.5)
    result = sample(task.energy, task.y, task.cov, rule, floor=FLOOR)
    assert result.path.steps == math.ceil(math.log(1e3 / FLOOR) / 0.5)
    with pytest.raises(ValueError, match="slowest"):
        MirrorStep(slowest=0.0)


def test_a_corrector_needs_a_frozen_path() -> None:
    task = problem("mask", 3)
    with pytest.raises(ValueError, match="freeze"):
        sample(task.energy, task.y, task.cov, MirrorStep(), corrector=MALA(), floor=FLOOR)
    pilot = sample(
        task.energy, task.many(50), task.cov, RULES["variance"], floor=FLOOR, generator=keyed_generator("pilot")
    )
    path = freeze(pilot.path).resample(60)
    assert path.batch == 1
    path.check_start(task.cov)
    result = sample(
        task.energy,
        task.many(1500),
        task.cov,
        path,
        corrector=MALA(0.5),
        finish="sample",
        generator=keyed_generator("frozen"),
    )
    assert discrepancy(result.samples, task.law) < 1


def two_sided(chains: int, plus: float) -> tuple[GaussianMixture, Tensor, SpatialCovariance]:
    """One pixel near +1 or −1, and a measurement, for every chain the same, after which it is +1 with probability `plus`."""
    spread, noise = 0.01, 4.0
    means = torch.tensor([[-1.0], [1.0]]).double()
    energy = GaussianMixture(torch.ones(2), means, spread * torch.ones(2, 1, 1), (1, 1, 1), VarianceRange(1e-6, 1e3))
    y = torch.full((chains, 1, 1, 1), math.log(plus / (1 - plus)) * (spread + noise) / 2).double()
    cov = SpatialCovariance(torch.full((1, 1, 1, 1), math.log(noise)).double())
    assert float(energy.posterior(y[:1], cov).log_weights.exp()[0, 1]) == pytest.approx(plus)
    return energy, y, cov


def test_a_short_corrector_on_an_adaptive_schedule_is_biased_and_on_a_frozen_one_is_not() -> None:
    """Among the chains at one λ_t those that the rule hurried there are too many: x_t given λ_t is not p(x_t|y) (mathematics §7).

    `sample` refuses the combination; its pieces show why. Shares of 3000 chains have a standard error of 0.008.
    """
    chains, plus, floor = 3000, 0.7305, 1e-3
    energy, y, cov = two_sided(chains, plus)
    rule, kernel, generator = VarianceStep(0.05, 1.0, tolerance=0.03), MALA(1.0), keyed_generator("adaptive")

    def correct(step: int, target: PathTarget, here: Iterate) -> tuple[Iterate, list[KernelInfo]]:
        state, info = kernel.step(begin_chain(here, target), target, generator)
        return state.iterate, [info]

    def share(x: Tensor) -> float:
        return float((x > 0).double().mean())

    wide = cov.expand(chains)
    run = Run(energy, y, wide, GuidedSchedule(rule, wide.isotropic(floor)), TwoStepAncestral(), correct, 1.0, generator)
    with torch.no_grad():
        run.go(lambda done, total: None)
    assert run.iterate is not None
    error = math.sqrt(plus * (1 - plus) / chains)
    assert share(run.iterate.mean) > plus + 8 * error
    alone = sample(energy, y, cov, rule, floor=floor, generator=generator)
    frozen = freeze(alone.path).resample(60)
    mended = sample(energy, y, cov, frozen, corrector=kernel, generator=generator)
    for right in (alone, mended):  # up to the error of finite steps, below 0.01
        assert abs(share(right.samples) - plus) < 4.5 * error + 0.01


def test_freezing_averages_one_measurement_at_a_time() -> None:
    task = problem("mask", 1)
    a, b = geometric(task.cov.expand(2), 1e-2, 4), geometric(task.cov.expand(2) * 2.0, 1e-2, 6)
    both = join_paths([a, b])
    assert both.steps == 6
    assert torch.equal(both.log_variance[4, 0], both.log_variance[6, 0])  # arrived, and waits
    with pytest.raises(ValueError, match="different Σ"):
        freeze(both)
    with pytest.raises(ValueError, match="groups of 3"):
        freeze(both, group=3)
    frozen = freeze(both, group=2)
    torch.testing.assert_close(frozen.log_variance[:, 1], b.log_variance[:, 0])

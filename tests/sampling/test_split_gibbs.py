"""Any linear operator against exact dense posteriors; what the chains report; what a Posterior of one answers."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import pytest
import torch
from problems import discrepancy, draw
from torch import Tensor

import linverse as lv
from linverse import degradations as dg
from linverse.analytic import DiagonalGaussian, GaussianMixture
from linverse.conjugate_gradients import conjugate_gradients
from linverse.covariance import FourierCovariance, SpatialCovariance, VarianceRange
from linverse.metrics import rank_statistics
from linverse.operator_measurement import OperatorMeasurement
from linverse.operator_posterior import Convergence, OperatorPosterior
from linverse.rng import keyed_generator
from linverse.sampling import MALA, Evaluator, OperatorTarget, SplitGibbsOptions, coupling, sample_operator
from linverse.sampling.chebyshev import root_of_complement
from linverse.sampling.diagnostics import uniformity
from linverse.sampling.langevin import begin_chain
from linverse.sampling.split_gibbs import Chains
from linverse.sampling.surrogate import surrogate
from oracles import Law, matrix_of, random_spd

SHAPE, DIM, SIGMA = (1, 2, 4), 8, 0.2
LIMITS = VarianceRange(1e-6, 1e3)
OPERATORS: dict[str, dg.Degradation] = {
    "tomography": dg.Tomography((2, 4), 3, SIGMA),
    "projections": dg.CompressedSensing((2, 4), 0.5, SIGMA),
    "varying blur": dg.VaryingBlur.across((2, 4), 0.4, 1.2, SIGMA),
}


@dataclass(frozen=True)
class Problem:
    """Data of one image, and the exact law of x given them."""

    energy: GaussianMixture
    prior: Law
    degradation: dg.Degradation
    seen: OperatorMeasurement
    law: Law


def problem(name: str, components: int) -> Problem:
    generator = keyed_generator("split", name, components)
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)[:components]
    weights = weights / weights.sum()
    means = torch.rand(components, DIM, generator=generator, dtype=torch.float64)
    spread = random_spd(generator, components, DIM, 0.03)
    energy, prior = (
        GaussianMixture(weights, means, spread, SHAPE, LIMITS),
        Law(weights.log()[None], means[None], spread),
    )
    degradation = OPERATORS[name]
    seen = degradation.measure(energy.sample(1, generator).clamp(-0.4, 1.4), generator)
    assert isinstance(seen, OperatorMeasurement)
    return Problem(energy, prior, degradation, seen, posterior_of(prior, degradation, seen.raw))


def posterior_of(prior: Law, degradation: dg.Degradation, raw: Tensor) -> Law:
    matrix = matrix_of(degradation.operator, SHAPE)
    return prior.posterior(raw, matrix, SIGMA**2 * torch.eye(len(matrix), dtype=torch.float64))


@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize("name", OPERATORS)
def test_samples_follow_the_exact_posterior(name: str, components: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mean, covariance and marginals of a correlated Gaussian and of a mixture, from chains that start far away.

    Pictures of eight pixels gain little by noise that is not white between x and z: all but projections are made to take it.
    """
    if name != "projections":
        monkeypatch.setattr(coupling, "LEAST_GAIN", -math.inf)
    given = problem(name, components)
    options = SplitGibbsOptions(sweeps=15, path=16)
    found = sample_operator(given.energy, given.seen[[0] * 800], options, generator=keyed_generator("chains"))
    assert discrepancy(found.samples, given.law) < 1
    assert found.r_hat(1).shape == (1,)


def test_white_noise_between_takes_shorter_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    given = problem("tomography", 1)
    counts = []
    for least in (math.inf, -math.inf):
        monkeypatch.setattr(coupling, "LEAST_GAIN", least)
        options = SplitGibbsOptions(sweeps=15, path=16)
        counts.append(sample_operator(given.energy, given.seen, options, generator=keyed_generator("one")).evaluations)
    assert counts[0] < counts[1]


@pytest.mark.parametrize("name", ["projections", "tomography"])
def test_z_given_x_has_its_exact_law(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """N(x + Σ_zHᵀ(y − Hx)/σ², Σ_z − Σ_zHᵀHΣ_z/σ²) in the exact sweeps."""
    monkeypatch.setattr(coupling, "LEAST_GAIN", math.inf if name == "projections" else -math.inf)
    given = problem(name, 1)
    rows = given.seen[[0] * 4000]
    chains = Chains(given.energy, rows, surrogate(given.energy, given.seen), SplitGibbsOptions(), keyed_generator("z"))
    assert chains.noise.basis == ("spatial" if name == "projections" else "fourier")
    x = torch.rand(1, *SHAPE, generator=keyed_generator("x"), dtype=torch.float64)
    matrix = matrix_of(given.degradation.operator, SHAPE)
    noise = matrix_of(chains.noise.apply, SHAPE)
    raw, many = given.seen.raw.flatten(1), x.expand(4000, -1, -1, -1)
    gain = noise @ matrix.mT / SIGMA**2
    centre = x.flatten(1) + (raw - x.flatten(1) @ matrix.mT) @ gain.mT
    exact = Law(torch.zeros(1, 1).double(), centre[None], (noise - gain @ matrix @ noise)[None])
    assert discrepancy(chains.exact_draw(many, chains.noise), exact) < 1


def test_the_metropolis_option_leaves_the_posterior_invariant() -> None:
    """Exact draws of x, and so of z, stay exact under many moves; x given z is drawn exactly to look at them."""
    given = problem("tomography", 3)
    count, generator = 1200, keyed_generator("invariant")
    rows, start = given.seen[[0] * count], surrogate(given.energy, given.seen)
    chains = Chains(given.energy, rows, start, SplitGibbsOptions(metropolis=True), generator)
    level = chains.template.isotropic(chains.coupling)
    target = OperatorTarget(Evaluator(given.energy, chains.template), level, chains.seen)
    state = begin_chain(target.evaluate(chains.exact_draw(draw(given.law, count, generator), level)), target)
    accepted = []
    for _ in range(12):
        state, info = MALA(1.0).step(state, target, generator)
        accepted.append(float(info.acceptance.mean()))
    assert 0.3 < sum(accepted) / 12 < 0.95  # something was refused, and most moved
    x = given.energy.posterior(state.iterate.z, level.expand(count)).sample(1, generator)[:, 0]
    assert discrepancy(x, given.law) < 1


def test_the_metropolis_option_samples_the_posterior() -> None:
    given = problem("projections", 1)
    options = SplitGibbsOptions(sweeps=16, path=8, metropolis=True)
    found = sample_operator(given.energy, given.seen[[0] * 600], options, generator=keyed_generator("mala"))
    assert discrepancy(found.samples, given.law) < 1
    assert found.acceptance is not None
    assert found.acceptance.shape == (8 * 8, 600)
    assert float(found.acceptance.mean()) == pytest.approx(0.574, abs=0.12)


def test_ranks_of_the_truth_are_uniform() -> None:
    """Simulation-based calibration: 160 images, 7 samples of each."""
    given = problem("tomography", 3)
    generator = keyed_generator("ranks")
    truth = given.energy.sample(160, generator).clamp(-0.4, 1.4)
    seen = given.degradation.measure(truth, generator)
    assert isinstance(seen, OperatorMeasurement)
    rows = seen[torch.arange(160).repeat(7)]
    found = sample_operator(given.energy, rows, SplitGibbsOptions(12, 12), generator=generator)
    drawn = found.samples.unflatten(0, (7, 160)).flatten(2)
    for direction in torch.randn(3, DIM, generator=keyed_generator("directions"), dtype=torch.float64):
        ranks = rank_statistics((drawn @ direction).mT, truth.flatten(1) @ direction)
        assert uniformity(ranks, samples=7, bins=8).p_value > 3e-5


def test_a_prior_that_knows_only_frequencies() -> None:
    """Isotropic noise is the same in every basis: the sampler asks in one that the energy knows."""
    spectrum = torch.linspace(-3, -1, DIM, dtype=torch.float64).reshape(1, *SHAPE)
    spectrum = 0.5 * (spectrum + torch.roll(spectrum.flip(-2, -1), (1, 1), (-2, -1)))
    prior = FourierCovariance(spectrum)
    energy = DiagonalGaussian(prior, torch.full(SHAPE, 0.5).double(), LIMITS)
    dense = Law(torch.zeros(1, 1).double(), torch.full((1, 1, DIM), 0.5).double(), prior.dense())
    degradation = OPERATORS["varying blur"]
    seen = degradation.measure(energy.sample(1, keyed_generator("x")).clamp(-0.4, 1.4), keyed_generator("v"))
    assert isinstance(seen, OperatorMeasurement)
    options = SplitGibbsOptions(sweeps=15, path=16)
    found = sample_operator(energy, seen[[0] * 800], options, generator=keyed_generator("chains"))
    assert discrepancy(found.samples, posterior_of(dense, degradation, seen.raw)) < 1


# --- the tools -----------------------------------------------------------------------------------------------------------------


def test_conjugate_gradients_solve_each_row_and_stop() -> None:
    generator = keyed_generator("cg")
    matrix = random_spd(generator, 1, 12, 1.0)[0]
    b = torch.randn(5, 12, generator=generator, dtype=torch.float64)
    b[2] = 0
    found = conjugate_gradients(lambda v: v @ matrix, b, tolerance=1e-10)
    torch.testing.assert_close(found.solution, torch.linalg.solve(matrix, b.mT).mT, rtol=0, atol=1e-8)
    assert found.iterations <= 14
    assert float(found.residual.max()) <= 1e-10
    rough = conjugate_gradients(lambda v: v @ matrix, b, most=2)
    assert rough.iterations == 2
    assert float(rough.residual.max()) > 1e-4


def test_the_root_is_the_matrix_root() -> None:
    factor = torch.linalg.qr(torch.randn(9, 9, generator=keyed_generator("q"), dtype=torch.float64)).Q
    values = torch.linspace(0, 0.9, 9, dtype=torch.float64)
    matrix, root = (factor * values) @ factor.mT, (factor * (1 - values).sqrt()) @ factor.mT
    v = torch.randn(3, 9, generator=keyed_generator("v"), dtype=torch.float64)
    torch.testing.assert_close(root_of_complement(lambda u: u @ matrix, v, 0.9), v @ root, rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="a bound below 1; got the bound 1"):
        root_of_complement(lambda u: u, v, 1.0)


# --- Posterior ---------------------------------------------------------------------------------------------------------------


def posterior() -> tuple[OperatorPosterior, Problem]:
    given = problem("tomography", 1)
    post = lv.Posterior(given.energy, given.seen)
    assert isinstance(post, OperatorPosterior)
    return post, given


def test_one_call_for_any_operator() -> None:
    post, given = posterior()
    calls: list[tuple[str, int, int]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mean, std = post.mean(200, progress=lambda *call: calls.append(call), chunk=100), post.std(200)
    matching = [("matching", done, 16) for done in range(1, 17)]
    assert calls == [*matching, ("sampling", 1, 2), ("sampling", 2, 2)]  # two chunks, drawn once for both answers
    exact = given.law.covariance[0].diagonal().sqrt()
    assert float(((mean.flatten() - given.law.mean[0]) / exact).abs().max()) < 5 / 200**0.5
    torch.testing.assert_close(std.flatten(), exact, rtol=0.3, atol=0)
    torch.testing.assert_close(
        post.mean().flatten(), given.law.mean[0], rtol=0, atol=1e-3
    )  # one component: exact in one shot
    assert post.sample(2, sweeps=1, path=2).shape == (2, 1, *SHAPE)
    assert post.convergence is not None


def test_log_prob_is_the_density_up_to_the_evidence() -> None:
    post, given = posterior()
    x = draw(given.law, 5, keyed_generator("x"))
    gap = post.log_prob(x) - given.law.log_density(x)
    assert float(gap.std()) < 2e-3  # λ_min blurs the prior a little
    matrix = matrix_of(given.degradation.operator, SHAPE)
    noise = SIGMA**2 * torch.eye(len(matrix), dtype=torch.float64)
    evidence = given.prior.through(matrix, noise).log_density(given.seen.raw)
    assert float(gap.mean() - evidence) == pytest.approx(0, abs=1e-2)
    ranked, values = post.rank(x[:, None])
    assert bool((values.diff(dim=0) <= 0).all())
    assert ranked.shape == (5, 1, *SHAPE)


def test_what_has_no_closed_form_says_so() -> None:
    post, _ = posterior()
    for ask in (post.evidence, post.coefficient_std, post.lift):
        with pytest.raises(TypeError, match="no basis diagonalises this operator"):
            ask()
    with pytest.raises(ValueError, match="at least 2 samples; got 1"):
        post.mean(1)
    with pytest.raises(ValueError, match="at least 1; got 0"):
        post.draw(0)
    with pytest.raises(ValueError, match="path is at least 1, sweeps at least 0; got 0 and 0"):
        post.draw(1, 0)


def test_other_sizes_are_refused() -> None:
    _, given = posterior()
    with pytest.raises(ValueError, match=r"of 1×4×4 images; the model takes 1×2×4"):
        lv.Posterior(given.energy, dg.Tomography((4, 4), 3, 0.1).measure(torch.zeros(1, 1, 4, 4)))


def test_ctrl_c_keeps_the_chunks_that_were_finished() -> None:
    post, _ = posterior()

    def stop(task: str, done: int, total: int) -> None:
        if task == "sampling" and done == 4:
            raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="interrupted: 3 of 6 samples"):
        kept = post.sample(6, 2, sweeps=2, chunk=3, progress=stop)
    assert len(kept) == 3
    drawn = post.draw(6, 2, sweeps=2, chunk=3, progress=stop)
    assert (len(drawn.samples), len(drawn.unfinished), drawn.completed) == (3, 3, False)
    with pytest.raises(KeyboardInterrupt, match="before a sample was finished"):
        post.sample(6, 2, sweeps=20, progress=stop)


def test_the_same_generator_gives_the_same_samples() -> None:
    post, _ = posterior()
    a, b = (post.sample(2, 2, sweeps=2, generator=keyed_generator("same")) for _ in range(2))
    assert torch.equal(a, b)


def test_bad_convergence_is_said() -> None:
    good = Convergence(torch.tensor([1.05]), torch.tensor([1.02]), torch.tensor([0.1]))
    assert good.complaints(100) == []
    slow = Convergence(torch.tensor([1.01, 2.5]), torch.tensor([1.0, 1.0]), torch.tensor([0.1, 0.1]))
    assert "R-hat 2.50" in slow.complaints(100)[0]
    off = Convergence(torch.tensor([float("nan")]), torch.tensor([3.8]), torch.tensor([0.1]))
    (said,) = off.complaints(1000)
    assert "miss the data by 3.80σ" in said
    apart = Convergence(torch.tensor([1.0]), torch.tensor([1.0]), torch.tensor([2.2]))
    (said,) = apart.complaints(1000)
    assert "they differ by 2.2 standard deviations" in said


def test_a_wrong_sigma_is_noticed() -> None:
    """Data of ten times the noise that they are said to have cannot be explained."""
    _, given = posterior()
    raw = given.seen.raw + 10 * SIGMA * torch.randn(given.seen.raw.shape, generator=keyed_generator("more")).double()
    with pytest.warns(UserWarning, match="miss the data by"):
        lv.Posterior(given.energy, given.degradation.from_raw(raw)).sample(4, 4, sweeps=2)


def test_noise_below_the_floor_is_said() -> None:
    energy = DiagonalGaussian(SpatialCovariance(torch.zeros(1, *SHAPE)), limits=VarianceRange(1e-2, 1e3))
    with pytest.warns(UserWarning, match="as if sigma were 0."):
        lv.Posterior(energy, dg.Tomography((2, 4), 3, 0.05).measure(torch.zeros(1, *SHAPE))).sample(1, 2, sweeps=1)

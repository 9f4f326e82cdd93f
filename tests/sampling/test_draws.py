"""What a user draws from a `Posterior`: the law of the samples given the raw data, their spread, their ranks, and how drawing behaves."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from problems import DEGRADATIONS, DIM, LIMITS, SHAPE, discrepancy, prior
from torch import Tensor

from linverse.analytic import GaussianMixture
from linverse.covariance import Covariance, SpatialCovariance, VarianceRange
from linverse.degradations import Box, ColouredNoise, Degradation, Denoising, GaussianBlur
from linverse.metrics import rank_statistics
from linverse.models.energies.learned import LearnedEnergy
from linverse.posterior import Posterior
from linverse.rng import keyed_generator
from linverse.sampling import Euler, ProbabilityFlowHeun, VarianceStep
from linverse.sampling.diagnostics import rank_coverage, uniformity
from linverse.sampling.evaluator import Evaluate, Iterate
from linverse.sampling.predictors import StepSizes
from oracles import Law, matrix_of, z_threshold
from tiny import tiny_energy


def measured(name: str, components: int, limits: VarianceRange = LIMITS, batch: int = 1) -> tuple[Posterior, Law]:
    """The posterior of simulated raw data, and its exact law (of the first measurement) without basis, fill or floor."""
    energy, law = prior(components, limits)
    generator = keyed_generator("draws", name, components)
    degradation = DEGRADATIONS[name]
    measurement = degradation.measure(energy.sample(batch, generator).clamp(-0.4, 1.4), generator)
    return Posterior(energy, measurement), given_raw(law, degradation, measurement.raw[:1])


def given_raw(law: Law, degradation: Degradation, raw: Tensor) -> Law:
    operator = matrix_of(degradation.operator, SHAPE)
    seen = operator.abs().sum(dim=1) > 0
    noise = degradation.sigma**2 * torch.eye(int(seen.sum())).double()
    return law.posterior(raw.flatten(1)[:, seen], operator[seen], noise)


# --- the law -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DEGRADATIONS)
def test_samples_follow_the_exact_posterior_of_the_raw_data(name: str) -> None:
    posterior, exact = measured(name, 3)
    samples = posterior.sample(3000, 100, generator=keyed_generator("law", name))
    assert samples.shape == (3000, 1, *SHAPE)
    assert discrepancy(samples[:, 0], exact) < 1


def test_each_measurement_of_a_batch_gets_samples_of_its_own_posterior() -> None:
    """Rows are sample-major; what belongs to whom is told by a batch of two whose posteriors differ."""
    posterior, exact = measured("blur", 1, batch=2)
    law = prior(1)[1]
    other = given_raw(law, DEGRADATIONS["blur"], posterior.measurement.raw[1:])
    samples = posterior.sample(1500, 80, generator=keyed_generator("two"))
    assert discrepancy(samples[:, 0], exact) < 1
    assert discrepancy(samples[:, 1], other) < 1
    assert discrepancy(samples[:, 0], other) > 1


@pytest.mark.parametrize("name", ["mask", "blur"])
def test_the_spread_of_samples_is_the_exact_standard_deviation(name: str) -> None:
    """In pixels, also where the one-shot answer lives in another basis."""
    posterior, exact = measured(name, 1)
    n = 3000
    spread = posterior.std(n, 100, generator=keyed_generator("spread", name))
    assert spread.shape == (1, *SHAPE)
    ratio = spread.square().flatten() / exact.covariance[0].diagonal()
    # a variance of n draws of a Gaussian has relative sd √(2/n); the path's own error is below 1 %
    assert float((ratio - 1).abs().max()) < z_threshold(DIM, 1e-5) * math.sqrt(2 / n) + 0.01
    one_shot = posterior.std().square().flatten()
    assert one_shot.shape == (DIM,)
    agrees = float((one_shot / exact.covariance[0].diagonal() - 1).abs().max()) < 1e-3
    assert agrees == (name == "mask")
    assert float(one_shot.sum()) == pytest.approx(float(exact.covariance[0].trace()), rel=1e-3)  # right on average


def test_the_rank_of_the_truths_density_is_uniform() -> None:
    """x' = x + N(0, λ_min) is one more draw of p(x'|y): so is its density among those of 63 samples, though not of a coarse sampler's."""
    limits = VarianceRange(1e-2, 1e3)
    energy, _ = prior(3, limits)
    truths, generator = 250, keyed_generator("density ranks")
    template = SpatialCovariance(torch.zeros(1, *SHAPE, dtype=torch.float64))
    levels = torch.tensor([1e3, 1e3, 0.09, 1e3, 0.3, 1e3, 0.09, 1e3], dtype=torch.float64).log().reshape(1, *SHAPE)
    cov = template.with_log_variance(levels)
    truth = energy.sample(truths, generator) + template.isotropic(limits.minimum).sample_noise(generator, truths)
    y = truth + (cov - template.isotropic(limits.minimum)).sample_noise(generator, truths)
    posterior = Posterior(energy, ColouredNoise(cov).encode(y))
    found = []
    for steps, predictor in ((60, None), (12, Euler())):
        samples = posterior.sample(63, steps, predictor=predictor, finish="floor", generator=generator)
        found.append((posterior.log_prob(truth), posterior.rank(samples)[1].mT))
    good, coarse = (uniformity(rank_statistics(*pair[::-1]), 63).p_value for pair in found)
    assert good > 1e-5
    assert coarse < 1e-5
    held = rank_coverage(*found[0][::-1], torch.tensor([0.5, 0.9]), central=False)
    assert float(((held.observed - held.nominal) / held.standard_error).abs().max()) < 4.6


def test_what_was_measured_is_the_same_in_every_answer() -> None:
    """σ² < λ_min: the noise that lifts the data is drawn once, so that samples and densities are of one posterior; fills are fresh."""
    posterior, _ = measured("mask", 3, VarianceRange(0.2, 1e3))
    samples = posterior.sample(50, 20, finish="floor", generator=keyed_generator("once"))
    seen = posterior.measurement.measured.expand(1, *SHAPE)[0]
    y = posterior.lift(keyed_generator("lift"), random_fill=False).y[0]
    assert torch.equal(samples[:, 0, seen], y[seen].expand(50, -1))
    assert float(samples[:, 0, ~seen].std(dim=0).min()) > 0.1
    # without noise on the way samples differ by their fills alone, which have the law of y itself
    fills = posterior.draw(400, 1, predictor=Still(), finish="floor", generator=keyed_generator("fills")).samples
    mean, variance = (t[0, ~seen] for t in posterior.energy.gaussian(posterior.covariance))
    z = (fills[:, ~seen] - mean) / (variance + 1e3).sqrt()
    assert float(z.mean(dim=0).abs().max()) < 5 / math.sqrt(400)
    assert float((z.var(dim=0) - 1).abs().max()) < 5 * math.sqrt(2 / 400)


class Still(ProbabilityFlowHeun):
    """A predictor that goes nowhere."""

    def step(self, here: Iterate, size: StepSizes, change: Tensor | None, noise: Tensor, evaluate: Evaluate) -> Tensor:
        return here.z


def test_guided_rules_and_correctors_can_be_asked_for() -> None:
    posterior, exact = measured("mask", 1)
    drawn = posterior.draw(800, VarianceStep(0.1, 0.3), finish="sample", floor=1e-3, generator=keyed_generator("rule"))
    assert drawn.path.batch == 800
    assert discrepancy(drawn.samples, exact) < 1


# --- ranks -------------------------------------------------------------------------------------------------------------------


def test_ranking_sorts_by_density_most_probable_first() -> None:
    posterior, _ = measured("blur", 3, batch=3)
    samples = posterior.sample(7, 10, finish="floor", generator=keyed_generator("rank"))
    ranked, values = posterior.rank(samples, chunk=4)
    assert values.shape == (7, 3)
    assert bool((values.diff(dim=0) <= 0).all())
    for row in range(7):
        torch.testing.assert_close(posterior.log_prob(ranked[row]), values[row])
    assert torch.equal(ranked.sort(dim=0).values, samples.sort(dim=0).values)
    again, bits = posterior.rank(samples, unit="bits/dim")
    assert torch.equal(again, ranked)  # few bits are much probability
    torch.testing.assert_close(bits, -values / (DIM * math.log(2)))
    noisy = posterior.rank(samples, floor_noise=True)[1]
    by_hand = torch.stack([posterior.log_prob(x, floor_noise=True) for x in samples])
    torch.testing.assert_close(noisy, by_hand.sort(dim=0, descending=True).values)


def test_any_number_of_images_for_one_measurement() -> None:
    posterior, _ = measured("mask", 3)
    x = torch.rand(6, *SHAPE, generator=keyed_generator("six"), dtype=torch.float64)
    together = posterior.log_prob(x, floor_noise=True)
    torch.testing.assert_close(together, torch.cat([posterior.log_prob(one[None], floor_noise=True) for one in x]))


def test_densities_can_be_differentiated() -> None:
    posterior, _ = measured("mask", 3)
    x = torch.rand(2, *SHAPE, generator=keyed_generator("grad"), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(posterior.log_prob, x)


class Sick(GaussianMixture):
    """NaN for bright images."""

    def __call__(self, y: Tensor, cov: Covariance) -> Tensor:
        return torch.where(y.mean(dim=(1, 2, 3)) > 5, math.nan, super().__call__(y, cov))


def test_bad_questions_are_refused() -> None:
    posterior, _ = measured("blur", 3, batch=2)
    samples = torch.zeros(4, 2, *SHAPE).double()
    with pytest.raises(ValueError, match=r"samples have shape \(4, 1, 2, 4\); they must be \[n ≥ 1, 2, C, H, W\]"):
        posterior.rank(samples[:, 0])
    with pytest.raises(ValueError, match="must be"):
        posterior.rank(samples[:, :1])
    with pytest.raises(ValueError, match="unit is 'bits'"):
        posterior.rank(samples, unit="bits")
    with pytest.raises(ValueError, match="3 images for 2 measurements"):
        posterior.log_prob(torch.zeros(3, *SHAPE).double())
    with pytest.raises(ValueError, match="at least 1; got 0"):
        posterior.sample(0)
    with pytest.raises(ValueError, match="at least 2 samples; got 1"):
        posterior.std(1)
    with pytest.raises(ValueError, match="chunk is a number of images"):
        posterior.sample(2, 3, chunk=0)
    energy = posterior.energy
    sick = Sick(energy.log_weights.exp(), energy.means, energy.covariances, SHAPE, LIMITS)  # type: ignore[attr-defined]
    with pytest.raises(FloatingPointError, match="NaN for 2 of 8 samples"):
        Posterior(sick, posterior.measurement).rank(torch.cat([samples[:3], samples[:1] + 9]))


# --- how drawing behaves -----------------------------------------------------------------------------------------------------


class Watched(GaussianMixture):
    """Remembers how many images it was asked about at a time; stops as by Ctrl-C at the given evaluation."""

    def __init__(self, energy: GaussianMixture, stop: int | None = None) -> None:
        weights = energy.log_weights.exp()
        super().__init__(weights, energy.means, energy.covariances, energy.shape, energy.range)
        self.seen: list[int] = []
        self.stop = stop

    def _solve(self, y: Tensor, cov: Covariance):  # type: ignore[no-untyped-def]
        self.seen.append(len(y))
        if self.stop is not None and len(self.seen) >= self.stop:
            raise KeyboardInterrupt
        return super()._solve(y, cov)


def watched(stop: int | None = None) -> tuple[Watched, Posterior]:
    """Two blurred measurements."""
    plain, _ = measured("blur", 3, batch=2)
    energy = Watched(plain.energy, stop)  # type: ignore[arg-type]
    return energy, Posterior(energy, plain.measurement)


def test_chunks_bound_the_memory_and_change_nothing() -> None:
    energy, posterior = watched()
    seen: list[tuple[int, int]] = []
    options = {"predictor": ProbabilityFlowHeun(), "finish": "floor"}  # without noise chunks must agree to the digit
    parts = posterior.sample(4, 3, chunk=3, progress=lambda task, done, total: seen.append((done, total)), **options)
    assert max(energy.seen) == 3
    assert seen == [(done, 9) for done in range(1, 10)]  # 8 rows in 3 chunks of 3 steps
    torch.testing.assert_close(parts, posterior.sample(4, 3, **options))
    energy.seen.clear()
    posterior.rank(parts, chunk=3)
    assert max(energy.seen) == 3


def test_an_interruption_gives_what_is_there() -> None:
    """4 samples of 2 measurements in chunks of 3 rows: Ctrl-C in the third chunk leaves 6 rows finished and 2 begun."""
    steps, a_chunk = 3, 4
    _, posterior = watched(stop=2 * a_chunk + 3)
    options = {"chunk": 3, "finish": "floor"}
    drawn = posterior.draw(4, steps, generator=keyed_generator("stop"), **options)
    assert (drawn.completed, len(drawn.samples), len(drawn.unfinished)) == (False, 6, 2)
    whole = watched()[1].draw(4, steps, generator=keyed_generator("stop"), **options).samples
    assert torch.equal(drawn.samples, whole[:6])
    _, posterior = watched(stop=2 * a_chunk + 3)
    with pytest.warns(UserWarning, match="interrupted: 3 of 4 samples were finished; the others are left out"):
        samples = posterior.sample(4, steps, generator=keyed_generator("stop"), **options)
    assert torch.equal(samples, whole[:6].unflatten(0, (3, 2)))
    _, posterior = watched(stop=2 * a_chunk + 3)
    with pytest.warns(UserWarning, match="interrupted: 3 of 4 samples were finished; the spread is theirs"):
        spread = posterior.std(4, steps, generator=keyed_generator("stop"), chunk=3)
    whole = watched()[1].draw(4, steps, generator=keyed_generator("stop"), chunk=3).samples[:6].unflatten(0, (3, 2))
    torch.testing.assert_close(spread, whole.std(dim=0))
    with pytest.raises(KeyboardInterrupt, match="before two samples"):
        watched(stop=a_chunk + 2)[1].std(4, steps, chunk=3)
    with pytest.raises(KeyboardInterrupt, match="nothing to return"):
        watched(stop=1)[1].sample(4, steps)


def test_fewer_rows_than_measurements_make_no_sample() -> None:
    for stop in (3, 7):  # after the one-shot answer in the first row, and in the second: half a round
        _, posterior = watched(stop=stop)
        with pytest.raises(KeyboardInterrupt, match="before a sample was finished"):
            posterior.sample(4, 3, chunk=1)


# --- what an energy does not know --------------------------------------------------------------------------------------------


def everything(posterior: Posterior) -> None:
    """Every question there is."""
    samples = posterior.sample(2, 3, generator=keyed_generator("all"), finish="floor")
    posterior.mean(), posterior.std(), posterior.std(2, 3), posterior.evidence(), posterior.evaluate()
    posterior.log_prob(samples[0]), posterior.rank(samples)


def test_a_foreign_basis_is_named_once_at_the_first_question() -> None:
    energy, _ = prior(3, VarianceRange(1e-6, 1e3, ("fourier",)))
    measurement = Denoising(0.1).measure(energy.sample(1, keyed_generator("x")).clamp(0, 1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        everything(Posterior(energy, measurement))
    assert [str(w.message) for w in caught] == [
        "Σ has a spatial covariance; the energy knows fourier: the answer is an extrapolation"
    ]
    x = energy.sample(1)
    for ask in (lambda p: p.log_prob(x), lambda p: p.rank(x[None]), lambda p: p.mean(), lambda p: p.draw(1, 2)):
        with pytest.warns(UserWarning, match="the energy knows fourier"):
            ask(Posterior(energy, measurement))


def test_a_known_basis_is_passed_over_in_silence_and_a_floor_too_low_is_not() -> None:
    energy, _ = prior(3, VarianceRange(1e-4, 1e3, ("spatial",)))
    posterior = Posterior(energy, Denoising(0.1).measure(energy.sample(1, keyed_generator("x")).clamp(0, 1)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        everything(posterior)
    with pytest.warns(UserWarning, match=r"variances in \[1e-07, 1e-07\]; the energy knows \[0.0001, 1e\+03\]"):
        posterior.draw(1, 3, floor=1e-7)


# --- learned energies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("degradation", [Box(4, 0.05), GaussianBlur(0.7, 0.05)], ids=["mask", "blur"])
def test_a_learned_energy_answers_alike(degradation: Degradation) -> None:
    """In float32, two measurements, in chunks; no question builds a graph of the network but the density."""
    energy: LearnedEnergy = tiny_energy((3, 8, 8)).float()
    energy.constant.fill_(1e12)  # it knows nothing of images: far from the bound that theirs obey
    x = torch.rand(2, 3, 8, 8, generator=keyed_generator("learned"))
    posterior = Posterior(energy, degradation.measure(x, keyed_generator("noise")))
    samples = posterior.sample(3, 4, finish="floor", generator=keyed_generator("draw"), chunk=4)
    assert samples.shape == (3, 2, 3, 8, 8)
    ranked, values = posterior.rank(samples, chunk=4)
    assert not any(answer.requires_grad for answer in (samples, values, posterior.mean()))
    torch.testing.assert_close(posterior.log_prob(ranked[0]).detach(), values[0], rtol=1e-6, atol=1e-2)
    assert bool((posterior.std(3, 4, generator=keyed_generator("draw")) > 0).all())
    one = Posterior(energy, degradation.measure(x, keyed_generator("noise"))[:1])
    together = one.log_prob(samples[:, 0]).detach()
    apart = torch.cat([one.log_prob(s[None]) for s in samples[:, 0]]).detach()
    torch.testing.assert_close(together, apart, rtol=1e-6, atol=1e-2)

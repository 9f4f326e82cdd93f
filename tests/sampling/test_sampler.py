from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from problems import DEGRADATIONS, DIM, LIMITS, SHAPE, Problem, discrepancy, prior, problem
from torch import Tensor

from linverse.analytic import DiagonalGaussian
from linverse.covariance import Covariance, SpatialCovariance, VarianceRange
from linverse.metrics import rank_statistics
from linverse.rng import keyed_generator
from linverse.sampling import (
    MALA,
    Ancestral,
    Euler,
    Matched,
    Path,
    ProbabilityFlowHeun,
    autoregressive,
    clamped,
    geometric,
    held,
    per_coefficient,
    sample,
    tune,
)
from linverse.sampling.diagnostics import uniformity
from oracles import Law, matrix_of

CHAINS = 4000
FLOOR = 1e-5
PRIORS = {"gaussian": 1, "mixture": 3}


# --- exact posteriors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", PRIORS)
@pytest.mark.parametrize("degradation", DEGRADATIONS)
def test_the_default_sampler_gives_the_exact_posterior(degradation: str, law: str) -> None:
    task = problem(degradation, PRIORS[law])
    result = sample(task.energy, task.many(CHAINS), task.cov, 100, floor=FLOOR, generator=keyed_generator("exact"))
    assert discrepancy(result.samples, task.law) < 1
    assert result.completed
    assert result.evaluations == 101


def staggered(cov: Covariance, floor: float, steps: int) -> Path:
    """Every coefficient at a pace of its own."""
    pace = torch.linspace(0.6, 1.6, DIM, dtype=torch.float64).reshape(1, *SHAPE)
    times = torch.linspace(0, 1, steps + 1, dtype=torch.float64).reshape(-1, 1, 1, 1, 1)
    return per_coefficient(cov, floor, times**pace)


PATHS: dict[str, Callable[[Covariance], Path]] = {
    "clamped": lambda cov: clamped(cov, FLOOR, 120),
    "staggered": lambda cov: staggered(cov, FLOOR, 120),
    "reading": lambda cov: autoregressive(cov, FLOOR, 2, "reading", 80),
    "reversed": lambda cov: autoregressive(cov, FLOOR, 1, "reversed", 40),
    "centre-out": lambda cov: autoregressive(cov, FLOOR, 1, "centre-out", 40),
}


@pytest.mark.parametrize("name", PATHS)
def test_every_path_gives_the_same_law(name: str) -> None:
    task = problem("mask", 3)
    n = CHAINS // 2
    result = sample(task.energy, task.many(n), task.cov, PATHS[name](task.cov), generator=keyed_generator("path", name))
    assert discrepancy(result.samples, task.law) < 1


def test_the_law_can_be_told_from_a_wrong_one() -> None:
    """The test of the test: few steps of a first-order predictor, and a wrong noise level, are found out."""
    task = problem("mask", 3)
    generator = keyed_generator("wrong")
    coarse = sample(task.energy, task.many(CHAINS), task.cov, 100, Euler(), floor=FLOOR, generator=generator)
    assert discrepancy(coarse.samples, task.law) > 1
    noisier = task.cov.with_log_variance(task.cov.log_variance + 0.4 * (task.cov.log_variance < 0))
    wrong = sample(task.energy, task.many(CHAINS), noisier, 100, floor=FLOOR, generator=generator)
    assert discrepancy(wrong.samples, task.law) > 1
    one_path = sample(task.energy, task.many(CHAINS), task.cov, 100, ProbabilityFlowHeun(), floor=FLOOR)
    assert float(one_path.samples.std(dim=0).max()) < 1e-6  # the flow has no posterior for a fixed y


def test_a_corrector_makes_a_coarse_path_exact() -> None:
    task = problem("blur", 3)
    path = geometric(task.cov, 1e-3, 8)
    generator = keyed_generator("corrected")
    options = {"finish": "sample", "generator": generator}
    n = CHAINS // 2
    coarse = sample(task.energy, task.many(n), task.cov, path, Ancestral(), **options)
    kernels = tune(task.energy, task.many(100), task.cov, path, steps=25, generator=generator)
    mended = sample(
        task.energy, task.many(n), task.cov, path, Ancestral(), corrector=kernels, corrector_steps=20, **options
    )
    assert discrepancy(coarse.samples, task.law) > 1
    assert discrepancy(mended.samples, task.law) < 1
    assert mended.info is not None
    assert mended.info.acceptance.shape == (8 * 20, n)
    assert float(mended.info.acceptance.mean()) == pytest.approx(0.574, abs=0.1)
    assert mended.evaluations == 8 * 21 + 1
    assert len({float(step) for step in mended.info.step_size.flatten()}) == 8  # frozen, one a level


def test_the_default_predictor_stays_exact_with_a_corrector() -> None:
    task = problem("mask", 3)
    n = CHAINS // 2
    result = sample(
        task.energy, task.many(n), task.cov, 80, corrector=MALA(0.5), floor=FLOOR, generator=keyed_generator("both")
    )
    assert discrepancy(result.samples, task.law) < 1


def test_temperature_reaches_the_corrector() -> None:
    task = problem("blur", 1)
    path = geometric(task.cov, 1e-2, 10)
    result = sample(
        task.energy,
        task.many(1000),
        task.cov,
        path,
        corrector=MALA(1.0),
        corrector_steps=25,
        temperature=0.25,
        finish="floor",
        generator=keyed_generator("cold"),
    )
    law = prior(1)[1]
    floor = path.covariance(-1)
    blurred = Law(law.log_weights, law.means, law.covariances + floor.dense()[0])
    exact = blurred.posterior(task.y, torch.eye(DIM).double(), (task.cov - floor).dense()[0])
    cooled = Law(exact.log_weights, exact.means, 0.25 * exact.covariances)
    assert discrepancy(result.samples, cooled) < 1


@pytest.mark.parametrize("finish", ["mean", "sample", "floor"])
def test_the_three_ways_to_finish(finish: str) -> None:
    """At a high floor they differ: the mean is narrower than x|y, x at the floor wider by λ_0."""
    energy, law = prior(1)
    cov = SpatialCovariance(torch.zeros(1, *SHAPE, dtype=torch.float64))
    y = energy.sample(1, keyed_generator("y")) + cov.sample_noise(keyed_generator("noise"))
    floor = 0.05
    result = sample(
        energy, y.expand(CHAINS, -1, -1, -1), cov, 60, floor=floor, finish=finish, generator=keyed_generator(finish)
    )
    low, eye = floor * torch.eye(DIM).double(), torch.eye(DIM).double()
    blurred = Law(law.log_weights, law.means, law.covariances + low)
    at_floor = blurred.posterior(y, eye, (1 - floor) * eye)
    gain = torch.linalg.solve(law.covariances[0] + low, law.covariances[0]).mT
    shrunk = Law(
        at_floor.log_weights, law.means + (at_floor.means - law.means) @ gain.mT, gain @ at_floor.covariances @ gain.mT
    )
    if finish == "floor":
        assert discrepancy(result.samples, at_floor) < 1
        torch.testing.assert_close(result.energy, energy(result.samples, cov.isotropic(floor)))
    elif finish == "mean":
        assert discrepancy(result.samples, shrunk) < 1
    else:  # the variance that is left, without its correlations
        rest = (gain @ low).diagonal(dim1=-2, dim2=-1)
        whole = Law(shrunk.log_weights, shrunk.means, shrunk.covariances + torch.diag(rest))
        assert discrepancy(result.samples, whole) < 1


def test_the_flow_gives_posteriors_when_what_was_measured_is_held() -> None:
    """Flow for the unobserved, redrawn per sample, with the measured λ held; then a stochastic step or two for those."""
    energy, law = prior(1)
    cov = problem("mask", 1).cov
    image = energy.sample(1, keyed_generator("truth"))
    seen = (cov.variance < 1).expand(CHAINS, -1, -1, -1)
    generator = keyed_generator("held")
    noisy = image + cov.sample_noise(generator)
    mean, variance = energy.gaussian(cov)
    fill = mean + (LIMITS.maximum + variance).sqrt() * torch.randn(
        CHAINS, *SHAPE, generator=generator, dtype=torch.float64
    )
    y = torch.where(seen, noisy, fill)
    path = geometric(cov, held(cov, FLOOR, above=1.0), 60)
    flow = sample(energy, y, cov, path, ProbabilityFlowHeun(), finish="floor")
    assert torch.equal(flow.samples[seen], y[seen])
    rest = sample(energy, flow.samples, path.covariance(-1), 60, Matched(), floor=FLOOR, generator=generator)
    rows = (cov.variance < 1).flatten()
    operator = torch.eye(DIM).double()[rows]
    exact = law.posterior(noisy.flatten(1)[:, rows], operator, 0.09 * torch.eye(int(rows.sum())).double())
    assert discrepancy(rest.samples, exact) < 1
    assert rest.evaluations == 61
    assert flow.evaluations == 121


@pytest.mark.parametrize("degradation", ["mask", "super-resolution"])
def test_the_fill_is_redrawn_and_its_error_stays_within_the_bound(degradation: str) -> None:
    """Against the posterior of the raw data alone: the fill costs at most E‖x−m‖²/(2λ_max) nats, here 0.0004."""
    limits = VarianceRange(1e-6, 1e3)
    energy, law = prior(3, limits)
    generator = keyed_generator("fill", degradation)
    image = energy.sample(1, generator).clamp(-0.4, 1.4)
    method = DEGRADATIONS[degradation]
    measured = method.measure(image, generator)
    lifted = measured.repeat_interleave(CHAINS).lift(limits, energy.gaussian(measured.template), generator)
    result = sample(energy, lifted.y, lifted.cov, 100, floor=FLOOR, generator=generator)
    operator = matrix_of(method.operator, SHAPE)
    keep = operator.abs().sum(dim=1) > 0
    noise = method.sigma**2 * torch.eye(int(keep.sum())).double()
    exact = law.posterior(measured.raw.flatten(1)[:, keep], operator[keep], noise)
    assert discrepancy(result.samples, exact) < 1
    unobserved = (~measured.measured).expand_as(lifted.y)
    fills = lifted.cov.analysis(lifted.y)[unobserved].reshape(CHAINS, -1)
    assert float(fills.std(dim=0).min()) > 0.9 * math.sqrt(limits.maximum)


def test_simulation_based_calibration() -> None:
    """Ranks of the truth among 63 samples are uniform for the default sampler, and not for a coarse first-order one."""
    energy, _ = prior(3)
    truths, samples_each = 200, 63
    cov = problem("mask", 3).cov
    generator = keyed_generator("sbc")
    x = energy.sample(truths, generator)
    y = x + cov.sample_noise(generator, batch=truths)
    rows = y.repeat_interleave(samples_each, dim=0)
    levels = []
    for steps, predictor in ((50, None), (12, Euler())):
        drawn = sample(energy, rows, cov, steps, predictor, floor=FLOOR, generator=generator).samples
        truth, guesses = summaries(energy, x), summaries(energy, drawn).reshape(-1, truths, samples_each)
        levels.append(
            [uniformity(rank_statistics(g, t), samples_each).p_value for t, g in zip(truth, guesses, strict=True)]
        )
    assert min(levels[0]) > 1e-5 / len(levels[0])
    assert min(levels[1]) < 1e-5 / len(levels[1])


def summaries(energy: object, x: Tensor) -> Tensor:
    """[S, N]: two pixels, the mean, a contrast and the distance to a point."""
    flat = x.flatten(1)
    contrast = flat[:, :4].mean(dim=1) - flat[:, 4:].mean(dim=1)
    return torch.stack([flat[:, 0], flat[:, 5], flat.mean(dim=1), contrast, (flat - 0.5).norm(dim=1)])


# --- how it behaves ----------------------------------------------------------------------------------------------------------


def small(batch: int = 5, dtype: torch.dtype = torch.float64) -> tuple[DiagonalGaussian, Tensor, Covariance]:
    """A colour image with one spectrum for all channels, and an energy that is differentiated automatically."""
    cov = SpatialCovariance(torch.linspace(-3, 3, 6, dtype=dtype).reshape(1, 1, 2, 3), 3)
    energy = DiagonalGaussian(cov.isotropic(0.5), limits=VarianceRange(1e-5, 1e3))
    return energy, torch.randn(batch, 3, 2, 3, generator=keyed_generator("small"), dtype=dtype), cov


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_any_energy_any_precision(dtype: torch.dtype) -> None:
    energy, y, cov = small(2000, dtype)
    result = sample(energy, y[:1].expand(2000, -1, -1, -1), cov, 40, Matched(), generator=keyed_generator("any"))
    assert result.samples.dtype == dtype
    mean, spread = energy.posterior(y[:1], cov)
    z = (result.samples.mean(dim=0) - mean[0]) / (spread.variance[0] / 2000).sqrt()
    assert float(z.abs().max()) < 5.5
    ratio = result.samples.var(dim=0) / spread.variance[0]
    assert float((ratio - 1).abs().max()) < 5.5 * math.sqrt(2 / 2000)


def test_the_same_seed_gives_the_same_bits_and_nothing_is_changed() -> None:
    energy, y, cov = small()
    before = y.clone()
    runs = [sample(energy, y, cov, 5, generator=keyed_generator("same")).samples for _ in range(2)]
    assert torch.equal(*runs)
    assert torch.equal(y, before)
    assert not runs[0].requires_grad


@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_chunks_change_nothing_but_memory(chunk: int) -> None:
    energy, y, cov = small()
    covs = cov.expand(5) * torch.linspace(0.5, 1.5, 5).double()
    seen: list[int] = []

    class Watched(DiagonalGaussian):
        def __call__(self, y: Tensor, cov: Covariance) -> Tensor:
            seen.append(len(y))
            return super().__call__(y, cov)

    watched = Watched(energy.prior, limits=VarianceRange(1e-5, 1e3))
    whole = sample(energy, y, covs, 6, ProbabilityFlowHeun())
    parts = sample(watched, y, covs, 6, ProbabilityFlowHeun(), chunk=chunk)
    torch.testing.assert_close(parts.samples, whole.samples)
    torch.testing.assert_close(parts.energy, whole.energy)
    assert max(seen) == min(chunk, 5)
    assert parts.evaluations == whole.evaluations == 13
    assert parts.path.batch == 5


def test_progress_is_reported() -> None:
    energy, y, cov = small()
    seen: list[tuple[str, int, int]] = []
    sample(energy, y, cov, 3, progress=lambda *report: seen.append(report), chunk=3)
    assert seen == [("sampling", done, 6) for done in range(1, 7)]


class Interrupted(DiagonalGaussian):
    """Ctrl-C at the given evaluation."""

    def __init__(self, energy: DiagonalGaussian, after: int) -> None:
        super().__init__(energy.prior, limits=VarianceRange(1e-5, 1e3))
        self.left = after

    def __call__(self, y: Tensor, cov: Covariance) -> Tensor:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return super().__call__(y, cov)


def test_interrupting_gives_what_is_there() -> None:
    energy, y, cov = small(5)
    result = sample(Interrupted(energy, 4 + 3), y, cov, 3, chunk=2, generator=keyed_generator("stop"))
    assert not result.completed
    assert len(result.samples) == len(result.energy) == 2  # one chunk done, one on its way, one not begun
    assert len(result.unfinished) == 2
    finished = sample(energy, y, cov, 3, chunk=2, generator=keyed_generator("stop"))
    assert torch.equal(result.samples, finished.samples[:2])
    assert len(finished.unfinished) == 0
    assert bool(torch.isfinite(result.unfinished).all())
    assert repr(result) == "SampleResult(2 of 3×2×3, 3 steps, 4 evaluations each, interrupted with 2 unfinished)"
    early = sample(Interrupted(energy, 2), y, cov, 3)
    assert (len(early.samples), len(early.unfinished)) == (0, 5)
    with pytest.raises(KeyboardInterrupt, match="nothing to return"):
        sample(Interrupted(energy, 0), y, cov, 3)


class Broken(DiagonalGaussian):
    """NaN below some variance."""

    def __call__(self, y: Tensor, cov: Covariance) -> Tensor:
        return torch.where(cov.log_variance.amax(dim=(1, 2, 3)) < 0, math.nan, super().__call__(y, cov))


def test_an_energy_that_is_not_finite_is_named() -> None:
    energy, y, cov = small()
    broken = Broken(energy.prior, limits=VarianceRange(1e-5, 1e3))
    with pytest.raises(
        FloatingPointError, match=r"NaN or infinite at step 3 of 10, for 5 of 5 samples, where Σ_t .* in \["
    ):
        sample(broken, y, cov, geometric(cov, 1e-4, 10))


def bad(task: Problem, **changes: object) -> dict[str, object]:
    return {"energy": task.energy, "y": task.y, "cov": task.cov, "path": 4, "floor": 1e-3, **changes}


def test_bad_questions_are_refused() -> None:
    task = problem("mask", 1)
    path = geometric(task.cov, 1e-3, 4)
    cases: list[tuple[str, dict[str, object]]] = [
        ("the measurement's Σ has", {"path": geometric(task.cov * 2.0, 1e-3, 4), "floor": None}),
        ("a path ends where it ends", {"path": path}),
        ("image has shape", {"y": torch.zeros(1, 1, 3, 3)}),
        ("NaN or infinite entries", {"y": task.y * math.nan}),
        ("y has no rows", {"y": task.y[:0]}),
        ("chunk is a number of images, at least 1; got 0", {"chunk": 0}),
        ("3 covariances for 1 images", {"cov": task.cov.expand(3)}),
        ("finish is 'end'", {"finish": "end"}),
        ("a predictor samples at temperature 1 only", {"temperature": 0.5}),
        ("2 correctors for a path of 4 steps", {"corrector": [MALA(), MALA()]}),
        ("at least one step", {"path": 0}),
        ("a number of steps, a Path or a guided Rule", {"path": "geometric"}),
    ]
    for message, changes in cases:
        with pytest.raises(ValueError, match=message):
            sample(**bad(task, **changes))  # type: ignore[arg-type]


def test_a_sigma_outside_of_the_energys_range_is_named() -> None:
    task = problem("mask", 1)
    with pytest.warns(UserWarning, match=r"variances in \[1e-09, .*\]; the energy knows \[1e-06, 1e\+03\]"):
        sample(task.energy, task.y, task.cov, 4, floor=1e-9)
    foreign, _ = prior(1, VarianceRange(1e-6, 1e3, ("dct",)))
    with pytest.warns(UserWarning, match="a spatial covariance; the energy knows dct") as caught:
        sample(foreign, task.y, task.cov, 4)
    assert len(caught) == 1  # though it holds for both ends of the path

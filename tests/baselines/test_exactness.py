"""What each method does where the posterior is known: an isotropic Gaussian prior, seen through an exact denoiser.

ΠGDM and (with one ODE step, exact draws and the right width) DAPS are exact. The others have biases that these tests write down.
"""

from __future__ import annotations

from typing import Any

import pytest
import solvable
import torch
from solvable import DEGRADATIONS, PRIOR, SIGMA, Problem, whitened, worst
from torch import Tensor

from linverse import degradations as dg
from linverse.analytic import DiagonalGaussian
from linverse.baselines import EnergyDenoiser, daps, diffpir, dps, pigdm, reddiff
from linverse.baselines.denoisers import Counter
from linverse.baselines.interface import Solution
from linverse.covariance import FourierCovariance
from linverse.rng import keyed_generator
from oracles import Law, matrix_of

CHAINS = 1200


@pytest.fixture(params=DEGRADATIONS)
def problem(request: pytest.FixtureRequest) -> Problem:
    return solvable.problem(request.param)


def spread(solution: Solution, law: Law) -> Tensor:
    """Variances in units of the posterior's, the best known direction first."""
    return whitened(solution, law)[0].var(0)


def test_pigdm_guidance_is_the_exact_posterior_mean(problem: Problem) -> None:
    """E[x|x_t, y] of the dense Gaussian, at low, middle and high noise."""
    seen = problem.degradation.from_raw(problem.raw)
    x = torch.rand(1, *solvable.SHAPE, generator=keyed_generator("x_t"), dtype=torch.float64)
    operator = matrix_of(problem.degradation.operator, solvable.SHAPE)
    for variance in (1e-4, 0.05, 10.0):
        precision = operator.mT @ operator / SIGMA**2 + torch.eye(solvable.DIM) * (1 / PRIOR + 1 / variance)
        pulls = (
            problem.raw.flatten(1) @ operator / SIGMA**2
            + problem.energy.mean.reshape(1, -1) / PRIOR
            + x.flatten(1) / variance
        )
        exact = torch.linalg.solve(precision, pulls.mT).mT
        ours = pigdm.guided_mean(Counter(problem.model), seen, x, variance, PRIOR, "score")
        torch.testing.assert_close(ours.flatten(1), exact, rtol=1e-8, atol=1e-8)


def pigdm_samples(problem: Problem, **settings: Any) -> Solution:
    return pigdm.solve(
        problem.model, problem.degradation, problem.many(CHAINS), keyed_generator("pigdm"), steps=80, **settings
    )


def test_pigdm_is_exact(problem: Problem) -> None:
    solution = pigdm_samples(problem, weighting="score")
    assert worst(whitened(solution, problem.law)[0], allowed=0.01) < 1
    # of an energy: one gradient for the mean, one for the guidance
    assert (solution.evaluations, solution.gradients) == (81, 162)


def test_pigdm_with_another_width_is_not(problem: Problem) -> None:
    solution = pigdm_samples(problem, weighting="score", prior_variance=1.0)
    assert worst(whitened(solution, problem.law)[0], allowed=0.01) > 1.2


def test_pigdm_as_published_guides_too_little_but_never_overshoots(problem: Problem) -> None:
    """The adaptive weight costs exactness (a little: y pulls by C/(C + λ) of what it should) and buys stability."""
    white, _ = whitened(pigdm_samples(problem), problem.law)
    assert worst(white, allowed=0.01) > 1.2
    assert float(white.mean(0).abs().max()) < 1.5
    assert 0.5 < float(white.var(0).min()) < float(white.var(0).max()) < 2.0


def test_pigdm_is_stable_where_coarse_structure_dominates() -> None:
    """A prior like that of images, its mean far more variable than its details: the exact weight blows up there."""
    shape = (1, 16, 16)
    spectrum = torch.full((1, *shape), 1e-4, dtype=torch.float64)
    spectrum[..., 0, 0] = 4.0  # a grey value of standard deviation 1/8
    prior = FourierCovariance(spectrum.log())
    energy = DiagonalGaussian(prior, torch.full(shape, 0.5).double(), solvable.LIMITS)
    degradation, generator = dg.SuperResolution(4, 0.01), keyed_generator("coarse")
    raw = degradation.measure(energy.sample(20, generator).clamp(-0.4, 1.4), generator).raw
    model = EnergyDenoiser(energy, prior)
    adaptive = pigdm.solve(model, degradation, raw, keyed_generator("pigdm"))
    residual = degradation.from_raw(raw).residual(adaptive.samples)
    assert float(residual.square().mean().sqrt()) < 0.02
    exact = pigdm.solve(model, degradation, raw, keyed_generator("pigdm"), weighting="score")
    assert not float(exact.samples.abs().max()) < 10  # NaN is as bad
    with pytest.raises(ValueError, match="adaptive"):
        pigdm.solve(model, degradation, raw, None, weighting="none")  # type: ignore[arg-type]


def test_daps_is_exact_with_exact_draws_and_the_right_width(problem: Problem) -> None:
    solution = daps.solve(
        problem.model,
        problem.degradation,
        problem.many(CHAINS),
        keyed_generator("daps"),
        steps=30,
        ode_steps=1,
        langevin_steps=0,
        prior_variance=PRIOR,
    )
    assert worst(whitened(solution, problem.law)[0]) < 1
    assert solution.evaluations == 30


def test_daps_as_published_is_reasonable_and_too_wide(problem: Problem) -> None:
    """r_t = σ_t and Langevin steps of finite size: means within ¾ of a standard deviation, variances 1 to 2 times too large."""
    solution = daps.solve(
        problem.model, problem.degradation, problem.many(CHAINS // 4), keyed_generator("daps"), steps=30, ode_steps=3
    )
    white, _ = whitened(solution, problem.law)
    assert float(white.mean(0).abs().max()) < 0.75
    assert float(white.var(0).mean()) > 1.1
    assert float(white.var(0).max()) < 2


def test_langevin_draws_have_the_mean_and_the_known_excess_of_variance(problem: Problem) -> None:
    """Unadjusted steps of size η give the right mean, and 1/(1 − ηp/2) times the variance 1/p."""
    variance, eta = 0.02, 0.004
    seen = problem.degradation.from_raw(problem.many(CHAINS))
    centre = problem.energy.mean.expand(CHAINS, -1, -1, -1)
    drawn = daps.consistent(seen, centre, variance, 300, eta, keyed_generator("langevin"))
    basis = seen.template
    width = seen.proximal_variance(variance) / (1 - 0.5 * eta / seen.proximal_variance(variance))
    white = basis.analysis(drawn - seen.proximal(centre, variance)) / width.sqrt()
    assert worst(white.flatten(1)) < 1


def test_langevin_steps_end_when_what_was_measured_has_relaxed() -> None:
    """By default measured pixels lose all but e⁻⁴ of their misfit, and hidden ones, which have nowhere to go, gather √8 σ of noise."""
    problem = solvable.problem("mask")
    seen = problem.degradation.from_raw(problem.many(CHAINS))
    centre = torch.full_like(seen.coefficients, 3.0)
    drawn = daps.consistent(seen, centre, 1e6, 100, None, keyed_generator("langevin"))
    measured = seen.gain.expand_as(centre)[0] > 0.5
    goal = seen.proximal(centre, 1e6).mean(0)
    left = ((drawn.mean(0) - goal) / (3.0 - goal))[measured]
    assert float(left.abs().max()) < 0.06
    torch.testing.assert_close(drawn.var(0)[~measured].mean().sqrt().item(), 8**0.5 * SIGMA, rtol=0.05, atol=0.0)


def test_daps_flow_of_one_step_is_the_mean_and_of_many_the_ode() -> None:
    """For a Gaussian the ODE shrinks x − m by √(C/(C + λ))."""
    problem = solvable.problem("mask")
    x = problem.energy.mean[None] + 1.0
    one = daps.flow(Counter(problem.model), x, 0.1, 1)
    many = daps.flow(Counter(problem.model), x, 0.1, 400)
    torch.testing.assert_close(one - problem.energy.mean, torch.full_like(x, PRIOR / (PRIOR + 0.1)))
    exact = torch.full_like(x, (PRIOR / (PRIOR + 0.1)) ** 0.5)
    torch.testing.assert_close(many - problem.energy.mean, exact, rtol=0.01, atol=0)


def test_dps_fits_the_noise(problem: Problem) -> None:
    """Where y says something there is no spread at all; where it says nothing that of the prior is nearly right."""
    solution = dps.solve(problem.model, problem.degradation, problem.many(CHAINS // 2), keyed_generator("dps"))
    ratios = spread(solution, problem.law)
    assert float(ratios[0]) < 0.05
    assert 0.7 < float(ratios[-1]) < 1.1
    residual = problem.degradation.from_raw(problem.many(CHAINS // 2)).residual(solution.samples)
    assert float(residual.square().mean().sqrt()) < 0.5 * SIGMA
    assert (solution.evaluations, solution.gradients) == (101, 201)


def test_dps_without_a_cap_jumps_about_the_data() -> None:
    problem = solvable.problem("super-resolution")
    free, capped = (
        dps.solve(problem.model, problem.degradation, problem.many(200), keyed_generator("dps"), cap=cap)
        for cap in (float("inf"), 2.0)
    )
    seen = problem.degradation.from_raw(problem.many(200))
    jumps = [float(seen.residual(s.samples).square().mean().sqrt()) for s in (free, capped)]
    assert jumps[0] > 10 * jumps[1]


def test_red_diff_collapses_to_a_mode(problem: Problem) -> None:
    """All chains end close together: less than a fiftieth of the variance where y says something, and always less than the posterior's."""
    solution = reddiff.solve(problem.model, problem.degradation, problem.many(CHAINS // 4), keyed_generator("red"))
    ratios = spread(solution, problem.law)
    assert float(ratios[0]) < 0.02
    assert float(ratios.max()) < 0.9
    assert float(whitened(solution, problem.law)[0].mean(0).abs().max()) < 2.5
    assert (solution.evaluations, solution.gradients) == (100, 100)


def test_diffpir_has_the_mean_and_half_the_variance(problem: Problem) -> None:
    solution = diffpir.solve(problem.model, problem.degradation, problem.many(CHAINS), keyed_generator("diffpir"))
    white, _ = whitened(solution, problem.law)
    assert float(white.mean(0).abs().max()) < 0.2
    assert float(white.var(0).min()) > 0.35
    assert float(white.var(0).max()) < 0.65
    assert solution.evaluations == 101


def test_diffpir_noise_is_kept_or_fresh() -> None:
    problem = solvable.problem("mask")
    kept = diffpir.solve(problem.model, problem.degradation, problem.many(300), keyed_generator("kept"), renoise=0.0)
    fresh = diffpir.solve(problem.model, problem.degradation, problem.many(300), keyed_generator("kept"), renoise=1.0)
    assert float(spread(kept, problem.law).mean()) > 1.3 * float(spread(fresh, problem.law).mean())
    with pytest.raises(ValueError, match="between 0 and 1"):
        diffpir.solve(problem.model, problem.degradation, problem.many(2), None, renoise=2.0)

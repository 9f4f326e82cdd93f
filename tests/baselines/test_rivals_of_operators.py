"""DDRM and MMPS where the posterior is known, and the methods that take any linear operator on one."""

from __future__ import annotations

import math
import warnings

import pytest
import solvable
import torch
from solvable import DEGRADATIONS, LIMITS, SHAPE, SIGMA, Problem, whitened, worst

from linverse import degradations as dg
from linverse.analytic import DenseGaussian
from linverse.baselines import METHODS, EnergyDenoiser, NotApplicable, ddrm, mmps
from linverse.baselines.denoisers import Counter
from linverse.rng import keyed_generator
from oracles import Law, matrix_of, random_spd


@pytest.fixture(params=DEGRADATIONS)
def problem(request: pytest.FixtureRequest) -> Problem:
    return solvable.problem(request.param)


def scanner() -> tuple[DenseGaussian, dg.Degradation, Law, torch.Tensor]:
    """Tomography of a correlated Gaussian."""
    generator = keyed_generator("scanner")
    mean, spread = torch.full((16,), 0.5).double(), random_spd(generator, 1, 16, 0.03)
    energy, degradation = DenseGaussian(mean, spread[0], SHAPE, LIMITS), dg.Tomography((4, 4), 3, SIGMA)
    raw = degradation.measure(energy.sample(1, generator).clamp(-0.4, 1.4), generator).raw
    matrix = matrix_of(degradation.operator, SHAPE)
    noise = SIGMA**2 * torch.eye(len(matrix), dtype=torch.float64)
    law = Law(torch.zeros(1, 1).double(), mean[None, None], spread)
    return energy, degradation, law.posterior(raw, matrix, noise), raw


def test_mmps_guidance_is_the_exact_posterior_mean_of_any_operator() -> None:
    """E[x|x_t, y] of a correlated Gaussian: its V is dense, and conjugate gradients find it by products."""
    energy, degradation, law, raw = scanner()
    x = torch.rand(1, *SHAPE, generator=keyed_generator("x_t"), dtype=torch.float64)
    precision = torch.linalg.inv(law.covariance[0])
    for variance in (1e-3, 0.05, 10.0):
        exact = torch.linalg.solve(
            precision + torch.eye(16) / variance, (law.mean @ precision + x.flatten(1) / variance).mT
        ).mT
        seen, network = degradation.from_raw(raw), Counter(EnergyDenoiser(energy))
        ours = mmps.guided_mean(network, seen, x, variance, 60, 1e-10)
        torch.testing.assert_close(ours.flatten(1), exact, rtol=0, atol=1e-6)


def test_mmps_is_exact_for_gaussians(problem: Problem) -> None:
    raw = problem.many(800)
    found = mmps.solve(problem.model, problem.degradation, raw, keyed_generator("mmps"), steps=60, iterations=10)
    assert worst(whitened(found, problem.law)[0], allowed=0.02) < 1
    assert found.evaluations == 61
    with pytest.raises(ValueError, match="at least one iteration"):
        mmps.solve(problem.model, problem.degradation, raw, None, iterations=0)


def test_ddrm_takes_its_three_steps() -> None:
    """By hand, one coefficient each: hidden, noisier than the level, less noisy."""
    z, mean, data = torch.tensor([1.0, 1.0, 1.0]), torch.tensor([0.4, 0.4, 0.4]), torch.tensor([0.0, 0.7, 0.7])
    width, noise = torch.tensor([math.inf, 0.25, 0.01]), torch.tensor([0.5, 0.5, 0.5])
    now, after, eta, eta_data = 0.16, 0.04, 0.6, 0.9
    found = ddrm.step(z, mean, data, width, now, after, eta, eta_data, noise)
    expected = [
        0.4 + 0.8 * 0.2 * 0.6 / 0.4 + 0.6 * 0.2 * 0.5,
        0.4 + 0.8 * 0.2 * 0.3 / 0.5 + 0.6 * 0.2 * 0.5,
        0.1 * 0.4 + 0.9 * 0.7 + math.sqrt(0.04 - 0.81 * 0.01) * 0.5,
    ]
    torch.testing.assert_close(found, torch.tensor(expected))


def test_ddrm_meets_the_data_and_guesses_the_rest(problem: Problem) -> None:
    """Means within a standard deviation or so; a tenth of the variance where y tells something, three quarters where it tells nothing."""
    found = ddrm.solve(problem.model, problem.degradation, problem.many(600), keyed_generator("ddrm"))
    white, values = whitened(found, problem.law)
    hidden = values > 0.999 * solvable.PRIOR
    assert float(white.mean(0).abs().max()) < 1.5
    assert float(white.var(0)[~hidden].max()) < 0.15
    assert 0.6 < float(white.var(0)[hidden].min()) < float(white.var(0)[hidden].max()) < 0.95
    assert (found.evaluations, found.gradients) == (101, 101)  # of an energy: a gradient each
    with pytest.raises(ValueError, match="between 0 and 1"):
        ddrm.solve(problem.model, problem.degradation, problem.raw, None, eta=2.0)


@pytest.mark.parametrize("name", ["ours", "dps", "pigdm", "red-diff", "diffpir", "mmps", "pseudo-inverse"])
def test_methods_that_take_any_operator(name: str) -> None:
    energy, degradation, law, raw = scanner()
    model = energy if name == "ours" else EnergyDenoiser(energy)
    with warnings.catch_warnings(action="ignore"):  # of six chains and few sweeps
        found = METHODS[name].solve(model, degradation, raw.expand(6, -1, -1, -1), keyed_generator("any"))
    assert found.samples.shape == (6, *SHAPE)
    misfit = degradation.from_raw(raw.expand(6, -1, -1, -1)).residual(found.samples)
    assert float(misfit.square().mean().sqrt()) < 2.5 * SIGMA
    if name in ("ours", "pigdm", "diffpir", "mmps"):  # DPS and RED-Diff fit the noise
        error = (found.samples.flatten(1).mean(0) - law.mean[0]) / law.covariance[0].diagonal().sqrt()
        assert float(error.abs().mean()) < 1.5


@pytest.mark.parametrize("name", ["ddrm", "daps", "posterior-mean"])
def test_methods_that_need_a_basis_say_so(name: str) -> None:
    energy, degradation, _, raw = scanner()
    model = energy if name == "posterior-mean" else EnergyDenoiser(energy)
    with pytest.raises(NotApplicable, match="an operator that a basis diagonalises"):
        METHODS[name].solve(model, degradation, raw, None)

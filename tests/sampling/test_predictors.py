from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from linverse.analytic import DenseGaussian, DiagonalGaussian
from linverse.covariance import Covariance, FourierCovariance, SpatialCovariance
from linverse.energy import Energy
from linverse.rng import keyed_generator
from linverse.sampling import (
    Ancestral,
    Euler,
    Matched,
    Path,
    Predictor,
    ProbabilityFlowHeun,
    TwoStepAncestral,
    autoregressive,
    clamped,
    geometric,
    per_coefficient,
    run,
)
from linverse.sampling.evaluator import Evaluator, Iterate
from linverse.sampling.predictors import step_sizes
from linverse.sampling.run import BLOCK_ENTRIES, planned_steps
from oracles import random_spd

SHAPE, DIM = (1, 2, 3), 6
NOISY: list[Predictor] = [Euler(), Ancestral(), Matched(), TwoStepAncestral()]
ALL: list[Predictor] = [*NOISY, ProbabilityFlowHeun()]


def named(predictor: Predictor) -> str:
    return type(predictor).__name__


def correlated() -> tuple[DenseGaussian, Tensor]:
    """A zero-mean prior that is diagonal in no basis: every sampler is then a linear map of y and its noise."""
    spread = random_spd(keyed_generator("correlated"), 1, DIM, 0.3)[0]
    return DenseGaussian(torch.zeros(DIM).double(), spread, SHAPE), spread


def measurement(family: type[Covariance] = SpatialCovariance) -> Covariance:
    levels = torch.tensor([1e3, 1e3, 1e-2, 1e3, 0.1, 1e3], dtype=torch.float64)
    return family(levels.log().reshape(1, *SHAPE))


def exact_law(energy: Energy, predictor: Predictor, path: Path) -> tuple[Tensor, Tensor]:
    """Matrices A and V of a linear sampler's result N(Ay, V), without Monte Carlo: unit impulses in y and in each noise."""
    rows = DIM * (path.steps + 1)
    impulses = torch.eye(rows, dtype=torch.float64).reshape(path.steps + 1, DIM, rows).movedim(2, 1)
    evaluator, change = Evaluator(energy, path.template), None
    here = evaluator(impulses[0].reshape(rows, *SHAPE), path.log_variance[0])
    for step, size in enumerate(planned_steps(path), start=1):
        noise = impulses[step].reshape(rows, *SHAPE)
        ahead = evaluator(predictor.step(here, size, change, noise, evaluator), size.log_next)
        change, here = ahead.mean - here.mean, ahead
    out = path.template.synthesis(here.mean).flatten(1)
    start = path.template.analysis(torch.eye(DIM, dtype=torch.float64).reshape(DIM, *SHAPE)).flatten(1)
    return (start @ out[:DIM]).mT, out[DIM:].mT @ out[DIM:]


def posterior(spread: Tensor, cov: Covariance) -> tuple[Tensor, Tensor]:
    gain = torch.linalg.solve(spread + cov.dense()[0], spread).mT
    return gain, spread - gain @ spread


def covariance_error(covariance: Tensor, exact: Tensor) -> float:
    """‖L⁻¹VL⁻ᵀ − I‖ per dimension, L the exact factor."""
    factor = torch.linalg.cholesky(exact)
    half = torch.linalg.solve_triangular(factor, covariance, upper=False)
    white = torch.linalg.solve_triangular(factor, half.mT, upper=False)
    return float((white - torch.eye(DIM)).norm()) / math.sqrt(DIM)


@pytest.mark.parametrize("family", [SpatialCovariance, FourierCovariance])
@pytest.mark.parametrize("predictor", NOISY, ids=named)
def test_the_declared_order_is_the_slope_of_the_error(predictor: Predictor, family: type[Covariance]) -> None:
    energy, spread = correlated()
    cov = measurement(family)
    gain, exact = posterior(spread, cov)
    errors = []
    for steps in (100, 200):
        linear_map, covariance = exact_law(energy, predictor, geometric(cov, 1e-8, steps))
        # the mean is exact at any step size, because x̂ is a martingale
        torch.testing.assert_close(linear_map, gain, rtol=1e-8, atol=1e-10)
        errors.append(covariance_error(covariance, exact))
    assert math.log2(errors[0] / errors[1]) == pytest.approx(predictor.order, abs=0.15)


def warped(cov: Covariance, floor: float, steps: int) -> Path:
    return per_coefficient(cov, floor, torch.linspace(0, 1, steps + 1, dtype=torch.float64) ** 1.5)


@pytest.mark.parametrize("make", [clamped, warped])
def test_the_two_step_rule_keeps_its_order_when_steps_differ(make: type[Path]) -> None:
    energy, spread = correlated()
    cov = measurement()
    exact = posterior(spread, cov)[1]
    errors = [covariance_error(exact_law(energy, TwoStepAncestral(), make(cov, 1e-6, n))[1], exact) for n in (60, 240)]
    assert math.log2(errors[0] / errors[1]) / 2 == pytest.approx(2, abs=0.3)


def test_the_two_step_rule_coefficient_by_coefficient() -> None:
    """½·h/h' of the last change of x̂: a half step, an equal one, a longer one (taken as equal), and one after none."""
    h, before = torch.tensor([0.5, 1.0, 3.0, 1.0]).double(), torch.tensor([1.0, 1.0, 1.0, 0.0]).double()
    z, mean, change = (
        torch.randn(1, 1, 1, 4, generator=keyed_generator(key)).double() for key in ("z", "mean", "change")
    )
    log_variance = torch.zeros(1, 1, 1, 4).double()
    here = Iterate(z, log_variance, mean, mean, mean, torch.zeros(1))
    noise = torch.zeros_like(z)
    evaluator = Evaluator(correlated()[0], measurement())
    size = step_sizes(log_variance, log_variance - h, before.reshape(1, 1, 1, 4))
    out = TwoStepAncestral().step(here, size, change, noise, evaluator)
    target = mean + torch.tensor([0.25, 0.5, 0.5, 0.0]) * change
    torch.testing.assert_close(out, target + torch.exp(-h) * (z - target))


def test_fifty_default_steps_beat_six_hundred_of_the_papers() -> None:
    energy, spread = correlated()
    cov = measurement()
    exact = posterior(spread, cov)[1]
    default, euler = (
        covariance_error(exact_law(energy, predictor, geometric(cov, 1e-6, steps))[1], exact)
        for predictor, steps in ((TwoStepAncestral(), 49), (Euler(), 599))
    )
    assert default < euler


def test_matched_is_exact_at_any_step_where_the_prior_is_diagonal() -> None:
    cov = measurement(FourierCovariance)
    spectrum = torch.linspace(-3, 1, DIM, dtype=torch.float64).reshape(1, *SHAPE)
    energy = DiagonalGaussian(cov.with_log_variance(spectrum))
    exact = posterior(cov.with_log_variance(spectrum).dense()[0], cov)[1]
    path = geometric(cov, 1e-9, 3)
    errors = {named(p): covariance_error(exact_law(energy, p, path)[1], exact) for p in NOISY}
    assert errors["Matched"] < 1e-5
    assert min(errors["Euler"], errors["Ancestral"]) > 0.1


def test_euler_is_too_wide_and_ancestral_too_narrow() -> None:
    energy, spread = correlated()
    cov = measurement()
    exact = posterior(spread, cov)[1]
    path = geometric(cov, 1e-6, 50)
    wide, narrow = (exact_law(energy, p, path)[1] for p in (Euler(), Ancestral()))
    assert float(torch.linalg.eigvalsh(wide - exact).max()) > 0
    assert float(torch.linalg.eigvalsh(narrow - exact).max()) < 0


@pytest.mark.parametrize("predictor", ALL, ids=named)
def test_coefficients_whose_variance_stands_still_do_not_change(predictor: Predictor) -> None:
    energy, _ = correlated()
    cov = measurement().expand(4)
    generator = keyed_generator("pinned")
    z = torch.randn(4, *SHAPE, generator=generator, dtype=torch.float64)
    evaluator, change, h_before = Evaluator(energy, cov), None, torch.zeros_like(cov.log_variance)
    still = torch.zeros(SHAPE, dtype=torch.bool)
    still[0, 0, :2] = True
    here = evaluator(z, cov.log_variance)
    for step in range(3):
        log_next = torch.where(still, here.log_variance, here.log_variance - 1)
        noise = torch.randn(z.shape, generator=generator, dtype=z.dtype)
        size = step_sizes(here.log_variance, log_next, h_before)
        ahead = evaluator(predictor.step(here, size, change, noise, evaluator), log_next)
        assert torch.equal(ahead.z[:, still], here.z[:, still])
        assert bool((ahead.z[:, ~still] != here.z[:, ~still]).all())
        change, h_before, here = ahead.mean - here.mean, size.h, ahead
        if step == 1:  # some that stood still now move, and the other way round
            still = ~still


def flow(energy: Energy, z: Tensor, path: Path) -> Tensor:
    evaluator = Evaluator(energy, path.template)
    here = evaluator(z, path.log_variance[0])
    for size in planned_steps(path):
        here = evaluator(ProbabilityFlowHeun().step(here, size, None, z, evaluator), size.log_next)
    return here.z


def test_the_probability_flow_of_a_diagonal_gaussian_is_a_scaling() -> None:
    cov = measurement(FourierCovariance)
    prior = cov.isotropic(0.7)
    z = torch.randn(5, *SHAPE, generator=keyed_generator("flow"), dtype=torch.float64)
    end = flow(DiagonalGaussian(prior), z, geometric(cov, 1e-4, 150))
    exact = z * ((0.7 + 1e-4) / (0.7 + cov.variance)).sqrt()
    torch.testing.assert_close(end, exact, rtol=5e-4, atol=1e-6)


def test_the_order_of_heun() -> None:
    energy, _ = correlated()
    cov = measurement()
    z = torch.randn(5, *SHAPE, generator=keyed_generator("flow"), dtype=torch.float64) * cov.variance.sqrt()
    reference = flow(energy, z, geometric(cov, 1e-4, 640))
    errors = [float((flow(energy, z, geometric(cov, 1e-4, n)) - reference).norm()) for n in (20, 80)]
    assert math.log2(errors[0] / errors[1]) / 2 == pytest.approx(ProbabilityFlowHeun.order, abs=0.15)


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_steps_are_the_same_however_many_are_worked_out_at_a_time(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = clamped(measurement(), 1e-6, 20)
    h = -path.log_variance.diff(dim=0)
    monkeypatch.setattr(run, "BLOCK_ENTRIES", block * DIM)
    found = list(planned_steps(path))
    assert len(found) == 20
    for step, size in enumerate(found):
        alone = step_sizes(path.log_variance[step], path.log_variance[step + 1], h[step - 1] if step else 0 * h[0])
        for a, b in zip(vars(size).values(), vars(alone).values(), strict=True):
            assert torch.equal(a, b)
    assert BLOCK_ENTRIES > 28 * 28 * 50  # the usual path of the usual image is worked out at once


def test_autoregressive_paths_are_fine_enough_by_default() -> None:
    energy, spread = correlated()
    for cov in (measurement(), measurement().isotropic(1e3)):
        exact = posterior(spread, cov)[1]
        errors = [
            covariance_error(exact_law(energy, TwoStepAncestral(), path)[1], exact)
            for path in (autoregressive(cov, 1e-6, 1), autoregressive(cov, 1e-6, 1, levels=10))
        ]
        assert errors[0] < 0.06
        assert errors[1] > 0.1

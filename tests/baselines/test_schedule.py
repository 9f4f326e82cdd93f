"""The noise schedule, its start, and the count of what a network was asked."""

from __future__ import annotations

import math

import pytest
import solvable
import torch
from torch import Tensor

from linverse.analytic import DiagonalGaussian
from linverse.baselines.denoisers import Counter, EnergyDenoiser, moments
from linverse.baselines.interface import IsotropicDenoiser
from linverse.baselines.schedule import geometric_levels, start, walk
from linverse.covariance import FourierCovariance, SpatialCovariance, VarianceRange
from linverse.models.denoiser import Denoiser, DenoiserConfig
from linverse.rng import keyed_generator
from oracles import z_threshold
from tiny import BACKBONE, awaken

LIMITS = VarianceRange(1e-4, 1e2)


class Plain:
    """A user's own denoiser: nothing but the protocol."""

    range, shape = LIMITS, (1, 4, 4)

    def __call__(self, y: Tensor, variance: float) -> Tensor:
        return y * (1 / (1 + variance))


def test_levels() -> None:
    levels = torch.tensor(geometric_levels(LIMITS, 10, 5.0), dtype=torch.float64)
    assert (len(levels), float(levels[0]), float(levels[-1])) == (11, 25.0, LIMITS.minimum)
    torch.testing.assert_close(levels.log().diff(), torch.full((10,), math.log(1e-4 / 25) / 10).double())
    assert geometric_levels(LIMITS, 3, 1e6)[0] == LIMITS.maximum
    assert geometric_levels(LIMITS, 3, 5.0, 0.1)[-1] == pytest.approx(0.01)


@pytest.mark.parametrize(("steps", "high", "low"), [(0, 5.0, 0.0), (5, 1e-3, 0.0), (5, 1.0, 2.0), (5, math.nan, 0.0)])
def test_levels_refuse_nonsense(steps: int, high: float, low: float) -> None:
    with pytest.raises(ValueError, match=r"schedule needs|sigma_max"):
        geometric_levels(LIMITS, steps, high, low)


def test_start_has_the_noise_and_the_data_in_it() -> None:
    """At a low σ_max, where leaving out C or m would show."""
    energy, count = solvable.gaussian(), 4000
    like = torch.zeros(count, *solvable.SHAPE, dtype=torch.float64)
    x = start(EnergyDenoiser(energy), like, 0.01, keyed_generator("start"))
    white = (x - energy.mean).flatten() / math.sqrt(0.01 + solvable.PRIOR)
    threshold = z_threshold(2) / math.sqrt(len(white))
    assert abs(float(white.mean())) < threshold
    assert abs(float(white.square().mean()) - 1) < math.sqrt(2) * threshold


def test_a_model_without_moments_starts_in_the_middle() -> None:
    assert moments(Plain()) is None
    x = start(Plain(), torch.zeros(20000, 1, 1, 1), 0.01, keyed_generator("middle"))
    assert float(x.mean()) == pytest.approx(0.5, abs=0.02)
    assert float(x.var()) == pytest.approx(0.26, abs=0.02)


def test_walk_with_the_posterior_mean_samples_the_posterior() -> None:
    """E[x|x_t, y] by hand: the walk alone is right, whatever gives it its means."""
    energy, noise = solvable.gaussian(), 0.02
    y = energy.mean[None] + 0.3
    mean = (energy.mean / solvable.PRIOR + y / noise) / (1 / solvable.PRIOR + 1 / noise)
    spread = 1 / (1 / solvable.PRIOR + 1 / noise)

    def mean_at(x: Tensor, variance: float) -> Tensor:
        return (mean / spread + x / variance) / (1 / spread + 1 / variance)

    levels = geometric_levels(solvable.LIMITS, 100)
    generator = keyed_generator("walk")
    x = walk(
        mean_at, start(EnergyDenoiser(energy), y.expand(2000, -1, -1, -1), levels[0], generator), levels, generator
    )
    assert solvable.worst(((x - mean) / math.sqrt(spread)).flatten(1), allowed=0.01) < 1


def test_energy_denoiser_is_exact_with_and_without_a_graph() -> None:
    energy = solvable.mixture()
    model = EnergyDenoiser(energy)
    y = energy.sample(3, keyed_generator("y"))
    exact = energy.posterior(y, SpatialCovariance(torch.full((3, 1, 4, 4), 0.05).double().log())).mean
    torch.testing.assert_close(model(y, 0.05), exact, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(model(y.requires_grad_(), 0.05).detach(), exact, rtol=1e-9, atol=1e-9)


def test_energy_denoiser_in_another_basis() -> None:
    prior = FourierCovariance(torch.full((1, 1, 4, 4), 0.04).double().log())
    energy = DiagonalGaussian(prior, limits=LIMITS)
    model = EnergyDenoiser(energy, prior)
    y = torch.ones(2, 1, 4, 4, dtype=torch.float64)
    torch.testing.assert_close(model(y, 0.04), 0.5 * y)
    assert float(model.log_prior) == pytest.approx(math.log(0.04))


def test_pull_is_the_transposed_jacobian() -> None:
    energy = solvable.mixture()
    y, v = torch.rand(2, 2, *solvable.SHAPE, generator=keyed_generator("pull"), dtype=torch.float64)
    counter = Counter(EnergyDenoiser(energy))
    mean, pull = counter.mean_and_pull(y, 0.1)
    step = 1e-5
    direction = torch.rand(y.shape, generator=keyed_generator("direction"), dtype=torch.float64)
    forward = (counter.mean(y + step * direction, 0.1) - counter.mean(y - step * direction, 0.1)) / (2 * step)
    torch.testing.assert_close((forward * v).sum(), (direction * pull(v)).sum(), rtol=1e-6, atol=1e-9)
    assert not mean.requires_grad


def test_count() -> None:
    counter = Counter(Plain())
    counter.mean(torch.ones(2, 1, 4, 4), 1.0)
    _, pull = counter.mean_and_pull(torch.ones(2, 1, 4, 4), 1.0)
    pull(torch.ones(2, 1, 4, 4))
    solution = counter.solution(torch.zeros(2, 1, 4, 4))
    assert (solution.evaluations, solution.gradients) == (2, 1)
    assert solution.seconds > 0
    of_energy = Counter(EnergyDenoiser(solvable.gaussian()))  # each evaluation of an energy's mean is a gradient
    of_energy.mean(torch.ones(2, 1, 4, 4, dtype=torch.float64), 1.0)
    assert (of_energy.evaluations, of_energy.gradients) == (1, 1)


def test_a_trained_network_is_an_isotropic_denoiser_that_knows_its_moments() -> None:
    network = Denoiser(DenoiserConfig((1, 8, 8), 1e-4, 1e2, backbone=BACKBONE))
    awaken(network)
    network.fit_gaussian(torch.full((1, 8, 8), 0.3), 0.09)
    assert isinstance(network, IsotropicDenoiser)
    known = moments(network)
    assert known is not None
    assert (float(known[0].mean()), known[1]) == (pytest.approx(0.3), pytest.approx(0.09))

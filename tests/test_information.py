"""Information against Gaussian closed forms."""

from __future__ import annotations

import math

import pytest
import torch

from linverse.analytic import DenseGaussian, DiagonalGaussian, GaussianScaleMixture
from linverse.covariance import FourierCovariance, SpatialCovariance, VarianceRange
from linverse.information import (
    design,
    entropy,
    information_gain,
    most_informative,
    mutual_information,
    next_coefficients,
)
from linverse.rng import keyed_generator

LIMITS = VarianceRange(1e-8, 1e8)


def dense_prior(size: int = 4) -> DenseGaussian:
    """Neighbouring pixels are alike; the variance grows along the rows."""
    index = torch.arange(size * size, dtype=torch.float64)
    rows, columns = index // size, index % size
    distance = ((rows[:, None] - rows) ** 2 + (columns[:, None] - columns) ** 2).sqrt()
    scale = 0.5 + 0.1 * index
    cov = scale[:, None] * scale * torch.exp(-distance / 1.5)
    return DenseGaussian(torch.zeros(size * size, dtype=torch.float64), cov, (1, size, size), LIMITS)


def noise(size: int, variance: torch.Tensor | float) -> SpatialCovariance:
    full = torch.as_tensor(variance, dtype=torch.float64).log().expand(1, 1, size, size)
    return SpatialCovariance(full.contiguous())


def test_mutual_information_of_gaussians() -> None:
    energy = dense_prior()
    generator = keyed_generator(1)
    x = energy.sample(4000, generator)
    levels = torch.exp(torch.randn(1, 1, 4, 4, generator=generator, dtype=torch.float64))
    cov = noise(4, levels)
    exact = 0.5 * torch.logdet(torch.eye(16, dtype=torch.float64) + energy.covariances[0] @ cov.dense()[0].inverse())
    result = mutual_information(energy, cov, x, generator)
    assert abs(result.value - float(exact)) < 4.5 * result.standard_error
    assert result.standard_error < 0.05 * float(exact)
    total = energy.covariances[0] + cov.dense()[0]
    heat = entropy(energy, cov, x, generator)
    assert abs(heat.value - 0.5 * float(torch.logdet(2 * math.pi * math.e * total))) < 4.5 * heat.standard_error


def test_diagonal_gaussian_has_no_residual() -> None:
    """R = 0: the estimate is exact whatever the sample."""
    prior = noise(5, 0.3)
    energy = DiagonalGaussian(prior, limits=LIMITS)
    result = mutual_information(energy, noise(5, 0.1), energy.sample(3, keyed_generator(2)), keyed_generator(3))
    assert result.value == pytest.approx(25 * 0.5 * math.log1p(3.0), rel=1e-9)
    assert result.standard_error == pytest.approx(0.0, abs=1e-9)


def test_shared_channels_count() -> None:
    energy = GaussianScaleMixture(torch.tensor([1.0]), torch.tensor([0.4], dtype=torch.float64), (3, 4, 4), LIMITS)
    cov = SpatialCovariance(torch.full((1, 1, 4, 4), math.log(0.2), dtype=torch.float64), 3)
    result = mutual_information(energy, cov, energy.sample(10, keyed_generator(4)), keyed_generator(5))
    assert result.value == pytest.approx(48 * 0.5 * math.log1p(2.0), rel=1e-9)


def exact_greedy(cov: torch.Tensor, sigma: float, count: int) -> list[int]:
    """Condition a Gaussian on noisy pixels, one after the other, always the one of largest variance."""
    chosen = []
    for _ in range(count):
        index = int(cov.diagonal().argmax())
        chosen.append(index)
        column = cov[:, index].clone()
        cov = cov - torch.outer(column, column) / (column[index] + sigma**2)
    return chosen


def test_greedy_design_is_the_exact_one_for_a_gaussian() -> None:
    energy, sigma = dense_prior(), 0.3
    places = design(
        energy, noise(4, 1e6), energy.sample(20, keyed_generator(6)), sigma, 6, generator=keyed_generator(7)
    )
    assert (places[:, 0] * 4 + places[:, 1]).tolist() == exact_greedy(energy.covariances[0], sigma, 6)


def test_frequencies_can_be_chosen_too() -> None:
    """Independent coefficients: the greedy choice is the list of the largest prior variances, and one that is measured is done with."""
    blank = FourierCovariance(torch.zeros(1, 1, 4, 4, dtype=torch.float64))
    spectrum = torch.randn(1, 1, 4, 4, generator=keyed_generator("spectrum"), dtype=torch.float64)
    energy = DiagonalGaussian(blank.with_log_variance(spectrum), limits=LIMITS)
    x = energy.sample(2, keyed_generator(10))
    places = design(energy, blank.isotropic(1e6), x, 0.01, 5, generator=keyed_generator(11))
    expected = spectrum.flatten().argsort(descending=True)[:5]
    assert (places[:, 0] * 4 + places[:, 1]).tolist() == expected.tolist()


def test_a_noise_that_the_energy_does_not_know_is_named() -> None:
    energy = DenseGaussian(torch.zeros(16).double(), torch.eye(16).double(), (1, 4, 4), VarianceRange(1e-2, 1e2))
    x = energy.sample(3, keyed_generator(12))
    for ask in (entropy, mutual_information):
        with pytest.warns(UserWarning, match=r"variances in \[0.001, 0.001\]; the energy knows \[0.01, 100\]"):
            ask(energy, noise(4, 1e-3), x)


def test_next_coefficients_given_a_measurement() -> None:
    energy = dense_prior()
    seen = torch.full((4, 4), 1e6, dtype=torch.float64)
    seen[3, 3] = 1e-6
    cov = noise(4, seen)
    y = energy.sample(1, keyed_generator(8))
    places = next_coefficients(energy, y, cov, 0.1, 2, spacing=2)[0].tolist()
    variance = energy.posterior(y, cov).covariance[0].diagonal()
    assert tuple(places[0]) == divmod(int(variance.argmax()), 4)
    assert max(abs(places[0][0] - places[1][0]), abs(places[0][1] - places[1][1])) >= 2


def test_no_place_is_named_twice_when_there_are_no_more() -> None:
    variance = torch.rand(3, 1, 5, 5, generator=keyed_generator(10)).double()
    assert most_informative(variance, 0.1, 1000).shape == (3, 25, 2)
    for places in most_informative(variance, 0.1, 1000, spacing=2):
        apart = (places[:, None] - places[None]).abs().amax(-1) + 5 * torch.eye(len(places), dtype=torch.long)
        assert 4 <= len(places) <= 9
        assert int(apart.min()) >= 2
    with pytest.raises(ValueError, match="at least 1; got -1"):
        most_informative(variance, 0.1, -1)


def test_gain_and_errors() -> None:
    assert float(information_gain(torch.tensor(3.0), 1.0)) == pytest.approx(0.5 * math.log(4.0))
    with pytest.raises(ValueError, match="sigma > 0"):
        information_gain(torch.ones(1), 0.0)
    energy = dense_prior()
    with pytest.raises(ValueError, match="at least two"):
        entropy(energy, noise(4, 1.0), energy.sample(1, keyed_generator(9)))

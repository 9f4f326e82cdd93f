"""Typicality and calibration on energies whose truth is known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from linverse.analytic import DiagonalGaussian, GaussianMixture
from linverse.covariance import Covariance, SpatialCovariance
from linverse.rng import keyed_generator, normal_like
from linverse.typicality import calibration, typicality


def prior() -> DiagonalGaussian:
    generator = keyed_generator("prior")
    log_variance = torch.randn(1, 1, 6, 6, generator=generator, dtype=torch.float64) - 2
    return DiagonalGaussian(SpatialCovariance(log_variance))


def noise(variance: float) -> SpatialCovariance:
    return SpatialCovariance(torch.full((1, 1, 6, 6), math.log(variance), dtype=torch.float64))


def noisy(x: Tensor, cov: Covariance, key: int) -> Tensor:
    return x + cov.colour(normal_like(x, keyed_generator(key)))


def test_p_values_of_typical_measurements_are_uniform() -> None:
    energy, cov, count = prior(), noise(0.05), 2000
    reference = energy.sample(199, keyed_generator(1))
    y = noisy(energy.sample(count, keyed_generator(2)), cov, 3)
    p = typicality(energy, y, cov, reference, keyed_generator(4)).p
    # one reference set for all: its own fluctuation, about 1/√199 at each quantile, adds to that of the sample
    for level in (0.1, 0.3, 0.5, 0.8):
        sd = math.sqrt(level * (1 - level) * (1 / count + 2 / 199))
        assert abs(float((p <= level).double().mean()) - level) < 4.5 * sd


@pytest.mark.parametrize(("scale", "sign"), [(2.0, 1), (0.2, -1)])
def test_foreign_images_and_wrong_noise_are_found(scale: float, sign: int) -> None:
    energy, cov = prior(), noise(0.05)
    reference = energy.sample(399, keyed_generator(5))
    y = scale * noisy(energy.sample(20, keyed_generator(6)), cov, 7)
    result = typicality(energy, y, cov, reference, keyed_generator(8))
    assert float(result.unusual(0.01).double().mean()) > 0.8
    assert bool((result.z * sign > 0).all())
    words = "unlike" if sign > 0 else "suspiciously"
    assert sum(words in line for line in result.describe()) > 15


def test_each_row_is_compared_under_its_own_noise() -> None:
    energy = prior()
    covs = SpatialCovariance(torch.cat([noise(0.01).log_variance, noise(10.0).log_variance]))
    y = noisy(energy.sample(2, keyed_generator(9)), covs, 10)
    result = typicality(energy, y, covs, energy.sample(99, keyed_generator(11)), keyed_generator(12))
    assert result.reference.shape == (2, 99)
    assert float(result.reference[1].mean()) > float(result.reference[0].mean()) + 50
    assert float(result.z.abs().max()) < 5


def test_calibration_of_an_exact_energy_and_of_a_wrong_one() -> None:
    generator = keyed_generator(13)
    means = torch.rand(3, 9, generator=generator, dtype=torch.float64)
    covariances = 0.02 * torch.eye(9, dtype=torch.float64).expand(3, 9, 9)
    energy = GaussianMixture(torch.ones(3), means, covariances, (1, 3, 3))
    cov = SpatialCovariance(torch.full((1, 1, 3, 3), math.log(0.05), dtype=torch.float64))
    x = energy.sample(4000, generator)
    right = calibration(energy, cov, x, keyed_generator(14))
    assert abs(right.bias) < 4.5 * right.bias_error
    assert abs(right.slope - 1) < 4.5 * right.slope_error
    narrow = GaussianMixture(torch.ones(3), means, 0.3 * covariances, (1, 3, 3))
    wrong = calibration(narrow, cov, x, keyed_generator(14))
    assert abs(wrong.bias) > 10 * wrong.bias_error


def test_too_few_references() -> None:
    energy = prior()
    with pytest.raises(ValueError, match="at least 20"):
        typicality(energy, energy.sample(1), noise(0.1), energy.sample(5))

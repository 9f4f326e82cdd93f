"""Typicality and calibration on energies whose truth is known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from conftest import DEGRADATIONS, energy_and_law
from linverse.analytic import DiagonalGaussian, GaussianMixture
from linverse.covariance import Covariance, SpatialCovariance, VarianceRange
from linverse.degradations import Box, Degradation, Inpainting
from linverse.posterior import Posterior
from linverse.rng import keyed_generator, normal_like
from linverse.typicality import (
    Calibration,
    alike,
    calibration,
    compare,
    measurement_typicality,
    reference_images,
    typicality,
)
from tiny import tiny_energy


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


# --- measurements ----------------------------------------------------------------------------------------------------------------

LIMITS = VarianceRange(1e-2, 1e3)  # above σ²: what was measured is lifted to the floor
COLOURS = (2, 6, 6)


def rows(degradation: Degradation, count: int, key: int) -> tuple[GaussianMixture, Tensor]:
    """An energy that knows the degradation's basis, and images of its prior."""
    template = degradation.encode(degradation.operator(torch.zeros(1, *COLOURS).double())).template
    energy, _ = energy_and_law("mixture", template, LIMITS)
    assert isinstance(energy, GaussianMixture)
    return energy, energy.sample(count, keyed_generator(key))


@pytest.mark.parametrize("name", DEGRADATIONS)
def test_images_are_measured_alike(name: str) -> None:
    """Without noise the coefficients are those of the degradation itself, wherever it measures any."""
    degradation = DEGRADATIONS[name](0.05)
    x = torch.rand(3, *COLOURS, generator=keyed_generator("alike"), dtype=torch.float64)
    first = degradation.encode(degradation.operator(x[:1]))
    again = alike(first, x, keyed_generator("noise"))
    noise = torch.exp(0.5 * first.log_noise) * normal_like(x, keyed_generator("noise"))
    seen = first.measured.expand_as(x)
    expected = degradation.encode(degradation.operator(x)).coefficients
    torch.testing.assert_close((again.coefficients - noise)[seen], expected[seen], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["denoising", "box", "gaussian-periodic", "super-resolution-2"])
def test_p_values_of_typical_measurements_are_uniform_whatever_was_filled(name: str) -> None:
    degradation, count, references = DEGRADATIONS[name](0.05), 600, 199
    energy, x = rows(degradation, count + references, 1)
    measurement = degradation.measure(x[:count].clamp(-0.4, 1.4), keyed_generator(2))
    found = measurement_typicality(energy, measurement, x[count:].clamp(-0.4, 1.4), keyed_generator(3))
    assert found.reference.shape == (1, references)
    for level in (0.1, 0.5, 0.8):
        sd = math.sqrt(level * (1 - level) * (1 / count + 2 / references))
        assert abs(float((found.p <= level).double().mean()) - level) < 4.5 * sd
    torch.testing.assert_close(found.energy, Posterior(energy, measurement).evaluate().energy)


def test_a_fill_at_the_mean_is_no_draw_of_the_noise() -> None:
    """The test of the test: against y = x + N(0, Σ) masked measurements look suspiciously probable."""
    degradation = Box(4, 0.05)
    energy, x = rows(degradation, 250, 4)
    lifted = Posterior(energy, degradation.measure(x[:50].clamp(-0.4, 1.4), keyed_generator(5))).lift(random_fill=False)
    found = typicality(energy, lifted.y, lifted.cov, x[50:], keyed_generator(6))
    sd = math.sqrt(0.1 * 0.9 * (1 / 50 + 2 / 200))
    assert float((found.p <= 0.1).double().mean()) > 0.1 + 4.5 * sd
    assert float(found.z[found.p <= 0.1].max()) < 0


def test_foreign_measurements_are_found() -> None:
    degradation = Box(3, 0.05)
    energy, x = rows(degradation, 219, 7)
    checks = ((torch.arange(6)[:, None] + torch.arange(6)) % 2).double().expand(20, *COLOURS)
    found = measurement_typicality(energy, degradation.measure(checks), x[20:].clamp(-0.4, 1.4), keyed_generator(8))
    assert bool(found.unusual().all())
    assert float(found.z.min()) > 0
    assert "unlike what the model knows" in found.describe()[0]


def test_each_measurement_is_compared_with_its_own_kind() -> None:
    """Two masks, one of which hides nearly all."""
    energy, x = rows(Box(3), 102, 9)
    masks = torch.ones(2, 1, 6, 6, dtype=torch.bool)
    masks[1, :, 1:] = False
    measurement = Inpainting(masks, 0.3).measure(x[:2].clamp(-0.4, 1.4), keyed_generator(10))
    found = measurement_typicality(energy, measurement, x[2:], keyed_generator(11))
    assert found.reference.shape == (2, 100)
    assert float((found.reference[0].mean() - found.reference[1].mean()).abs()) > 50
    for row in range(2):
        alone = measurement_typicality(energy, measurement[row : row + 1], x[2:], keyed_generator(12))
        spread = float(alone.reference.std())
        assert abs(float(alone.reference.mean() - found.reference[row].mean())) < 4.5 * spread * math.sqrt(2 / 100)


def test_few_references_call_unusual_what_lies_beyond_them_all() -> None:
    reference = torch.arange(20.0).double()[None]
    found = compare(torch.tensor([-1.0, 0.5, 10.0, 40.0]).double(), reference)
    assert found.p.tolist() == pytest.approx([2 / 21, 4 / 21, 1.0, 2 / 21])
    assert found.unusual(0.001).tolist() == [True, False, False, True]
    records = found.records()
    assert [one["unusual"] for one in records] == [True, False, False, True]
    assert records[2] == {
        "p": 1.0,
        "z": pytest.approx(0.5 / float(reference.std())),
        "unusual": False,
        "reference_images": 20,
        "verdict": "typical of what the model knows (p = 1.00)",
    }
    with pytest.raises(ValueError, match="NaN or infinite"):
        compare(torch.tensor([math.nan]).double(), reference)


def test_only_some_energies_carry_references() -> None:
    assert reference_images(prior()) is None
    learned = tiny_energy((1, 8, 8))
    assert reference_images(learned) is None


# --- noises ------------------------------------------------------------------------------------------------------------------------


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
    assert right.doubt() is None
    assert "not calibrated for noise of this shape" in str(wrong.doubt())


def test_a_model_is_doubted_for_what_is_large_and_not_by_chance() -> None:
    assert Calibration(0.04, 0.001, 1.25, 0.01).doubt() is None  # certain, and small
    assert Calibration(0.4, 0.2, 2.0, 0.5).doubt() is None  # large, and of few images
    assert Calibration(0.2, 0.01, 1.0, 0.01).doubt() is not None
    assert Calibration(0.0, 0.01, 0.5, 0.01).doubt() is not None


def test_too_few_references() -> None:
    energy = prior()
    with pytest.raises(ValueError, match="at least 20"):
        typicality(energy, energy.sample(1), noise(0.1), energy.sample(5))

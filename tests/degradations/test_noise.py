"""White, mapped and coloured noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from conftest import random_covariance
from linverse import degradations as dg
from linverse.rng import keyed_generator
from measured import LIMITS, SHAPE, assert_variance, image, lift
from oracles import matrix_of


def test_coloured_noise_is_a_measurement_by_its_own_covariance() -> None:
    for family in ("spatial", "fourier", "dct", "block-dct"):
        cov = random_covariance(family, SHAPE, batch=1, spread=0.5)
        x = image(1).expand(2000, -1, -1, -1)
        measurement = dg.ColouredNoise(cov).measure(x, keyed_generator("coloured"))
        torch.testing.assert_close(measurement.covariance(LIMITS)[:1].dense(), cov.dense())
        assert_variance(cov.analysis(measurement.raw - x).flatten(1), cov.variance.flatten())
        torch.testing.assert_close(lift(measurement).y, measurement.raw, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="image has shape"):
        dg.ColouredNoise(cov).measure(image(1, (2, 6, 8)))


def test_noisy_real_data_may_leave_the_unit_interval() -> None:
    data = image() * 3 - 1
    dg.Denoising(0.5).from_raw(data)
    with pytest.raises(ValueError, match="measurement has values"):
        dg.Denoising(0.01).from_raw(data)


def noise_map(shape: tuple[int, ...]) -> Tensor:
    return 0.05 + 0.4 * torch.rand(shape, generator=keyed_generator("map"), dtype=torch.float64)


@pytest.mark.parametrize("shape", [(6, 6), (2, 6, 6)])
def test_a_noise_map_is_the_noise_of_every_pixel(shape: tuple[int, ...]) -> None:
    """Σ = diag(σ²), dense; the noise has it; every pixel is measured with gain 1."""
    sigma = noise_map(shape)
    degradation, x = dg.Denoising(sigma), image(1).expand(2000, -1, -1, -1)
    measurement = degradation.measure(x, keyed_generator("v"))
    variance = sigma.square().expand(SHAPE).flatten()
    torch.testing.assert_close(measurement.covariance(LIMITS)[:1].dense()[0], torch.diag(variance))
    assert_variance((measurement.raw - x).flatten(1), variance)
    torch.testing.assert_close(matrix_of(degradation.operator, SHAPE), torch.eye(72, dtype=torch.float64))
    assert bool(measurement.measured.all())
    assert degradation.sigma == float(sigma.max())
    torch.testing.assert_close(lift(measurement).y, measurement.raw, rtol=0, atol=1e-12)


def test_a_noise_map_of_one_value_is_that_value() -> None:
    x = image()
    one, many = (dg.Denoising(s).measure(x, keyed_generator("v")) for s in (0.1, np.full((6, 6), 0.1)))
    torch.testing.assert_close(many.raw, one.raw)
    torch.testing.assert_close(many.log_variance, one.log_variance)


@pytest.mark.parametrize(
    ("sigma", "message"),
    [
        (torch.full((6, 6), -0.1), "finite and ≥ 0"),
        (torch.full((6, 6), math.nan), "finite and ≥ 0"),
        (torch.ones(6), r"\[H, W\] or \[C, H, W\]"),
        (torch.ones(6, 6, dtype=torch.int64), "divide 8-bit values"),
    ],
)
def test_noise_maps_that_mean_nothing_are_refused(sigma: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dg.Denoising(sigma)


def test_a_noise_map_of_another_size_is_refused() -> None:
    for call in (dg.Denoising(noise_map((6, 5))).measure, dg.Denoising(noise_map((6, 5))).from_raw):
        with pytest.raises(ValueError, match=r"noise map has shape \(1, 6, 5\)"):
            call(image())


@pytest.mark.parametrize("exponent", [1.0, 0.0, -1.0])
def test_power_law_noise_has_the_power_it_says(exponent: float) -> None:
    """σ² in all, spread over frequencies as 1/fˢ; the measurement carries that Σ."""
    size, count = (16, 12), 4000
    noise = dg.PowerLawNoise(0.2, exponent)
    x = torch.full((count, 1, *size), 0.5, dtype=torch.float64)
    measurement = noise.measure(x, keyed_generator("power law"))
    coefficients = measurement.template.analysis(measurement.raw - x)
    expected = measurement.log_noise.exp()[0, 0]
    ratio = coefficients.square().mean(dim=0)[0] / expected
    assert float((ratio - 1).abs().max()) < 6 * (2 / count) ** 0.5
    assert float(expected.mean()) == pytest.approx(0.04, rel=1e-6)
    radius = torch.hypot(*measurement.template.frequencies())
    far = expected[radius > 0] * radius[radius > 0] ** exponent
    assert float(far.max() / far.min()) == pytest.approx(1, rel=1e-6)

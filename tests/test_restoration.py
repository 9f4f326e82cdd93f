"""All answers about one picture: standard deviations, samples with their densities, doubts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from linverse.analytic import DenseGaussian, DiagonalGaussian
from linverse.covariance import Covariance, SpatialCovariance, VarianceRange
from linverse.degradations import Box, GaussianBlur, SuperResolution
from linverse.experiments.demo import exact_digits
from linverse.measurement import Measurement
from linverse.posterior import Posterior
from linverse.restoration import add_samples, one_shot, with_densities
from linverse.rng import keyed_generator
from small import SHAPE, digit


def exact_pixel_variance(energy: Any, measurement: Measurement) -> Tensor:
    posterior = Posterior(energy, measurement)
    lifted = posterior.lift(keyed_generator("lift"), random_fill=False)
    return energy.posterior(lifted.y, lifted.cov).covariance[0].diagonal().reshape(SHAPE)


def test_std_of_pixels_is_exact_for_masks_and_right_on_average_elsewhere() -> None:
    energy = exact_digits()
    masked = Box(4, 0.05).measure(digit().double(), keyed_generator(1))
    result = one_shot(Posterior(energy, masked))
    assert result.std_from == "one-shot"
    assert torch.allclose(result.std.square(), exact_pixel_variance(energy, masked), rtol=1e-6)
    coarse = SuperResolution(4, 0.05).measure(digit().double(), keyed_generator(1))
    result = one_shot(Posterior(energy, coarse))
    exact = torch.nn.functional.avg_pool2d(exact_pixel_variance(energy, coarse), 4)
    assert result.std_from == "one-shot, diagonal approximation"
    assert torch.allclose(result.std[:, ::4, ::4].square(), exact, rtol=1e-6)


def test_std_of_a_deblurred_picture_is_the_spread_of_its_samples() -> None:
    mean = torch.full((64,), 0.5, dtype=torch.float64)
    distance = torch.cdist(
        torch.cartesian_prod(torch.arange(8.0), torch.arange(8.0)), torch.cartesian_prod(*[torch.arange(8.0)] * 2)
    )
    prior = 0.05 * torch.exp(-0.5 * distance.double() / 3)
    energy = DenseGaussian(mean, prior, SHAPE, VarianceRange(1e-6, 1e3))
    measurement = GaussianBlur(0.7, 0.05).measure(digit().double(), keyed_generator(2))
    posterior, count = Posterior(energy, measurement), 400
    result = add_samples(one_shot(posterior), posterior, count, 60, seed=0)
    assert result.std_from == f"the spread of {count} samples"
    ratio = result.std.square() / exact_pixel_variance(energy, measurement)
    # a variance of n samples has relative sd √(2/n); 64 pixels at 1e-4 in all: 4.9 sd; the path's own error is below 3 %
    assert float((ratio - 1).abs().max()) < 4.9 * math.sqrt(2 / count) + 0.03
    assert bool((result.log_probs.diff() <= 0).all())
    assert torch.allclose(Posterior(energy, measurement).log_prob(result.samples[3:4]), result.log_probs[3])


def test_impossible_uncertainty_is_doubted() -> None:
    prior = SpatialCovariance(torch.full((1, 1, 8, 8), math.log(4.0), dtype=torch.float64))
    wide = DiagonalGaussian(prior, limits=VarianceRange(1e-6, 1e3))
    wild = one_shot(Posterior(wide, Box(4, 0.1).measure(digit().double())))
    assert "do not trust" in wild.doubts()[0]
    assert one_shot(Posterior(exact_digits(), Box(4, 0.1).measure(digit()))).doubts() == []


def test_the_measurement_is_evaluated_once() -> None:
    """The mean, its spread, the evidence, densities and typicality share one evaluation at (y, Σ)."""

    class Counted(DiagonalGaussian):
        calls = 0

        def __call__(self, y: Tensor, cov: Covariance) -> Tensor:
            at_measurement = len(y) == 1 and not torch.allclose(
                cov.variance, cov.variance.new_tensor(self.range.minimum)
            )
            Counted.calls += at_measurement
            return super().__call__(y, cov)

    prior = SpatialCovariance(torch.full((1, 1, 8, 8), math.log(0.05), dtype=torch.float64))
    energy = Counted(prior, limits=VarianceRange(1e-6, 1e3))
    posterior = Posterior(energy, Box(4, 0.1).measure(digit().double(), keyed_generator(0)))
    result = one_shot(posterior)
    assert Counted.calls == 1
    ranked = with_densities(replace(result, samples=digit().double()), posterior)
    assert len(ranked.log_probs) == 1
    assert Counted.calls == 1


def test_a_restoration_is_frozen_and_short_to_print() -> None:
    result = one_shot(Posterior(exact_digits(), Box(4, 0.1).measure(digit())))
    with pytest.raises(AttributeError):
        result.mean = result.std  # type: ignore[misc]
    assert len(repr(result)) < 120
    assert "1×8×8" in repr(result)

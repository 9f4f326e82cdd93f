"""Code lengths: a bound that holds where the probability of bytes is known, and tight where the cell is wide against the noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm, truncnorm

from linverse.analytic import DiagonalGaussian
from linverse.code_length import HALF_CELL, CellNoise, code_length
from linverse.covariance import SpatialCovariance, VarianceRange, identity
from linverse.rng import keyed_generator

LEVELS = torch.arange(256).double() / 255


def gaussian(std: float, floor: float = 1e-6) -> DiagonalGaussian:
    prior = SpatialCovariance(torch.full((1, 1, 4, 4), 2 * math.log(std), dtype=torch.float64))
    return DiagonalGaussian(prior, torch.full((1, 4, 4), 0.4).double(), VarianceRange(floor, 1e3))


def exact_bits(std: float, floor: float) -> torch.Tensor:
    """−log₂ P(byte) of x + N(0, floor), x Gaussian, with all that lies beyond black and white in the last cells."""
    edges = (torch.arange(1, 256).double() - 0.5) / 255
    cdf = torch.from_numpy(norm.cdf((edges.numpy() - 0.4) / math.sqrt(std**2 + floor)))
    mass = torch.diff(torch.cat([torch.zeros(1).double(), cdf, torch.ones(1).double()]))
    return -mass.log2()


@pytest.mark.parametrize("std", [0.02, 0.2])
def test_code_length_bounds_the_exact_one_and_is_near_it(std: float) -> None:
    floor = 1e-6
    weights = 2.0 ** -exact_bits(std, floor)
    generator = keyed_generator("bytes")
    bytes_ = torch.multinomial(weights, 400 * 16, replacement=True, generator=generator)
    x = LEVELS[bytes_].reshape(400, 1, 4, 4)
    found = code_length(gaussian(std, floor), x, draws=8)
    exact = exact_bits(std, floor)[bytes_].reshape(400, -1).mean(1)
    gap = found.bits - exact
    error = float(gap.std()) / 20
    assert float(gap.mean()) > -4 * error
    assert float(gap.mean()) < 0.12
    grey = (
        ((x > 0) & (x < 1)).flatten(1).all(dim=1)
    )  # black's cell has no end, and a Gaussian of std 0.2 has much in it
    assert (
        float(gap[grey].mean()) < 0.01
    )  # q is nearly flat where the Gaussian is; one as narrow as the noise costs 0.17


def test_neighbours_that_tell_a_value_move_the_noise_within_its_cell() -> None:
    """Values that are nearly alike: noise that does not know it, flat across the cell, pays for each of them."""
    blank = identity("dct", (1, 4, 4), LEVELS)
    variance = torch.full((1, 1, 4, 4), 0.002**2).double()
    variance[..., 0, 0] += 16 * 0.05**2
    prior = blank.with_log_variance(variance.log())
    energy = DiagonalGaussian(prior, torch.full((1, 4, 4), 0.5).double(), VarianceRange(1e-6, 1e3))
    normal = torch.randn(200, 1, 4, 4, generator=keyed_generator("alike"), dtype=torch.float64)
    x = ((0.5 + prior.expand(200).colour(normal)) * 255).round().clamp(1, 254) / 255
    cov = blank.isotropic(1e-6)
    uniform = torch.rand(8, *x.shape, generator=keyed_generator("flat"), dtype=torch.float64) / 255 - HALF_CELL
    flat = torch.stack([energy(x + u, cov.expand(200)) for u in uniform]) / (16 * math.log(2)) + math.log2(255)
    gain = flat.mean(0) - code_length(energy, x, draws=8).bits
    assert float(gain.mean()) > 0.03
    assert float(gain.mean()) > 4 * float(gain.std()) / math.sqrt(200)


def test_noise_stays_in_its_cell_and_has_the_law_of_a_cut_normal() -> None:
    x = torch.tensor([0.0, 128 / 255, 1.0]).double().reshape(1, 3, 1, 1).expand(40_000, 3, 1, 1)
    std, centre = 0.001, torch.tensor([0.0005, -0.0015, 0.01]).double().reshape(1, 3, 1, 1)
    law = CellNoise.around(x, centre.expand_as(x), torch.full_like(x, std))
    noise, log_density = law.draw(keyed_generator("noise"))
    ends = [(-math.inf, HALF_CELL), (-HALF_CELL, HALF_CELL), (-HALF_CELL, math.inf)]
    for i, (low, high) in enumerate(ends):
        middle = float(centre.flatten()[i])
        assert low <= float(noise[:, i].min()) <= float(noise[:, i].max()) <= high
        exact = truncnorm((low - middle) / std, (high - middle) / std, middle, std)
        assert float(noise[:, i].mean()) == pytest.approx(exact.mean(), abs=4 * exact.std() / 200)
        assert float(noise[:, i].std()) == pytest.approx(exact.std(), rel=0.02)
        assert float(law.mean()[0, i]) == pytest.approx(exact.mean(), rel=1e-9)
        np.testing.assert_allclose(log_density[:, i].flatten(), exact.logpdf(noise[:, i].flatten()), rtol=1e-6)


def test_a_centre_far_beyond_the_cell_is_brought_nearer() -> None:
    x = torch.full((1, 1, 1, 2), 100 / 255).double()
    law = CellNoise.around(x, torch.tensor([[[[-5.0, 5.0]]]]).double(), torch.full_like(x, 1e-4))
    noise, log_density = law.draw(keyed_generator("far"))
    assert float(noise.abs().max()) <= HALF_CELL
    assert bool(torch.isfinite(log_density).all())


def test_values_that_are_no_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="8-bit"):
        code_length(gaussian(0.2), torch.full((1, 1, 4, 4), 0.3001).double())

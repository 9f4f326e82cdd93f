"""Code lengths: a bound that holds where the probability of bytes is known, and tight where the cell is wide against the noise."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import norm

from linverse.analytic import DiagonalGaussian
from linverse.code_length import code_length, truncated_noise
from linverse.covariance import SpatialCovariance, VarianceRange
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
    assert float(gap.mean()) < 0.6  # what a q of a quarter of the cell's width costs: log₂ of cell/noise entropy


def test_noise_stays_in_its_cell_and_has_the_law_of_a_cut_normal() -> None:
    x = torch.tensor([0.0, 128 / 255, 1.0]).double().reshape(1, 3, 1, 1).expand(4000, 3, 1, 1)
    std = 0.001
    noise, log_mass = truncated_noise(x, std, keyed_generator("noise"))
    cell = 0.5 / 255
    assert float(noise[:, 1].abs().max()) <= cell * (1 + 1e-9)
    assert float(noise[:, 0].max()) <= cell * (1 + 1e-9)
    assert float(noise[:, 0].min()) < -2 * std
    assert float(noise[:, 2].max()) > 2 * std
    mass = norm.cdf(cell / std)
    torch.testing.assert_close(log_mass[0].flatten(), torch.tensor([mass, 2 * mass - 1, mass]).double().log())
    variance = 1 - 2 * (cell / std) * norm.pdf(cell / std) / (2 * mass - 1)
    assert float(noise[:, 1].var()) == pytest.approx(variance * std**2, rel=0.1)


def test_values_that_are_no_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="8-bit"):
        code_length(gaussian(0.2), torch.full((1, 1, 4, 4), 0.3001).double())

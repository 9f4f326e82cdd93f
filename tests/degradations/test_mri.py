"""Lines of k-space of a real image, in the Fourier basis: nothing is lost and no noise is invented."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import linverse as lv
from linverse.analytic import DenseGaussian
from linverse.covariance import VarianceRange
from linverse.rng import keyed_generator
from oracles import Law, matrix_of, random_spd

SIGMA = 0.1
SCANS = {
    "even": (lv.MRI(2.5, SIGMA, seed=1), (1, 6, 8)),
    "odd": (lv.MRI(2.0, SIGMA, seed=2), (1, 5, 7)),
    "few lines": (lv.MRI(4.0, SIGMA, centre=0.0, seed=3), (2, 4, 9)),
    "all of it": (lv.MRI(1.0, SIGMA), (1, 6, 7)),
}
scans = pytest.mark.parametrize("name", SCANS)


@scans
def test_the_measurement_is_a_sufficient_statistic(name: str) -> None:
    """HᵀH/σ² = Q diag(h²/ν) Qᵀ and Hᵀy/σ² = Q(hz/ν): the likelihood of x, whichever of ±k were measured."""
    scan, shape = SCANS[name]
    x = torch.rand(1, *shape, generator=keyed_generator("x"), dtype=torch.float64)
    seen = scan.measure(x, keyed_generator("v"))
    matrix = matrix_of(scan.operator, shape)
    basis = matrix_of(seen.template.synthesis, shape)
    weight = (seen.gain.square() / seen.noise).expand(1, *shape).flatten()
    torch.testing.assert_close((basis * weight) @ basis.mT, matrix.mT @ matrix / SIGMA**2, rtol=0, atol=1e-9)
    pulled = seen.template.synthesis(seen.gain * seen.coefficients / seen.noise).flatten()
    torch.testing.assert_close(pulled, seen.raw.flatten() @ matrix / SIGMA**2, rtol=0, atol=1e-9)


def test_one_of_a_pair_has_twice_the_variance() -> None:
    scan, shape = SCANS["even"]
    seen = scan.measure(torch.zeros(4000, *shape).double(), keyed_generator("v"))
    lines = scan.lines_for(shape[2])
    mirror = torch.roll(lines.flip(0), 1)
    assert bool((lines ^ mirror).any()), "a scan with lines whose mirror image is missing"
    levels = seen.noise.expand(1, *shape)[0, 0]
    torch.testing.assert_close(levels[:, lines & mirror], torch.full_like(levels[:, lines & mirror], SIGMA**2))
    torch.testing.assert_close(levels[:, lines ^ mirror], torch.full_like(levels[:, lines ^ mirror], 2 * SIGMA**2))
    assert torch.equal(seen.measured[0, 0], (lines | mirror).expand(shape[1:]))
    spread = seen.coefficients.var(dim=0)[0]
    measured = seen.measured[0, 0]
    ratio = spread[measured] / levels[measured]
    assert float((ratio - 1).abs().max()) < 5 * math.sqrt(2 / 4000)


@scans
def test_the_mean_is_the_dense_posterior_mean(name: str) -> None:
    scan, shape = SCANS[name]
    dim, generator = math.prod(shape), keyed_generator("prior", name)
    mean, spread = torch.full((dim,), 0.5).double(), random_spd(generator, 1, dim, 0.02)
    energy = DenseGaussian(mean, spread[0], shape, VarianceRange(1e-7, 1e8))
    x = energy.sample(1, generator).clamp(-0.4, 1.4)
    seen = scan.measure(x, generator)
    matrix = matrix_of(scan.operator, shape)
    noise = SIGMA**2 * torch.eye(len(matrix), dtype=torch.float64)
    law = Law(torch.zeros(1, 1).double(), mean[None, None], spread).posterior(seen.raw, matrix, noise)
    torch.testing.assert_close(lv.Posterior(energy, seen).mean().flatten(1), law.mean, rtol=0, atol=1e-4)


def test_complex_data_and_what_was_not_measured() -> None:
    scan, shape = SCANS["even"]
    x = torch.rand(2, *shape, generator=keyed_generator("x"), dtype=torch.float64)
    raw = scan.operator(x)
    given = torch.view_as_complex(raw)
    again = torch.where(scan.mask_for((6, 8)), given, complex(math.nan, 0))
    expected = scan.from_raw(raw).coefficients
    for data in (given, again, given.numpy().astype(np.complex128)):
        torch.testing.assert_close(scan.from_raw(data).coefficients, expected)


def test_lines() -> None:
    for width in (7, 28, 64):
        lines = lv.MRI(4, 0.1).lines_for(width)
        assert int(lines.sum()) == max(1, round(width / 4))
        assert bool(lines[0]), "k = 0 is always there"
        assert torch.equal(lines, lv.MRI(4, 0.1).lines_for(width))
        assert width < 28 or not torch.equal(lines, lv.MRI(4, 0.1, seed=1).lines_for(width))


def test_refused() -> None:
    with pytest.raises(ValueError, match="acceleration is at least 1"):
        lv.MRI(0.5)
    with pytest.raises(ValueError, match=r"k-space has shape \(1, 1, 4, 4\); it must be complex"):
        lv.MRI().from_raw(torch.zeros(1, 1, 4, 4))
    with pytest.raises(ValueError, match="NaN or infinite"):
        lv.MRI().from_raw(torch.full((1, 1, 4, 4), math.nan, dtype=torch.complex64))

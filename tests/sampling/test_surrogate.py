"""Expectation propagation against exact dense posteriors: where it is exact it must be so, and elsewhere near and stable."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from linverse import degradations as dg
from linverse.analytic import GaussianMixture
from linverse.covariance import VarianceRange
from linverse.energy import evaluate_in_basis
from linverse.operator_measurement import OperatorMeasurement
from linverse.rng import keyed_generator
from linverse.sampling.lanczos import inverse_root
from linverse.sampling.surrogate import best_basis, joined, moved, surrogate
from oracles import Law, matrix_of, random_spd

SHAPE, SIGMA = (1, 4, 8), 0.2
DIM = 32
LIMITS = VarianceRange(1e-6, 1e3)


def flips() -> dg.Degradation:
    """20 sums over random halves of the pixels: a matrix with one direction that is measured far better than all others."""
    matrix = (torch.rand(20, DIM, generator=keyed_generator("flips")) > 0.5).double() / DIM**0.5
    return dg.LinearOperator(lambda x: x.flatten(1) @ matrix.mT, lambda r: (r @ matrix).reshape(-1, *SHAPE), SIGMA)


OPERATORS = {
    "tomography": dg.Tomography(SHAPE[1:], 5, SIGMA),
    "projections": dg.CompressedSensing(SHAPE[1:], 0.5, SIGMA),
    "varying blur": dg.VaryingBlur.across(SHAPE[1:], 0.4, 1.2, SIGMA),
    "coin flips": flips(),
}


def mixture(components: int) -> tuple[GaussianMixture, Law]:
    generator = keyed_generator("surrogate", components)
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)[:components]
    weights = weights / weights.sum()
    means = torch.rand(components, DIM, generator=generator, dtype=torch.float64)
    spread = random_spd(generator, components, DIM, 0.03)
    return GaussianMixture(weights, means, spread, SHAPE, LIMITS), Law(weights.log()[None], means[None], spread)


def measured(energy: GaussianMixture, degradation: dg.Degradation, count: int = 1) -> OperatorMeasurement:
    generator = keyed_generator("measured")
    seen = degradation.measure(energy.sample(count, generator).clamp(-0.4, 1.4), generator)
    assert isinstance(seen, OperatorMeasurement)
    return seen


def posterior_of(prior: Law, degradation: dg.Degradation, raw: Tensor) -> Law:
    matrix = matrix_of(degradation.operator, SHAPE)
    return prior.posterior(raw.flatten(1), matrix, SIGMA**2 * torch.eye(len(matrix), dtype=torch.float64))


@pytest.mark.parametrize("name", OPERATORS)
def test_the_mean_under_a_gaussian_prior_is_exact(name: str) -> None:
    """Whatever the operator: its rounds come to the one fixed point."""
    energy, prior = mixture(1)
    seen = measured(energy, OPERATORS[name], 3)
    found = surrogate(energy, seen, 300)
    exact = posterior_of(prior, OPERATORS[name], seen.raw)
    mean = evaluate_in_basis(energy, found.coefficients, found.cov).mean.flatten(1)
    std = exact.covariance[0].diagonal().sqrt()
    assert float(((mean - exact.mean) / std).abs().max()) < 0.01
    assert float(found.gap.max()) < 0.01
    assert float(surrogate(energy, seen, 1).gap.max()) > 0.05


@pytest.mark.parametrize("name", OPERATORS)
def test_the_mean_under_a_mixture_is_near(name: str) -> None:
    """16 images each: within a fifth of the posterior's standard deviation, rms, where the prior's own mean is off by far more."""
    energy, prior = mixture(3)
    seen = measured(energy, OPERATORS[name], 16)
    exact = posterior_of(prior, OPERATORS[name], seen.raw)
    std = exact.covariance.diagonal(dim1=-2, dim2=-1).sqrt()
    found = surrogate(energy, seen)
    mean = evaluate_in_basis(energy, found.coefficients, found.cov).mean.flatten(1)
    assert float(((mean - exact.mean) / std).square().mean().sqrt()) < 0.2
    assert float(((prior.mean - exact.mean) / std).square().mean().sqrt()) > 0.6


def test_nothing_is_approximate_where_the_basis_diagonalises() -> None:
    """A mask: r and Σ₁ are the pixels and their noise, and samples are left alone."""
    energy, _ = mixture(3)
    mask = (torch.rand(SHAPE, generator=keyed_generator("mask")) > 0.5).double()
    mask[0, 0, 0] = 1
    degradation = dg.LinearOperator(lambda x: mask * x, lambda r: mask * r, SIGMA)
    seen = measured(energy, degradation, 2)
    assert best_basis(energy, seen)[0].basis == "spatial"
    found = surrogate(energy, seen)
    here = (mask > 0).expand_as(seen.raw)
    torch.testing.assert_close(
        found.cov.variance.expand_as(here)[here], torch.full((int(here.sum()),), SIGMA**2).double()
    )
    torch.testing.assert_close(found.coefficients[here], seen.raw[here], rtol=0, atol=1e-6)
    x = torch.rand(2, *SHAPE, generator=keyed_generator("x"), dtype=torch.float64)
    torch.testing.assert_close(moved(found, seen, x), x, rtol=0, atol=1e-4)


def test_moved_samples_have_the_spread_that_the_data_leave() -> None:
    """Under a white Gaussian prior, for which both laws are Gaussians of scalar t: exact draws become exact draws."""
    weights, means = torch.ones(1).double(), torch.full((1, DIM), 0.5).double()
    spread = 0.05 * torch.eye(DIM, dtype=torch.float64)[None]
    energy, prior = (
        GaussianMixture(weights, means, spread, SHAPE, LIMITS),
        Law(weights.log()[None], means[None], spread),
    )
    seen = measured(energy, OPERATORS["projections"])
    found = surrogate(energy, seen)
    count = 6000
    x = energy.posterior(found.cov.synthesis(found.coefficients), found.cov).sample(count, keyed_generator("k"))[0]
    exact = posterior_of(prior, OPERATORS["projections"], seen.raw)
    rows = torch.zeros(count, dtype=torch.long)
    before, after = (y.flatten(1).mT.cov() - exact.covariance[0] for y in (x, moved(found[rows], seen[rows], x)))
    noise = (2 / count) ** 0.5 * float(exact.covariance[0].diagonal().max())
    assert float(before.abs().max()) > 8 * noise
    assert float(after.abs().max()) < 6 * noise
    assert float(found.precision) == pytest.approx(20, rel=0.1)


def test_rows_and_parts() -> None:
    energy, _ = mixture(3)
    seen = measured(energy, OPERATORS["tomography"], 4)
    whole = surrogate(energy, seen)
    parts = joined([whole[:1], whole[[1, 2, 3]]])
    assert torch.equal(parts.coefficients, whole.coefficients)
    assert torch.equal(parts.cov.log_variance, whole.cov.log_variance)
    assert torch.equal(parts.gap, whole.gap)
    assert whole.evaluations == 16 + 8 * 2
    with pytest.raises(ValueError, match="at least 1; got 0"):
        surrogate(energy, seen, 0)


def test_the_inverse_root_is_the_matrix_function() -> None:
    generator = keyed_generator("root")
    matrix = random_spd(generator, 1, 12, 1.0)[0]
    values, vectors = torch.linalg.eigh(matrix)
    v = torch.randn(5, 12, generator=generator, dtype=torch.float64)
    v[3], v[4] = 0, vectors[:, 2]  # nothing, and a basis of one
    exact = v @ (vectors * values.rsqrt()) @ vectors.mT
    torch.testing.assert_close(inverse_root(lambda u: u @ matrix, v), exact, rtol=0, atol=1e-6)
    assert float((inverse_root(lambda u: u @ matrix, v, 2) - exact).abs().max()) > 1e-3

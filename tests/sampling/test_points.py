from __future__ import annotations

import pytest
import torch
from problems import prior

from conftest import COVARIANCES, plain_evaluate, random_covariance, same_evaluation
from linverse.analytic import GaussianMixture
from linverse.energy import evaluate
from linverse.rng import keyed_generator
from linverse.sampling.points import Eye
from oracles import random_spd


@pytest.mark.parametrize("family", COVARIANCES)
@pytest.mark.parametrize("shared", [True, False])
def test_the_mixtures_own_derivatives_are_those_of_its_energy(family: str, shared: bool) -> None:
    """The exact moments against automatic differentiation: one Σ a row, one Σ for all rows as a view, and one as a batch of 1."""
    generator = keyed_generator("moments")
    shape, dim = (2, 2, 2), 8
    means = torch.randn(3, dim, generator=generator, dtype=torch.float64)
    energy = GaussianMixture(torch.tensor([0.5, 0.2, 0.3]), means, random_spd(generator, 3, dim, 0.3), shape)
    cov = random_covariance(family, shape, batch=4, shared=shared)
    y = torch.randn(4, *shape, generator=generator, dtype=torch.float64)
    alone = cov[:1].expand(4)
    apart = cov.with_log_variance(alone.log_variance.contiguous())
    for mine, plain in ((cov, cov), (alone, apart), (cov[:1], apart)):
        exact, expected = evaluate(energy, y, mine), plain_evaluate(energy, y, plain)
        same_evaluation(exact, expected, atol=1e-10)
    torch.testing.assert_close(energy(y, alone), energy(y, apart))
    posterior = energy.posterior(y, cov[:1])
    torch.testing.assert_close(posterior.mean, energy.posterior(y, apart).mean)
    assert posterior.sample(3, generator).shape == (4, 3, *shape)


def test_an_eye_looks_in_the_eigenbasis_and_counts() -> None:
    energy, _ = prior(3)
    cov = random_covariance("fourier", (1, 2, 4), batch=1)
    eye = Eye(energy, cov)
    x = energy.sample(3, keyed_generator("x"))
    point = eye(cov.analysis(x), cov.log_variance)
    seen = evaluate(energy, x, cov.expand(3))
    torch.testing.assert_close(cov.synthesis(point.mean), seen.mean)
    torch.testing.assert_close(point.cov_score, seen.cov_score)
    torch.testing.assert_close(point.energy, seen.energy)
    assert eye.evaluations == 1
    kept = point.where(torch.tensor([True, False, True]), eye(cov.analysis(x) + 1, cov.log_variance))
    assert torch.equal(kept.z[0], point.z[0])
    assert not torch.equal(kept.z[1], point.z[1])
    assert torch.equal(kept.energy[::2], point.energy[::2])

from __future__ import annotations

import pytest
import torch
from problems import DIM, SHAPE, discrepancy, prior
from torch import Tensor

from linverse.covariance import VarianceRange
from linverse.degradations.operators import operator_gain
from linverse.rng import keyed_generator
from linverse.sampling import sample_operator
from linverse.sampling.diagnostics import r_hat
from oracles import Law

MATRIX = torch.randn(5, DIM, generator=keyed_generator("annealed"), dtype=torch.float64)
LIMITS = VarianceRange(1e-2, 1e2)


def forward(x: Tensor) -> Tensor:
    return x.flatten(1) @ MATRIX.mT


def backward(r: Tensor) -> Tensor:
    return (r @ MATRIX).reshape(-1, *SHAPE)


def test_annealed_mala_samples_the_posterior_of_any_linear_operator() -> None:
    energy, law = prior(3, LIMITS)
    generator = keyed_generator("chains")
    sigma = 2.0
    raw = forward(energy.sample(1, generator)) + sigma * torch.randn(1, 5, generator=generator, dtype=torch.float64)
    result = sample_operator(
        energy,
        raw.expand(2000, -1),
        forward,
        backward,
        sigma,
        levels=10,
        steps_per_level=8,
        thin=80,
        generator=generator,
    )
    blurred = Law(law.log_weights, law.means, law.covariances + LIMITS.minimum * torch.eye(DIM))
    exact = blurred.posterior(raw, MATRIX, sigma**2 * torch.eye(5).double())
    assert discrepancy(result.samples, exact) < 1
    assert float(result.info.acceptance.mean()) == pytest.approx(0.574, abs=0.05)
    assert result.info.acceptance.shape == (80, 2000)
    assert result.step_size > 0


def test_draws_are_kept_for_diagnostics() -> None:
    energy, _ = prior(1, LIMITS)
    raw = forward(energy.sample(1, keyed_generator("x"))).expand(4, -1)
    result = sample_operator(
        energy,
        raw,
        forward,
        backward,
        2.0,
        levels=5,
        steps_per_level=5,
        draws=50,
        thin=4,
        generator=keyed_generator("d"),
    )
    assert result.draws.shape == (50, 4, *SHAPE)
    assert torch.equal(result.draws[-1], result.samples)
    assert float(r_hat(result.draws).max()) < 1.3


def test_the_gain_bounds_the_operator() -> None:
    exact = float(torch.linalg.matrix_norm(MATRIX, 2)) ** 2
    assert exact < operator_gain(forward, backward, torch.empty(1, *SHAPE).double()) < 1.1 * exact


def test_bad_operators_are_refused() -> None:
    energy, _ = prior(1, LIMITS)
    raw = torch.zeros(1, 5).double()
    with pytest.raises(ValueError, match="the adjoint is not the operator's"):
        sample_operator(energy, raw, forward, lambda r: 2 * backward(r), 2.0)
    with pytest.raises(ValueError, match=r"data of shape \(1, 5\); the measurement's is \(1, 6\)"):
        sample_operator(energy, torch.zeros(1, 6).double(), forward, backward, 2.0)
    with pytest.raises(ValueError, match="at least 1; got 20, 0 and 50"):
        sample_operator(energy, raw, forward, backward, 2.0, draws=0)
    with pytest.raises(ValueError, match="hard constraint"):
        sample_operator(energy, raw, forward, backward, 0.0)
    with pytest.raises(ValueError, match="nothing was measured"):
        sample_operator(energy, raw, lambda x: 0 * forward(x), lambda r: 0 * backward(r), 2.0)
    with pytest.warns(UserWarning, match="not far above"):
        sample_operator(energy, raw, forward, backward, 0.1, levels=1, steps_per_level=1, warm_up_steps=1, thin=1)

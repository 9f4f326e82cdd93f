"""log Z at the floor from samples of the model: exact energies, and energies that are off by a known amount."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from linverse.analytic import GaussianMixture
from linverse.covariance import Covariance, VarianceRange
from linverse.training.partition import partition_test

SHAPE = (1, 3, 3)


def mixture() -> GaussianMixture:
    means = torch.stack([torch.full((9,), 0.2), torch.full((9,), 0.8)]).double()
    covariances = 0.01 * torch.eye(9).double().expand(2, 9, 9) + 0.01
    return GaussianMixture(torch.ones(2), means, covariances, SHAPE, VarianceRange(1e-4, 1e2))


class Leaking:
    """An energy that has lost c·log(λ_max/λ) nats on its way from λ_max: log Z(λ_min) = c·log(λ_max/λ_min)."""

    def __init__(self, energy: Any, rate: float) -> None:
        self.energy, self.rate = energy, rate
        self.range, self.shape, self.gaussian = energy.range, energy.shape, energy.gaussian

    def __call__(self, y: Tensor, cov: Covariance) -> Tensor:
        lost = (math.log(self.range.maximum) - cov.log_variance.double().mean(dim=(1, 2, 3))) * self.rate
        return self.energy(y, cov) - lost


@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_both_answers_find_what_was_lost(rate: float) -> None:
    """z = 4.5 standard errors, and the path's own error: of the steps (ancestral draws are a little narrow) 0.02 nats per dimension."""
    found = partition_test(Leaking(mixture(), rate), images=400, steps=60, chunk=400)
    exact = rate * math.log(1e6) / 9
    assert abs(found.path - exact) < 4.5 * found.path_error + 0.02
    assert found.bound < exact + 4.5 * found.bound_error
    assert found.bound > exact - 0.1
    assert abs(found.estimate - exact) < 0.05
    assert 0.1 < found.share <= 1

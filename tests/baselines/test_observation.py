"""Residuals, adjoints and inverses against dense matrices, for every degradation of the registry."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from conftest import DEGRADATIONS
from linverse.baselines.observation import Observation
from linverse.rng import keyed_generator
from oracles import matrix_of

SHAPE, SIGMA, VARIANCE = (2, 6, 6), 0.3, 0.7
DIM = 72


def setting(name: str) -> tuple[Observation, Tensor, Tensor]:
    """Two measurements, the dense operator, and two images to start from."""
    degradation, generator = DEGRADATIONS[name](SIGMA), keyed_generator("observation", name)
    x, u = torch.rand(2, 2, *SHAPE, generator=generator, dtype=torch.float64)
    raw = degradation.measure(x, generator).raw
    return Observation.of(degradation, raw), matrix_of(degradation.operator, SHAPE), u


@pytest.mark.parametrize("name", DEGRADATIONS)
def test_residual_and_adjoint(name: str) -> None:
    seen, dense, u = setting(name)
    residual = seen.residual(u)
    torch.testing.assert_close(residual.flatten(1), seen.raw.flatten(1) - u.flatten(1) @ dense.mT)
    torch.testing.assert_close(seen.adjoint(residual).flatten(1), residual.flatten(1) @ dense)


@pytest.mark.parametrize("name", DEGRADATIONS)
def test_pseudo_inverse(name: str) -> None:
    seen, dense, _ = setting(name)
    exact = seen.raw.flatten(1) @ torch.linalg.pinv(dense, rtol=1e-10).mT
    torch.testing.assert_close(seen.pseudo_inverse().flatten(1), exact, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["gaussian-periodic", "gaussian-reflecting", "motion"])
def test_pseudo_inverse_leaves_out_what_is_below_the_cutoff(name: str) -> None:
    seen, dense, _ = setting(name)
    exact = seen.raw.flatten(1) @ torch.linalg.pinv(dense, rtol=0.3).mT
    torch.testing.assert_close(seen.pseudo_inverse(0.3).flatten(1), exact, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", DEGRADATIONS)
def test_gaussian_update(name: str) -> None:
    """The proximal point and its spread are mean and covariance of x under N(u, ρI) and the data."""
    seen, dense, u = setting(name)
    precision = dense.mT @ dense / SIGMA**2 + torch.eye(DIM, dtype=torch.float64) / VARIANCE
    wanted = torch.linalg.solve(precision, (seen.raw.flatten(1) @ dense / SIGMA**2 + u.flatten(1) / VARIANCE).mT).mT
    torch.testing.assert_close(seen.proximal(u, VARIANCE).flatten(1), wanted, rtol=1e-8, atol=1e-8)
    root = matrix_of(lambda noise: seen_by(seen, noise), SHAPE)
    torch.testing.assert_close(root @ root.mT, torch.linalg.inv(precision), rtol=1e-8, atol=1e-8)


def seen_by(seen: Observation, noise: Tensor) -> Tensor:
    return seen.colour(noise, VARIANCE)


@pytest.mark.parametrize("name", DEGRADATIONS)
def test_pull_is_the_gradient_of_the_likelihood(name: str) -> None:
    seen, dense, u = setting(name)
    covariance = VARIANCE * dense @ dense.mT + SIGMA**2 * torch.eye(len(dense), dtype=torch.float64)
    wanted = torch.linalg.solve(covariance, seen.residual(u).flatten(1).mT).mT @ dense
    torch.testing.assert_close(seen.pull(u, VARIANCE).flatten(1), wanted, rtol=1e-8, atol=1e-8)


def test_hidden_pixels_may_hold_anything() -> None:
    degradation = DEGRADATIONS["box"](SIGMA)
    raw = torch.rand(1, 1, 6, 6, generator=keyed_generator("nan"), dtype=torch.float64)
    hidden = ~degradation.mask_for((6, 6))  # type: ignore[attr-defined]
    seen = Observation.of(degradation, torch.where(hidden, torch.nan, raw))
    assert float(seen.pseudo_inverse()[hidden].abs().max()) == 0
    assert bool(seen.residual(raw).isfinite().all())

"""The base of principal components against dense matrices, in every basis, and in float32 over all noise levels."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.models.bases import LowRankBase
from linverse.rng import keyed_generator
from tiny import COLOURS, FAMILIES, noisy_pair

RANK, SIDE = 9, 8
families = pytest.mark.parametrize("family", FAMILIES)


def fitted(shape: tuple[int, int, int]) -> tuple[LowRankBase, Tensor]:
    """A base in float64, and its C [d, d] in pixels: RANK components and white noise, so that nothing is lost by the fit."""
    d, generator = math.prod(shape), keyed_generator("low rank")
    span = torch.randn(d, RANK, generator=generator, dtype=torch.float64)
    dense = span @ span.mT / RANK + 0.05 * torch.eye(d, dtype=torch.float64)
    base = LowRankBase(shape, RANK).double()
    base.fit(torch.rand(shape, generator=generator, dtype=torch.float64), dense)
    return base, dense


def rotated(dense: Tensor, cov: Covariance) -> Tensor:
    """QᵀCQ."""
    shape = (cov.channels, *cov.size)
    columns = cov.analysis(dense.reshape(-1, *shape)).flatten(1)  # C Q
    return cov.analysis(columns.mT.reshape(-1, *shape)).flatten(1)


@pytest.mark.parametrize("shared", [False, True], ids=["each", "one"])
@pytest.mark.parametrize("colour", COLOURS)
@families
def test_every_answer_is_that_of_dense_matrices(family: str, colour: str, shared: bool) -> None:
    channels, same = COLOURS[colour]
    shape = (channels, SIDE, SIDE)
    base, dense = fitted(shape)
    y, cov = noisy_pair(family, shape, same)
    if shared:
        cov = cov[:1].expand(len(y))
    z, g = cov.analysis(y), torch.randn(y.shape, generator=keyed_generator("g"), dtype=torch.float64)
    answer, energies, spread = base.solve(z, cov), base.solve(z, cov).energy(), base.solve(z, cov).spread(g)
    prior, centre = rotated(dense, cov), cov.analysis(base.mean[None]).flatten()
    for row in range(len(y)):
        noise = torch.diag(cov.full(cov.log_variance)[row].flatten().exp())
        total, shift = prior + noise, z[row].flatten() - centre
        u = torch.linalg.solve(total, shift)
        posterior = noise @ torch.linalg.solve(total, prior)
        close = {"rtol": 1e-9, "atol": 1e-11}
        torch.testing.assert_close(answer.u[row].flatten(), u, **close)
        torch.testing.assert_close(answer.mean[row].flatten(), centre + prior @ u, **close)
        torch.testing.assert_close(answer.variance[row].flatten(), posterior.diagonal(), **close)
        torch.testing.assert_close(spread[row].flatten(), posterior @ g[row].flatten(), **close)
        expected = 0.5 * (shift @ u + torch.logdet(2 * math.pi * total))
        torch.testing.assert_close(energies[row], expected, **close)


@pytest.mark.parametrize("variance", [1e-9, 1e-6, 1e-3, 1.0, 1e3])
@families
def test_float32_serves_all_noise_levels(family: str, variance: float) -> None:
    shape = (1, SIDE, SIDE)
    base, _ = fitted(shape)
    _, cov = noisy_pair(family, shape, True)
    cov = cov.isotropic(variance)
    x = torch.rand(len(cov.log_variance), *shape, generator=keyed_generator("x"), dtype=torch.float64)
    y = x + math.sqrt(variance) * torch.randn(x.shape, generator=keyed_generator("noise"), dtype=torch.float64)
    z = cov.analysis(y.float().double())  # the same picture for both
    exact = base.solve(z, cov)
    rough = base.float().solve(z.float(), cov.to(torch.float32))
    scale = exact.variance.sqrt()
    assert float(((rough.mean - exact.mean) / scale).abs().max()) < (0.01 if variance > 1e-8 else 0.1)
    torch.testing.assert_close(rough.variance.double(), exact.variance, rtol=1e-4, atol=0)


def test_rows_that_are_told_their_own_derivative_are_not_taken_for_one() -> None:
    """The energy's derivative by each row's own log λ, though all rows are alike."""
    base, _ = fitted((1, SIDE, SIDE))
    y, cov = noisy_pair("spatial", (1, SIDE, SIDE), True)
    log_variance = cov.log_variance[:1].repeat(len(y), 1, 1, 1).requires_grad_()
    base.solve(y, cov.with_log_variance(log_variance)).energy().sum().backward()
    assert log_variance.grad is not None
    assert bool((log_variance.grad.flatten(1).abs().sum(1) > 0).all())

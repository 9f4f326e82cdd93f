"""The stationary Gaussian under noise that differs from pixel to pixel, against dense matrices."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from linverse.covariance.dct import dct_matrix
from linverse.models.bases.frames import opponent_colours
from linverse.models.bases.pixels import gaussian_energy, solve_pixels, sum_of_logs

HEIGHT, WIDTH = 7, 6


def powers(channels: int) -> Tensor:
    rows, columns = torch.meshgrid(torch.arange(HEIGHT), torch.arange(WIDTH), indexing="ij")
    falling = 3.0 / (0.2 + rows**2 + 0.5 * columns**2).double()
    return falling * torch.tensor([1.0, 0.2, 0.03], dtype=torch.float64)[:channels, None, None]


def noise(kind: str, channels: int, seed: int = 0) -> Tensor:
    """log λ of two images."""
    generator = torch.Generator().manual_seed(seed)
    shape = (2, channels if kind == "bayer" else 1, HEIGHT, WIDTH)
    drawn = torch.rand(shape, generator=generator, dtype=torch.float64)
    if kind == "map":
        return 12 * drawn - 10
    if kind == "even":
        return torch.full_like(drawn, -5.0)
    hidden = drawn > 0.4
    hidden[0, :, 2:5, 1:4] = True
    return torch.where(hidden, torch.tensor(1e3).log(), torch.tensor(1e-6).log()).double()


def dense(log_variance: Tensor, channels: int) -> Tensor:
    """C+Σ of each image, [B, d, d]."""
    dct = torch.kron(*(dct_matrix(n, torch.float64, torch.device("cpu")) for n in (HEIGHT, WIDTH)))
    basis = torch.kron(opponent_colours(channels), dct)
    prior = basis.mT @ torch.diag(powers(channels).flatten()) @ basis
    variance = log_variance.exp().expand(-1, channels, -1, -1).flatten(1)
    return prior + torch.diag_embed(variance)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", ["mask", "map", "bayer", "even"])
def test_solutions_and_derivatives_are_those_of_dense_matrices(kind: str, channels: int) -> None:
    log = noise(kind, channels).requires_grad_()
    delta = torch.randn(2, channels, HEIGHT, WIDTH, dtype=torch.float64) * log.detach().mul(0.5).exp().clamp_min(0.5)
    delta.requires_grad_()
    weights = torch.randn(2, channels, HEIGHT, WIDTH, dtype=torch.float64)
    energy, u = gaussian_energy(delta, log, powers(channels), opponent_colours(channels))
    expected_u = torch.linalg.solve(dense(log, channels), delta.flatten(1)[..., None])[..., 0]
    expected = 0.5 * (delta.flatten(1) * expected_u).sum(1)
    torch.testing.assert_close(u.flatten(1), expected_u, rtol=1e-6, atol=1e-9 * float(expected_u.detach().abs().max()))
    torch.testing.assert_close(energy, expected, rtol=1e-8, atol=0)

    def derivatives(value: Tensor, linear: Tensor) -> list[Tensor]:
        """First ones of the energy, and what a function of u and of these gives in a second pass."""
        first = torch.autograd.grad(value.sum() + (linear * weights.flatten(1)).sum(), [delta, log], create_graph=True)
        second = torch.autograd.grad(sum((g * g).sum() for g in first), [delta, log])
        return [*first, *second]

    for ours, theirs in zip(derivatives(energy, u.flatten(1)), derivatives(expected, expected_u), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7 * float(theirs.detach().abs().max()))


def test_float32_finds_the_mean_in_holes() -> None:
    log = noise("mask", 3)
    delta = torch.randn(2, 3, HEIGHT, WIDTH, dtype=torch.float64) * log.mul(0.5).exp().clamp_min(0.5)
    u = solve_pixels(delta.float(), log.float(), powers(3).float(), opponent_colours(3))
    exact = torch.linalg.solve(dense(log, 3), delta.flatten(1)[..., None])[..., 0].unflatten(1, delta.shape[1:])
    found, expected = (delta - log.exp() * each.double() for each in (u, exact))
    assert float((found - expected).abs().max()) < 1e-2 * float(expected.std())


def test_holes_that_are_not_filled_to_the_end_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linverse.models.bases.pixels.MOST", 2)
    with pytest.warns(RuntimeWarning, match="in 2 steps"):
        solve_pixels(
            torch.ones(2, 3, HEIGHT, WIDTH, dtype=torch.float64), noise("mask", 3), powers(3), opponent_colours(3)
        )


def test_sums_of_logs_have_their_derivatives() -> None:
    log = torch.randn(2, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    values, weights = torch.rand(6, dtype=torch.float64) + 0.1, torch.randn(3, 6, dtype=torch.float64)
    expected = (weights[:, None, None] * (log.exp()[..., None] + values).log()).sum(dim=(1, 2, 3, 4))
    torch.testing.assert_close(sum_of_logs(log, values, weights), expected)
    assert torch.autograd.gradcheck(lambda x: sum_of_logs(x, values, weights), (log,))
    assert torch.autograd.gradgradcheck(lambda x: sum_of_logs(x, values, weights), (log,))

"""Our models at any noise level: the exact mean and variance in the range, the right limits outside of it."""

from __future__ import annotations

import pytest
import torch

from linverse.analytic import DiagonalGaussian
from linverse.covariance import SpatialCovariance, VarianceRange, identity
from linverse.interop.noise_levels import denoise

SHAPE = (2, 4, 4)
LIMITS = VarianceRange(1e-4, 1e2)
S = torch.linspace(0.01, 0.2, 16, dtype=torch.float64).reshape(1, 1, 4, 4)
MEAN = torch.full(SHAPE, 0.4, dtype=torch.float64)
PRIOR = DiagonalGaussian(SpatialCovariance(S.log(), 2), MEAN, LIMITS)
Y = torch.rand(3, *SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "sigma",
    [
        0.3,
        torch.tensor(0.3),
        torch.tensor([0.1, 0.2, 0.3]),
        torch.tensor([0.1, 0.2, 0.3]).reshape(3, 1, 1, 1),
        torch.rand(4, 4) + 0.1,
        torch.rand(3, 2, 4, 4) + 0.1,
    ],
    ids=["number", "scalar", "per image", "deepinv's shape", "map", "map per image and channel"],
)
def test_mean_and_variance_are_the_wiener_filters(sigma: float | torch.Tensor) -> None:
    level = torch.as_tensor(sigma, dtype=torch.float64)
    variance = (level.reshape(-1, 1, 1, 1) if level.ndim < 2 else level).square()
    mean, spread = denoise(PRIOR, Y, sigma)
    assert torch.allclose(mean, MEAN + S / (S + variance) * (Y - MEAN), atol=1e-7)
    assert spread is not None
    assert torch.allclose(spread, (S * variance / (S + variance)).expand_as(Y), atol=1e-7)


def test_above_the_range_the_mean_stays_linear_and_below_it_is_the_floors() -> None:
    far = 1e3
    mean, _ = denoise(PRIOR, MEAN + far * (Y - 0.5), far)
    assert torch.allclose(mean - MEAN, S / far**2 * far * (Y - 0.5), rtol=5e-3)
    assert torch.equal(denoise(PRIOR, Y, 0.0)[0], denoise(PRIOR, Y, 1e-2)[0])


def test_an_energy_of_another_basis_is_asked_there_about_white_noise() -> None:
    template = identity("fourier", SHAPE, Y)
    prior = DiagonalGaussian(template.isotropic(0.05), MEAN, LIMITS)
    mean, spread = denoise(prior, Y, 0.2)
    assert torch.allclose(mean, MEAN + 0.05 / 0.09 * (Y - MEAN))
    assert spread is not None
    assert torch.allclose(spread, torch.full_like(Y, 0.05 * 0.04 / 0.09))


def test_gradients_pass_through_the_mean() -> None:
    y = Y.clone().requires_grad_()
    denoise(PRIOR, y, 0.2)[0].sum().backward()
    assert y.grad is not None
    assert torch.allclose(y.grad, (S / (S + 0.04)).expand_as(Y))


@pytest.mark.parametrize(
    ("sigma", "message"),
    [
        (-0.1, "standard deviation ≥ 0"),
        (float("nan"), "standard deviation ≥ 0"),
        (torch.ones(2), "a number, one per image, or a map"),
        (torch.ones(3, 3), "a number, one per image, or a map"),
    ],
)
def test_what_is_no_noise_level_is_refused(sigma: float | torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        denoise(PRIOR, Y, sigma)


def test_images_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match="the images are 2×4×5; the model takes 2×4×4"):
        denoise(PRIOR, torch.rand(1, 2, 4, 5), 0.1)

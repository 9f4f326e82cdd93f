"""Kernels, their boundaries, and how they fit images."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linverse import degradations as dg
from linverse.covariance.transfer import gaussian_transfer
from linverse.degradations.blurs import disc_kernel, motion_kernel
from linverse.rng import keyed_generator
from measured import image
from oracles import convolve


@pytest.mark.parametrize(("boundary", "mode"), [("periodic", "wrap"), ("reflecting", "symmetric")])
@given(size=st.tuples(st.integers(5, 9), st.integers(5, 9)), std=st.floats(0.2, 1.2))
def test_gaussian_blur_is_a_convolution(boundary: str, mode: str, size: tuple[int, int], std: float) -> None:
    blur = dg.GaussianBlur(std, boundary=boundary, size=5)
    offsets = torch.arange(-2, 3).double()
    taps = torch.exp(-0.5 * (offsets / std) ** 2)
    kernel = torch.outer(taps, taps) / taps.sum() ** 2
    x = image(1, (1, *size))
    torch.testing.assert_close(blur.operator(x), convolve(x, kernel, mode), rtol=0, atol=1e-12)


def test_any_kernel_is_convolved_periodically() -> None:
    kernel = torch.randn(3, 4, generator=keyed_generator("kernel"), dtype=torch.float64)
    torch.testing.assert_close(dg.Blur(kernel).operator(image()), convolve(image(), kernel, "wrap"), rtol=0, atol=1e-12)


def test_default_gaussian_reaches_four_standard_deviations() -> None:
    for std, taps in [(0.5, 5), (1.0, 9), (1.1, 11)]:
        kernel = dg.GaussianBlur(std).kernel_for((28, 28))
        assert kernel.shape == (taps, taps)
        assert abs(float(kernel.sum()) - 1) < 1e-12


def test_motion_blur_is_a_normalised_random_walk() -> None:
    for size, intensity, seed in [(5, 0.0, 0), (15, 0.5, 1), (16, 1.0, 2), (255, 0.7, 3)]:
        kernel = dg.MotionBlur(size, intensity, seed=seed).kernel_for((300, 400))
        assert kernel.shape == (size, size)
        assert float(kernel.min()) >= 0
        assert abs(float(kernel.sum()) - 1) < 1e-12
    first, again, other = (dg.MotionBlur(7, 0.5, seed=seed).kernel_for((28, 28)) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_straight_motion_is_a_line_and_an_erratic_one_is_not() -> None:
    def thinness(intensity: float) -> float:
        """Ratio of the principal widths of the kernel."""
        kernel = motion_kernel(31, intensity, 5)
        grid = torch.arange(31).double() - 15
        points = torch.stack(torch.meshgrid(grid, grid, indexing="ij")).flatten(1)
        spread = (points * kernel.flatten()) @ points.mT
        values = torch.linalg.eigvalsh(spread)
        return float(values[0] / values[1])

    assert thinness(0.0) < 0.01
    assert thinness(1.0) > 0.05


@pytest.mark.parametrize("boundary", ["periodic", "reflecting"])
@pytest.mark.parametrize("size", [(8, 8), (3, 9), (12, 5)])
def test_a_gaussian_is_cut_to_fit_small_images(boundary: str, size: tuple[int, int]) -> None:
    """As many odd taps a side as the image holds, of unit sum; an image that holds all of them is blurred by all of them."""
    blur = dg.GaussianBlur(0.8, 0.01, boundary)
    room = [n if boundary == "periodic" else 2 * n - 1 for n in size]
    wanted = tuple(min(9, n - (n % 2 == 0)) for n in room)
    kernel = blur.kernel_for(size)
    assert tuple(kernel.shape) == wanted
    assert float(kernel.sum()) == pytest.approx(1)
    x = image(1, (1, *size))
    assert bool(blur.measure(x, keyed_generator("v")).coefficients.isfinite().all())
    torch.testing.assert_close(blur.operator(torch.full_like(x, 0.3)), torch.full_like(x, 0.3))
    assert tuple(blur.kernel_for((28, 28)).shape) == (9, 9)


def test_a_gaussian_on_small_images_is_that_of_training() -> None:
    blur = dg.GaussianBlur(0.8)
    told = gaussian_transfer(torch.tensor([0.8]).double(), (8, 8), "periodic")[0]
    torch.testing.assert_close(blur.transfer((8, 8), torch.float64).real, told)


@pytest.mark.parametrize("radius", [0.3, 0.5, 1.0, 1.7, 4.2, 20.0])
def test_a_disc_is_shared_out_by_area(radius: float) -> None:
    """Against a brute-force count of 200×200 points a pixel; whole pixels inside weigh 1/(πr²)."""
    kernel = disc_kernel(radius)
    reach = kernel.shape[0] // 2
    assert kernel.shape == (2 * math.ceil(radius - 0.5) + 1,) * 2
    grid = (torch.arange((2 * reach + 1) * 200, dtype=torch.float64) + 0.5) / 200 - reach - 0.5
    inside = (grid[:, None].square() + grid.square() < radius**2).double()
    counted = torch.nn.functional.avg_pool2d(inside[None], 200)[0] / (math.pi * radius**2)
    torch.testing.assert_close(kernel, counted, rtol=0, atol=2e-3 * float(counted.max()))
    assert float(kernel.sum()) == pytest.approx(1)
    assert torch.equal(kernel, kernel.mT)
    torch.testing.assert_close(kernel, kernel.flip(0, 1))
    if radius >= 1:
        assert float(kernel[reach, reach]) == pytest.approx(1 / (math.pi * radius**2), rel=1e-3)


def test_defocus_is_a_convolution_with_the_disc() -> None:
    x = image(2, (3, 9, 12))
    out = dg.Defocus(2.2).operator(x)
    torch.testing.assert_close(out, convolve(x, disc_kernel(2.2), "wrap"), rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [(9, 9), (16, 21), (64, 40)])
def test_motion_blurs_images_of_any_size(size: tuple[int, int]) -> None:
    x = image(1, (1, *size))
    out = dg.MotionBlur(9, 0.6).operator(x)
    torch.testing.assert_close(out, convolve(x, motion_kernel(9, 0.6, 0), "wrap"), rtol=0, atol=1e-12)


def test_a_kernel_that_cannot_fit_is_refused_before_it_is_made() -> None:
    """10⁹ taps would be an exabyte."""
    for blur in (dg.MotionBlur(10**9), dg.Defocus(1e9), dg.GaussianBlur(1.0, size=10**9)):
        with pytest.raises(ValueError, match="larger than the 6×6 image"):
            blur.measure(image())
    wide = dg.GaussianBlur(1e5)  # by default a Gaussian is cut to fit
    assert wide.kernel_for((6, 6)).shape == (5, 5)
    with pytest.raises(ValueError, match="positive"):
        dg.Defocus(0.0)

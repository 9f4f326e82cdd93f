"""Every degradation of the registry against its explicit operator, and what degradations refuse."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from conftest import DEGRADATIONS
from linverse import degradations as dg
from linverse.degradations.blurs import motion_kernel
from linverse.rng import keyed_generator
from measured import LIMITS, SHAPE, assert_variance, image
from oracles import matrix_of

degradations = pytest.mark.parametrize("name", DEGRADATIONS)


@degradations
def test_the_basis_diagonalises_hth(name: str) -> None:
    """HᵀH = Q diag(h²) Qᵀ with H column by column."""
    degradation = DEGRADATIONS[name](0.1)
    operator = matrix_of(degradation.operator, SHAPE)
    measurement = degradation.measure(image(), keyed_generator("v"))
    basis = matrix_of(measurement.template.synthesis, SHAPE)
    gain = measurement.log_gain.exp().expand(1, *SHAPE).flatten()
    torch.testing.assert_close(operator.mT @ operator, (basis * gain.square()) @ basis.mT, rtol=0, atol=1e-12)


@degradations
def test_coefficients_are_the_gain_times_those_of_the_image(name: str) -> None:
    """z = |h| x without noise, sign and phase of h undone."""
    degradation = DEGRADATIONS[name](0.0)
    measurement = degradation.measure(image())
    expected = measurement.log_gain.exp() * measurement.template.analysis(image())
    # where h vanishes exactly, rounding has no phase to undo
    torch.testing.assert_close(measurement.coefficients, expected, rtol=0, atol=1e-12)


@degradations
def test_the_raw_data_are_what_a_person_would_look_at(name: str) -> None:
    degradation = DEGRADATIONS[name](0.0)
    measurement = degradation.measure(image())
    torch.testing.assert_close(measurement.raw, degradation.operator(image()), rtol=0, atol=0)
    again = degradation.from_raw(measurement.raw)
    assert torch.equal(again.coefficients, measurement.coefficients)
    assert torch.equal(again.log_variance, measurement.log_variance)


@degradations
def test_noise_has_the_given_sigma(name: str) -> None:
    degradation, x = DEGRADATIONS[name](0.3), image(1).expand(2000, -1, -1, -1)
    noise = (
        degradation.measure(x, keyed_generator("noise")).coefficients - DEGRADATIONS[name](0.0).measure(x).coefficients
    )
    seen = degradation.measure(x[:1]).measured.expand(1, *SHAPE).flatten()
    assert_variance(noise.flatten(1)[:, seen], 0.09)
    assert float(noise.flatten(1)[:, ~seen].abs().sum()) == 0


@degradations
def test_the_same_generator_gives_the_same_measurement(name: str) -> None:
    a, b, c = (DEGRADATIONS[name](0.1).measure(image(), keyed_generator("g", seed)).raw for seed in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


@degradations
def test_float32_gives_the_same_measurement(name: str) -> None:
    double, single = (
        DEGRADATIONS[name](0.1).encode(DEGRADATIONS[name](0.1).operator(x)) for x in (image(), image().float())
    )
    assert single.coefficients.dtype == torch.float32
    torch.testing.assert_close(single.coefficients.double(), double.coefficients, rtol=1e-6, atol=1e-6)
    cov32, cov64 = (m.covariance(LIMITS).log_variance for m in (single, double))
    torch.testing.assert_close(cov32.double(), cov64, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("degradation", "message"),
    [
        (dg.Box(7), "side 7 does not fit a 6×6"),
        (dg.Box(0), "side 0"),
        (dg.Box(6), "hides the whole 6×6 image"),
        (dg.HalfMask("top", 6), "depth 6 does not fit the 6"),
        (dg.HalfMask("top", 0), "depth 0"),
        (dg.RandomPixels(keep=0), "keep 0 of 36"),
        (dg.RandomPixels(keep=37), "keep 37 of 36"),
        (dg.SuperResolution(4), "4×4 do not tile a 6×6"),
        (dg.Blur(torch.ones(7, 7)), "7×7, larger than the 6×6 image: give a smaller kernel"),
        (dg.GaussianBlur(0.5, size=7), "7×7, larger than the 6×6"),
        (dg.Blur(torch.ones(13, 1), boundary="reflecting"), "reaches past the 6×6"),
        (dg.GaussianBlur(1.0, boundary="reflecting", size=4), "odd length only.*periodic"),
        (dg.Blur(motion_kernel(5, 0.5, 0), boundary="reflecting"), "even in each axis only.*motion.*periodic"),
        (dg.Blur(torch.eye(3), boundary="reflecting"), "even in each axis only"),
        (dg.Blur(torch.tensor([[1.0, 2.0, 3.0]]), boundary="reflecting"), "even in each axis only"),
        (dg.Blur(torch.tensor([[1.0], [2.0], [3.0]]), boundary="reflecting"), "even in each axis only"),
    ],
)
def test_what_does_not_fit_the_image_is_refused(degradation: dg.Degradation, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        degradation.measure(image())


SIGMAS: dict[str, Callable[[float], dg.Degradation]] = {
    **DEGRADATIONS,
    "any-blur": lambda s: dg.Blur(torch.ones(1, 1), s),
}


@pytest.mark.parametrize("name", SIGMAS)
@pytest.mark.parametrize("sigma", [-0.1, math.nan, math.inf])
def test_a_sigma_that_is_no_standard_deviation_is_refused(name: str, sigma: float) -> None:
    with pytest.raises(ValueError, match="sigma is a standard deviation"):
        SIGMAS[name](sigma)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dg.Blur(torch.tensor([[1.0, math.nan]])), "NaN or infinite"),
        (lambda: dg.Blur(torch.tensor([[1.0, math.inf]])), "NaN or infinite"),
        (lambda: dg.Blur(torch.zeros(3, 3)), "zero"),
        (lambda: dg.Blur(torch.ones(3)), r"\[h, w\]"),
        (lambda: dg.Blur(torch.ones(3, 3, dtype=torch.int64)), "floating-point"),
        (lambda: dg.Blur(torch.ones(3, 3), boundary="mirror"), "'mirror'.*periodic.*reflecting"),
        (lambda: dg.GaussianBlur(0.0), "positive"),
        (lambda: dg.GaussianBlur(math.nan), "positive"),
        (lambda: dg.MotionBlur(2), "size ≥ 3"),
        (lambda: dg.MotionBlur(5, 1.5), r"intensity in \[0, 1\]"),
        (lambda: dg.HalfMask("middle"), "'middle'.*top"),
        (lambda: dg.RandomPixels(1.0), r"\[0, 1\)"),
        (lambda: dg.SuperResolution(1), "at least 2"),
    ],
)
def test_degradations_that_mean_nothing_are_refused(make: Callable[[], dg.Degradation], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@degradations
def test_what_is_no_image_is_refused(name: str) -> None:
    degradation = DEGRADATIONS[name](0.1)
    x = image()
    spoiled = x.clone()
    spoiled[0, 0, 0, 0] = math.nan  # a pixel that every mask of the registry but the corner-less ones sees
    for call in (degradation.measure, degradation.from_raw):
        with pytest.raises(ValueError, match=r"\[batch, channels, height, width\]"):
            call(x[0])
        with pytest.raises(ValueError, match="divide 8-bit values by 255"):
            call((x * 255).to(torch.uint8))
        with pytest.raises(ValueError, match=r"pixels live in \[0, 1\]"):
            call(x * 255)
    with pytest.raises(ValueError, match="1 NaN or infinite"):
        degradation.measure(spoiled)


def test_nan_among_real_data_is_refused() -> None:
    data = image()
    data[0, 0, 0, 0] = math.nan
    for name in ("denoising", "mask", "gaussian-periodic", "super-resolution-2"):
        with pytest.raises(ValueError, match="measurement has 1 NaN or infinite"):
            DEGRADATIONS[name](0.1).from_raw(data)


@degradations
def test_numpy_arrays_lists_and_other_precisions_are_taken(name: str) -> None:
    degradation, raw = DEGRADATIONS[name](0.1), DEGRADATIONS[name](0.1).measure(image(), keyed_generator("v")).raw
    wanted = degradation.from_raw(raw)
    for given in (raw.numpy(), np.asfortranarray(raw.numpy()), raw.transpose(2, 3).contiguous().transpose(2, 3)):
        torch.testing.assert_close(degradation.from_raw(given).coefficients, wanted.coefficients)
    for given in (raw.tolist(), raw.float(), raw.half()):
        found = degradation.from_raw(given)
        assert found.coefficients.dtype == torch.float32
        torch.testing.assert_close(found.coefficients.double(), wanted.coefficients, rtol=0, atol=2e-3)


@pytest.mark.parametrize("given", [None, "image", 3.0, {"x": 1}, [[0.1], [0.1, 0.2]], np.array([None])])
def test_what_is_no_array_is_refused(given: object) -> None:
    for degradation in (dg.Denoising(0.1), dg.Box(2), dg.Defocus(1.0)):
        with pytest.raises(TypeError, match="measurement is"):
            degradation.from_raw(given)  # type: ignore[arg-type]


@degradations
def test_an_empty_batch_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="there is nothing in it"):
        DEGRADATIONS[name](0.1).measure(image()[:0])


@degradations
def test_what_is_printed_is_short(name: str) -> None:
    degradation = DEGRADATIONS[name](0.1)
    assert "0.1" in repr(degradation)
    assert len(repr(degradation)) < 80
    assert len(repr(degradation.measure(image(), keyed_generator("v")))) < 100

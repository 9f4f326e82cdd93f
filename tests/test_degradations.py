"""Degradations against explicit operators, what they refuse, and the lift of their measurements into an energy's range."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, kstest
from torch import Tensor

from conftest import DEGRADATIONS, energy_and_law, random_covariance
from linverse import degradations as dg
from linverse.covariance import VarianceRange
from linverse.covariance.transfer import gaussian_transfer
from linverse.measurement import Lifted, Measurement
from linverse.rng import keyed_generator
from oracles import convolve, matrix_of, z_threshold

SHAPE = (2, 6, 6)
LIMITS = VarianceRange(1e-6, 1e3)
LIMITS_TOP = math.log(LIMITS.maximum)
ALARM = 1e-6
degradations = pytest.mark.parametrize("name", DEGRADATIONS)


def image(batch: int = 2, shape: tuple[int, int, int] = SHAPE, seed: int = 0) -> Tensor:
    return torch.rand(batch, *shape, generator=keyed_generator("image", seed), dtype=torch.float64)


def prior(mean: float = 0.4, variance: float = 0.1) -> tuple[Tensor, Tensor]:
    """m and C of the data, the same for all coefficients."""
    return torch.full((1, 1, 1, 1), mean).double(), torch.full((1, 1, 1, 1), variance).double()


def lift(
    measurement: Measurement, limits: VarianceRange = LIMITS, seed: int | None = 0, random_fill: bool = True
) -> Lifted:
    generator = None if seed is None else keyed_generator("lift", seed)
    return measurement.lift(limits, prior(), generator, random_fill=random_fill)


def assert_variance(samples: Tensor, variance: Tensor | float) -> None:
    """Columns of centred normal samples [n, k] have the given variances: each Σx²/λ is χ²_n."""
    n, k = samples.shape
    statistic = (samples.square() / variance).sum(0)
    assert float(statistic.min()) > chi2.ppf(ALARM / k, n)
    assert float(statistic.max()) < chi2.isf(ALARM / k, n)


# --- the operator, and its coefficients -------------------------------------------------------------------------------------------


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
        kernel = dg.GaussianBlur(std).kernel
        assert kernel.shape == (taps, taps)
        assert abs(float(kernel.sum()) - 1) < 1e-12


def test_super_resolution_measures_the_dc_of_each_block() -> None:
    """y_DC = b·raw, λ_DC = b²σ², the rest unobserved (mathematics §1)."""
    x, factor, sigma = image(), 3, 0.05
    measurement = dg.SuperResolution(factor, sigma).measure(x, keyed_generator("v"))
    assert measurement.raw.shape == (2, 2, 2, 2)
    lifted = lift(measurement)
    y = lifted.cov.analysis(lifted.y)
    dc = (..., slice(None, None, factor), slice(None, None, factor))
    torch.testing.assert_close(y[dc], factor * measurement.raw, rtol=1e-12, atol=0)
    torch.testing.assert_close(
        lifted.cov.variance[dc], torch.full((2, 1, 2, 2), 9 * sigma**2, dtype=torch.float64), rtol=1e-12, atol=0
    )
    rest = lifted.cov.variance.flatten(1)[:, (measurement.log_gain == -math.inf).flatten()]
    torch.testing.assert_close(rest, torch.full_like(rest, LIMITS.maximum))


def test_motion_blur_is_a_normalised_random_walk() -> None:
    for size, intensity, seed in [(5, 0.0, 0), (15, 0.5, 1), (16, 1.0, 2)]:
        kernel = dg.MotionBlur(size, intensity, seed=seed).kernel
        assert kernel.shape == (size, size)
        assert float(kernel.min()) >= 0
        assert abs(float(kernel.sum()) - 1) < 1e-12
    assert torch.equal(dg.MotionBlur(7, 0.5, seed=3).kernel, dg.MotionBlur(7, 0.5, seed=3).kernel)
    assert not torch.equal(dg.MotionBlur(7, 0.5, seed=3).kernel, dg.MotionBlur(7, 0.5, seed=4).kernel)


def test_a_straight_motion_is_a_line_and_an_erratic_one_is_not() -> None:
    def thinness(intensity: float) -> float:
        """Ratio of the principal widths of the kernel."""
        kernel = dg.MotionBlur(31, intensity, seed=5).kernel
        grid = torch.arange(31).double() - 15
        points = torch.stack(torch.meshgrid(grid, grid, indexing="ij")).flatten(1)
        spread = (points * kernel.flatten()) @ points.mT
        values = torch.linalg.eigvalsh(spread)
        return float(values[0] / values[1])

    assert thinness(0.0) < 0.01
    assert thinness(1.0) > 0.05


def test_coloured_noise_is_a_measurement_by_its_own_covariance() -> None:
    for family in ("spatial", "fourier", "dct", "block-dct"):
        cov = random_covariance(family, SHAPE, batch=1, spread=0.5)
        x = image(1).expand(2000, -1, -1, -1)
        measurement = dg.ColouredNoise(cov).measure(x, keyed_generator("coloured"))
        torch.testing.assert_close(measurement.covariance(LIMITS)[:1].dense(), cov.dense())
        assert_variance(cov.analysis(measurement.raw - x).flatten(1), cov.variance.flatten())
        torch.testing.assert_close(lift(measurement).y, measurement.raw, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="image has shape"):
        dg.ColouredNoise(cov).measure(image(1, (2, 6, 8)))


# --- masks: polarity, alpha, errors ----------------------------------------------------------------------------------------------


def test_true_means_measured() -> None:
    mask = torch.zeros(6, 6, dtype=torch.bool)
    mask[1, 2] = True
    x = image()
    measurement = dg.Inpainting(mask).measure(x)
    assert torch.equal(measurement.measured[0, 0], mask)
    assert torch.equal(measurement.raw[..., 1, 2], x[..., 1, 2])
    assert int((measurement.raw != 0).sum()) == 4  # two images, two channels
    log_variance = measurement.log_variance[0, 0]
    assert bool((log_variance[~mask] == math.inf).all())
    assert math.isfinite(log_variance[1, 2])


@pytest.mark.parametrize(
    ("degradation", "missing"),
    [
        (dg.Box(2), [(2, 2), (2, 3), (3, 2), (3, 3)]),
        (dg.HalfMask("top", 1), [(0, j) for j in range(6)]),
        (dg.HalfMask("bottom", 1), [(5, j) for j in range(6)]),
        (dg.HalfMask("left", 1), [(i, 0) for i in range(6)]),
        (dg.HalfMask("right", 1), [(i, 5) for i in range(6)]),
    ],
)
def test_named_masks_hide_what_they_name(degradation: dg.Masking, missing: list[tuple[int, int]]) -> None:
    hidden = (~degradation.mask_for((6, 6))[0, 0]).nonzero()
    assert [tuple(pair) for pair in hidden.tolist()] == missing


def test_half_mask_hides_one_half_by_default() -> None:
    assert int((~dg.HalfMask("bottom").mask_for((28, 28))).sum()) == 14 * 28


def test_random_pixels_keep_what_they_say() -> None:
    assert int(dg.RandomPixels(0.7).mask_for((10, 10)).sum()) == 30
    assert int(dg.RandomPixels(keep=7).mask_for((10, 10)).sum()) == 7
    a, b, c = (dg.RandomPixels(0.5, seed=seed).mask_for((10, 10)) for seed in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


@pytest.mark.parametrize(
    "convert",
    [
        torch.clone,
        lambda m: m.float(),
        lambda m: m.to(torch.uint8),
        lambda m: m.to(torch.uint8) * 255,
        lambda m: m.float() * 0.97 + 0.01,
        lambda m: m[None],
        lambda m: m[None, None],
        lambda m: torch.stack([torch.zeros_like(m)] * 3 + [m]).to(torch.uint8) * 255,  # RGBA: the alpha counts
        lambda m: torch.stack([~m, m]).float(),  # grey and alpha
        lambda m: torch.stack([m, m, m, torch.ones_like(m)]).to(torch.uint8) * 255,  # painted, opaque everywhere
    ],
    ids=["bool", "float", "0-1", "0-255", "nearly", "CHW", "BCHW", "RGBA", "LA", "painted"],
)
def test_every_way_of_writing_a_mask(convert: Callable[[Tensor], Tensor]) -> None:
    mask = torch.rand(6, 6, generator=keyed_generator("mask")) < 0.5
    assert torch.equal(dg.Inpainting(convert(mask)).mask_for((6, 6))[0, 0], mask)


def test_masks_a_channel_and_a_sample() -> None:
    mask = torch.rand(2, 3, 6, 6, generator=keyed_generator("mask")) < 0.5
    x = image(2, (3, 6, 6))
    measurement = dg.Inpainting(mask, 0.1).measure(x, keyed_generator("v"))
    assert torch.equal(measurement.measured, mask)
    assert measurement.covariance(LIMITS).log_variance.shape == (2, 3, 6, 6)
    assert torch.equal(measurement[1:].measured, mask[1:])
    with pytest.raises(ValueError, match=r"mask has shape \(2, 3, 6, 6\).*\(5, 3, 6, 6\)"):
        dg.Inpainting(mask).measure(image(5, (3, 6, 6)))
    with pytest.raises(ValueError, match=r"does not fit images of shape \(2, 1, 6, 6\)"):
        dg.Inpainting(mask).measure(image(2, (1, 6, 6)))


def test_whatever_stands_at_missing_pixels_is_ignored() -> None:
    mask = torch.ones(6, 6, dtype=torch.bool)
    mask[:, 3:] = False
    data = image()
    spoiled = torch.where(mask, data, torch.full_like(data, math.nan))
    a, b = (dg.Inpainting(mask, 0.1).from_raw(d) for d in (data, spoiled))
    assert torch.equal(a.coefficients, b.coefficients)
    assert torch.equal(a.raw, b.raw)


def test_masks_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match=r"mask has shape \(6, 5\); the image is 6×6"):
        dg.Inpainting(torch.ones(6, 5, dtype=torch.bool)).measure(image())
    with pytest.raises(ValueError, match=r"all missing.*inverted"):
        dg.Inpainting(torch.zeros(6, 6, dtype=torch.bool))
    one_of_two = torch.ones(2, 1, 6, 6, dtype=torch.bool)
    one_of_two[1] = False
    with pytest.raises(ValueError, match="all missing"):
        dg.Inpainting(one_of_two)
    with pytest.raises(ValueError, match="neither 0 nor the maximum"):
        dg.Inpainting(torch.linspace(0, 1, 36).reshape(6, 6))
    with pytest.raises(ValueError, match="black"):
        dg.Inpainting(torch.ones(6, 6) * -1.0)
    with pytest.raises(ValueError, match="NaN"):
        dg.Inpainting(torch.full((6, 6), math.nan))
    with pytest.raises(ValueError, match=r"\[H, W\]"):
        dg.Inpainting(torch.ones(6))


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
        (dg.Blur(dg.motion_kernel(5, 0.5, 0), boundary="reflecting"), "even in each axis only.*motion.*periodic"),
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


def test_noisy_real_data_may_leave_the_unit_interval() -> None:
    data = image() * 3 - 1
    dg.Denoising(0.5).from_raw(data)
    with pytest.raises(ValueError, match="measurement has values"):
        dg.Denoising(0.01).from_raw(data)


# --- measurements ----------------------------------------------------------------------------------------------------------------


@degradations
def test_parts_and_repetitions_of_a_measurement(name: str) -> None:
    measurement = DEGRADATIONS[name](0.1).measure(image(3), keyed_generator("v"), exact_fill=True)
    part = measurement[[2]]
    assert torch.equal(part.coefficients, measurement.coefficients[2:])
    repeated = measurement.repeat_interleave(2)
    assert repeated.batch == 6
    assert repeated.hidden is not None
    assert measurement.hidden is not None
    for field in ("raw", "coefficients", "hidden"):
        assert torch.equal(getattr(repeated, field)[3], getattr(measurement, field)[1])
    a, b = lift(repeated, random_fill=False), lift(measurement, random_fill=False)
    torch.testing.assert_close(a.y[::2], b.y)
    torch.testing.assert_close(a.cov.log_variance[::2], b.cov.log_variance)


@degradations
def test_the_covariance_of_a_measurement_is_that_of_its_lift(name: str) -> None:
    measurement = DEGRADATIONS[name](0.1).measure(image(), keyed_generator("v"))
    lifted = lift(measurement)
    torch.testing.assert_close(lifted.cov.log_variance, measurement.covariance(LIMITS).log_variance, rtol=0, atol=1e-12)
    assert LIMITS.excess(lifted.cov) is None


# --- the lift --------------------------------------------------------------------------------------------------------------------


@degradations
def test_lifted_data_are_the_image_under_noise_of_the_lifted_covariance(name: str) -> None:
    """y − (|h|/h̃)x in the basis has variance λ wherever there are data (mathematics §2), and in all of it with an exact fill."""
    n, x = 2000, image(1)
    many = x.expand(n, -1, -1, -1)
    lifted = lift(DEGRADATIONS[name](0.05).measure(many, keyed_generator("v"), exact_fill=True))
    measurement = DEGRADATIONS[name](0.05).measure(x)
    shrink = torch.where(
        measurement.measured, (measurement.log_gain + 0.5 * (LIMITS_TOP - math.log(0.05**2))).exp().clamp_max(1), 1.0
    )
    error = lifted.cov.analysis(lifted.y) - shrink * lifted.cov.analysis(many)
    assert_variance(error.flatten(1), lifted.cov.full(lifted.cov.variance)[:1].flatten(1))


@pytest.mark.parametrize("top", [1.0, 1e3])
def test_fills_have_the_prior_mean_and_the_widest_variance(top: float) -> None:
    """m + N(0, λ_max + C) where nothing was measured, the data where something was."""
    n, degradation = 4000, dg.Box(3, 0.05)
    measurement = degradation.measure(image(1), keyed_generator("v")).repeat_interleave(n)
    lifted = lift(measurement, VarianceRange(1e-6, top))
    hidden = (~degradation.mask_for((6, 6))[0, 0]).expand(SHAPE)
    fills = lifted.y[:, hidden]
    assert fills.shape == (n, 18)
    assert_variance(fills - 0.4, top + 0.1)
    scaled = ((fills - 0.4) / math.sqrt(top + 0.1)).flatten().numpy()
    assert kstest(scaled, "norm").pvalue > ALARM
    assert float((lifted.y[:, ~hidden] - measurement.raw[:, ~hidden]).abs().max()) < 1e-12


def test_fills_are_fresh_unless_the_mean_is_asked_for() -> None:
    degradation = dg.Box(3, 0.05)
    measurement = degradation.measure(image(), keyed_generator("v"))
    hidden = (~degradation.mask_for((6, 6))[0, 0]).expand(SHAPE)
    a, b, c = (lift(measurement, seed=seed).y for seed in (0, 0, 1))
    assert torch.equal(a, b)
    assert bool((a[:, hidden] != c[:, hidden]).all())
    assert torch.equal(a[:, ~hidden], c[:, ~hidden])
    generator = keyed_generator("one stream")
    first, second = (measurement.lift(LIMITS, prior(), generator).y for _ in range(2))
    assert bool((first[:, hidden] != second[:, hidden]).all())
    assert bool((lift(measurement, random_fill=False).y[:, hidden] == prior()[0].squeeze()).all())


@pytest.mark.parametrize("top", [0.1, 1.0, 10.0])
def test_the_error_of_a_fill_is_bounded(top: float) -> None:
    """KL from the law of the fill given the data to the law it is drawn from, averaged over data: ≤ E‖x−m‖²/(2λ_max) nats."""
    n, degradation = 4000, dg.Box(3, 0.05)
    template = degradation.measure(image(1)).template
    energy, law = energy_and_law("dense-gaussian", template)
    generator = keyed_generator("bound")
    x = energy.sample(n, generator)  # type: ignore[attr-defined]
    data = x + 0.05 * torch.randn(x.shape, generator=generator, dtype=torch.float64)
    measurement = replace(degradation.encode(data), hidden=x)
    lifted = measurement.lift(VarianceRange(1e-6, top), energy.gaussian(template), generator)
    noise = lifted.cov[:1].dense()[0]
    seen = measurement.measured.expand(1, *SHAPE).flatten()
    together = law.through(torch.eye(len(seen)).double(), noise)
    of_fill = together.log_density(lifted.y) - together.coordinates(seen).log_density(lifted.y.flatten(1)[:, seen])
    excess = of_fill - lifted.fill_log_density
    error = z_threshold(6) * float(excess.std()) / math.sqrt(n)
    bound = float(law.covariance[0].diagonal()[~seen].sum()) / (2 * top)
    assert -error < float(excess.mean()) < bound + error
    assert error < 0.5 * bound  # the comparison means something


def test_variances_under_the_floor_are_lifted_to_it() -> None:
    """λ_min in Σ, and N(0, λ_min − λ) added to y: the sum has variance λ_min."""
    n, limits, sigma = 4000, VarianceRange(1e-2, 1e3), 0.05
    x = image(1).expand(n, -1, -1, -1)
    measurement = dg.Denoising(sigma).measure(x, keyed_generator("v"))
    lifted = lift(measurement, limits)
    torch.testing.assert_close(lifted.cov.variance, torch.full_like(lifted.cov.variance, 1e-2))
    added = (lifted.y - measurement.raw).flatten(1)
    assert_variance(added, 1e-2 - sigma**2)
    assert_variance((lifted.y - x).flatten(1), 1e-2)


@degradations
def test_a_floor_that_is_always_added_does_not_depend_on_the_operator(name: str) -> None:
    """`add_floor`: √λ_min·v on every measured coefficient and Σ + λ_min (mathematics §2, for blind estimation)."""
    limits = VarianceRange(1e-2, 1e3)
    measurement = DEGRADATIONS[name](0.05).measure(image(), keyed_generator("v"))
    white = torch.randn(1, *SHAPE, generator=keyed_generator("white"), dtype=torch.float64)
    plain = measurement.lift(VarianceRange(1e-12, 1e3), prior(), random_fill=False)
    lifted = measurement.lift(limits, prior(), random_fill=False, add_floor=True, noise=white)
    added = lifted.cov.analysis(lifted.y - plain.y)
    expected = 0.1 * white * measurement.measured
    torch.testing.assert_close(added, expected.expand_as(added), rtol=0, atol=1e-9)
    torch.testing.assert_close(lifted.cov.variance, (plain.cov.variance + 1e-2).clamp_max(1e3), rtol=1e-9, atol=0)
    assert torch.equal(lifted.log_gain, plain.log_gain)


def test_nothing_is_added_above_the_floor() -> None:
    measurement = dg.Denoising(0.05).measure(image(), keyed_generator("v"))
    assert torch.equal(lift(measurement).y, measurement.raw)


def test_only_coefficients_under_the_floor_get_noise() -> None:
    """A blur amplifies the noise of some frequencies over λ_min and leaves others under it."""
    limits = VarianceRange(1e-2, 1e3)
    measurement = dg.GaussianBlur(0.7, 0.05, size=5).measure(image(), keyed_generator("v"))
    a, b = (lift(measurement, limits, seed) for seed in (0, 1))
    moved = a.cov.analysis(a.y - b.y).abs() > 1e-9
    under = (measurement.log_variance < math.log(1e-2)).expand_as(moved)
    assert torch.equal(moved, under)
    assert 0 < int(under.sum()) < under.numel()


def test_no_noise_at_all_is_the_rounding_of_the_data() -> None:
    """σ = 0 is taken as the precision of the numbers, so that tiny gains are not trusted."""
    measurement = dg.GaussianBlur(0.7, 0.0, size=5).measure(image())
    assert float(measurement.log_noise.max()) == pytest.approx(2 * math.log(4 * torch.finfo(torch.float64).eps))
    lifted = lift(measurement, VarianceRange(1e-12, 1e3))
    torch.testing.assert_close(lifted.y, image(), rtol=0, atol=1e-4)


NULLS: dict[str, dg.Degradation] = {
    "8-tap": dg.GaussianBlur(1.5, 0.01, "periodic", 8),
    "4-tap": dg.GaussianBlur(0.8, 0.01, "periodic", 4),
    "box": dg.Blur(torch.full((2, 2), 0.25).double(), 0.01),
    "difference": dg.Blur(torch.tensor([[-1.0, 1.0]]).double(), 0.01),
    "reflecting": dg.Blur(torch.full((3, 3), 1 / 9).double(), 0.01, "reflecting"),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", NULLS)
def test_kernels_with_exact_zeros_give_a_finite_lift(name: str, dtype: torch.dtype) -> None:
    """What a kernel destroys gets λ_max, the most noise and not the least, and y there is noise of that variance."""
    size = 12
    degradation = NULLS[name]
    x = image(400, (1, size, size)).to(dtype)
    measurement = degradation.measure(x, keyed_generator("v"))
    lifted = lift(measurement)
    assert bool(torch.isfinite(lifted.y).all())
    assert bool(torch.isfinite(lifted.cov.log_variance).all())
    gain = matrix_of(degradation.operator, (1, size, size))
    power = matrix_of(measurement.template.to(torch.float64).analysis, (1, size, size)) @ (gain.mT @ gain)
    null = power.norm(dim=1) < 1e-12
    assert bool(null.any())
    assert float((lifted.cov.log_variance.flatten(1)[:, null] - LIMITS_TOP).abs().max()) < 1e-5
    white = lifted.cov.analysis(lifted.y).flatten(1)[:, null].double() / math.sqrt(LIMITS.maximum)
    assert_variance(white, 1.0)


def family_of_kernels(width: float, boundary: str) -> dg.Degradation:
    """[w, 1−2w, w] in both axes: |h| at the highest frequency passes through 0 at w = 1/4 (periodic)."""
    line = torch.tensor([width, 1 - 2 * width, width], dtype=torch.float64)
    return dg.Blur(torch.outer(line, line), 0.01, boundary)


@pytest.mark.parametrize("boundary", ["periodic", "reflecting"])
def test_the_lift_is_continuous_in_the_width_of_a_gaussian(boundary: str) -> None:
    """Also where |h| falls under σ/√λ_max and λ meets its ceiling: no coefficient jumps from data to a fill."""
    raw = dg.GaussianBlur(1.0, 0.01, boundary, 11).measure(image(2, (1, 12, 12)), keyed_generator("v")).raw
    crossed = set()
    for std in torch.linspace(0.3, 3.0, 28).tolist():
        near, far = (
            lift(dg.GaussianBlur(std + step, 0.01, boundary, 11).from_raw(raw), random_fill=False)
            for step in (0.0, 1e-8)
        )
        crossed.add(int((near.cov.log_variance > LIMITS_TOP - 1e-9).sum()))
        scale = torch.exp(0.5 * near.cov.log_variance)
        jump = near.cov.analysis(far.y - near.y).abs() / scale
        assert float(torch.minimum(jump, (near.cov.analysis(far.y + near.y).abs() / scale)).max()) < 1e-4
        assert float((far.cov.log_variance - near.cov.log_variance).abs().max()) < 1e-4
        assert float((far.log_gain - near.log_gain).abs().max()) < 1e-4
    assert len(crossed) > 5  # the ceiling was reached by more and more coefficients


def test_the_lift_is_continuous_through_an_exact_zero_of_the_kernel() -> None:
    """|y|, Σ and log h̃ do not notice the width at which a frequency disappears (its sign is noise there)."""
    raw = family_of_kernels(0.2, "periodic").measure(image(2, (1, 8, 8)), keyed_generator("v")).raw
    lifts = [lift(family_of_kernels(0.25 + step, "periodic").from_raw(raw)) for step in (-1e-9, 0.0, 1e-9)]
    for a, b in itertools.pairwise(lifts):
        assert float((a.cov.log_variance - b.cov.log_variance).abs().max()) < 1e-5
        assert float((a.log_gain - b.log_gain).abs().max()) < 1e-5
        torch.testing.assert_close(a.cov.analysis(a.y).abs(), b.cov.analysis(b.y).abs(), rtol=1e-5, atol=1e-5)
    assert float((lifts[1].cov.log_variance[..., 4, 4] - LIMITS_TOP).abs().max()) < 1e-9


def test_the_lift_has_finite_gradients_in_the_operator() -> None:
    """Blind estimation differentiates y, log λ and log h̃ in log|h|, also at ceilings, floors and missing data."""
    measurement = DEGRADATIONS["even-periodic"](0.05).measure(image(), keyed_generator("v"))
    masked = DEGRADATIONS["mask"](1e-4).measure(image(), keyed_generator("v"))
    for given_measurement in (measurement, masked):
        gain = given_measurement.log_gain.clone().requires_grad_()
        noise = given_measurement.log_noise.clone().requires_grad_()
        lifted = lift(replace(given_measurement, log_gain=gain, log_noise=noise), VarianceRange(1e-2, 1e3))
        total = lifted.y.sum() + lifted.cov.log_variance.sum() + lifted.log_gain.sum() + lifted.fill_log_density.sum()
        total.backward()
        for leaf in (gain, noise):
            assert leaf.grad is not None
            assert bool(torch.isfinite(leaf.grad).all())


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
    assert torch.equal(blur.kernel_for((28, 28)), blur.kernel)


def test_a_gaussian_on_small_images_is_that_of_training() -> None:
    blur = dg.GaussianBlur(0.8)
    told = gaussian_transfer(torch.tensor([0.8]).double(), (8, 8), "periodic")[0]
    torch.testing.assert_close(blur.transfer((8, 8), torch.float64).real, told)

"""What a measurement can be asked, against dense matrices, and its lift into an energy's range."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from scipy.stats import kstest
from torch import Tensor

from conftest import DEGRADATIONS, energy_and_law
from linverse import degradations as dg
from linverse.covariance import VarianceRange
from linverse.measurement import Measurement
from linverse.rng import keyed_generator
from measured import ALARM, LIMITS, LIMITS_TOP, SHAPE, assert_variance, image, lift, prior
from oracles import matrix_of, z_threshold

SIGMA, VARIANCE = 0.3, 0.7
DIM = 72


def setting(name: str) -> tuple[Measurement, Tensor, Tensor]:
    """Two measurements, the dense operator, and two images to start from."""
    degradation, generator = DEGRADATIONS[name](SIGMA), keyed_generator("observation", name)
    x, u = torch.rand(2, 2, *SHAPE, generator=generator, dtype=torch.float64)
    raw = degradation.measure(x, generator).raw
    return degradation.from_raw(raw), matrix_of(degradation.operator, SHAPE), u


@pytest.mark.parametrize("name", DEGRADATIONS)
def test_residual_and_adjoint(name: str) -> None:
    seen, dense, u = setting(name)
    residual, exact = seen.residual(u), seen.raw.flatten(1) - u.flatten(1) @ dense.mT
    torch.testing.assert_close(residual.flatten(1).norm(dim=1), exact.norm(dim=1))
    torch.testing.assert_close(seen.adjoint(residual).flatten(1), exact @ dense)


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


def seen_by(seen: Measurement, noise: Tensor) -> Tensor:
    return seen.template.synthesis(noise * seen.proximal_variance(VARIANCE).sqrt())


@pytest.mark.parametrize("name", DEGRADATIONS)
def test_guidance_is_the_gradient_of_the_likelihood(name: str) -> None:
    seen, dense, u = setting(name)
    covariance = VARIANCE * dense @ dense.mT + SIGMA**2 * torch.eye(len(dense), dtype=torch.float64)
    residual = seen.raw.flatten(1) - u.flatten(1) @ dense.mT
    wanted = torch.linalg.solve(covariance, residual.mT).mT @ dense
    torch.testing.assert_close(seen.guidance(u, VARIANCE).flatten(1), wanted, rtol=1e-8, atol=1e-8)


def test_hidden_pixels_may_hold_anything() -> None:
    degradation = DEGRADATIONS["box"](SIGMA)
    raw = torch.rand(1, 1, 6, 6, generator=keyed_generator("nan"), dtype=torch.float64)
    hidden = ~degradation.mask_for((6, 6))  # type: ignore[attr-defined]
    seen = degradation.from_raw(torch.where(hidden, torch.nan, raw))
    assert float(seen.pseudo_inverse()[hidden].abs().max()) == 0
    assert bool(seen.residual(raw).isfinite().all())


degradations = pytest.mark.parametrize("name", DEGRADATIONS)


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

"""Every covariance against dense matrices: Q from `synthesis`, Σ = Q diag(λ) Qᵀ multiplied out, torch.linalg for the rest."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest
import scipy.fft
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2
from torch import Tensor

from conftest import COVARIANCES, Shape, random_covariance
from linverse.covariance import (
    BlockDCTCovariance,
    Covariance,
    FourierCovariance,
    SpatialCovariance,
    VarianceRange,
)
from linverse.covariance.dct import dct_matrix
from linverse.covariance.fourier import mirrored
from linverse.covariance.transfer import gaussian_taps, gaussian_transfer, kernel_transfer, symmetric_transfer
from linverse.rng import keyed_generator
from oracles import convolve, matrix_of, z_threshold

RTOL = 1e-9
SHAPE: Shape = (2, 4, 6)
families = pytest.mark.parametrize("family", COVARIANCES)
sharing = pytest.mark.parametrize("shared", [False, True], ids=["per-channel", "shared"])
any_shape = st.tuples(st.integers(1, 4), st.integers(1, 7), st.integers(1, 7))  # odd, even, 1×1, non-square


def dense_covariance(cov: Covariance) -> Tensor:
    """[B, d, d], from Q and λ by matrix products."""
    q = matrix_of(cov.synthesis, (cov.channels, *cov.size))
    return q @ torch.diag_embed(cov.full(cov.log_variance).exp().flatten(1)) @ q.mT


def dense_power(matrix: Tensor, exponent: float) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values[..., None, :] ** exponent) @ vectors.mT


def images(cov: Covariance, seed: int = 0) -> Tensor:
    shape = (cov.batch, cov.channels, *cov.size)
    return torch.randn(shape, generator=keyed_generator("images", seed), dtype=torch.float64)


def times(matrix: Tensor, x: Tensor) -> Tensor:
    return (matrix @ x.flatten(1)[..., None])[..., 0].reshape(x.shape)


def assert_close(actual: Tensor, expected: Tensor, rtol: float = RTOL) -> None:
    """Relative to the largest entry, as an error of a matrix product is."""
    assert actual.shape == expected.shape
    scale = float(expected.abs().max())
    assert float((actual - expected).abs().max()) <= rtol * scale + 1e-300


# --- Q -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", COVARIANCES)
@given(shape=any_shape)
def test_q_is_orthonormal_and_analysis_its_adjoint(family: str, shape: Shape) -> None:
    cov = random_covariance(family, shape)
    synthesis, analysis = (matrix_of(f, shape) for f in (cov.synthesis, cov.analysis))
    eye = torch.eye(cov.dim, dtype=torch.float64)
    torch.testing.assert_close(synthesis.mT @ synthesis, eye, rtol=0, atol=1e-12)
    torch.testing.assert_close(analysis, synthesis.mT, rtol=0, atol=1e-12)


@given(shape=any_shape)
def test_hartley_matrix_is_cas_of_the_joint_phase(shape: Shape) -> None:
    height, width = shape[1:]
    j, k = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    phase = 2 * math.pi * (np.outer(j.ravel(), j.ravel()) / height + np.outer(k.ravel(), k.ravel()) / width)
    expected = torch.from_numpy((np.cos(phase) + np.sin(phase)) / math.sqrt(height * width))
    cov = random_covariance("fourier", (1, height, width))
    torch.testing.assert_close(matrix_of(cov.analysis, (1, height, width)), expected, rtol=0, atol=1e-12)


@given(shape=any_shape)
def test_dct_agrees_with_scipy(shape: Shape) -> None:
    cov = random_covariance("dct", shape)
    expected = scipy.fft.dctn(images(cov).numpy(), axes=(2, 3), norm="ortho")
    torch.testing.assert_close(cov.analysis(images(cov)), torch.from_numpy(expected), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("size", "block"), [((6, 12), 2), ((6, 12), 3), ((6, 12), 6), ((5, 5), 5), ((4, 8), 4)])
def test_block_dct_is_a_dct_of_each_tile_and_its_dc_the_box_mean(size: tuple[int, int], block: int) -> None:
    cov = BlockDCTCovariance(torch.zeros(2, 1, *size).double(), 3, block)
    x = images(cov)
    z = cov.analysis(x)
    for top in range(0, size[0], block):
        for left in range(0, size[1], block):
            tile = (..., slice(top, top + block), slice(left, left + block))
            expected = torch.from_numpy(scipy.fft.dctn(x[tile].numpy(), axes=(2, 3), norm="ortho"))
            torch.testing.assert_close(z[tile], expected, rtol=0, atol=1e-12)
    means = torch.nn.functional.avg_pool2d(x, block)
    torch.testing.assert_close(z[..., ::block, ::block] / block, means, rtol=0, atol=1e-12)


@families
def test_frequencies_give_the_eigenvalues_of_the_laplacian(family: str) -> None:
    """4 − 2cos 2πf₁ − 2cos 2πf₂ for differences that wrap (Fourier) or reflect (DCT) at the edge of a block."""
    cov = random_covariance(family, (1, 4, 6))
    bh, bw = cov.frequencies().shape[1:]
    mode = "wrap" if family == "fourier" else "symmetric"
    kernel = torch.tensor([[0.0, -1.0, 0.0], [-1.0, 4.0, -1.0], [0.0, -1.0, 0.0]]).double()

    def laplacian(z: Tensor) -> Tensor:
        x = cov.blocks(cov.synthesis(z)).transpose(3, 4).reshape(-1, 1, bh, bw)
        out = convolve(x, kernel, mode).reshape(z.shape[0], 1, 4 // bh, 6 // bw, bh, bw)
        return cov.analysis(out.transpose(3, 4).reshape(z.shape))

    eigenvalues = 4 - 2 * torch.cos(2 * math.pi * cov.frequencies()).sum(0)
    expected = torch.diag(eigenvalues.repeat(4 // bh, 6 // bw).flatten())
    torch.testing.assert_close(matrix_of(laplacian, (1, 4, 6)), expected, rtol=0, atol=1e-12)


# --- Σ against dense matrices ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", COVARIANCES)
@given(shape=any_shape, shared=st.booleans(), seed=st.integers(0, 10))
def test_dense_oracle_for_any_shape(family: str, shape: Shape, shared: bool, seed: int) -> None:
    """apply, solve, square root, log det, Mahalanobis norm and trace."""
    cov = random_covariance(family, shape, shared=shared, seed=seed)
    sigma, x = dense_covariance(cov), images(cov, seed)
    solved = torch.linalg.solve(sigma, x.flatten(1)[..., None])[..., 0]
    assert_close(cov.dense(), sigma)
    assert_close(cov.apply(x), times(sigma, x))
    assert_close(cov.solve(x), solved.reshape(x.shape))
    assert_close(cov.power(x, 0.5), times(dense_power(sigma, 0.5), x))
    assert_close(cov.mahalanobis(x), (x.flatten(1) * solved).sum(1))
    assert_close(cov.mahalanobis_coefficients(cov.analysis(x)), (x.flatten(1) * solved).sum(1))
    assert_close(cov.trace(), sigma.diagonal(dim1=1, dim2=2).sum(1))
    # rtol on det Σ, which is what a density needs, not on a log det that may pass through 0
    torch.testing.assert_close(cov.logdet(), torch.linalg.slogdet(sigma).logabsdet, rtol=RTOL, atol=RTOL)


@families
@sharing
@pytest.mark.parametrize("exponent", [-2.0, -1.0, -0.5, 0.0, 0.3, 0.5, 1.0, 2.0, 3.0])
def test_any_power(family: str, shared: bool, exponent: float) -> None:
    cov = random_covariance(family, SHAPE, shared=shared)
    x = images(cov)
    assert_close(cov.power(x, exponent), times(dense_power(dense_covariance(cov), exponent), x), rtol=1e-8)


@families
@sharing
def test_colour_is_a_square_root(family: str, shared: bool) -> None:
    """colour(v) = Qλ^{1/2}v, so that colour·colourᵀ = Σ."""
    cov = random_covariance(family, SHAPE, batch=1, shared=shared)
    root = matrix_of(cov.colour, SHAPE)
    assert_close(root @ root.mT, dense_covariance(cov)[0])


@families
@pytest.mark.parametrize(("a_shared", "b_shared"), [(False, False), (True, True), (True, False), (False, True)])
def test_algebra(family: str, a_shared: bool, b_shared: bool) -> None:
    """Sum, difference, scale and both interpolations, also between shared and unshared spectra."""
    a = random_covariance(family, SHAPE, shared=a_shared, seed=1)
    b = random_covariance(family, SHAPE, shared=b_shared, seed=2)
    da, db = dense_covariance(a), dense_covariance(b)
    t = torch.tensor([0.25, 0.7], dtype=torch.float64)
    weight = t[:, None, None]
    assert_close((a + b).dense(), da + db)
    assert_close(((a + b) - b).dense(), da)
    assert_close((a + 0.3).dense(), da + 0.3 * torch.eye(a.dim, dtype=torch.float64))
    assert_close((2.5 * a).dense(), 2.5 * da)
    assert_close((a * t).dense(), weight * da)
    assert_close(a.interpolate(b, t, "linear").dense(), (1 - weight) * da + weight * db)
    # commuting matrices: the geometric mean is a product of powers
    geometric = torch.stack([dense_power(da[i], 1 - float(t[i])) @ dense_power(db[i], float(t[i])) for i in range(2)])
    assert_close(a.interpolate(b, t).dense(), geometric)


@families
@pytest.mark.parametrize("kind", ["geometric", "linear"])
def test_interpolation_starts_and_ends_exactly(family: str, kind: Literal["geometric", "linear"]) -> None:
    a, b = (random_covariance(family, SHAPE, seed=seed) for seed in (1, 2))
    assert torch.equal(a.interpolate(b, 0.0, kind).log_variance, a.log_variance)
    assert torch.equal(a.interpolate(b, 1.0, kind).log_variance, b.log_variance)


@families
@sharing
def test_clamp_cuts_the_eigenvalues(family: str, shared: bool) -> None:
    cov = random_covariance(family, SHAPE, shared=shared)
    values, vectors = torch.linalg.eigh(dense_covariance(cov))
    for low, high in [(0.2, 0.9), (None, 0.9), (0.2, None)]:
        expected = (vectors * values.clamp(low, high)[..., None, :]) @ vectors.mT
        assert_close(cov.clamp(low, high).dense(), expected)


@families
def test_isotropic_is_the_same_matrix_in_every_basis(family: str) -> None:
    cov = random_covariance(family, SHAPE)
    eye = torch.eye(cov.dim, dtype=torch.float64)
    assert_close(cov.isotropic(0.3).dense(), 0.3 * torch.stack([eye, eye]))
    levels = torch.tensor([0.1, 7.0], dtype=torch.float64)
    assert_close(cov.isotropic(levels).dense(), levels[:, None, None] * eye)


@families
def test_difference_of_equals_is_zero_and_of_a_larger_is_refused(family: str) -> None:
    cov = random_covariance(family, SHAPE)
    zero = cov - cov
    assert float(zero.variance.max()) == 0
    assert float(zero.colour(images(cov)).abs().max()) == 0
    with pytest.raises(ValueError, match="exceeds"):
        _ = cov - (cov + 1e-6)


@families
def test_difference_keeps_digits_where_a_plain_one_loses_them(family: str) -> None:
    """λ − λe^{−1e-5} in float32: a plain difference of variances has two digits left."""
    cov = random_covariance(family, SHAPE).isotropic(1.0).to(torch.float32)
    difference = cov - cov.with_log_variance(cov.log_variance - 1e-5)
    torch.testing.assert_close(difference.variance, torch.full_like(cov.variance, 1e-5), rtol=1e-5, atol=0)


# --- batches, devices, errors ------------------------------------------------------------------------------------------------


@families
def test_parts_of_a_batch(family: str) -> None:
    cov = random_covariance(family, SHAPE, batch=3)
    assert torch.equal(cov[1:].log_variance, cov.log_variance[1:])
    assert torch.equal(cov[[2, 0]].log_variance, cov.log_variance[[2, 0]])
    assert torch.equal(cov.repeat_interleave(2).log_variance[2], cov.log_variance[1])
    assert cov[:1].expand(5).batch == 5
    single = cov.to(torch.float32)
    assert single.log_variance.dtype == torch.float32
    assert (single.basis, single.channels, single.size) == (cov.basis, cov.channels, cov.size)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(2, 2, 4, 4\).*1 or 3"):
        SpatialCovariance(torch.zeros(2, 2, 4, 4), 3)
    with pytest.raises(ValueError, match="log_variance"):
        SpatialCovariance(torch.zeros(4, 4))
    with pytest.raises(ValueError, match="3×3 do not tile a 4×6"):
        BlockDCTCovariance(torch.zeros(1, 1, 4, 6), 1, 3)
    with pytest.raises(ValueError, match=r"image has shape \(1, 1, 4, 5\).*\[batch, 1, 4, 6\]"):
        SpatialCovariance(torch.zeros(1, 1, 4, 6)).check_image(torch.zeros(1, 1, 4, 5))


def test_combinations_without_a_common_basis_are_refused() -> None:
    a = SpatialCovariance(torch.zeros(1, 1, 4, 4))
    others = [
        FourierCovariance(torch.zeros(1, 1, 4, 4)),
        SpatialCovariance(torch.zeros(1, 1, 4, 5)),
        SpatialCovariance(torch.zeros(1, 1, 4, 4), 3),
    ]
    for other in others:
        with pytest.raises(ValueError, match="eigenbasis"):
            _ = a + other
    with pytest.raises(ValueError, match="eigenbasis"):
        BlockDCTCovariance(torch.zeros(1, 1, 4, 4), 1, 2).interpolate(
            BlockDCTCovariance(torch.zeros(1, 1, 4, 4), 1, 4), 0.5
        )


def test_negative_variances_are_refused() -> None:
    cov = SpatialCovariance(torch.zeros(1, 1, 4, 4))
    for factor in (0.0, -1.0):
        with pytest.raises(ValueError, match="positive"):
            _ = cov * factor
    with pytest.raises(ValueError, match="-1"):
        _ = cov + (-1.0)
    for low, high in [(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (1.0, math.inf)]:
        with pytest.raises(ValueError, match="variance range"):
            VarianceRange(low, high)


def test_range_names_what_is_outside() -> None:
    limits = VarianceRange(1e-4, 10.0, ("spatial",))
    cov = SpatialCovariance(torch.zeros(1, 1, 2, 2).double())
    assert limits.excess(cov) is None
    assert limits.excess(cov.isotropic(1e-4)) is None
    assert "0.0001, 10" in str(limits.excess(cov.isotropic(1e-5)))
    assert "0.0001, 10" in str(limits.excess(cov.isotropic(11.0)))
    assert "spatial" in str(limits.excess(FourierCovariance(cov.log_variance)))


def test_a_basis_first_used_without_gradients_can_be_differentiated_later() -> None:
    """The DCT matrix is kept from call to call; it must not keep the mode of the first one."""
    dct_matrix.cache_clear()
    cov = random_covariance("dct", (1, 5, 5))
    with torch.inference_mode():
        cov.analysis(images(cov))
    x = images(cov).requires_grad_()
    cov.mahalanobis(x).sum().backward()
    assert x.grad is not None
    assert_close(x.grad, 2 * cov.solve(x.detach()))


# --- noise ---------------------------------------------------------------------------------------------------------------


@families
@sharing
def test_noise_has_the_covariance(family: str, shared: bool) -> None:
    """Σ over samples of ε_i² is χ²_n for every coefficient, and neighbouring coefficients do not correlate."""
    n, cov = 2000, random_covariance(family, SHAPE, batch=1, shared=shared)
    noise = cov.sample_noise(keyed_generator("noise", family), batch=n)
    dense = torch.linalg.cholesky(dense_covariance(cov)[0])
    white = torch.linalg.solve_triangular(dense, noise.flatten(1).mT, upper=False)
    tail = 1e-6 / (2 * cov.dim)
    squares = white.square().sum(1)
    assert float(squares.min()) > chi2.ppf(tail, n)
    assert float(squares.max()) < chi2.isf(tail, n)
    gram = (white @ white.mT / math.sqrt(n)).triu(1)
    assert float(gram.abs().max()) < 1.1 * z_threshold(cov.dim**2 // 2)  # a product of normals has heavier tails


@families
def test_noise_is_the_same_for_the_same_generator(family: str) -> None:
    cov = random_covariance(family, SHAPE)
    a, b, c = (cov.sample_noise(keyed_generator("n", seed)) for seed in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert a.shape == (2, *SHAPE)


# --- what makes each family itself -------------------------------------------------------------------------------------------


@given(size=st.tuples(st.integers(1, 7), st.integers(1, 7)), shift=st.tuples(st.integers(-3, 3), st.integers(-3, 3)))
def test_an_even_spectrum_is_stationary(size: tuple[int, int], shift: tuple[int, int]) -> None:
    """Σ commutes with every cyclic shift."""
    cov = random_covariance("fourier", (2, *size))
    even = cov.with_log_variance(0.5 * (cov.log_variance + mirrored(cov.log_variance)))
    x = images(cov)
    assert_close(even.apply(x.roll(shift, (2, 3))), even.apply(x).roll(shift, (2, 3)))


def test_an_uneven_spectrum_is_not_stationary() -> None:
    cov = random_covariance("fourier", (1, 4, 6))
    x = images(cov)
    assert float((cov.apply(x.roll(1, 3)) - cov.apply(x).roll(1, 3)).abs().max()) > 1e-2


@given(size=st.tuples(st.integers(2, 8), st.integers(2, 8)), radius=st.tuples(st.integers(0, 1), st.integers(0, 1)))
def test_reflecting_blur_is_a_convolution_with_symmetric_padding(
    size: tuple[int, int], radius: tuple[int, int]
) -> None:
    half = torch.rand(radius[0] + 1, radius[1] + 1, generator=keyed_generator("kernel"), dtype=torch.float64) - 0.3
    rows = torch.cat([half.flip(0), half[1:]])
    kernel = torch.cat([rows.flip(1), rows[:, 1:]], dim=1)
    cov = random_covariance("dct", (2, *size))
    x = images(cov)
    blurred = cov.synthesis(cov.analysis(x) * symmetric_transfer(kernel, size))
    assert_close(blurred, convolve(x, kernel, "symmetric"))


@given(size=st.tuples(st.integers(3, 8), st.integers(3, 8)), taps=st.tuples(st.integers(1, 3), st.integers(1, 3)))
def test_periodic_blur_is_a_convolution_with_wrapped_padding(size: tuple[int, int], taps: tuple[int, int]) -> None:
    kernel = torch.randn(taps, generator=keyed_generator("kernel"), dtype=torch.float64)
    x = torch.randn(2, 1, *size, generator=keyed_generator("x"), dtype=torch.float64)
    blurred = torch.fft.ifft2(torch.fft.fft2(x) * kernel_transfer(kernel, size)).real
    assert_close(blurred, convolve(x, kernel, "wrap"))


@pytest.mark.parametrize(
    ("boundary", "family", "mode"), [("periodic", "fourier", "wrap"), ("reflecting", "dct", "symmetric")]
)
@pytest.mark.parametrize("size", [(7, 9), (8, 6), (5, 5)])
def test_gaussian_transfer_is_a_gaussian_convolution(
    boundary: str, family: str, mode: str, size: tuple[int, int]
) -> None:
    std = torch.tensor([0.4, 1.3], dtype=torch.float64)
    lines = [gaussian_taps(std, (n - 1) // 2) for n in size]
    cov = random_covariance(family, (1, *size))
    x = images(cov)
    blurred = cov.synthesis(cov.analysis(x) * gaussian_transfer(std, size, boundary)[:, None])
    for i in range(2):
        assert_close(blurred[i : i + 1], convolve(x[i : i + 1], torch.outer(lines[0][i], lines[1][i]), mode))


def test_gaussian_of_no_width_is_the_identity() -> None:
    assert torch.equal(gaussian_transfer(torch.zeros(1), (5, 6), "periodic"), torch.ones(1, 5, 6))


# --- pooling in space and frequency ----------------------------------------------------------------------------------------


@families
def test_pool_is_the_mean_variance_of_the_pixels_of_a_block(family: str) -> None:
    cov = random_covariance(family, (1, 4, 6), batch=1)
    diagonal = dense_covariance(cov)[0].diagonal().reshape(1, 1, 4, 6)
    torch.testing.assert_close(cov.pool(cov.variance), cov.pool(diagonal), rtol=RTOL, atol=0)


@families
def test_pool_bands_is_a_weighted_mean_over_a_block(family: str) -> None:
    cov = random_covariance(family, SHAPE)
    bh, bw = cov.frequencies().shape[1:]
    weights = torch.rand(3, bh, bw, generator=keyed_generator("bands"), dtype=torch.float64)
    weights = weights / weights.sum(dim=(1, 2), keepdim=True)
    bands = cov.pool_bands(cov.log_variance, weights)
    assert bands.shape == (2, 6, 4, 6)
    tiled = weights.repeat(1, 4 // bh, 6 // bw) * bh * bw
    for channel in range(2):
        for band in range(3):
            expected = cov.pool(cov.log_variance[:, channel : channel + 1] * tiled[band])
            torch.testing.assert_close(bands[:, 3 * channel + band], expected[:, 0], rtol=RTOL, atol=1e-12)


# --- derivatives -------------------------------------------------------------------------------------------------------------


@families
def test_a_shared_entry_has_the_sum_of_the_channels_gradients(family: str) -> None:
    """∂/∂log λ of log N(x; 0, Σ): one entry for C channels collects C derivatives."""
    shape: Shape = (3, 4, 6)
    shared = random_covariance(family, shape, shared=True)
    x = images(shared)

    def gradient(log_variance: Tensor) -> Tensor:
        leaf = log_variance.detach().clone().requires_grad_()
        cov = shared.with_log_variance(leaf)
        (0.5 * (cov.mahalanobis(x) + cov.logdet())).sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    full = gradient(shared.full(shared.log_variance))
    assert_close(gradient(shared.log_variance), full.sum(1, keepdim=True))
    assert (shared.multiplicity, shared.with_log_variance(full).multiplicity) == (3, 1)


@families
def test_every_operation_can_be_differentiated(family: str) -> None:
    cov = random_covariance(family, (2, 2, 2), shared=True)
    other, x = random_covariance(family, (2, 2, 2), seed=1), images(cov)

    def outputs(log_variance: Tensor) -> tuple[Tensor, ...]:
        a = cov.with_log_variance(log_variance)
        return (
            a.power(x, 0.3), a.colour(x), a.logdet(), a.mahalanobis(x), a.trace(), (a + other).log_variance,
            ((a + other) - other).log_variance, (2.0 * a).log_variance, a.interpolate(other, 0.3).log_variance,
            a.interpolate(other, 0.3, "linear").log_variance,
        )  # fmt: skip

    assert torch.autograd.gradcheck(outputs, cov.log_variance.clone().requires_grad_(), fast_mode=True)


# --- float32 -----------------------------------------------------------------------------------------------------------------


def wide_spectrum(family: str, dtype: torch.dtype) -> Covariance:
    """λ from 1e-9 to 1e3."""
    generator = keyed_generator("wide", family)
    exponents = torch.rand(2, 1, 28, 28, generator=generator, dtype=torch.float32) * 12 - 9
    exponents[:, :, 0, 0], exponents[:, :, 0, 1] = -9.0, 3.0
    return COVARIANCES[family](exponents * math.log(10), 3).to(dtype)


@families
@pytest.mark.parametrize("exponent", [-1.0, -0.5, 0.5, 1.0])
def test_float32_powers_from_1e_minus_9_to_1e3(family: str, exponent: float) -> None:
    """Coefficient by coefficient: a rounding of log λ (|log λ| ≤ 21) costs 21 float32 units, no more."""
    single, double = (wide_spectrum(family, dtype) for dtype in (torch.float32, torch.float64))
    z = torch.randn(2, 3, 28, 28, generator=keyed_generator("z"))
    gains = (z * torch.exp(exponent * single.log_variance)).double() / (
        z.double() * torch.exp(exponent * double.log_variance)
    )
    assert float((gains - 1).abs().max()) < 32 * torch.finfo(torch.float32).eps
    # and back in pixels relative to the largest coefficient, all that an orthonormal Q can promise
    x = double.synthesis(z.double())
    exact = double.power(x, exponent)
    assert float((single.power(x.float(), exponent) - exact).abs().max()) < 1e-5 * float(exact.abs().max())


@families
def test_float32_algebra_from_1e_minus_9_to_1e3(family: str) -> None:
    single, double = (wide_spectrum(family, dtype) for dtype in (torch.float32, torch.float64))
    tolerance = 64 * torch.finfo(torch.float32).eps
    pairs = [
        (single + 1e-9, double + 1e-9),
        (single + 1e3, double + 1e3),
        ((single * 1.5) - single, double * 0.5),
        (single * 1e-3, double * 1e-3),
        (single.clamp(1e-9, 1e3), double.clamp(1e-9, 1e3)),
        (single.interpolate(single.isotropic(1e-9), 0.3), double.interpolate(double.isotropic(1e-9), 0.3)),
        (
            single.interpolate(single.isotropic(1e-9), 0.3, "linear"),
            double.interpolate(double.isotropic(1e-9), 0.3, "linear"),
        ),
    ]
    for a, b in pairs:
        assert a.log_variance.dtype == torch.float32
        assert float((a.variance.double() / b.variance - 1).abs().max()) < tolerance


@families
def test_float32_densities_are_summed_in_float64(family: str) -> None:
    """At d = 12 288 float32 sums would be off by up to 8e-3 nats (mathematics §10)."""
    exponents = torch.rand(1, 3, 64, 64, generator=keyed_generator("exponents")) * 12 - 9
    single = COVARIANCES[family](exponents * math.log(10), 3)
    double = single.to(torch.float64)
    noise = torch.randn(1, 3, 64, 64, generator=keyed_generator("white"))
    z = noise * torch.exp(0.5 * single.log_variance)
    assert single.logdet().dtype == torch.float64
    assert abs(float(single.logdet() - double.logdet())) < 1e-9
    exact = float(double.mahalanobis_coefficients(z.double()))
    norm = single.mahalanobis_coefficients(z)
    assert norm.dtype == torch.float64
    assert abs(float(norm) - exact) < 1e-6 * exact
    white = (z * torch.exp(-0.5 * single.log_variance)).double()
    assert float(norm) == pytest.approx(float(white.square().sum()), rel=1e-12)


@pytest.mark.parametrize("variance", [1e-9, 1e-6, 1e-3, 1.0, 1e3])
@families
def test_float32_mahalanobis_of_images(family: str, variance: float) -> None:
    """The norm of noise of one level, through the transform, at every level."""
    cov = COVARIANCES[family](torch.full((1, 1, 28, 28), math.log(variance)), 3)
    noise = cov.sample_noise(keyed_generator("level"))
    exact = float(cov.to(torch.float64).mahalanobis(noise.double()))
    assert abs(float(cov.mahalanobis(noise)) / exact - 1) < 5e-6

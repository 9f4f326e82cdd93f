"""The stationary base: exact where C+Σ is diagonal, the same at isotropic noise in every basis, and a true energy everywhere."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from conftest import COVARIANCES, plain_evaluate, random_covariance, same_evaluation
from linverse.analytic import DenseGaussian
from linverse.covariance import BlockDCTCovariance, Covariance, DCTCovariance, FourierCovariance, SpatialCovariance
from linverse.energy import evaluate
from linverse.models.bases.blocks import at_means, two_levels
from linverse.models.bases.frames import DCT, block_shares, fourier_shares, on_dct_grid
from linverse.models.bases.spectral import SpectralBase
from linverse.models.bases.spectrum import knot_weights
from linverse.models.energies.learned import EnergyConfig, LearnedEnergy
from linverse.rng import keyed_generator
from oracles import matrix_of
from tiny import BACKBONE, awaken

SIZES = [(8, 8), (6, 10)]
families = pytest.mark.parametrize("family", COVARIANCES)
sizes = pytest.mark.parametrize("size", SIZES, ids=str)


def smooth_pictures(channels: int, size: tuple[int, int], count: int = 200) -> Tensor:
    """Random pictures whose power falls with frequency, coloured."""
    generator = keyed_generator("pictures", channels, *size)
    rows, columns = torch.arange(size[0])[:, None] / size[0], torch.arange(size[1])[None] / size[1]
    spectrum = (1 + 30 * (rows.square() + columns.square())).rsqrt().double()
    noise = torch.randn(count, channels, *size, generator=generator, dtype=torch.float64) * spectrum
    image = DCTCovariance(torch.zeros(1, 1, *size).double(), channels).synthesis(noise)
    mixing = torch.eye(channels).double() + 0.5
    return 0.5 + 0.1 * torch.einsum("oc,bcyx->boyx", mixing, image)


def energy_of(channels: int, size: tuple[int, int], awake: float = 0.0) -> LearnedEnergy:
    config = EnergyConfig((channels, None, None), parameterisation="spectral", backbone=BACKBONE)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        energy = LearnedEnergy(config).double().eval()
    if awake:
        awaken(energy, size=awake)
    energy.form.base.fit([smooth_pictures(channels, size)])
    return energy


def dense_gaussian(base: SpectralBase, cov: Covariance) -> DenseGaussian:
    """N(m, C) with C written out: DCT vectors of opponent colours, each with its power."""
    shape = (cov.channels, *cov.size)
    power = (base.log_ratio(cov.size, cov.log_variance) + base.log_prior).exp().flatten()
    vectors = matrix_of(DCT.image, shape)
    mean = base.mean.expand(shape).flatten()
    return DenseGaussian(mean, vectors @ torch.diag(power) @ vectors.mT, shape)


def isotropic(family: str, variance: float, channels: int, size: tuple[int, int]) -> Covariance:
    log_variance = torch.full((2, 1, *size), math.log(variance), dtype=torch.float64)
    return COVARIANCES[family](log_variance, channels)


@sizes
@pytest.mark.parametrize("channels", [1, 3])
@families
def test_untrained_energy_is_the_dense_gaussian_under_isotropic_noise(
    family: str, channels: int, size: tuple[int, int]
) -> None:
    energy = energy_of(channels, size)
    for variance in (1e-4, 0.05, 30.0):
        cov = isotropic(family, variance, channels, size)
        y = smooth_pictures(channels, size)[:2] + cov.sample_noise(keyed_generator("noise"))
        exact = evaluate(dense_gaussian(energy.form.base, cov), y, cov)
        ours = evaluate(energy, y, cov)
        torch.testing.assert_close(ours.energy, exact.energy, rtol=1e-9, atol=1e-7)
        torch.testing.assert_close(ours.mean, exact.mean, rtol=1e-7, atol=1e-8)
        torch.testing.assert_close(ours.cov_score.sum(), exact.cov_score.sum(), rtol=1e-7, atol=1e-7)


@sizes
@pytest.mark.parametrize("channels", [1, 3])
def test_untrained_energy_is_the_dense_gaussian_for_any_dct_spectrum(channels: int, size: tuple[int, int]) -> None:
    energy = energy_of(channels, size)
    cov = random_covariance("dct", (channels, *size), batch=2, shared=True)
    y = smooth_pictures(channels, size)[:2] + cov.sample_noise(keyed_generator("noise"))
    same_evaluation(
        evaluate(energy, y, cov), evaluate(dense_gaussian(energy.form.base, cov), y, cov), rtol=1e-7, atol=1e-8
    )


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("block", "size"), [(2, (8, 8)), (2, (6, 10)), (4, (8, 12))])
@pytest.mark.parametrize("levels", [(1e-6, 1e3), (0.01, 3.0), (2.0, 1e-4)], ids=str)
def test_untrained_energy_is_the_dense_gaussian_for_two_levels_on_blocks(
    levels: tuple[float, float], block: int, size: tuple[int, int], channels: int
) -> None:
    """Energy and mean exactly; covariance scores by what each coefficient shows, and in sum over a level."""
    energy = energy_of(channels, size)
    inside = at_means(block, size, torch.device("cpu"))
    log_variance = torch.where(inside, *(torch.tensor(level).double().log() for level in levels)).expand(2, 1, *size)
    cov = BlockDCTCovariance(log_variance, channels, block)
    y = smooth_pictures(channels, size)[:2] + cov.sample_noise(keyed_generator("noise"))
    ours, exact = (evaluate(e, y, cov) for e in (energy, dense_gaussian(energy.form.base, cov)))
    torch.testing.assert_close(ours.energy, exact.energy, rtol=1e-9, atol=1e-7)
    torch.testing.assert_close(ours.mean, exact.mean, rtol=1e-7, atol=1e-8)
    for chosen in (inside, ~inside):
        gap = (ours.cov_score - exact.cov_score)[..., chosen]
        torch.testing.assert_close(gap.mean(-1), torch.zeros_like(gap[..., 0]), rtol=0, atol=1e-6)
    scale = energy.form.linear_variance(cov)
    for chosen in (inside, ~inside):
        torch.testing.assert_close(scale[..., chosen].mean(), exact.variance[..., chosen].mean(), rtol=1e-6, atol=1e-12)
    first, other = (cov.blocks(e.cov_score.mean(0, keepdim=True)).flatten() for e in (ours, exact))
    assert float(torch.corrcoef(torch.stack([first, other]))[0, 1]) > 0.9


def test_blocks_of_more_than_two_levels_keep_the_other_base() -> None:
    cov = random_covariance("block-dct", (1, 8, 8), batch=2, shared=True)
    assert isinstance(cov, BlockDCTCovariance)
    assert two_levels(cov) is None
    even = cov.with_log_variance(torch.zeros_like(cov.log_variance))
    assert two_levels(even) is not None


def test_a_smooth_picture_quietens_what_the_network_says_of_its_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same network, the same hole: what it adds to the base's guess falls with the contrast around, and not for rough pictures."""
    size = (32, 32)
    hidden = torch.zeros(size, dtype=torch.bool)
    hidden[12:18, 10:20] = True
    cov = SpatialCovariance(torch.where(hidden, math.log(1e3), math.log(1e-6)).double().expand(1, 1, *size), 1)
    texture = torch.randn(1, 1, *size, generator=keyed_generator("texture"), dtype=torch.float64)
    silent, awake = (energy_of(1, size, awake=awake) for awake in (0.0, 0.3))

    def moved(contrast: float) -> float:
        y = 0.5 + contrast * texture
        shift = (evaluate(awake, y, cov).mean - evaluate(silent, y, cov).mean)[..., hidden]
        return float(shift.square().mean().sqrt())

    rough, smooth = moved(0.2), moved(2e-4)
    monkeypatch.setattr("linverse.models.energies.network_residual.lively", lambda x, own: torch.ones_like(own))
    assert smooth < 0.1 * moved(2e-4)
    assert rough > 0.3 * moved(0.2)


def test_a_frequency_that_is_not_measured_takes_nothing_from_its_neighbours() -> None:
    """Periodic noise, faint but for a notch: the base's mean is no worse there than a filter that looks at one frequency at a time."""
    size = (24, 24)
    energy = energy_of(1, size)
    log_variance = torch.full((8, 1, *size), math.log(1e-5), dtype=torch.float64)
    log_variance[..., 5, 3] = log_variance[..., -5, -3] = math.log(100.0)
    cov = FourierCovariance(log_variance)
    x = smooth_pictures(1, size)[:8]
    y = x + cov.sample_noise(keyed_generator("noise"))
    centre, power = energy.form.base.marginal(cov)
    filtered = centre + power / (power + cov.variance) * (cov.analysis(y) - centre)
    ours = cov.analysis(evaluate(energy, y, cov).mean)
    errors = [(mean - cov.analysis(x))[..., [5, -5], [3, -3]].square().mean() for mean in (ours, filtered)]
    assert float(errors[0]) < 2 * float(errors[1])


@pytest.mark.parametrize("variance", [1e-6, 0.05, 1e3])
@families
def test_an_error_of_the_network_moves_no_coefficient_by_much(family: str, variance: float) -> None:
    """The same answer s in every pixel moves the mean of a large picture by a few standard deviations of the base, whatever Σ."""
    size = (64, 64)
    energy = energy_of(1, size)
    with torch.no_grad():
        energy.form.network.exit.bias.fill_(1.0)
    cov = isotropic(family, variance, 1, size)
    y = smooth_pictures(1, size)[:2] + cov.sample_noise(keyed_generator("noise"))
    moved = cov.analysis(evaluate(energy, y, cov).mean)
    with torch.no_grad():
        energy.form.network.exit.bias.zero_()
    moved = moved - cov.analysis(evaluate(energy, y, cov).mean)
    assert float((moved.square() / energy.form.linear_variance(cov)).max().sqrt()) < 60


@pytest.mark.parametrize("shared", [True, False])
@families
def test_stable_forms_equal_automatic_differentiation(family: str, shared: bool) -> None:
    """Of base and network together, for every family, and a λ of its own for each channel (Bayer patterns)."""
    energy = energy_of(3, (8, 8), awake=0.1)
    cov = random_covariance(family, (3, 8, 8), batch=2, shared=shared)
    y = smooth_pictures(3, (8, 8))[:2] + cov.sample_noise(keyed_generator("noise"))
    plain = plain_evaluate(energy, y, cov)
    same_evaluation(evaluate(energy, y, cov), plain)
    assert plain.variance.count_nonzero() > 0.03 * plain.variance.numel()


@families
def test_the_share_of_a_dct_vector_is_that_of_dense_matrices(family: str) -> None:
    """d_kᵀ(Q diag(v) Qᵀ)d_k; a mask's is its mean here, where the dense one adds the mask's own wave at twice the frequency."""
    size = (4, 6)
    cov = random_covariance(family, (1, *size), batch=2)
    values = (
        cov.variance if family != "spatial" else cov.variance.mean(dim=(2, 3), keepdim=True).expand_as(cov.variance)
    )
    if family == "block-dct":
        values = cov.pool_like_blocks(values) if hasattr(cov, "pool_like_blocks") else _same_in_every_block(values, cov)
    if family == "fourier":
        values = 0.5 * (values + values.flip(-1, -2).roll((1, 1), (-1, -2)))
    basis = matrix_of(cov.synthesis, (1, *size))
    dct = matrix_of(DCTCovariance(torch.zeros(1, 1, *size).double()).synthesis, (1, *size))
    for row in range(2):
        middle = basis @ torch.diag(values[row].flatten()) @ basis.mT
        expected = (dct.mT @ middle @ dct).diagonal().reshape(size)
        torch.testing.assert_close(on_dct_grid(values, cov)[row, 0], expected, rtol=1e-9, atol=1e-12)


def _same_in_every_block(values: Tensor, cov: Covariance) -> Tensor:
    means = cov.blocks(values).mean(dim=(2, 4), keepdim=True)
    return means.expand_as(cov.blocks(values)).reshape(values.shape)


def test_shares_add_up_to_one() -> None:
    for table in (block_shares(12, 4), fourier_shares(7), fourier_shares(8)):
        torch.testing.assert_close(table.sum(1), torch.ones(len(table)).double())
    torch.testing.assert_close(knot_weights(6, 9).sum(0), torch.ones(6, 9).double())


def test_the_spectrum_is_that_of_the_pictures_it_was_fitted_to() -> None:
    """Noise whose power is a known function of frequency: the table gives it back within sampling error."""
    size, channels = (32, 32), 3
    base = SpectralBase(channels).double()
    generator = keyed_generator("known")
    blank = DCTCovariance(torch.zeros(1, 1, *size).double(), channels)
    radius = torch.hypot(*blank.frequencies())
    radius[0, 0] = 0.18 / 32
    power = 0.001 * radius ** (-2)
    noise = torch.randn(600, channels, *size, generator=generator, dtype=torch.float64) * power.sqrt()
    base.fit([0.4 + DCT.image(noise)])
    found = (base.log_ratio(size, noise) + base.log_prior).exp()
    away = (found / power)[:, 2:, 2:]
    assert float((away.log()).abs().max()) < 0.2  # a curve between knots, and sampling
    assert float(away.log().mean().abs()) < 0.05


def test_a_base_of_one_size_serves_another() -> None:
    base = SpectralBase(1).double()
    base.fit([smooth_pictures(1, (16, 16))])
    for size in ((16, 16), (33, 20)):
        cov = SpatialCovariance(torch.zeros(1, 1, *size).double())
        mean, variance = base.marginal(cov)
        assert mean.shape == variance.shape == (1, 1, *size)
        assert 0.5 < float(variance.mean() / base.log_prior.exp()) < 2


@pytest.mark.parametrize("channels", [1, 3])
def test_trees_count_nothing_where_all_pixels_are_alike(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are left out there, and what they would have said, with its derivatives in λ, is what is said without them."""
    energy = energy_of(channels, (8, 8), awake=0.1)
    cov = isotropic("spatial", 0.02, channels, (8, 8))
    y = smooth_pictures(channels, (8, 8))[:2] + cov.sample_noise(keyed_generator("noise"))
    without = evaluate(energy, y, cov)
    monkeypatch.setattr("linverse.models.bases.spectral.alike", lambda log_variance: False)
    same_evaluation(evaluate(energy, y, cov), without, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("own", [False, True])
def test_the_mean_under_a_mask_is_the_dense_gaussians(own: bool) -> None:
    """Half of the pixels hidden, in all channels or in each by itself; log det is the trees', and its gap is small."""
    energy, size = energy_of(3, (16, 16)), (16, 16)
    hidden = torch.rand(4, 3 if own else 1, *size, generator=keyed_generator("hidden"), dtype=torch.float64) < 0.5
    cov = SpatialCovariance(torch.where(hidden, math.log(1e3), math.log(1e-4)).double(), 3)
    y = smooth_pictures(3, size)[:4] + cov.sample_noise(keyed_generator("noise"))
    exact, ours = evaluate(dense_gaussian(energy.form.base, cov), y, cov), evaluate(energy, y, cov)
    torch.testing.assert_close(ours.mean, exact.mean, rtol=0, atol=1e-4)  # of b = 1 − 4·10⁻⁴
    assert float((ours.energy - exact.energy).abs().mean()) < 0.05 * y[0].numel()

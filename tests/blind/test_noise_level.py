"""Noise levels of pictures that were clipped and rounded: against exact likelihoods, and by an identity that holds for any prior."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from torch import Tensor

import linverse as lv
from linverse.analytic import DiagonalGaussian, GaussianMixture
from linverse.blind import find_degradation, noise_level, search_noise
from linverse.blind.censored import CensoredImages, sweep, truncated_normal
from linverse.blind.noise_level import MOST_PIXELS, TILE, model_error, spread_tiles
from linverse.data.examples import load_examples
from linverse.models.energies.learned import EnergyConfig, LearnedEnergy
from linverse.models.networks.unet import UNetConfig
from linverse.rng import keyed_generator
from tiny import Pictures

LIMITS = lv.VarianceRange(1e-6, 1e3)
STEP = 1 / 255


def png(y: Tensor) -> lv.Picture:
    """A picture of 8 bits."""
    return lv.Picture((y.clamp(0, 1) * 255).round() / 255, depth=8)


def independent_pixels(side: int, std: float = 0.1) -> DiagonalGaussian:
    """x ~ N(0.1, std²), pixel by pixel: under noise 0.2 a third is clipped at black."""
    log_variance = torch.full((1, 1, side, side), 2 * math.log(std), dtype=torch.float64)
    mean = torch.full((1, side, side), 0.1, dtype=torch.float64)
    return DiagonalGaussian(lv.SpatialCovariance(log_variance), mean, LIMITS)


@pytest.mark.parametrize("bound", [-12.0, -7.0, -5.9, -1.0, 0.0, 2.0])
def test_truncated_normals_have_their_distribution(bound: float) -> None:
    v = truncated_normal(torch.full((4000,), bound, dtype=torch.float64), keyed_generator(int(10 * bound)))
    assert float(v.max()) <= bound
    exact = stats.truncnorm(-np.inf, bound)
    # the exponential tail beyond 6 is off by less than 1/bound² of a distribution
    assert stats.kstest(v.numpy(), exact.cdf).statistic < 2.3 / math.sqrt(4000) + (0.02 if bound < -6 else 0)


@pytest.mark.parametrize("sigma", [0.12, 0.25])
def test_the_estimate_is_that_of_the_censored_likelihood(sigma: float) -> None:
    """Independent Gaussian pixels: log P = Σ log N (seen) + Σ log Φ (hidden), maximised by a rival."""
    prior, generator = independent_pixels(32), keyed_generator("censored", int(1000 * sigma))
    y = prior.sample(1, generator) + sigma * torch.randn(1, 1, 32, 32, generator=generator, dtype=torch.float64)
    picture = png(y)
    values = picture.pixels.numpy().ravel()
    dark, bright = values <= 0, values >= 1

    def minus_log_likelihood(log_sigma: float) -> float:
        std = math.sqrt(0.01 + math.exp(2 * log_sigma) + STEP**2 / 12 + LIMITS.minimum)
        seen = stats.norm.logpdf(values[~dark & ~bright], 0.1, std).sum()
        below, above = stats.norm.logcdf((STEP / 2 - 0.1) / std), stats.norm.logsf((1 - STEP / 2 - 0.1) / std)
        return -float(seen + dark.sum() * below + bright.sum() * above)

    exact = optimize.minimize_scalar(minus_log_likelihood, bounds=(-4.5, 0), method="bounded").x
    curvature = (
        minus_log_likelihood(exact + 0.05) + minus_log_likelihood(exact - 0.05) - 2 * minus_log_likelihood(exact)
    ) / 0.05**2
    found = search_noise(prior, picture, seed=3)
    assert found.censored == pytest.approx(float(np.mean(dark | bright)))
    assert found.censored > 0.1
    sd = 1 / math.sqrt(curvature)
    assert abs(math.log(found.sigma) - exact) < 0.1 * sd + 4.5 * found.monte_carlo_error
    low, high = found.interval(found.axes[0])
    assert (math.log(high) - math.log(low)) / (2 * 1.645) == pytest.approx(sd, rel=0.25)
    assert found.monte_carlo_error < 0.5 * sd


def test_hidden_pixels_are_drawn_so_that_the_score_has_no_mean() -> None:
    """E over data of E[Σκ | clipped data] = 0 at the true σ, for a prior whose pixels hang together; clipping taken as exact is far off."""
    side, n, sigma = 4, 400, 0.2
    place = torch.arange(side * side, dtype=torch.float64)
    distance = torch.cdist(*(torch.stack([place // side, place % side], dim=1),) * 2)
    cov = 0.04 * torch.exp(-distance / 2)[None].expand(2, -1, -1)
    means = torch.tensor([[0.0], [0.5]], dtype=torch.float64).expand(2, side * side)
    prior = GaussianMixture(torch.ones(2, dtype=torch.float64), means, cov, (1, side, side), LIMITS)
    generator = keyed_generator("hidden")
    x = prior.sample(n, generator)
    y = x + sigma * torch.randn(x.shape, generator=generator, dtype=torch.float64)
    clipped = (y.clamp(0, 1) * 255).round() / 255
    images = CensoredImages.of(clipped, STEP)
    variance = sigma**2 + images.rounding_variance
    images = images.drawn(clipped, sigma**2, generator)
    totals = []
    for _ in range(24):
        found, images = sweep(prior, images, variance, generator)
        totals.append(found.cov_score.sum((1, 2, 3)))
    score = torch.stack(totals[6:]).mean(0)
    error = float(score.std()) / math.sqrt(n)
    assert images.share > 0.2
    assert abs(float(score.mean())) < 4.5 * error
    naive, _ = sweep(prior, CensoredImages.of(clipped, None), variance, generator)
    assert abs(float(naive.cov_score.sum((1, 2, 3)).mean())) > 10 * error


@pytest.mark.parametrize("sigma", [0.05, 0.15])
def test_garments_in_files_of_8_bits(sigma: float) -> None:
    """Half of a garment's picture is black: taking that as exact gives 0.003 for 0.1."""
    energy, garments = lv.load("fashion-mnist"), load_examples("fashion-mnist").batch(torch.arange(2))
    generator = keyed_generator("garments", int(1000 * sigma))
    noisy = garments + sigma * torch.randn(garments.shape, generator=generator)
    found = [search_noise(energy, png(image[None])) for image in noisy]
    unclipped = [search_noise(energy, image[None]).sigma for image in noisy]
    assert all(abs(math.log(each.sigma / sigma)) < 0.3 for each in found)
    assert all(abs(math.log(each.sigma / other)) < 0.2 for each, other in zip(found, unclipped, strict=True))
    assert all(each.monte_carlo_error < 0.03 for each in found)


def test_floating_point_takes_a_few_evaluations() -> None:
    prior, generator = independent_pixels(64, std=0.05), keyed_generator("float")
    y = prior.sample(1, generator) + 0.3 * torch.randn(1, 1, 64, 64, generator=generator, dtype=torch.float64)
    found = search_noise(prior, y)
    exact = math.sqrt(float((y - 0.1).square().mean()) - 0.05**2 - LIMITS.minimum)
    assert found.sigma == pytest.approx(exact, rel=1e-3)
    assert found.evaluations <= 12
    assert found.monte_carlo_error == 0
    assert found.limits[0] < found.sigma
    assert not found.at_edge()


def test_a_clean_picture_has_no_noise_to_speak_of() -> None:
    prior = independent_pixels(16, std=1e-9)
    found = search_noise(prior, torch.full((1, 1, 16, 16), 0.1, dtype=torch.float64))
    assert [axis.name for axis in found.at_edge()] == ["sigma"]


def test_a_picture_of_nothing_but_black_and_white_is_refused() -> None:
    with pytest.raises(ValueError, match="every pixel is black or white"):
        search_noise(independent_pixels(8), png(torch.zeros(1, 1, 8, 8)))


def test_large_pictures_are_seen_by_tiles_spread_over_them() -> None:
    x = torch.arange(600.0 * 900).reshape(1, 1, 600, 900)
    tiles = spread_tiles(x)
    assert tiles.shape[1:] == (1, TILE, TILE)
    assert 2 <= len(tiles) <= MOST_PIXELS // TILE**2
    corners = {(int(v) // 900, int(v) % 900) for v in tiles[:, 0, 0, 0]}
    assert len(corners) == len(tiles)
    assert max(c for _, c in corners) - min(c for _, c in corners) >= 300
    small = torch.zeros(1, 1, 64, 64)
    assert spread_tiles(small) is small


def photographs() -> LearnedEnergy:
    """The base alone, of any size: its network starts silent."""
    backbone = UNetConfig(
        channels=4, multipliers=(1, 2), blocks=1, embedding=4, stem=2, stem_channels=4, style="compact", middle=1
    )
    energy = LearnedEnergy(EnergyConfig((3, None, None), parameterisation="spectral", backbone=backbone))
    energy.fit(Pictures(64, (3, 32, 32)))
    return energy.eval().requires_grad_(False)


def test_the_noise_and_the_blur_of_a_photograph_are_found() -> None:
    energy, generator = photographs(), keyed_generator("photograph")
    x = Pictures(1, (3, 48, 40), seed=5).batch(torch.arange(1))
    noisy = lv.Denoising(0.1).measure(x, generator).raw
    found = find_degradation(energy, png(noisy))
    assert repr(found.degradation).startswith("Denoising(sigma=0.1") or repr(found.degradation).startswith(
        "Denoising(sigma=0.09"
    )
    assert found.record()["sigma"]["low"] < 0.105
    # grain that a blur can take away
    x = (x + 0.15 * torch.randn(x.shape, generator=generator)).clamp(0, 1)
    energy.fit(Grainy())
    blurred = lv.GaussianBlur(1.2, 0.01, "reflecting").measure(x, generator).raw
    found = find_degradation(energy, blurred, blur=True)
    assert found.record()["std"]["value"] == pytest.approx(1.2, abs=0.1)
    assert found.record()["sigma"]["value"] == pytest.approx(0.01, rel=0.2)
    assert "std = 1." in found.describe()


def test_a_width_at_the_end_of_what_was_searched_is_refused() -> None:
    energy, generator = photographs(), keyed_generator("wide")
    energy.fit(Grainy())
    blurred = lv.GaussianBlur(5, 0.01, "reflecting").measure(Grainy().batch(torch.arange(1)), generator).raw
    with pytest.raises(ValueError, match=r"width of the blur was not found.* 4 pixels.*--task gauss:std=1.5"):
        find_degradation(energy, blurred, blur=True)


class Grainy:
    """`Pictures` with a fine grain."""

    def __len__(self) -> int:
        return 64

    def batch(self, indices: Tensor) -> Tensor:
        x = Pictures(64, (3, 32, 32)).batch(indices)
        return x + 0.15 * torch.randn(x.shape, generator=keyed_generator("grain"))


def test_the_models_own_error_is_measured_on_the_images_it_carries() -> None:
    energy = lv.load("fashion-mnist")
    bias, error = model_error(energy, 0.1, keyed_generator("error"))
    assert abs(bias) < 0.1
    assert 0 <= error < 0.1
    assert model_error(independent_pixels(8), 0.1, keyed_generator("error")) == (0.0, 0.0)


def test_grain_of_the_images_that_an_energy_of_any_size_carries_is_an_error_of_either_sign(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grain = 0.05 * torch.randn(16, 3, 32, 32, generator=keyed_generator("grain"))
    grainy = SimpleNamespace(images=lambda: Pictures(16, (3, 32, 32)).batch(torch.arange(16)) + grain)
    monkeypatch.setattr(noise_level, "references_of", lambda energy: grainy)
    bias, error = model_error(lv.load("photographs"), 0.1, keyed_generator("grain"))
    assert bias == 0
    assert error > 0.05  # log √(0.1² + 0.05²)/0.1 = 0.11

"""Blind estimation against exact likelihoods and calibrated intervals (mathematics §8)."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from torch import Tensor

from linverse.analytic import DenseGaussian, DiagonalGaussian
from linverse.blind import (
    UnknownGaussianBlur,
    UnknownLineBlur,
    UnknownMask,
    UnknownNoise,
    UnknownNoiseBox,
    estimate,
    integrated_mean,
    log_evidence,
    maximise,
    noise_levels,
)
from linverse.covariance import Covariance, FourierCovariance, SpatialCovariance, VarianceRange
from linverse.covariance.transfer import gaussian_transfer
from linverse.rng import keyed_generator, normal_like

LIMITS = VarianceRange(1e-8, 1e8)


def smooth_prior(size: int = 16) -> DiagonalGaussian:
    """A stationary prior with a falling spectrum, like images."""
    blank = FourierCovariance(torch.zeros(1, 1, size, size, dtype=torch.float64))
    radius = blank.frequencies().norm(dim=0)
    return DiagonalGaussian(blank.with_log_variance((-2 * torch.log(radius + 0.05) - 4)[None, None]), limits=LIMITS)


def pixel_prior(size: int = 16) -> DiagonalGaussian:
    return DiagonalGaussian(
        SpatialCovariance(torch.full((1, 1, size, size), math.log(0.09), dtype=torch.float64)),
        torch.full((1, size, size), 0.4, dtype=torch.float64),
        LIMITS,
    )


def blurred(x: Tensor, std: float, sigma: float, generator: torch.Generator) -> Tensor:
    transfer = gaussian_transfer(torch.tensor([std], dtype=x.dtype), (x.shape[2], x.shape[3]), "periodic")
    return torch.fft.ifft2(torch.fft.fft2(x) * transfer).real + sigma * normal_like(x, generator)


@pytest.mark.parametrize("family", ["gaussian", "line"])
def test_evidence_of_a_blur_is_the_exact_likelihood(family: str) -> None:
    size, sigma = 4, 0.1
    energy = smooth_prior(size)
    raw = energy.sample(1, keyed_generator(1)) + 0.3
    if family == "gaussian":
        theta = {"std": torch.tensor([0.4, 0.8, 1.3], dtype=torch.float64)}
        model = UnknownGaussianBlur(sigma)
        transfer = gaussian_transfer(theta["std"], (size, size), "periodic")
    else:
        theta = {"angle": torch.tensor([0.2, 1.1]), "length": torch.tensor([1.5, 2.5])}
        theta = {name: value.double() for name, value in theta.items()}
        line = UnknownLineBlur(sigma)
        model, transfer = line, line.transfer(theta, raw)
    eye = torch.eye(size * size, dtype=torch.float64).reshape(-1, 1, size, size)
    prior = energy.prior.dense()[0]
    for index, value in enumerate(log_evidence(energy, raw, model, theta)):
        operator = torch.fft.ifft2(torch.fft.fft2(eye) * transfer[index]).real.flatten(1).mT
        total = operator @ prior @ operator.mT + sigma**2 * torch.eye(size * size, dtype=torch.float64)
        exact = torch.distributions.MultivariateNormal(torch.zeros(size * size, dtype=torch.float64), total)
        assert torch.allclose(value, exact.log_prob(raw.flatten()), rtol=1e-4, atol=1e-3)


def test_energy_alone_misjudges_the_blur() -> None:
    """U without Σ log h̃ prefers the edge of the grid: the term that the full likelihood adds is what finds the width."""
    energy = smooth_prior()
    raw = blurred(energy.sample(1, keyed_generator(2)), 1.0, 0.02, keyed_generator(3))
    axis = torch.linspace(0.4, 2.0, 33, dtype=torch.float64)
    family = UnknownGaussianBlur(0.02)
    full = estimate(energy, raw, family, {"std": axis})
    assert abs(full.best["std"] - 1.0) < 0.12
    measurement = family.measurement(raw, {"std": axis})
    lifted = measurement.lift(energy.range, energy.gaussian(measurement.template), random_fill=False, noise=raw * 0)
    assert int(energy(lifted.y, lifted.cov).argmin()) in (0, len(axis) - 1)


def test_gradient_and_grid_agree() -> None:
    energy = smooth_prior()
    raw = blurred(energy.sample(1, keyed_generator(4)), 0.9, 0.02, keyed_generator(5))
    axis = torch.linspace(0.3, 2.0, 171, dtype=torch.float64)
    grid = estimate(energy, raw, UnknownGaussianBlur(0.02), {"std": axis})
    climbed = maximise(energy, raw, UnknownGaussianBlur(0.02), {"std": 0.5})
    assert climbed["std"] == pytest.approx(grid.refined("std"), rel=1e-3)


@pytest.mark.parametrize("start", [0.01, 0.1, 0.5, 2.0, 5.0])
@pytest.mark.parametrize("seed", range(3))
def test_ascent_reaches_the_top_from_anywhere(seed: int, start: float) -> None:
    """Against brute force: within a thousandth of the finest grid, from a hundredth to five times the truth, without a warning."""
    energy = smooth_prior()
    raw = blurred(energy.sample(1, keyed_generator("top", seed)), 0.9, 0.02, keyed_generator("noise", seed))
    family = UnknownGaussianBlur(0.02)
    grid = estimate(energy, raw, family, {"std": torch.linspace(0.3, 3.0, 1081, dtype=torch.float64)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert maximise(energy, raw, family, {"std": start})["std"] == pytest.approx(grid.refined("std"), rel=1e-3)


@pytest.mark.parametrize("sigma", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("start", [0.05, 0.5, 5.0])
def test_ascent_finds_noise_levels(sigma: float, start: float) -> None:
    energy = pixel_prior(16)
    x = energy.sample(1, keyed_generator("level"))
    raw = x + sigma * normal_like(x, keyed_generator("noise"))
    grid = estimate(
        energy, raw, UnknownNoise(), {"sigma": torch.logspace(-2, 1.3, 2001, dtype=torch.float64)}, chunk=500
    )
    assert 0.01 < grid.best["sigma"] < 19
    found = maximise(energy, raw, UnknownNoise(), {"sigma": start})["sigma"]
    assert found == pytest.approx(grid.refined("sigma"), rel=1e-3)


def test_ascent_in_two_parameters() -> None:
    energy = smooth_prior()
    raw = blurred(energy.sample(1, keyed_generator("two")), 0.9, 0.02, keyed_generator("noise"))
    family = UnknownGaussianBlur(0.02)
    axes = {"std": torch.linspace(0.6, 1.3, 71).double(), "sigma": torch.logspace(-2.2, -1.2, 81).double()}
    grid = estimate(energy, raw, family, axes, chunk=500)
    found = maximise(energy, raw, family, {"std": 0.3, "sigma": 0.1})
    value = float(log_evidence(energy, raw, family, {name: torch.tensor([v]).double() for name, v in found.items()}))
    assert value >= float(grid.log_evidence.max())  # above every point of the grid
    assert found["std"] == pytest.approx(grid.best["std"], abs=0.011)
    assert found["sigma"] == pytest.approx(grid.best["sigma"], rel=0.03)


def test_ascent_that_cannot_arrive_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    energy = pixel_prior(12)
    x = energy.sample(1, keyed_generator("edge"))
    raw = x + 2.0 * normal_like(x, keyed_generator("noise"))
    with pytest.warns(UserWarning, match="most probable sigma lies at the edge"):
        maximise(energy, raw, UnknownNoise(), {"sigma": 0.01}, reach=10)

    class Lazy:
        def __init__(self, x: np.ndarray) -> None:
            self.x = x + 0.05

    monkeypatch.setattr("scipy.optimize.minimize", lambda objective, best, **options: Lazy(best))
    with pytest.warns(UserWarning, match=r"about [\d.]+ % away"):
        maximise(energy, raw, UnknownNoise(), {"sigma": 1.0})
    for start in ({}, {"sigma": 0.0}, {"sigma": math.nan}):
        with pytest.raises(ValueError, match="start needs a positive value"):
            maximise(energy, raw, UnknownNoise(), start)


def test_blind_takes_arrays_and_refuses_what_is_no_picture() -> None:
    energy = pixel_prior(12)
    x = energy.sample(1, keyed_generator("arrays"))
    raw = x + 0.5 * normal_like(x, keyed_generator("noise"))
    axes = {"sigma": torch.logspace(-1, 0.5, 31, dtype=torch.float64)}
    wanted = estimate(energy, raw, UnknownNoise(), axes).best
    assert estimate(energy, raw.numpy(), UnknownNoise(), axes).best == wanted
    spoiled = raw.clone()
    spoiled[0, 0, 0, 0] = math.nan
    refused = [(None, TypeError, "None"), ((raw * 255).to(torch.uint8), ValueError, "divide 8-bit values by 255")]
    refused += [(raw * 255, ValueError, r"pixels live in \[0, 1\]"), (spoiled, ValueError, "1 NaN or infinite")]
    refused += [(raw[:0], ValueError, "one image"), (raw.expand(1, 3, -1, -1), ValueError, "the image is 3×12×12")]
    for given, error, message in refused:
        with pytest.raises(error, match=message):
            estimate(energy, given, UnknownNoise(), axes)
        with pytest.raises(error, match=message):
            maximise(energy, given, UnknownNoise(), {"sigma": 1.0})


def test_noise_level_intervals_cover_and_reach_the_cramer_rao_bound() -> None:
    """90 % intervals cover 90 % when σ is drawn from the prior of the grid; the spread is at the bound √(2/d)."""
    energy, trials = pixel_prior(12), 400
    axis = torch.logspace(-2.5, 1, 141, dtype=torch.float64)
    generator = keyed_generator(6)
    # away from the ends of the grid, where the prior is cut off
    truth = torch.exp(math.log(0.02) + math.log(100) * torch.rand(trials, generator=generator, dtype=torch.float64))
    images = energy.sample(trials, generator)
    noisy = images + truth.reshape(-1, 1, 1, 1) * normal_like(images, generator)
    results = [estimate(energy, raw[None], UnknownNoise(), {"sigma": axis}, chunk=200) for raw in noisy]
    inside = [
        low <= s <= high for r, s in zip(results, truth.tolist(), strict=True) for low, high in [r.interval("sigma")]
    ]
    standard_error = math.sqrt(0.9 * 0.1 / trials)
    assert abs(sum(inside) / trials - 0.9) < 4 * standard_error
    strong = truth > 1.0  # where the noise hides the image the bound is that of white noise alone
    errors = 2 * torch.tensor([math.log(r.refined("sigma")) for r in results])[strong] - 2 * truth[strong].log()
    assert float(errors.std()) < 1.3 * math.sqrt(2 / 144) * (1 + 0.09)


def test_noise_levels_of_a_batch_are_those_of_single_images() -> None:
    energy = pixel_prior(12)
    x = energy.sample(5, keyed_generator(12))
    y = x + 0.4 * normal_like(x, keyed_generator(13))
    axis = torch.logspace(-1.5, 0.5, 81, dtype=torch.float64)
    single = [estimate(energy, raw[None], UnknownNoise(), {"sigma": axis}).refined("sigma") for raw in y]
    # each single image gets the first row of the added noise, at most λ_min = 1e-8 away
    assert torch.allclose(noise_levels(energy, y, axis), torch.tensor(single, dtype=torch.float64), rtol=2e-3)


def test_joint_box_and_noise_level() -> None:
    energy = pixel_prior(16)
    generator = keyed_generator(7)
    side, sigma, outside = 9, 0.9, 0.01
    x = energy.sample(1, generator)
    family = UnknownNoiseBox(outside)
    noise = family.measurement(x, {"side": torch.tensor([9.0]), "sigma": torch.tensor([sigma]).double()}).log_noise
    raw = x + torch.exp(0.5 * noise) * normal_like(x, generator)
    axes = {"side": torch.arange(1.0, 17.0), "sigma": torch.logspace(-1, 0.7, 35, dtype=torch.float64)}
    found = estimate(energy, raw, family, axes)
    assert found.best["side"] == side
    low, high = found.interval("sigma", 0.999)
    assert low < sigma < high
    assert found.marginal("side").sum() == pytest.approx(1.0)


def test_displaced_box() -> None:
    energy = pixel_prior(12)
    generator = keyed_generator(8)
    family = UnknownNoiseBox(0.01, names=("side", "sigma", "dy", "dx"))
    truth = {
        "side": torch.tensor([5.0]),
        "sigma": torch.tensor([1.0]).double(),
        "dy": torch.tensor([2]),
        "dx": torch.tensor([-1]),
    }
    x = energy.sample(1, generator)
    raw = x + torch.exp(0.5 * family.measurement(x, truth).log_noise) * normal_like(x, generator)
    axes = {"side": torch.tensor([4.0, 5.0, 6.0]), "sigma": torch.tensor([1.0]).double()}
    axes |= {"dy": torch.arange(-3, 4), "dx": torch.arange(-3, 4)}
    found = estimate(energy, raw, family, axes)
    assert (found.best["side"], found.best["dy"], found.best["dx"]) == (5, 2, -1)


def test_which_mask() -> None:
    energy = pixel_prior(8)
    generator = keyed_generator(9)
    masks = torch.rand(6, 1, 8, 8, generator=generator) < 0.5
    family = UnknownMask(masks, sigma=0.01, missing=3.0)
    x = energy.sample(1, generator)
    raw = x + torch.exp(0.5 * family.measurement(x, {"index": torch.tensor([4])}).log_noise) * normal_like(x, generator)
    found = estimate(energy, raw, family, {"index": torch.arange(6)})
    assert found.best["index"] == 4
    assert float(found.log_posterior.max()) > math.log(0.999)


def test_restoration_integrates_over_the_parameters() -> None:
    """With a certain θ both agree with the exact posterior mean; integrating mixes the means by their weights."""
    energy = pixel_prior(6)
    generator = keyed_generator(10)
    x = energy.sample(1, generator)
    raw = x + 0.3 * normal_like(x, generator)
    axis = torch.tensor([0.1, 0.3, 0.9], dtype=torch.float64)
    found = estimate(energy, raw, UnknownNoise(), {"sigma": axis})
    means = []
    for sigma in axis:
        cov = SpatialCovariance(torch.full((1, 1, 6, 6), 2 * math.log(float(sigma)), dtype=torch.float64))
        means.append(energy.posterior(raw, cov)[0])
    expected = sum(w * m for w, m in zip(found.marginal("sigma"), means, strict=True))
    assert torch.allclose(integrated_mean(energy, found, mass=1.0), expected, atol=1e-6)
    best = int(found.marginal("sigma").argmax())
    assert torch.allclose(integrated_mean(energy, found, integrate=False), means[best], atol=1e-6)


def test_errors_speak() -> None:
    energy = pixel_prior(4)
    with pytest.raises(ValueError, match="one image"):
        estimate(energy, torch.zeros(2, 1, 4, 4), UnknownNoise(), {"sigma": torch.ones(2)})
    with pytest.raises(ValueError, match="axis for sigma"):
        estimate(energy, torch.zeros(1, 1, 4, 4), UnknownNoise(), {"side": torch.ones(2)})


def test_evidence_of_a_correlated_prior() -> None:
    """Noise levels under a dense prior: the evidence is the exact Gaussian one."""
    generator = keyed_generator(11)
    factor = torch.randn(9, 9, generator=generator, dtype=torch.float64)
    cov = factor @ factor.mT / 9
    energy = DenseGaussian(torch.zeros(9, dtype=torch.float64), cov, (1, 3, 3), LIMITS)
    raw = energy.sample(1, generator)
    sigma = torch.tensor([0.2, 1.0], dtype=torch.float64)
    values = log_evidence(energy, raw, UnknownNoise(), {"sigma": sigma})
    for s, value in zip(sigma, values, strict=True):
        exact = torch.distributions.MultivariateNormal(
            torch.zeros(9, dtype=torch.float64), cov + s**2 * torch.eye(9, dtype=torch.float64)
        )
        assert torch.allclose(value, exact.log_prob(raw.flatten()), rtol=1e-4, atol=1e-3)


def test_a_prior_over_the_parameters_is_weighed_by_bayes() -> None:
    """log p(θ|y) = log p(y|θ) + log p(θ) + const; without a prior the grid is uniform."""
    energy = pixel_prior(6)
    generator = keyed_generator(14)
    x = energy.sample(1, generator)
    raw = x + 0.3 * normal_like(x, generator)
    axes = {"sigma": torch.tensor([0.2, 0.3, 0.45], dtype=torch.float64)}
    flat = estimate(energy, raw, UnknownNoise(), axes)
    told = estimate(energy, raw, UnknownNoise(), axes, lambda theta: -2 * theta["sigma"].log())
    expected = torch.log_softmax(flat.log_evidence - 2 * axes["sigma"].log(), dim=0)
    assert torch.allclose(told.log_posterior, expected)
    assert torch.allclose(flat.log_posterior, torch.log_softmax(flat.log_evidence, dim=0))
    assert torch.equal(told.log_evidence, flat.log_evidence)


def test_restoration_in_chunks_is_the_same() -> None:
    energy = pixel_prior(6)
    raw = energy.sample(1, keyed_generator(15)) + 0.3 * normal_like(
        torch.zeros(1, 1, 6, 6).double(), keyed_generator(16)
    )
    found = estimate(energy, raw, UnknownNoise(), {"sigma": torch.logspace(-1, 0, 20, dtype=torch.float64)})
    assert torch.allclose(integrated_mean(energy, found, mass=1.0, chunk=3), integrated_mean(energy, found, mass=1.0))


def test_a_basis_that_the_energy_does_not_know_is_named_once() -> None:
    energy = pixel_prior(8)
    raw = energy.sample(1, keyed_generator(17))
    axes = {"std": torch.linspace(0.5, 1.5, 6, dtype=torch.float64)}
    with pytest.warns(UserWarning, match="a fourier covariance; the energy knows spatial") as caught:
        log_evidence(Everywhere(energy), raw, UnknownGaussianBlur(0.1), axes, chunk=2)
    assert len(caught) == 1
    with pytest.raises(ValueError, match="the image is 1×8×8; the model takes 1×6×6 images"):
        estimate(pixel_prior(6), raw, UnknownNoise(), {"sigma": torch.ones(2).double()})


class Everywhere:
    """An energy that answers for every basis but says that it knows pixels only."""

    def __init__(self, energy: DiagonalGaussian) -> None:
        self.range, self.shape = energy.range, energy.shape

    def __call__(self, y: Tensor, cov: Covariance) -> Tensor:
        return (cov + 1.0).mahalanobis(y)

    def gaussian(self, cov: Covariance) -> tuple[Tensor, Tensor]:
        return torch.zeros(1, 1, 1, 1).double(), torch.ones(1, 1, 1, 1).double()

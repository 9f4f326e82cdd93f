"""The experiments on trained models: their measurements on exact energies, and each of them from end to end on a tiny one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from linverse.analytic import DiagonalGaussian
from linverse.blind import BlindEstimate, UnknownGaussianBlur
from linverse.cli import main
from linverse.covariance import Covariance, FourierCovariance, SpatialCovariance, VarianceRange
from linverse.degradations import Box, GaussianBlur
from linverse.energy import log_prob
from linverse.evaluation.models import evaluate_many, held_out, load_classifier, load_energy
from linverse.experiments import (
    any_order,
    blind,
    calibration,
    energy_guided,
    experiment_options,
    mmse,
    noise_boxes,
    self_test,
)
from linverse.experiments.blind import Findings
from linverse.experiments.cache import Cache
from linverse.experiments.noise_boxes import Case, Guess
from linverse.metrics.paired import error_rate, fair_coin_p_value, mcnemar
from linverse.models.classifier import ClassifierConfig, DigitClassifier
from linverse.progress import silent
from linverse.report.experiments import write_experiment
from linverse.rng import keyed_generator
from linverse.sampling import autoregressive, sample
from linverse.store.card import Card, card_of
from linverse.training.presets import PRESETS
from linverse.units import bits_per_dim
from tiny import tiny_energy

Z = 4.9  # standard errors: a false alarm in a million, and there are some thirty comparisons
LIMITS = VarianceRange(1e-6, 1e4)


def pixel_prior(variance: float, size: int = 8, mean: float = 0.4, limits: VarianceRange = LIMITS) -> DiagonalGaussian:
    """Independent pixels N(mean, variance)."""
    blank = torch.full((1, 1, size, size), math.log(variance), dtype=torch.float64)
    return DiagonalGaussian(SpatialCovariance(blank), torch.full((1, size, size), mean, dtype=torch.float64), limits)


def smooth_prior(size: int = 16, fall: float = 2.0, level: float = -8.0) -> DiagonalGaussian:
    """A stationary prior with a falling spectrum, like images."""
    blank = FourierCovariance(torch.zeros(1, 1, size, size, dtype=torch.float64))
    radius = blank.frequencies().norm(dim=0)
    mean = torch.full((1, size, size), 0.5, dtype=torch.float64)
    return DiagonalGaussian(
        blank.with_log_variance((level - fall * torch.log(radius + 0.05))[None, None]), mean, LIMITS
    )


class Unnormalised:
    """An exact energy plus a function of Σ: the freedom that score matching alone leaves."""

    def __init__(self, exact: DiagonalGaussian, slope: float) -> None:
        self.exact, self.slope, self.shape, self.range = exact, slope, exact.shape, exact.range

    def __call__(self, y: Tensor, cov: Covariance) -> Tensor:
        return self.exact(y, cov) + self.slope * cov.logdet()

    def gaussian(self, cov: Covariance) -> tuple[Tensor, Tensor]:
        return self.exact.gaussian(cov)


# --- paired comparisons ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("b", "c"), [(0, 0), (1, 0), (10, 2), (2, 10), (7, 7), (300, 250), (40, 90)])
def test_mcnemar_is_the_exact_binomial_test(b: int, c: int) -> None:
    from scipy.stats import binomtest

    expected = binomtest(b, b + c).pvalue if b + c else 1.0
    assert fair_coin_p_value(b, c) == pytest.approx(expected, rel=1e-9)


def test_mcnemar_counts_only_where_methods_differ() -> None:
    first = torch.tensor([True, True, True, False, False, False])
    second = torch.tensor([True, False, False, True, False, False])
    found = mcnemar(first, second)
    assert (found.first_only, found.second_only) == (2, 1)
    assert found.difference == pytest.approx(1 / 6)
    with pytest.raises(ValueError, match="shapes"):
        mcnemar(first, second[:3])


def test_error_rate_has_the_binomial_standard_error() -> None:
    rate = error_rate(torch.arange(100) < 20)
    assert rate.value == pytest.approx(0.2)
    assert rate.standard_error == pytest.approx(0.04)


# --- blind -----------------------------------------------------------------------------------------------------------------------


def findings(errors: Tensor, bound: float) -> Findings:
    one = torch.ones(1, dtype=torch.float64)
    curve = (one, one)
    two = torch.ones(2, dtype=torch.float64)
    case = Case(4, 1.0, two, two, two, two > 0, one, curve, curve)
    return Findings({1e-2: errors}, {1e-2: bound}, Guess(one, one), [], case, [], 64)


def test_exact_energy_reaches_the_cramer_rao_bound() -> None:
    """A known image: σ̂² is a mean of 64 squares, log σ̂² has bias ψ(32) − log 32 and variance ψ'(32)."""
    energy, count, variance = pixel_prior(1e-5), 1000, 1e-2
    x = energy.sample(count, keyed_generator(1))
    metrics = blind.metrics_of(findings(blind.isotropic_errors(energy, x, variance, seed=0), 1.0))
    half = torch.tensor(32.0, dtype=torch.float64)
    # 1e-5 of the prior adds 1e-3 to the spread of the truth and shifts nothing
    spread = float(torch.polygamma(1, half).sqrt())
    assert metrics["isotropic_bias_1e-02"] == pytest.approx(
        float(torch.digamma(half) - half.log()), abs=Z * spread / math.sqrt(count) + 1e-3
    )
    ratio = metrics["isotropic_spread_over_cramer_rao_1e-02"]
    assert ratio == pytest.approx(spread / math.sqrt(2 / 64), rel=Z / math.sqrt(2 * count) + 2e-3)


def test_an_energy_that_is_not_normalised_misjudges_the_noise() -> None:
    energy = pixel_prior(1e-5)
    x = energy.sample(50, keyed_generator(1))
    errors = blind.isotropic_errors(Unnormalised(energy, 0.2), x, 1e-2, seed=0)
    assert float(errors.mean()) < -0.2


def test_own_bound_is_fishers() -> None:
    """For N(m, C) the information about log λ is ½Σ(λ/(C+λ))²: less than d/2 where the image may explain the noise."""
    energy, variance, count = pixel_prior(0.05), 0.1, 4000
    x = energy.sample(count, keyed_generator(2))
    exact = math.sqrt(2 / 64) * (0.05 + variance) / variance
    # the mean of a squared chi-square variable: relative variance (2 + 12/32)/N, halved by the root
    tolerance = Z * 0.5 * math.sqrt(2.4 / count)
    assert blind.fisher_bound(energy, x, variance, seed=0) == pytest.approx(exact, rel=tolerance)


def test_box_sides_are_found_and_only_by_a_normalised_energy() -> None:
    energy = pixel_prior(1e-3)
    x = energy.sample(24, keyed_generator(3))
    found = noise_boxes.box_guesses(energy, x, (3, 7), blind.FULL.box_sigmas, 0, silent)
    assert set(found.truth.tolist()) <= set(range(3, 8))
    assert torch.equal(found.found, found.truth)
    wrong = noise_boxes.box_guesses(Unnormalised(energy, -0.5), x, (3, 7), blind.FULL.box_sigmas, 0, silent)
    assert float((wrong.found == wrong.truth).double().mean()) < 0.5


def test_side_and_noise_are_found_together() -> None:
    energy, side, sigma, count = pixel_prior(1e-3), 5, 0.5, 60
    x = energy.sample(count, keyed_generator(4))
    case = noise_boxes.paper_case(energy, x, side, sigma, blind.FULL.outside, 0, silent)
    metrics = noise_boxes.case_metrics(case)
    assert metrics["joint_5_0.5_side_exact_share"] == 1
    assert metrics["joint_5_0.5_side_exact_share_sigma_known"] == 1
    # the median of √(χ²₂₅/25) is 1.3 % low; that of 60 draws has a standard error of 1.25·sd/√60
    assert metrics["joint_5_0.5_sigma_median"] == pytest.approx(
        0.987 * sigma, rel=Z * 1.25 * math.sqrt(0.5) / side / math.sqrt(count)
    )
    # log χ²₂₅ has a variance 1.04 times 2/25
    assert metrics["joint_5_0.5_sigma_spread_over_cramer_rao"] == pytest.approx(
        1.02, rel=Z / math.sqrt(2 * count) + 0.03
    )


def test_width_of_a_blur_needs_the_full_likelihood() -> None:
    energy = smooth_prior()
    x = energy.sample(6, keyed_generator(5))
    setting = replace(blind.FULL, blur_sigma=0.01)
    assert (
        blind.blur_calibration(energy, setting, silent) is None
    )  # an exact energy needs none, and is taken at its word
    found = [blind.blur_widths(energy, x, width, setting, None, silent) for width in (0.8, 1.5)]
    metrics = blind.blur_metrics(found)
    assert metrics["blur_relative_error"] < 0.03
    assert int(torch.cat([one.covered for one in found]).sum()) >= 6  # of 12 intervals of 90 %: fewer are one in 10 000
    assert metrics["blur_energy_alone_relative_error"] > 0.5


def test_top_of_a_peak_whose_neighbours_underflow() -> None:
    """2000 nats between grid points, as a sharp blur has: probabilities of neighbours are 0, their logarithms are not."""
    axis = torch.tensor([0.9, 1.0, 1.1, 1.2], dtype=torch.float64)
    log_p = torch.log_softmax(-3e5 * (axis.log() - math.log(1.02)).square(), dim=0)
    result = BlindEstimate(UnknownGaussianBlur(0.01), {"std": axis}, log_p, log_p, torch.zeros(1, 1, 4, 4))
    assert float(result.marginal("std").sort().values[-2]) == 0
    assert result.refined("std") == pytest.approx(1.02, rel=1e-6)


# --- one-shot denoising ------------------------------------------------------------------------------------------------------------


def test_steps_of_a_model_that_went_on_from_other_weights_are_not_known() -> None:
    """Its card counts those of the last run: to compare them with another's would be wrong."""
    energy, card = tiny_energy((1, 8, 8)), Card("tiny", steps=1200)
    card.attach_to(energy)
    assert mmse.trained_steps(energy) == 1200
    replace(card, started_from="fashion-mnist").attach_to(energy)
    assert mmse.trained_steps(energy) is None


def test_one_shot_error_of_a_gaussian_is_what_it_expects() -> None:
    """MSE = Cλ/(C+λ), expected and actual; that of the observation is λ."""
    energy, count, variances = pixel_prior(0.04), 400, (1e-3, 1e-1, 10.0)
    x = energy.sample(count, keyed_generator(6))
    found = mmse.sweep(energy, x, 4, variances, seed=0)
    levels = torch.tensor(variances, dtype=torch.float64)
    exact = 0.04 * levels / (0.04 + levels)
    assert torch.allclose(found.expected.mean(dim=1), exact, rtol=1e-6)
    relative = Z * math.sqrt(2 / (16 * count))
    assert torch.allclose(found.actual.mean(dim=1), exact, rtol=relative)
    assert torch.allclose(found.observed.mean(dim=1), levels, rtol=relative)


def test_paired_standard_error_of_a_psnr_gain() -> None:
    """Over many repetitions the gains scatter as the standard error says, also when both models err alike."""
    generator = keyed_generator(7)
    common = torch.rand(400, 200, generator=generator, dtype=torch.float64) + 0.1
    better = common * (1 + 0.1 * torch.randn(400, 200, generator=generator, dtype=torch.float64))
    worse = 1.5 * common * (1 + 0.1 * torch.randn(400, 200, generator=generator, dtype=torch.float64))
    gain, error = mmse.psnr_gain(better, worse)
    assert float(gain.mean()) == pytest.approx(10 * math.log10(1.5), abs=Z * float(error.mean()) / 20)
    assert float(gain.std() / error.mean()) == pytest.approx(1, abs=Z / math.sqrt(800))


def test_outside_of_the_box_does_not_count() -> None:
    values = torch.zeros(2, 1, 8, 8)
    values[:, :, 2:6, 2:6] = 3.0
    assert mmse.inside_mean(values, 4).tolist() == [3.0, 3.0]


# --- calibration -------------------------------------------------------------------------------------------------------------------

CALIBRATION = replace(calibration.FULL, images=60, shown=1)


def calibrated(claimed: float, true: float) -> dict[str, float]:
    """An energy that takes pixels of variance `true` for ones of variance `claimed`."""
    x = pixel_prior(true, mean=0.5).sample(CALIBRATION.images, keyed_generator(8)).clamp(-0.4, 1.4)
    energy = pixel_prior(claimed, mean=0.5)
    return calibration.metrics_of(calibration.calibrate(energy, x, Box(4, 1e-2), 40, CALIBRATION, silent, "box"))


def test_intervals_of_an_exact_posterior_cover_what_they_say() -> None:
    metrics = calibrated(0.01, 0.01)
    pixels = 16 * CALIBRATION.images
    assert metrics["coverage_90"] == pytest.approx(0.9, abs=Z * math.sqrt(0.09 / pixels) + 0.005)
    assert metrics["one_shot_coverage_90"] == pytest.approx(0.9, abs=Z * math.sqrt(0.09 / pixels))
    assert metrics["std_over_error"] == pytest.approx(1, abs=Z / math.sqrt(2 * pixels))
    assert metrics["std_over_spread"] == pytest.approx(1, abs=0.02)  # 40 steps
    assert metrics["coverage_90_standard_error"] < 0.02


def test_an_energy_that_is_too_sure_is_found_out() -> None:
    metrics = calibrated(0.0025, 0.01)
    assert metrics["coverage_90"] < 0.7
    assert metrics["std_over_error"] < 0.6


def test_pixels_are_chosen_without_favour() -> None:
    """Heavy tails and a threshold: judged on the pixels that they choose themselves, intervals would look too good."""
    generator = keyed_generator(9)

    def draw(*shape: int) -> Tensor:
        normal, chi = (torch.randn(n, *shape, generator=generator, dtype=torch.float64) for n in (1, 2))
        return 0.01 * normal[0] / chi.square().mean(dim=0).sqrt()

    setting = replace(CALIBRATION, least_std=0.04)
    samples, truth = draw(600, 38, 1, 8, 8), draw(600, 1, 8, 8)
    everywhere = torch.ones_like(truth, dtype=torch.bool)
    fair = calibration.split_coverage(samples, truth, everywhere, setting)
    assert float(fair.coverage[-1]) == pytest.approx(0.9, abs=Z * float(fair.error[-1]))
    first = samples[:, :19]
    own = first.std(dim=1) > setting.least_std
    inside = (first.amin(dim=1) <= truth) & (truth <= first.amax(dim=1))
    assert float(inside[own].double().mean()) > 0.9 + Z * float(fair.error[-1])


def test_blurs_are_judged_in_their_own_basis() -> None:
    """One-shot moments of a blur live on frequencies, where a stationary Gaussian is exact."""
    energy = smooth_prior(
        8, fall=4.0, level=-14.0
    )  # steep: what is left of high frequencies is a tenth of the low ones
    x = energy.sample(40, keyed_generator(10))
    setting = replace(CALIBRATION, images=40, least_std=0.002)
    found = calibration.calibrate(energy, x, GaussianBlur(0.8, 0.02, size=7), 40, setting, silent, "gauss")
    metrics = calibration.metrics_of(found)
    assert found.basis == "fourier"
    assert found.std.shape == (40, 64)
    assert metrics["std_over_error"] == pytest.approx(1, abs=0.15)
    assert metrics["std_over_spread"] == pytest.approx(1, abs=0.05)
    assert metrics["one_shot_coverage_90"] == pytest.approx(0.9, abs=Z * math.sqrt(0.09 / found.std.numel()))
    assert metrics["std_spread_correlation"] > 0.6  # 38 samples tell a spread to a tenth
    assert metrics["coverage_90"] == pytest.approx(0.9, abs=Z * metrics["coverage_90_standard_error"])


# --- energy-guided sampling ----------------------------------------------------------------------------------------------------------


def test_every_method_measures_the_same_and_keeps_to_the_budget() -> None:
    energy = pixel_prior(0.05, limits=VarianceRange(1e-6, 1e3))
    x = energy.sample(6, keyed_generator(11)).clamp(0, 1)
    y = energy_guided.lifted_measurement(energy, x, keep=10, seed=0)
    again = energy_guided.lifted_measurement(energy, x, keep=10, seed=0)
    assert torch.equal(y.y, again.y)
    measured = y.cov.variance < 1
    assert measured.flatten(1).sum(dim=1).tolist() == [10] * 6
    assert len({tuple(row.tolist()) for row in measured.flatten(1)}) == 6  # pixels of its own for each image
    assert float((y.y - x)[measured].abs().max()) < 1e-3 * 6
    for method in ("geometric", *energy_guided.RULES):
        schedule = energy_guided.schedule_of(method, energy, energy_guided.EnergyGuidedOptions(), 12)
        found = energy_guided.restore(energy, y, schedule, energy_guided.PREDICTORS["two-step"], (0,), 2)
        assert 2 <= found.evaluations <= 12
        assert torch.equal(found.order.isnan(), ~(y.cov.variance[:2, 0] >= 1))
        assert bool(((found.order > 0) & (found.order <= 1))[~found.order.isnan()].all())


def test_pixels_wait_that_the_energy_is_not_sure_of() -> None:
    """Half of the pixels are nearly known to the prior: the variance rule settles those first."""
    sure = torch.zeros(8, 8, dtype=torch.bool)
    sure[:, :4] = True
    variance = torch.where(sure, 1e-5, 0.1).double()[None, None]
    energy = DiagonalGaussian(SpatialCovariance(variance.log()), limits=VarianceRange(1e-6, 1e3))
    y = energy_guided.lifted_measurement(energy, torch.zeros(2, 1, 8, 8, dtype=torch.float64), keep=4, seed=1)
    options = energy_guided.EnergyGuidedOptions(fastest=8.0)
    schedule = energy_guided.schedule_of("variance", energy, options, 30)
    order = energy_guided.restore(energy, y, schedule, energy_guided.PREDICTORS["two-step"], (0,), 2).order
    assert float(order[:, sure].nanmean()) < 0.8 * float(order[:, ~sure].nanmean())


def test_guided_metrics_compare_with_the_geometric_path() -> None:
    right, wrong = torch.zeros(20, dtype=torch.bool), torch.ones(20, dtype=torch.bool)
    half = torch.arange(20) < 10
    verdicts = {"mean": half, "geometric": wrong, "mirror": right, "variance": half}
    found = energy_guided.Verdicts(verdicts, dict.fromkeys(verdicts, 9))
    metrics = energy_guided.metrics_of(50, found, "mirror")
    assert metrics["guided_error_50"] == metrics["mirror_error_50"] == 0
    assert metrics["guided_minus_geometric_50"] == -1
    assert metrics["guided_versus_geometric_p_50"] == pytest.approx(2 / 2**20)
    assert metrics["guided_evaluations_50"] == 9


# --- any order -----------------------------------------------------------------------------------------------------------------------

GENERATION = any_order.AnyOrderSetting(digits=100, steps=320, shown=2)


def test_all_orders_start_alike_and_end_in_the_prior() -> None:
    energy = pixel_prior(0.05, limits=VarianceRange(1e-6, 1e3))
    found = {name: any_order.generate(energy, order, GENERATION) for name, order in any_order.ORDERS.items()}
    reading, reversed_, _ = found.values()
    assert torch.equal(reading.frames[0], reversed_.frames[0])
    assert not torch.equal(reading.digits, reversed_.digits)
    pixels = reading.digits.numel()
    for generated in found.values():
        assert generated.frames.shape == generated.means.shape == (5, 2, 1, 8, 8)
        assert torch.equal(generated.frames[-1], generated.digits[:2])
        assert float(generated.digits.mean()) == pytest.approx(0.4, abs=Z * math.sqrt(0.05 / pixels))
        # twenty or eighty steps a patch of a second-order predictor: a few per cent
        assert float(generated.digits.var()) == pytest.approx(0.05, rel=Z * math.sqrt(2 / pixels) + 0.03)
    first, second = (reading.frames[1][:, :, rows] for rows in (slice(0, 4), slice(4, 8)))
    assert torch.allclose(first[..., :4], reading.digits[:2, :, :4, :4])  # the first quadrant is done
    assert not torch.allclose(second, reading.digits[:2, :, 4:])


def test_pausing_for_a_picture_changes_nothing() -> None:
    prior = pixel_prior(0.05, limits=VarianceRange(1e-6, 1e3))
    setting = replace(GENERATION, digits=3)
    for order in any_order.ORDERS.values():
        y, cov = any_order.start(prior, 3, setting.seed)
        path = autoregressive(cov, 1e-6, 8 // order.split, order.order, setting.steps // order.split**2)
        generator = keyed_generator(setting.seed, "any-order", "steps")
        whole = sample(prior, y, cov, path, finish="floor", generator=generator).samples
        assert torch.allclose(any_order.generate(prior, order, setting).digits, whole, atol=1e-5)


def test_density_at_the_floor_is_in_bits() -> None:
    energy = pixel_prior(0.05)
    x = energy.sample(5, keyed_generator(12)) + 1e-3
    normal = torch.distributions.Normal(0.4, math.sqrt(0.05 + 1e-6))
    exact = -normal.log_prob(x).mean(dim=(1, 2, 3)) / math.log(2)
    assert torch.allclose(bits_per_dim(log_prob(energy, x), 64), exact)


# --- models and images -----------------------------------------------------------------------------------------------------------------


def test_missing_models_are_explained() -> None:
    with pytest.raises(ValueError, match=r"no model 'nowhere'.*linverse train nowhere.*--single-model FOLDER"):
        load_energy("nowhere", "--single-model")
    with pytest.raises(ValueError, match=r"linverse train mnist-klassifier.*--classifier"):
        load_classifier("mnist-klassifier")


def test_held_out_images_are_those_of_the_test_split() -> None:
    few, more = (held_out("digits", count, (1, 8, 8)) for count in (5, 9))
    assert torch.equal(few.x, more.x[:5])
    assert few.labels is not None
    train = held_out("digits", 1000, (1, 8, 8), "train").x.flatten(1)
    assert float((few.x.flatten(1)[:, None] - train).abs().amax(dim=2).amin()) > 0
    with pytest.raises(ValueError, match="test images; 100000 are needed"):
        held_out("digits", 100_000, (1, 8, 8))


def test_evaluation_in_chunks_is_the_evaluation() -> None:
    energy = pixel_prior(0.05)
    y = energy.sample(7, keyed_generator(13))
    cov = energy.prior.isotropic(0.1)
    whole, parts = evaluate_many(energy, y, cov), evaluate_many(energy, y, cov, size=3)
    assert all(torch.equal(a, b) for a, b in zip(whole.tensors(), parts.tensors(), strict=True))


# --- from end to end -------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Tiny untrained models for 8×8 digits, saved."""
    root = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)  # whichever tests came before
    tiny_energy((1, 8, 8), bases=("spatial", "fourier", "block-dct-4")).float().save_pretrained(root / "energy")
    DigitClassifier(ClassifierConfig(width=4)).save_pretrained(root / "classifier")
    return {"model": str(root / "energy"), "classifier": str(root / "classifier")}


SMALL: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "self-test": lambda patch: (
        patch.setattr(self_test, "PRESETS", dict.fromkeys(("fashion-mnist", "mnist"), PRESETS["digits"])),
        patch.setattr(self_test, "QUICK", self_test.SelfTestSetting(images=32, bins=4)),
    )[0],
    "blind": lambda patch: patch.setattr(
        blind,
        "QUICK",
        blind.BlindSetting((1e-2,), 4, (2, 6), (0.5, 0.01), 2, ((4, 0.5),), 1e-4, 2, (5, 0.2), 2, (1.0,), 0.02, 2),
    ),
    "mmse": lambda patch: patch.setattr(mmse, "QUICK", mmse.MmseSetting((4,), (1e-2, 1.0), 8, (4, 0.5, 0.1), 3)),
    "energy-guided": lambda patch: patch.setattr(
        energy_guided, "QUICK", energy_guided.EnergyGuidedSetting(keeps=(10, 30), images=6, shown=2)
    ),
    "any-order": lambda patch: patch.setattr(
        any_order, "QUICK", any_order.AnyOrderSetting(digits=3, steps=32, shown=2)
    ),
    "calibration": lambda patch: patch.setattr(
        calibration, "QUICK", calibration.CalibrationSetting(("box", "gauss:std=0.4"), 3, 19, 0.0, 2)
    ),
}
EXPECTED = {
    "self-test": ("fashion_mnist_normalisation_error", "mnist_slope_spatial", "fashion_mnist_ratio_largest"),
    "blind": ("isotropic_bias_1e-02", "box_exact_share", "joint_4_0.5_sigma_error", "single_blur_relative_error"),
    "mmse": ("dual_psnr_box4_1e-02", "single_psnr_box4_1e+00", "dual_minus_single_mean_box4"),
    "energy-guided": ("clean_error", "guided_error_10", "geometric_error_30", "guided_versus_geometric_p_30"),
    "any-order": ("reading_bits_per_dim", "centre_out_confident_share", "reading_reversed_distance"),
    "calibration": ("box_coverage_90", "gauss_coverage_90", "box_std_over_error", "gauss_std_over_spread"),
}
FLAGS = {
    "model": "--model",
    "single_model": "--single-model",
    "mnist_model": "--mnist-model",
    "classifier": "--classifier",
}


@pytest.mark.filterwarnings("ignore:.*extrapolation")
@pytest.mark.parametrize("name", SMALL)
def test_experiment_runs_from_the_command_line(
    name: str, models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SMALL[name](monkeypatch)
    options = experiment_options(name)
    assert options is not None
    arguments = ["experiment", name, "--quick", "--out", str(tmp_path)]
    for field, flag in FLAGS.items():
        if hasattr(options(), field):
            arguments += [flag, models["classifier" if field == "classifier" else "model"]]
    for field, value in {"data": "digits", "steps": "4", "evaluations": "5"}.items():
        arguments += [f"--{field}", value] if hasattr(options(), field) else []
    main(arguments)
    record: dict[str, Any] = json.loads((tmp_path / f"{name}.json").read_text())
    assert set(EXPECTED[name]) <= record["metrics"].keys()
    provenance = record["provenance"]
    assert all(len(digest) == 64 for digest in provenance["weights"].values())
    assert provenance["weights"]
    assert provenance["options"]["model"] == models["model"]
    assert provenance["seeds"] == {"seed": 0}
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "step"),
    [("calibration", "calibrate"), ("energy-guided", "classify_restorations"), ("blind", "blur_widths")],
)
@pytest.mark.filterwarnings("ignore:.*extrapolation")
def test_an_interrupted_experiment_goes_on_where_it_was(
    name: str, step: str, models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SMALL[name](monkeypatch)
    module = {"calibration": calibration, "energy-guided": energy_guided, "blind": blind}[name]
    if name == "blind":
        monkeypatch.setattr(blind, "QUICK", replace(blind.QUICK, widths=(1.0, 2.0)))
    given = {"model": models["model"], "data": "digits", "steps": 4, "evaluations": 5, "single_model": None}
    options_type = experiment_options(name)
    assert options_type is not None
    known = {f.name for f in fields(options_type)}
    given |= {"classifier": models["classifier"]} if "classifier" in known else {}
    options = options_type(**{key: value for key, value in given.items() if key in known})
    whole = write_experiment(name, tmp_path / "whole", quick=True, options=options)
    work, calls = getattr(module, step), []

    def cut_off(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return work(*args)

    monkeypatch.setattr(module, step, cut_off)
    out = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        write_experiment(name, out, quick=True, options=options)
    assert list((out / f"{name}.cache").iterdir())
    again = write_experiment(name, out, quick=True, options=options)
    assert len(calls) == 3  # the first of two was not repeated
    assert again["metrics"] == whole["metrics"]
    assert sorted(path.name for path in out.iterdir()) == [f"{name}.json", f"{name}.png"]


def test_cache_are_known_by_what_they_were_made_from(tmp_path: Path) -> None:
    cache = Cache.of("blind", tmp_path, Guess)
    guess = Guess(torch.ones(2), torch.zeros(2))
    assert cache.get("box", {"seed": 0}, lambda: guess) is guess
    kept = cache.get("box", {"seed": 0}, lambda: pytest.fail("made twice"))
    assert kept.truth.equal(guess.truth)
    assert cache.get("box", {"seed": 1}, lambda: 5) == 5
    assert cache.get("side", {"seed": 0}, lambda: 6) == 6
    for path in cache.folder.iterdir():
        path.write_bytes(path.read_bytes()[:40])
    assert cache.get("box", {"seed": 0}, lambda: 7) == 7  # a broken piece is made again
    assert cache.get("box", {"seed": 0}, lambda: 8) == 7


def test_a_flipped_byte_of_the_cache_is_never_another_number(tmp_path: Path) -> None:
    cache, values = Cache.of("blind", tmp_path), torch.arange(300.0)
    cache.get("box", {}, lambda: values)
    (path,) = cache.folder.iterdir()
    whole = path.read_bytes()
    for place in range(0, len(whole), 101):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        assert cache.get("box", {}, lambda: values).equal(values)
        assert path.read_bytes() == whole  # made again


def test_single_model_can_be_left_out(models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SMALL["mmse"](monkeypatch)
    options = mmse.MmseOptions(models["model"], None, "digits")
    record = write_experiment("mmse", tmp_path, quick=True, options=options)
    assert not [name for name in record["metrics"] if "single" in name]
    assert set(record["provenance"]["weights"]) == {"dual"}


def test_options_of_another_experiment_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="experiment scale takes no options"):
        write_experiment("scale", tmp_path, options=mmse.MmseOptions())
    with pytest.raises(ValueError, match="experiment blind takes BlindExperimentOptions"):
        write_experiment("blind", tmp_path, options=mmse.MmseOptions())
    assert experiment_options("scale") is None


def test_help_names_the_options_of_the_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["experiment", "energy-guided", "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert all(flag in text for flag in ("--model", "--classifier", "--evaluations", "--out", "--quick"))
    with pytest.raises(SystemExit) as stop:
        main(["experiment", "energy-guided", "--modle", "x"])
    assert stop.value.code != 0


def test_classifier_is_trained_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["train", "mnist-classifier", "--data", "digits", "--epochs", "4", "--batch", "32", "--out", str(tmp_path)])
    assert "test error" in capsys.readouterr().out
    model = load_classifier(str(tmp_path))  # the folder of a run
    images = held_out("digits", 100, (1, 8, 8))
    assert images.labels is not None
    assert float((model.predict(images.x) != images.labels).double().mean()) < 0.5
    card = card_of(model)
    assert card is not None
    assert card.test_error is not None
    assert 0 <= card.test_error < 0.5

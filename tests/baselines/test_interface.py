"""What all methods share: shapes, counts, reproducibility, data that are met; and Palette, the trivial ones and ours in particular."""

from __future__ import annotations

import math
from typing import Any

import pytest
import solvable
import torch
from solvable import DEGRADATIONS, PRIOR, SIGMA, whitened, worst
from torch import Tensor

from linverse import degradations as dg
from linverse.baselines import METHODS, EnergyDenoiser, NotApplicable, ours, palette, trivial
from linverse.baselines.interface import ConditionalDenoiser
from linverse.models.denoiser import Denoiser, DenoiserConfig
from linverse.posterior import Posterior
from linverse.rng import keyed_generator
from linverse.training.batches import draw_condition
from tiny import BACKBONE, tiny_energy

QUICK: dict[str, dict[str, Any]] = {
    "dps": {"steps": 40},
    "pigdm": {"steps": 40},
    "red-diff": {"steps": 60},
    "daps": {"steps": 15, "ode_steps": 3, "langevin_steps": 50},
    "diffpir": {"steps": 40},
    "ours": {"steps": 40},
    "ours-paper": {"steps": 60},
}


class ExactConditional:
    """E[x|x_t, y] of the Gaussian prior for one mask, read from what a conditional network is shown."""

    range, shape = solvable.LIMITS, solvable.SHAPE

    def __init__(self) -> None:
        self.prior_mean = solvable.gaussian().mean

    def __call__(self, y: Tensor, variance: float, condition: Tensor) -> Tensor:
        raw, mask = condition.split(1, dim=1)
        precision = 1 / PRIOR + 1 / variance + mask / SIGMA**2
        return (self.prior_mean / PRIOR + y / variance + raw / SIGMA**2) / precision


def model_for(name: str) -> object:
    energy = solvable.mixture()
    return {"energy": energy, "score": EnergyDenoiser(energy), "palette": ExactConditional(), "nothing": None}[
        METHODS[name].needs
    ]


@pytest.mark.parametrize("task", DEGRADATIONS)
@pytest.mark.parametrize("name", QUICK)
def test_every_sampler_meets_the_data_and_repeats_itself(name: str, task: str) -> None:
    degradation, generator = DEGRADATIONS[task], keyed_generator("suite", task)
    truth = solvable.mixture().sample(24, generator).clamp(-0.4, 1.4)
    raw = degradation.measure(truth, generator).raw
    first, second = (
        METHODS[name].solve(model_for(name), degradation, raw, keyed_generator("chain"), **QUICK[name])
        for _ in range(2)
    )
    other = METHODS[name].solve(model_for(name), degradation, raw, keyed_generator("other"), **QUICK[name])
    assert first.samples.shape == truth.shape
    assert first.samples.dtype == torch.float64
    assert not first.samples.requires_grad
    assert torch.equal(first.samples, second.samples)
    assert not torch.equal(first.samples, other.samples)
    residual = degradation.from_raw(raw).residual(first.samples)
    assert float(residual.square().mean().sqrt()) < 2 * SIGMA
    prior_error = (truth - truth.mean(0)).square().mean()
    assert float((first.samples - truth).square().mean()) < 2 * float(prior_error)  # that of another draw of the prior
    assert first.evaluations > 0
    assert first.seconds > 0


@pytest.mark.parametrize("name", QUICK)
def test_rows_of_a_batch_do_not_mix(name: str) -> None:
    """With the same noise, what a row comes to does not depend on its neighbour's data (up to sums of another order)."""
    degradation, generator = DEGRADATIONS["blur"], keyed_generator("rows")
    raw = degradation.measure(solvable.mixture().sample(3, generator).clamp(-0.4, 1.4), generator).raw
    few = QUICK[name] | {"steps": 10}
    first, second = (
        METHODS[name].solve(model_for(name), degradation, raw[rows], keyed_generator("chain"), **few).samples
        for rows in ([0, 1], [0, 2])
    )
    torch.testing.assert_close(first[0], second[0], rtol=1e-9, atol=1e-9)
    assert float((first[1] - second[1]).abs().max()) > 1e-3


def test_every_name_is_a_method() -> None:
    assert set(METHODS) >= {
        "dps",
        "red-diff",
        "daps",
        "palette",
        "pigdm",
        "diffpir",
        "ours",
        "pseudo-inverse",
        "posterior-mean",
    }
    assert all(method.description for method in METHODS.values())


def test_palette_with_an_exact_conditional_denoiser_samples_the_posterior() -> None:
    problem = solvable.problem("mask")
    model = ExactConditional()
    assert isinstance(model, ConditionalDenoiser)
    solution = palette.solve(model, problem.degradation, problem.many(1500), keyed_generator("palette"), steps=80)
    assert worst(whitened(solution, problem.law)[0], allowed=0.01) < 1
    assert (solution.evaluations, solution.gradients) == (81, 0)


@pytest.mark.parametrize(
    ("kind", "degradation"), [("inpainting", dg.Box(6, 1e-3)), ("deblurring", dg.GaussianBlur(0.8, 1e-2))]
)
def test_palette_sees_what_training_showed_it(kind: str, degradation: dg.Degradation) -> None:
    side = 8 if kind == "inpainting" else 12
    x = torch.rand(3, 1, side, side, generator=keyed_generator("x"), dtype=torch.float64)
    shown = draw_condition(x, kind, keyed_generator("noise"))
    raw = degradation.measure(x, keyed_generator("noise")).raw
    assert shown is not None
    torch.testing.assert_close(degradation.condition(degradation.from_raw(raw)), shown, rtol=0, atol=0)


def test_palette_enlarges_small_data() -> None:
    raw = torch.rand(1, 1, 2, 2, generator=keyed_generator("small"), dtype=torch.float64)
    seen = dg.SuperResolution(2).condition(dg.SuperResolution(2).from_raw(raw))
    torch.testing.assert_close(seen, raw.repeat_interleave(2, 2).repeat_interleave(2, 3))


def test_palette_of_another_degradation_does_not_apply() -> None:
    network = Denoiser(DenoiserConfig((1, 8, 8), 1e-4, 1e2, condition_channels=2, backbone=BACKBONE))
    with pytest.raises(NotApplicable, match="2 channels"):
        palette.solve(network, dg.Denoising(0.1), torch.full((1, 1, 8, 8), 0.5), None)
    solution = palette.solve(network, dg.Box(2), torch.full((1, 1, 8, 8), 0.5), keyed_generator("net"), steps=3)
    assert solution.samples.shape == (1, 1, 8, 8)


def test_pseudo_inverse_is_exact_on_what_was_measured() -> None:
    x = torch.rand(2, 1, 4, 4, generator=keyed_generator("x"), dtype=torch.float64)
    degradation = dg.Blur(torch.tensor([[0.2, 0.6, 0.2]]).double())
    solution = trivial.pseudo_inverse(None, degradation, degradation.operator(x), None)
    torch.testing.assert_close(solution.samples, x)
    assert (solution.evaluations, solution.gradients) == (0, 0)


def test_posterior_mean_in_one_shot() -> None:
    problem = solvable.problem("mask")
    solution = trivial.posterior_mean(problem.energy, problem.degradation, problem.raw, keyed_generator("mean"))
    torch.testing.assert_close(solution.samples.flatten(1), problem.law.mean, rtol=1e-3, atol=1e-3)
    assert (solution.evaluations, solution.gradients) == (1, 1)


def test_ours_is_the_posterior_sampler() -> None:
    problem = solvable.problem("mask")
    solution = ours.solve(problem.energy, problem.degradation, problem.many(1500), keyed_generator("ours"), steps=80)
    assert worst(whitened(solution, problem.law)[0], allowed=0.01) < 1
    generator = keyed_generator("ours")
    posterior = Posterior(problem.energy, problem.degradation.from_raw(problem.many(1500)), generator)
    drawn = posterior.draw(1, 80, generator=generator)
    assert torch.equal(solution.samples, drawn.samples)
    assert solution.evaluations == solution.gradients == drawn.evaluations


def test_noise_that_lifts_data_to_the_floor_is_the_generators() -> None:
    """Data of less noise than the energy knows: two seeds lift them differently."""
    energy = tiny_energy((1, 8, 8), backbone=BACKBONE)
    raw = torch.full((1, 1, 8, 8), 0.5, dtype=torch.float64)
    quiet = dg.Denoising(0.01 * energy.range.minimum**0.5)
    one, other = (ours.solve(energy, quiet, raw, keyed_generator(seed), steps=1).samples for seed in (0, 1))
    assert not torch.equal(one, other)


def test_an_average_of_samples_comes_close_to_the_posterior_mean() -> None:
    problem = solvable.problem("mask")
    raw = problem.many(50)
    one, many = (
        ours.solve(problem.energy, problem.degradation, raw, keyed_generator("average"), steps=30, average=n)
        for n in (1, 16)
    )
    assert many.samples.shape == one.samples.shape
    assert (one.evaluations, many.evaluations) == (31, 16 * 31)
    errors = [(s.samples.flatten(1) - problem.law.mean).square().mean() for s in (one, many)]
    assert float(errors[1]) == pytest.approx(float(errors[0]) / 16, rel=0.35)
    with pytest.raises(ValueError, match="at least one sample"):
        ours.solve(problem.energy, problem.degradation, raw, None, average=0)


def test_ours_with_a_corrector_counts_it() -> None:
    problem = solvable.problem("mask")
    solution = ours.solve(
        problem.energy, problem.degradation, problem.many(2), keyed_generator("mala"), steps=10, corrector_steps=2
    )
    assert solution.evaluations == 31
    with pytest.raises(ValueError, match="two-step"):
        ours.solve(problem.energy, problem.degradation, problem.raw, None, predictor="best")  # type: ignore[arg-type]


def test_surrogate_of_a_gaussian_blur_is_the_blur_itself() -> None:
    energy = tiny_energy((1, 8, 8), backbone=BACKBONE)
    x = torch.rand(2, 1, 8, 8, generator=keyed_generator("x"), dtype=torch.float64)
    degradation = dg.GaussianBlur(0.6, 0.02)
    raw = degradation.measure(x, keyed_generator("noise")).raw
    plain = ours.solve(energy, degradation, raw, keyed_generator("chain"), steps=5)
    told = ours.surrogate(energy, degradation, raw, keyed_generator("chain"), steps=5, std=0.6)
    torch.testing.assert_close(told.samples, plain.samples)


def test_surrogate_tells_of_at_least_the_noise_there_is() -> None:
    energy = tiny_energy((1, 8, 8), backbone=BACKBONE)
    degradation = dg.Blur(torch.tensor([[0.3, 0.4, 0.3]]).double(), 2e-3)
    x = torch.rand(1, 1, 8, 8, generator=keyed_generator("x"), dtype=torch.float64)
    measurement = degradation.measure(x, keyed_generator("noise"))
    lifted = ours.surrogate_lift(measurement, 2e-3, 0.6, energy, keyed_generator("lift"))
    gauss = dg.GaussianBlur(0.6, 2e-3).encode(measurement.raw)
    torch.testing.assert_close(lifted.cov.log_variance, gauss.log_variance.clamp_min(math.log(energy.range.minimum)))
    undone = torch.maximum(measurement.log_gain, gauss.log_gain)
    assert bool((lifted.cov.log_variance >= 2 * (math.log(2e-3) - undone) - 1e-9).all())
    below = measurement.log_gain < gauss.log_gain
    assert bool(below.any())
    assert not bool(below.all())
    torch.testing.assert_close(lifted.cov.analysis(lifted.y), measurement.coefficients * torch.exp(-undone))
    with pytest.raises(NotApplicable, match="blur"):
        ours.surrogate(energy, dg.Box(2, 1e-2), x, None)

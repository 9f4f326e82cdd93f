"""From nothing to a normalised energy in minutes: scikit-learn's 8×8 digits.

The `digits` preset is trained from scratch, normalised and tested; then the noise of single test images is estimated blindly. One
image cannot give log σ² better than the Cramér–Rao bound: sd ≥ 1/√E[(Σ_i κ_i)²], which is √(2/d) where the noise hides the image and a
little more where pixels are informative.
"""

from __future__ import annotations

import math
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from linverse.blind import noise_bound, noise_levels
from linverse.data import load_images
from linverse.energy import Energy
from linverse.experiments.framework import ExperimentResult
from linverse.files.saving import hash_weights
from linverse.models.energies.learned import LearnedEnergy
from linverse.progress import Progress
from linverse.rng import keyed_generator, normal_like
from linverse.sampling import prior_start, sample
from linverse.training.config import TrainConfig
from linverse.training.finish import normalised, run_self_test
from linverse.training.loop import Trainer
from linverse.training.presets import PRESETS

if TYPE_CHECKING:
    pass

VARIANCES = (1e-2, 3e-2, 1e-1, 3e-1, 1.0)


@dataclass(frozen=True)
class DigitsOptions:
    """How long to train."""

    steps: int | None = None
    """optimiser steps (default: those of the preset; 400 with --quick)"""


@dataclass(frozen=True)
class NoiseErrors:
    """Errors of log σ̂² over images at one variance: their mean, spread, and the Cramér–Rao bound of the spread."""

    bias: float
    spread: float
    bound: float


@dataclass(frozen=True)
class DigitFindings:
    """What the figure shows: generated digits, and the errors of blind noise levels by variance."""

    images: Tensor
    errors: dict[float, NoiseErrors]


def noise_errors(energy: Energy, x: Tensor, variance: float, seed: int = 0) -> NoiseErrors:
    """Estimate the noise of each image alone."""
    y = x + math.sqrt(variance) * normal_like(x, keyed_generator("noise", seed, f"{variance:g}"))
    axis = math.sqrt(variance) * torch.logspace(-1, 1, 61, dtype=torch.float64)
    errors = 2 * noise_levels(energy, y, axis, seed=seed).log() - math.log(variance)
    return NoiseErrors(float(errors.mean()), float(errors.std()), noise_bound(energy, y, variance))


def train_digits(
    steps: int, progress: Progress, config: TrainConfig = PRESETS["digits"][1]
) -> tuple[Trainer, LearnedEnergy, float]:
    """The preset (or a variant of it) trained for so many steps; the model, and the CPU seconds that it took."""
    config = replace(config, steps=steps)
    train, test = load_images("digits", "train"), load_images("digits", "test")
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(config, train, test, Path(folder))
        while trainer.step < steps:
            trainer.train_step()
            progress("training", trainer.step, steps)
    energy = trainer.averaged
    assert isinstance(energy, LearnedEnergy)
    return trainer, normalised(trainer, energy, config.self_test_images), time.process_time() - start


def measure(trainer: Trainer, energy: LearnedEnergy) -> tuple[dict[str, float], dict[float, NoiseErrors]]:
    """What the self-tests, the blind estimates of noise and the held-out losses say in short."""
    test = run_self_test(trainer, energy, trainer.config.self_test_images)
    x = trainer.held_out.batch(torch.arange(len(trainer.held_out)))
    errors = {variance: noise_errors(energy, x, variance) for variance in VARIANCES}
    metrics = {
        "normalisation_nats_per_dim": test.normalisation_error,
        "largest_noise_bias": max(abs(e.bias) for e in errors.values()),
        "largest_spread_over_cramer_rao": max(e.spread / e.bound for e in errors.values()),
        "smallest_slope": min(test.slope.values()),
        "largest_slope": max(test.slope.values()),
        **{f"held_out_{key}": value for key, value in trainer.evaluate().items()},
    }
    return metrics, errors


def run(out: Path, quick: bool, progress: Progress, options: DigitsOptions) -> ExperimentResult:
    """Train, test, estimate, draw."""
    steps = options.steps or (400 if quick else PRESETS["digits"][1].steps)
    trainer, energy, seconds = train_digits(steps, progress)
    measured, errors = measure(trainer, energy)
    x = trainer.held_out.batch(torch.arange(len(trainer.held_out)))
    metrics = {
        "cpu_minutes_of_training": seconds / 60,
        **measured,
        **{f"noise_bias_{v:g}": e.bias for v, e in errors.items()},
        **{f"spread_over_cramer_rao_{v:g}": e.spread / e.bound for v, e in errors.items()},
        **{f"spread_over_white_noise_bound_{v:g}": e.spread / math.sqrt(2 / x[0].numel()) for v, e in errors.items()},
    }
    drawn = generate(energy, 40)
    return ExperimentResult(
        metrics,
        {"source": "not in the paper: the target is ours, a model that passes its self-tests in four CPU minutes"},
        DigitFindings(drawn, errors),
        {"steps": steps, "preset": "digits"},
        {"digits": hash_weights(energy)},
        {"training": 0, "noise": 0},
    )


def generate(energy: LearnedEnergy, count: int) -> Tensor:
    """Digits from noise."""
    generator = keyed_generator("generation")
    return sample(energy, *prior_start(energy, count, generator), 50, generator=generator).samples

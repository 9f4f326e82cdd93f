"""Which form of the energy learns faster? The paper's U = ½⟨y, s_θ⟩ and ours, U = U_G + R_θ, at equal steps on 8×8 digits.

Everything else is that of the `digits` preset: backbone, embedding of Σ, optimiser, batches and noise. The inner product has the paper's
loss, both scores unweighted: our weights for large noise, where its gradient must cancel ½y, are not made for it (A-DSM 0.373
and A-CSM 0.344 with them, and no usable noise levels).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from linverse.experiments.digits import NoiseErrors, measure, train_digits
from linverse.experiments.framework import ExperimentResult
from linverse.files.saving import hash_weights
from linverse.models.energies.learned import EnergyConfig
from linverse.progress import Progress
from linverse.training.presets import PRESETS

if TYPE_CHECKING:
    pass

FORMS: dict[str, Literal["gaussian-residual", "inner-product"]] = {
    "residual": "gaussian-residual",
    "inner": "inner-product",
}


@dataclass(frozen=True)
class FormsOptions:
    """How long to train."""

    steps: int | None = None
    """optimiser steps of each (default: those of the preset; 400 with --quick)"""


@dataclass(frozen=True)
class FormFindings:
    """What the figure shows: the numbers, and errors of blind noise levels by form and variance."""

    metrics: dict[str, float]
    errors: dict[str, dict[float, NoiseErrors]]


def run(out: Path, quick: bool, progress: Progress, options: FormsOptions) -> ExperimentResult:
    """Train both, test both, draw."""
    preset = PRESETS["digits"][1]
    steps = options.steps or (400 if quick else preset.steps)
    assert isinstance(preset.model, EnergyConfig)
    metrics: dict[str, float] = {}
    errors: dict[str, dict[float, NoiseErrors]] = {}
    hashes: dict[str, str] = {}
    for name, form in FORMS.items():
        loss = preset.loss if name == "residual" else replace(preset.loss, mean_power=0.0, variance_weight=0.0)
        config = replace(preset, model=replace(preset.model, parameterisation=form), loss=loss)
        trainer, energy, seconds = train_digits(steps, progress, config)
        measured, errors[name] = measure(trainer, energy)
        metrics |= {f"{name}_{key}": value for key, value in measured.items()}
        metrics[f"{name}_cpu_minutes_of_training"] = seconds / 60
        hashes[name] = hash_weights(energy)
    return ExperimentResult(
        metrics,
        {"source": "the paper uses the inner product and compares with no other form"},
        FormFindings(metrics, errors),
        {"steps": steps, "preset": "digits"},
        hashes,
        {"training": 0, "noise": 0},
    )

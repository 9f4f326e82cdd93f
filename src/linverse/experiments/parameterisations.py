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
from linverse.experiments.figures import BLUE, GREY, VERMILION, panels
from linverse.experiments.framework import ExperimentResult
from linverse.files.saving import hash_weights
from linverse.models.learned import EnergyConfig
from linverse.progress import Progress
from linverse.training.presets import PRESETS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMS: dict[str, Literal["gaussian-residual", "inner-product"]] = {
    "residual": "gaussian-residual",
    "inner": "inner-product",
}


@dataclass(frozen=True)
class Options:
    """How long to train."""

    steps: int | None = None
    """optimiser steps of each (default: those of the preset; 400 with --quick)"""


def run(out: Path, quick: bool, progress: Progress, options: Options | None = None) -> ExperimentResult:
    """Train both, test both, draw."""
    preset = PRESETS["digits"][1]
    steps = (options or Options()).steps or (400 if quick else preset.steps)
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
        lambda: draw(metrics, errors),
        {"steps": steps, "preset": "digits"},
        hashes,
        {"training": 0, "noise": 0},
    )


def draw(metrics: dict[str, float], errors: dict[str, dict[float, NoiseErrors]]) -> Figure:
    """Losses on held-out images, and errors of blind noise levels."""
    figure, (left, right) = panels(2)
    terms, looks = {"dsm": "A-DSM", "csm": "A-CSM"}, {"residual": (BLUE, -0.2), "inner": (VERMILION, 0.2)}
    for name, (colour, shift) in looks.items():
        heights = [metrics[f"{name}_held_out_{term}"] for term in terms]
        bars = left.bar([i + shift for i in range(len(terms))], heights, 0.38, color=colour, label=FORMS[name])
        left.bar_label(bars, fmt="%.3f", fontsize=8)
        axis = list(errors[name])
        right.semilogx(
            axis, [e.bias for e in errors[name].values()], color=colour, marker="s", label=f"bias, {FORMS[name]}"
        )
        spread = [e.spread for e in errors[name].values()]
        right.semilogx(axis, spread, color=colour, marker="o", linestyle=":", label="spread")
    left.set_xticks(range(len(terms)), list(terms.values()))
    left.set_title("Loss on held-out images")
    left.set_ylim(top=1.25 * left.get_ylim()[1])
    left.legend(loc="upper right", ncols=2)
    right.axhline(0, color=GREY, linewidth=0.8)
    right.set_xlabel("noise variance σ²")
    right.set_title("log σ̂² of a single image")
    right.legend(fontsize=7)
    return figure

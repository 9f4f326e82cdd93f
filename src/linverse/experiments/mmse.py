"""One-shot denoising E[x|y, Σ] against the noise in a box (the paper's appendix D.2, figures mmse_sweep and mmse_estimation).

Outside of a centred square the image is known to the floor λ_min, inside it has noise σ₁². One evaluation gives the posterior mean, and
    PSNR = −10 log₁₀ MSE,   MSE = mean over images and over the pixels in the box of (E[x_i|y] − x_i)².
The same evaluation gives Var[x_i|y], hence the PSNR that the model expects of itself; an energy whose covariance score is right
expects what it achieves. Differences of two models are paired: both see the same noise.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linverse.covariance import SpatialCovariance
from linverse.degradations.masks import centre_box
from linverse.energy import Energy, fixed_shape
from linverse.evaluation.models import PairOptions, evaluate_many, held_out, load_companion, load_energy
from linverse.experiments.claims import Claim, Condition, interval_metrics, interval_of, mean_interval
from linverse.experiments.framework import ExperimentResult
from linverse.experiments.tables import ResultTable
from linverse.files.saving import hash_weights
from linverse.metrics.pixel import decibels
from linverse.models.energies.learned import LearnedEnergy
from linverse.progress import Progress
from linverse.rng import keyed_generator, normal_like
from linverse.store.card import card_of

DECIBELS = 10 / math.log(10)  # of a relative change of the MSE

PAPER: dict[str, Any] = {
    "source": "appendix, Comparison between dual and single score matching; figures mmse_sweep and mmse_estimation",
    "claims": ["the energy model trained with the dual objective yields a better denoiser than the single one"],
    "figures": {},  # the paper prints curves, no numbers
    "departures": [
        "28×28 images; the paper's box is 10×10 (caption) or 20×20 (text) of 64×64 pixels: both sides are shown"
    ],
}


@dataclass(frozen=True)
class MmseOptions(PairOptions):
    """Models of the one-shot experiment."""


@dataclass(frozen=True)
class MmseSetting:
    """Boxes, noise levels, images; `example` is the paper's (side, σ₁, σ₂) of the images shown."""

    sides: tuple[int, ...] = (10, 20)
    variances: tuple[float, ...] = tuple(10.0**k for k in range(-4, 4))
    images: int = 512
    example: tuple[int, float, float] = (10, 0.5, 0.1)
    shown: int = 8
    seed: int = 0


FULL = MmseSetting()
QUICK = replace(FULL, images=64, variances=(1e-3, 1e-2, 1e-1, 1.0, 10.0, 1e3))


@dataclass(frozen=True)
class Sweep:
    """Of each noise level (rows) and image (columns): squared error, expected squared error, and that of y itself, [L, N]."""

    actual: Tensor
    expected: Tensor
    observed: Tensor


@dataclass(frozen=True)
class MmseFindings:
    """What the figure shows: sweeps by model and side, and rows of images."""

    sweeps: dict[str, dict[int, Sweep]]
    shown: dict[str, Tensor]
    setting: MmseSetting


def box_covariance(x: Tensor, side: int, inside: float, outside: float) -> SpatialCovariance:
    """Variance `inside` a centred square and `outside` around it, for one image."""
    box = centre_box(torch.tensor([[[side]]]), x.shape[2], x.shape[3])[:, None]
    variance = torch.where(box, inside, outside).to(x.dtype)
    return SpatialCovariance(variance.log(), x.shape[1])


def inside_mean(values: Tensor, side: int) -> Tensor:
    """Mean over the pixels in the box, [N], float64."""
    box = centre_box(torch.tensor([[[side]]]), values.shape[2], values.shape[3])[0]
    return values.double()[:, :, box].mean(dim=(1, 2))


def sweep(energy: Energy, x: Tensor, side: int, variances: tuple[float, ...], seed: int) -> Sweep:
    """All noise levels in a box of one size; the white noise is the same at every level."""
    noise = normal_like(x, keyed_generator(seed, "mmse", side))
    rows: list[tuple[Tensor, ...]] = []
    for variance in variances:
        cov = box_covariance(x, side, variance, energy.range.minimum)
        y = x + cov.colour(noise)
        seen = evaluate_many(energy, y, cov)
        squares = (seen.mean - x).square(), seen.variance.expand_as(x), (y - x).square()
        rows.append(tuple(inside_mean(values, side) for values in squares))
    return Sweep(*(torch.stack(column) for column in zip(*rows, strict=True)))


def psnr_of(mse: Tensor) -> Tensor:
    """−10 log₁₀ of the mean over images, [L]."""
    return decibels(mse.mean(dim=1))


def psnr_gain(better: Tensor, worse: Tensor) -> tuple[Tensor, Tensor]:
    """PSNR of the first less that of the second, and its standard error for paired images, [L] each."""
    gain = psnr_of(better) - psnr_of(worse)
    relative = worse / worse.mean(dim=1, keepdim=True) - better / better.mean(dim=1, keepdim=True)
    return gain, DECIBELS * relative.std(dim=1) / math.sqrt(better.shape[1])


def metrics_of(sweeps: dict[str, dict[int, Sweep]], setting: MmseSetting) -> dict[str, float]:
    """PSNR at each level and side; dual − single with its standard error."""
    out: dict[str, float] = {}
    for name, by_side in sweeps.items():
        for side, found in by_side.items():
            ratio = found.expected.mean(dim=1) / found.actual.mean(dim=1)
            values = {"psnr": psnr_of(found.actual), "expected_over_actual_mse": ratio}
            for what, row in values.items():
                levels = zip(setting.variances, row.tolist(), strict=True)
                out |= {f"{name}_{what}_box{side}_{variance:.0e}": value for variance, value in levels}
    if "single" in sweeps:
        for side in setting.sides:
            gain, error = psnr_gain(sweeps["dual"][side].actual, sweeps["single"][side].actual)
            out[f"dual_minus_single_mean_box{side}"] = float(gain.mean())
            for variance, value, spread in zip(setting.variances, gain.tolist(), error.tolist(), strict=True):
                out[f"dual_minus_single_box{side}_{variance:.0e}"] = value
                out[f"dual_minus_single_standard_error_box{side}_{variance:.0e}"] = spread
    return out


def examples(energy: Energy, x: Tensor, setting: MmseSetting) -> dict[str, Tensor]:
    """The paper's row of images: what was observed, E[x|y], its standard deviation, and the truth."""
    side, inside, outside = setting.example
    cov = box_covariance(x, side, inside**2, outside**2)
    y = x + cov.colour(normal_like(x, keyed_generator(setting.seed, "mmse", "example")))
    seen = evaluate_many(energy, y, cov)
    return {"observed": y, "E[x|y]": seen.mean, "std[x|y]": seen.variance.sqrt(), "truth": x}


def claims_of(models: dict[str, LearnedEnergy], setting: MmseSetting) -> tuple[Claim, ...]:
    """Dual denoises better than single, for each box; a comparison of trainings of other lengths decides nothing."""
    steps = {name: trained_steps(energy) for name, energy in models.items()}
    reason = ""
    if "single" not in steps:
        reason = "there is no energy without the covariance score to compare with"
    elif steps["dual"] is None or steps["single"] is None:
        reason = "a model does not say how many steps it was trained in all"
    elif abs(steps["dual"] - steps["single"]) > 0.05 * steps["dual"]:
        reason = f"dual was trained for {steps['dual']:,} steps and single for {steps['single']:,}"
    return tuple(
        Claim(
            f"box {side}: the dual objective denoises better than the single one at equal steps",
            () if reason else (Condition(f"mean gain of dual over single in dB, box {side}", "above"),),
            reason,
        )
        for side in setting.sides
    )


def trained_steps(energy: LearnedEnergy) -> int | None:
    """The steps of a model's card; None for a model that went on from other weights, of which the card counts the last run alone."""
    card = card_of(energy)
    return None if card is None or card.started_from else card.steps


def mean_gains(sweeps: dict[str, dict[int, Sweep]], setting: MmseSetting) -> dict[str, float]:
    """The gain in dB, averaged over noise levels, with its interval over images."""
    out: dict[str, float] = {}
    if "single" not in sweeps:
        return out
    for side in setting.sides:
        better, worse = sweeps["dual"][side].actual, sweeps["single"][side].actual
        relative = worse / worse.mean(dim=1, keepdim=True) - better / better.mean(dim=1, keepdim=True)
        gain = (psnr_of(better) - psnr_of(worse))[:, None] + DECIBELS * relative  # its mean over images is the gain
        out |= interval_metrics(f"mean gain of dual over single in dB, box {side}", mean_interval(gain.mean(dim=0)))
    return out


def tables_of(
    sweeps: dict[str, dict[int, Sweep]], metrics: dict[str, float], setting: MmseSetting
) -> tuple[ResultTable, ...]:
    """PSNR by noise, and the mean gain."""
    tables = []
    for side in setting.sides:
        columns = ("noise σ₁", *sweeps, "observation")
        curves = [psnr_of(by_side[side].actual).tolist() for by_side in sweeps.values()]
        observed = psnr_of(sweeps["dual"][side].observed).tolist()
        levels = [math.sqrt(variance) for variance in setting.variances]
        tables.append(
            ResultTable(f"PSNR in a box of {side}×{side}", columns, tuple(zip(levels, *curves, observed, strict=True)))
        )
    gains = [f"mean gain of dual over single in dB, box {side}" for side in setting.sides]
    rows = tuple((name, interval_of(metrics, name)) for name in gains if name in metrics)
    return (*tables, ResultTable("Dual against single", ("quantity", "ours"), rows)) if rows else tuple(tables)


def run(out: Path, quick: bool, progress: Progress, options: MmseOptions) -> ExperimentResult:
    """Sweep the noise with both energies."""
    setting = QUICK if quick else FULL
    energies = {"dual": load_energy(options.model), "single": load_companion(options.single_model)}
    models = {name: energy for name, energy in energies.items() if energy is not None}
    x = held_out(options.data, setting.images, fixed_shape(models["dual"])).x
    sweeps: dict[str, dict[int, Sweep]] = {}
    for name, energy in models.items():
        sweeps[name] = {}
        for done, side in enumerate(setting.sides):
            sweeps[name][side] = sweep(energy, x, side, setting.variances, setting.seed)
            progress(name, done + 1, len(setting.sides))
    shown = examples(models["dual"], x[: setting.shown], setting)
    weights = {name: hash_weights(energy) for name, energy in models.items()}
    found = MmseFindings(sweeps, shown, setting)
    metrics = metrics_of(sweeps, setting) | mean_gains(sweeps, setting)
    claims, tables = claims_of(models, setting), tables_of(sweeps, metrics, setting)
    return ExperimentResult(metrics, PAPER, found, asdict(setting), weights, {"seed": setting.seed}, claims, tables)

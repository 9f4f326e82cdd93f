"""Is the model as sure as it should be? Credible intervals and one-shot variances against held-out images.

Posterior samples at the floor have the law of x + N(0, λ_min) given y, so the truth with the same noise must rank uniformly among them: a
90 % interval holds it 90 % of the time. Pixels count whose posterior standard deviation exceeds 0.02 (half of all pixels are exact zeros,
known for certain). The samples are split in two halves, and each half chooses the pixels on which the intervals of the
other are judged: choosing by the spread of the very samples that make the interval would favour wide ones.

One evaluation gives Var[x_i|y] in Σ's own basis: pixels for a box, frequencies for a blur. There it is compared with the spread of the
samples and with the error of the one-shot mean,  E(E[x_i|y] − x_i)² = E Var[x_i|y].
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.degradations import Degradation, Masking
from linverse.degradations.tasks import parse_task
from linverse.energy import Energy, Evaluation, fixed_shape
from linverse.evaluation.models import CHUNK, held_out, load_energy
from linverse.experiments.cache import Cache
from linverse.experiments.framework import ExperimentResult
from linverse.files.saving import hash_weights
from linverse.metrics import CoverageCurve, coverage_curve, gaussian_interval
from linverse.posterior import Posterior
from linverse.progress import Progress
from linverse.rng import keyed_generator, normal_like

PAPER: dict[str, Any] = {
    "source": "no figure of the paper: it shows no uncertainties",
    "claims": [],
    "figures": {},
    "targets": {"coverage_90": "between 0.85 and 0.95, for boxes and for blurs"},
}


@dataclass(frozen=True)
class CalibrationOptions:
    """Model and effort of the calibration experiment."""

    model: str = "fashion-mnist"
    """the energy: a bundled name or a folder"""
    data: str = "fashion-mnist"
    """whose test images"""
    steps: int = 50
    """of the sampler"""


@dataclass(frozen=True)
class CalibrationSetting:
    """Images, samples in each half (19: the interval of level 1 − 2k/20 is exact), and which pixels count."""

    tasks: tuple[str, ...] = ("box", "gauss")
    images: int = 64
    half: int = 19
    least_std: float = 0.02
    shown: int = 4
    seed: int = 0


FULL = CalibrationSetting()
QUICK = replace(FULL, images=8)
QUICK_STEPS = 16


@dataclass(frozen=True)
class TaskCalibration:
    """Of one task: the coverage of intervals; one-shot std, spread of samples and error of the one-shot mean [N, n] in Σ's basis.

    `shown` holds rows of images by their titles.
    """

    curve: CoverageCurve
    std: Tensor
    spread: Tensor
    error: Tensor
    basis: str
    shown: dict[str, Tensor]


def calibrate(
    energy: Energy,
    x: Tensor,
    degradation: Degradation,
    steps: int,
    setting: CalibrationSetting,
    progress: Progress,
    task: str,
) -> TaskCalibration:
    """Samples, one-shot moments and the truth for one task."""
    measurement = degradation.measure(x, keyed_generator(setting.seed, "calibration", task))
    posterior = Posterior(energy, measurement, check=False)
    one_shot = posterior.evaluate()
    draws, wanted = [], 2 * setting.half
    for first in range(0, wanted, size := max(1, CHUNK // len(x))):
        count = min(size, wanted - first)
        generator = keyed_generator(setting.seed, "calibration", task, first)
        draws.append(posterior.sample(count, steps, generator=generator, finish="floor", chunk=CHUNK))
        progress(task, first + count, wanted)
    noise = normal_like(x, keyed_generator(setting.seed, "calibration", task, "floor"))
    truth = x + math.sqrt(energy.range.minimum) * noise
    return summarise(x, truth, torch.cat(draws).transpose(0, 1), one_shot, posterior.covariance, degradation, setting)


def summarise(
    x: Tensor,
    truth: Tensor,
    samples: Tensor,
    one_shot: Evaluation,
    cov: Covariance,
    degradation: Degradation,
    setting: CalibrationSetting,
) -> TaskCalibration:
    """What the metrics and the figure need: samples [N, 2·half, C, H, W] against the truth at the floor [N, C, H, W]."""
    hidden = hidden_pixels(degradation, x)
    curve = split_coverage(samples, truth, hidden, setting)
    free = hidden if cov.basis == "spatial" else torch.ones_like(hidden)  # one-shot moments live in Σ's basis
    coefficients = torch.stack([cov.analysis(samples[:, i]) for i in range(samples.shape[1])], dim=1)
    return TaskCalibration(
        curve=curve,
        std=_chosen(one_shot.variance.sqrt().expand_as(x), free),
        spread=_chosen(coefficients.double().std(dim=1), free),
        error=_chosen(cov.analysis(one_shot.mean - x), free),
        basis=cov.basis,
        shown={
            "truth": x[: setting.shown],
            "E[x|y], one shot": one_shot.mean[: setting.shown],
            "a sample": samples[: setting.shown, 0],
            "std of samples": samples[: setting.shown].std(dim=1),
            "|error|": (one_shot.mean - x).abs()[: setting.shown],
        },
    )


def hidden_pixels(degradation: Degradation, x: Tensor) -> Tensor:
    """Where the measurement tells nothing directly: the missing pixels of a mask, all pixels of a blur; boolean, like x."""
    if isinstance(degradation, Masking):
        return ~degradation.mask_for((x.shape[2], x.shape[3])).expand_as(x)
    return torch.ones_like(x, dtype=torch.bool)


def _chosen(values: Tensor, where: Tensor) -> Tensor:
    """[N, n] of the chosen entries (the same number for every image), float64."""
    return values.double()[where].reshape(len(values), -1)


def split_coverage(samples: Tensor, truth: Tensor, hidden: Tensor, setting: CalibrationSetting) -> CoverageCurve:
    """Coverage of the intervals of either half on the pixels that the other half finds uncertain, averaged over both.

    Images without a single uncertain pixel drop out.
    """
    halves = samples.split(setting.half, dim=1)
    curves = []
    for mine, other in (halves, halves[::-1]):
        where = hidden & (other.std(dim=1) > setting.least_std)
        some = where.flatten(1).any(dim=1)
        if not bool(some.any()):
            raise ValueError(f"no pixel has a posterior standard deviation above {setting.least_std}")
        curves.append(coverage_curve(mine[some], truth[some], where=where[some]))
    values = torch.cat([curve.values for curve in curves], dim=1)
    # both halves judge the same images: their number, not twice it, says how sure we are
    error = values.std(dim=1) / math.sqrt(values.shape[1] / 2)
    return CoverageCurve(curves[0].levels, values.mean(dim=1), error, values)


def metrics_of(found: TaskCalibration) -> dict[str, float]:
    """Coverage at 90 %, and the one-shot standard deviation against spread and error."""
    at = int((found.curve.levels - 0.9).abs().argmin())
    low, high = gaussian_interval(torch.zeros_like(found.std), found.std)
    return {
        "coverage_90": float(found.curve.coverage[at]),
        "coverage_90_standard_error": float(found.curve.error[at]),
        "calibration_error": found.curve.calibration_error,
        "std_over_spread": root_ratio(found.std, found.spread),
        "std_over_error": root_ratio(found.std, found.error),
        "spread_over_error": root_ratio(found.spread, found.error),
        "std_spread_correlation": float(
            torch.corrcoef(torch.stack([found.std.flatten(), found.spread.flatten()]))[0, 1]
        ),
        "one_shot_coverage_90": float(((low <= found.error) & (found.error <= high)).double().mean()),
    }


def root_ratio(a: Tensor, b: Tensor) -> float:
    """√(mean a² / mean b²)."""
    return float((a.square().mean() / b.square().mean()).sqrt())


def run(out: Path, quick: bool, progress: Progress, options: CalibrationOptions) -> ExperimentResult:
    """Both tasks."""
    setting = QUICK if quick else FULL
    steps = min(options.steps, QUICK_STEPS) if quick else options.steps
    energy = load_energy(options.model)
    x = held_out(options.data, setting.images, fixed_shape(energy)).x
    weights, configuration = {"model": hash_weights(energy)}, asdict(setting) | {"steps": steps}
    cache = Cache.of("calibration", out, TaskCalibration, CoverageCurve)
    made_from = weights | configuration | {"data": options.data}
    found: dict[str, TaskCalibration] = {}
    for task in setting.tasks:
        name = task.partition(":")[0]
        degradation = parse_task(task, (x.shape[2], x.shape[3]))
        make = partial(calibrate, energy, x, degradation, steps, setting, progress, name)
        found[name] = cache.get(name, made_from, make)
    metrics = {f"{task}_{key}": value for task, one in found.items() for key, value in metrics_of(one).items()}
    return ExperimentResult(metrics, PAPER, found, configuration, weights, {"seed": setting.seed})

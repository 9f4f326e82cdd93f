"""Corrector steps: unadjusted Langevin against Metropolis-adjusted (paper §4.2.2, table inv_celeba_ablation).

Inpainting along one path, with n = 1, 5, 8 corrector steps after every predictor step. All kinds see the same measurements and fills:
    MALA        accepts with the Metropolis ratio; step sizes adapted to an acceptance of 0.574 on pilot chains, level by level
    ULA         the same proposals and step sizes, all accepted
    paper's ULA the paper's own step, ε = 2(r‖v‖/‖g‖)² with r = 0.15, at its temperature 0.9
The paper's LPIPS has three digits; "does not change" is taken as less than two units of the last, 0.002.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linverse.degradations.tasks import parse_task
from linverse.energy import fixed_shape
from linverse.evaluation.models import chunks, held_out, load_energy
from linverse.experiments.cache import Cache
from linverse.experiments.claims import Claim, Condition, interval_metrics, interval_of, mean_interval
from linverse.experiments.framework import ExperimentResult
from linverse.experiments.tables import ResultTable
from linverse.files.saving import hash_weights
from linverse.measurement import Lifted
from linverse.metrics import METRICS, available_metrics, metric_label, psnr
from linverse.models.energies.learned import LearnedEnergy
from linverse.posterior import Posterior
from linverse.progress import Progress
from linverse.rng import keyed_generator
from linverse.sampling import MALA, ULA, Kernel, SignalToNoiseULA, clamped, sample, tune

KINDS = ("MALA", "ULA", "paper's ULA")
TEMPERATURE = {"MALA": 1.0, "ULA": 1.0, "paper's ULA": 0.9}
THEIRS: dict[str, dict[int, float]] = {
    "ULA": {1: 0.093, 5: 0.093, 8: 0.093},
    "MALA": {1: 0.093, 5: 0.091, 8: 0.089},
}
SAME = 0.002

CLAIMS = (
    Claim("more MALA steps improve LPIPS", (Condition("LPIPS of MALA, 8 steps less 1", "below"),)),
    Claim(
        "more ULA steps do not improve LPIPS",
        (Condition("LPIPS of ULA, 8 steps less 1", "above", -SAME),),
    ),
    Claim(
        "more steps of the paper's own ULA do not improve LPIPS",
        (Condition("LPIPS of paper's ULA, 8 steps less 1", "above", -SAME),),
    ),
    Claim("with 8 steps MALA has a lower LPIPS than ULA", (Condition("LPIPS of MALA less ULA, 8 steps", "below"),)),
)


@dataclass(frozen=True)
class CorrectorsOptions:
    """Model and task of the comparison."""

    model: str = "fashion-mnist"
    """the energy: a bundled name or a folder"""
    data: str = "fashion-mnist"
    """whose test images"""
    task: str = "box"


@dataclass(frozen=True)
class CorrectorsSetting:
    """Images, levels of the path, corrector steps per level; pilot images and warm-up steps that adapt MALA's step sizes."""

    images: int = 128
    levels: int = 50
    steps: tuple[int, ...] = (0, 1, 5, 8)
    pilots: int = 16
    warm_up: int = 15
    shown: int = 6
    seed: int = 0


FULL = CorrectorsSetting()
QUICK = replace(FULL, images=4, levels=8, steps=(0, 1, 8), pilots=2, warm_up=4)


@dataclass(frozen=True)
class Corrected:
    """Samples [N, C, H, W] of one kind and number of steps, mean acceptance, evaluations of a sample, and seconds of an image."""

    samples: Tensor
    acceptance: float
    evaluations: int
    seconds: float


def measured(energy: LearnedEnergy, x: Tensor, task: str, seed: int) -> Lifted:
    """The same measurements and fills for all."""
    degradation = parse_task(task, (x.shape[2], x.shape[3]))
    measurement = degradation.measure(x, keyed_generator(seed, "correctors", "noise"))
    return Posterior(energy, measurement, check=False).lift(keyed_generator(seed, "correctors", "fill"))


def restore(
    energy: LearnedEnergy, y: Lifted, kernels: tuple[Kernel, ...] | None, steps: int, temperature: float, levels: int
) -> Corrected:
    """One sample per measurement."""
    parts, accepted, evaluations, begun = [], [], 0, time.process_time()
    for rows in chunks(len(y.y)):
        cov = y.cov[rows] if y.cov.batch > 1 else y.cov
        result = sample(
            energy,
            y.y[rows],
            cov,
            clamped(cov, energy.range.minimum, levels),
            corrector=kernels,
            corrector_steps=max(steps, 1),
            temperature=temperature if kernels else 1.0,
            generator=keyed_generator("correctors", rows.start),
        )
        parts.append(result.samples)
        evaluations = max(evaluations, result.evaluations)
        accepted.append(1.0 if result.info is None else float(result.info.acceptance.mean()))
    seconds = (time.process_time() - begun) / len(y.y)
    return Corrected(torch.cat(parts), sum(accepted) / len(accepted), evaluations, seconds)


def tuned(energy: LearnedEnergy, y: Lifted, setting: CorrectorsSetting) -> tuple[float, ...]:
    """MALA's step size at every level."""
    rows = slice(0, setting.pilots)
    cov = y.cov[rows] if y.cov.batch > 1 else y.cov
    path = clamped(cov, energy.range.minimum, setting.levels)
    generator = keyed_generator(setting.seed, "correctors", "tune")
    kernels = tune(energy, y.y[rows], cov, path, steps=setting.warm_up, generator=generator)
    return tuple(float(torch.as_tensor(kernel.step_size)) for kernel in kernels)


def kernels_of(kind: str, sizes: tuple[float, ...]) -> tuple[Kernel, ...]:
    """A kernel for each level."""
    makers: dict[str, Any] = {"MALA": MALA, "ULA": ULA, "paper's ULA": lambda size: SignalToNoiseULA()}
    return tuple(makers[kind](size) for size in sizes)


def run(out: Path, quick: bool, progress: Progress, options: CorrectorsOptions) -> ExperimentResult:
    """Every kind with every number of steps."""
    setting = QUICK if quick else FULL
    energy = load_energy(options.model)
    x = held_out(options.data, setting.images, fixed_shape(energy)).x
    y = measured(energy, x, options.task, setting.seed)
    weights = {"model": hash_weights(energy)}
    cache = Cache.of("correctors", out, Corrected)
    made_from = weights | asdict(options) | asdict(setting)
    sizes = cache.get("sizes", made_from, partial(tuned, energy, y, setting))
    cells = [("none", 0), *((kind, steps) for kind in KINDS for steps in setting.steps if steps)]
    found: dict[tuple[str, int], Corrected] = {}
    for done, (kind, steps) in enumerate(cells):
        kernels = kernels_of(kind, sizes) if steps else None
        temperature = TEMPERATURE.get(kind, 1.0)
        make = partial(restore, energy, y, kernels, steps, temperature, setting.levels)
        found[kind, steps] = cache.get(f"{kind.replace(' ', '-')}-{steps}", made_from, make)
        progress("correctors", done + 1, len(cells))
    metrics = metrics_of(found, x)
    paper = {
        "source": "section 4.2.2; table inv_celeba_ablation",
        "claims": [claim.text for claim in CLAIMS],
        "figures": THEIRS,
        "departures": [
            f"{setting.levels} levels of the clamped path and our two-step predictor (paper: 600 geometric levels, Euler)",
            f"{options.data}, {setting.images} images",
        ],
    }
    shown = {f"{kind}, {steps}" if steps else "none": c.samples[: setting.shown] for (kind, steps), c in found.items()}
    pictures = {"truth": x[: setting.shown], **shown}
    tables = (table_of(found, metrics, fixed_shape(energy)[1:]),)
    return ExperimentResult(metrics, paper, pictures, asdict(setting), weights, {"seed": setting.seed}, CLAIMS, tables)


def metrics_of(found: dict[tuple[str, int], Corrected], x: Tensor) -> dict[str, float]:
    """LPIPS and PSNR of each, and what more steps change, image by image."""
    perceptual = METRICS["LPIPS-Alex"].function if "LPIPS-Alex" in available_metrics() else None
    values: dict[tuple[str, int], Tensor] = {}
    out: dict[str, float] = {}
    for (kind, steps), corrected in found.items():
        name = f"{kind}, {steps} steps"
        pictures = corrected.samples.clamp(0, 1)
        out |= interval_metrics(f"PSNR of {name}", mean_interval(psnr(pictures, x)))
        out |= {
            f"acceptance of {name}": corrected.acceptance,
            f"evaluations of {name}": corrected.evaluations,
            f"seconds of {name}": corrected.seconds,
        }
        if perceptual is not None:
            values[kind, steps] = torch.cat([perceptual(pictures[r], x[r]) for r in chunks(len(x), 32)])
            out |= interval_metrics(f"LPIPS of {name}", mean_interval(values[kind, steps]))
    for kind in KINDS:
        if (kind, 8) in values and (kind, 1) in values:
            out |= interval_metrics(
                f"LPIPS of {kind}, 8 steps less 1", mean_interval(values[kind, 8] - values[kind, 1])
            )
    if ("MALA", 8) in values and ("ULA", 8) in values:
        out |= interval_metrics("LPIPS of MALA less ULA, 8 steps", mean_interval(values["MALA", 8] - values["ULA", 8]))
    return out


def table_of(found: dict[tuple[str, int], Corrected], metrics: dict[str, float], size: tuple[int, int]) -> ResultTable:
    """The paper's numbers beside ours."""
    columns = (
        "corrector",
        "steps",
        metric_label("LPIPS-Alex", size),
        "PSNR",
        "acceptance",
        "evaluations",
        "processor s/image",
    )
    rows = []
    for kind, steps in found:
        name = f"{kind}, {steps} steps"
        scores = [
            interval_of(metrics, f"{m} of {name}") if f"{m} of {name}" in metrics else None for m in ("LPIPS", "PSNR")
        ]
        costs = [metrics[f"{what} of {name}"] for what in ("acceptance", "evaluations", "seconds")]
        rows.append((kind, steps, *scores, *costs, THEIRS.get(kind, {}).get(steps)))
    return ResultTable("Corrector steps per level", (*columns, "paper's LPIPS"), tuple(rows))

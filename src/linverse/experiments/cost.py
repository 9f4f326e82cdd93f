"""What a sample costs: seconds, evaluations and gradients, and what the embedding of Σ adds to a network (paper §3.3 and appendix C.4).

A batch of 16 images is deblurred by every method with its own settings, and by ours and DPS with as many evaluations; times are of
repetitions in turn, so that a busy machine is busy for all. The embedding: the same U-Net as an inner product, with the paper's two
branches, with our space–frequency map, and with one number for the noise (Karras et al.); seconds of an energy and its gradient in y.
Ratios are paired within a repetition.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linverse.baselines import METHODS
from linverse.covariance import identity
from linverse.degradations.tasks import parse_task
from linverse.energy import fixed_shape
from linverse.evaluation.models import held_out
from linverse.evaluation.networks import Models
from linverse.experiments.claims import Claim, Condition, interval_metrics, interval_of, mean_interval
from linverse.experiments.companions import load_with_companions
from linverse.experiments.framework import ExperimentResult
from linverse.experiments.tables import ResultTable
from linverse.models.embeddings.isotropic import IsotropicEmbedding
from linverse.models.energies.learned import EnergyConfig, LearnedEnergy
from linverse.models.networks.unet import UNetConfig
from linverse.progress import Progress
from linverse.rng import keyed_generator, normal_like

THEIRS = {"ours": 139.0, "dps": 167.0, "red-diff": 22.0}
COMPARABLE, SMALL = 1.5, 1.1  # "comparable": within a factor of 1.5; "no significant overhead": within a tenth

CLAIMS = (
    Claim(
        "at as many evaluations ours takes a time comparable with that of DPS (within a factor of 1.5)",
        (
            Condition("seconds of ours over dps", "below", COMPARABLE),
            Condition("seconds of ours over dps", "above", 1 / COMPARABLE),
        ),
    ),
    Claim("RED-Diff is the fastest of the three", (Condition("seconds of ours over red-diff", "above", 1.0),)),
    Claim(
        "the two-branch embedding adds no significant overhead (at most a tenth)",
        (Condition("two-branch over isotropic", "below", SMALL),),
    ),
)


@dataclass(frozen=True)
class CostOptions:
    """Models and task."""

    model: str = "fashion-mnist"
    """the energy: a bundled name or a folder"""
    companions: str = ""
    """the bundled model whose score and Palette networks the other methods use (default: the same)"""
    data: str = "fashion-mnist"
    task: str = "gauss"


@dataclass(frozen=True)
class CostSetting:
    """Images at once (as the paper's), steps of every method, repetitions; the network of the embeddings' comparison."""

    images: int = 16
    steps: int = 100
    repetitions: int = 5
    channels: int = 128
    blocks: int = 4
    side: int = 64
    embedding_images: int = 2
    seed: int = 0


FULL = CostSetting()
QUICK = replace(FULL, images=2, steps=4, repetitions=2, channels=8, blocks=1, side=16)
EMBEDDINGS = ("isotropic", "two-branch", "space-frequency")


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds of this thread's work (a busy machine does not count), and what came out."""
    begun = time.process_time()
    result = work()
    return time.process_time() - begun, result


def solver_times(
    options: CostOptions, setting: CostSetting, progress: Progress
) -> tuple[dict[str, Tensor], dict[str, Any], Models]:
    """Seconds [repetitions] of every method, and its last solution."""
    models = load_with_companions(options.model, options.companions)
    shape = fixed_shape(models.energy)
    x = held_out(options.data, setting.images, shape).x
    degradation = parse_task(options.task, shape[1:])
    raw = degradation.measure(x, keyed_generator(setting.seed, "cost")).raw
    seconds: dict[str, list[float]] = {name: [] for name in THEIRS}
    solutions: dict[str, Any] = {}
    for repetition in range(setting.repetitions):
        for name in THEIRS:
            model = models.energy if METHODS[name].needs == "energy" else models.denoiser
            generator = keyed_generator(setting.seed, "cost", repetition)
            work = partial(METHODS[name].solve, model, degradation, raw, generator, steps=setting.steps)
            took, solutions[name] = timed(work)
            seconds[name].append(took)
        progress("solvers", repetition + 1, setting.repetitions)
    return {name: torch.tensor(times, dtype=torch.float64) for name, times in seconds.items()}, solutions, models


def network_with(embedding: str, setting: CostSetting) -> LearnedEnergy:
    """The paper's network (smaller in a quick run) with one of the embeddings."""
    levels = (1, 2, 2, 2) if setting.side >= 64 else (1, 2)
    backbone = UNetConfig(
        channels=setting.channels, multipliers=levels, blocks=setting.blocks, embedding=4 * setting.channels, dropout=0.0,
        attention_levels=(2,) if len(levels) > 2 else (1,),
    )  # fmt: skip
    kind: Any = "two-branch" if embedding == "isotropic" else embedding
    shape = (3, setting.side, setting.side)
    config = EnergyConfig(shape, 1e-9, 1e3, (), parameterisation="inner-product", embedding=kind, backbone=backbone)
    energy = LearnedEnergy(config).eval()
    if embedding == "isotropic":
        energy.form.embedding = IsotropicEmbedding(backbone.embedding, len(levels))
    return energy


def embedding_times(setting: CostSetting, progress: Progress) -> tuple[dict[str, Tensor], dict[str, int]]:
    """Seconds [repetitions] of an energy and its gradient with every embedding, and the parameters of each network."""
    energies = {name: network_with(name, setting) for name in EMBEDDINGS}
    shape = (3, setting.side, setting.side)
    cov = identity("spatial", shape).isotropic(0.1).expand(setting.embedding_images)
    y = normal_like(torch.empty(setting.embedding_images, *shape), keyed_generator(setting.seed, "cost", "embedding"))

    def gradient(energy: LearnedEnergy) -> Tensor:
        leaf = y.clone().requires_grad_()
        return torch.autograd.grad(energy(leaf, cov).sum(), leaf)[0]

    seconds: dict[str, list[float]] = {name: [] for name in EMBEDDINGS}
    for repetition in range(-1, setting.repetitions):  # the first warms up
        for name, energy in energies.items():
            took = timed(partial(gradient, energy))[0]
            if repetition >= 0:
                seconds[name].append(took)
        progress("embeddings", repetition + 2, setting.repetitions + 1)
    parameters = {name: sum(p.numel() for p in energy.parameters()) for name, energy in energies.items()}
    return {name: torch.tensor(times, dtype=torch.float64) for name, times in seconds.items()}, parameters


def run(out: Path, quick: bool, progress: Progress, options: CostOptions) -> ExperimentResult:
    """Solvers, then embeddings."""
    setting = QUICK if quick else FULL
    seconds, solutions, models = solver_times(options, setting, progress)
    embeddings, parameters = embedding_times(setting, progress)
    metrics: dict[str, float] = {}
    for name, times in seconds.items():
        metrics |= interval_metrics(f"seconds of {name}", mean_interval(times))
        metrics[f"evaluations of {name}"] = solutions[name].evaluations
        metrics[f"gradients of {name}"] = solutions[name].gradients
        if name != "ours":
            metrics |= interval_metrics(f"seconds of ours over {name}", mean_interval(seconds["ours"] / times))
    for name, times in embeddings.items():
        metrics |= interval_metrics(f"seconds of the {name} embedding's network", mean_interval(times))
        metrics[f"parameters with the {name} embedding"] = parameters[name]
        if name != "isotropic":
            metrics |= interval_metrics(f"{name} over isotropic", mean_interval(times / embeddings["isotropic"]))
    paper = {
        "source": "appendix, Computational cost for inference; section 3.3",
        "claims": [claim.text for claim in CLAIMS],
        "figures": {f"seconds of {name}": value for name, value in THEIRS.items()}
        | {"AFHQ: DPS": 55, "AFHQ: ours": 74},
        "departures": [
            f"{options.data}, {setting.images} images at once, {setting.steps} steps of every method; processor seconds of one device",
            "our score network has one evaluation per step where the energy has one and its gradient",
        ],
    }
    found = {"solvers": seconds, "embeddings": embeddings}
    tables = solver_table(metrics), embedding_table(metrics)
    return ExperimentResult(
        metrics, paper, found, asdict(setting), models.weights(), {"seed": setting.seed}, CLAIMS, tables
    )


def solver_table(metrics: dict[str, float]) -> ResultTable:
    """The paper's table beside ours."""
    columns = (
        "method",
        "processor seconds",
        "evaluations",
        "gradients",
        "ours over it",
        "paper's seconds",
        "paper's ours over it",
    )
    rows = []
    for name, theirs in THEIRS.items():
        ratio = f"seconds of ours over {name}"
        cells = (
            interval_of(metrics, f"seconds of {name}"),
            metrics[f"evaluations of {name}"],
            metrics[f"gradients of {name}"],
        )
        ours = interval_of(metrics, ratio) if ratio in metrics else None
        rows.append((name, *cells, ours, theirs, THEIRS["ours"] / theirs if ours else None))
    return ResultTable("Deblurring a batch", columns, tuple(rows))


def embedding_table(metrics: dict[str, float]) -> ResultTable:
    """Networks that differ in their embedding alone."""
    columns = ("embedding", "parameters", "processor seconds of an energy and its gradient", "over isotropic")
    rows = []
    for name in EMBEDDINGS:
        ratio = interval_of(metrics, f"{name} over isotropic") if name != "isotropic" else None
        seconds = interval_of(metrics, f"seconds of the {name} embedding's network")
        rows.append((name, metrics[f"parameters with the {name} embedding"], seconds, ratio))
    return ResultTable("The embedding of Σ", columns, tuple(rows))

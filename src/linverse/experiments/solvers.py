"""Solvers side by side: the paper's tables of inverse problems (table 1, and those of appendix D.1), with galleries.

All methods see the same measurements (`evaluation`). Of every image PSNR, LPIPS and DISTS; of the set the kernel distance
    KID = unbiased MMD² under (⟨f, f'⟩/D + 1)³ of features f      (Bińkowski et al. 2018),
which has no bias at any number of images, where a Fréchet distance of 400 images has one larger than most differences; its name says
whose features they are. Ours is compared with each method of the paper, image by image; a difference of KIDs has a jackknife's interval
(blocks of images left out of all methods at once).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from linverse.data.catalogue import may_be_shown
from linverse.degradations.masks import Masking
from linverse.energy import fixed_shape
from linverse.evaluation import EvaluationFolder, EvaluationSetting, Plan, make_plan, parse_contender, run_units
from linverse.evaluation.defaults import trained_on
from linverse.evaluation.models import held_out
from linverse.evaluation.plan import Unit
from linverse.evaluation.results import build_report, pair_tensors, read_timings
from linverse.experiments.cache import cache_folder
from linverse.experiments.claims import Claim, interval_metrics, interval_of, jackknife_intervals, mean_interval
from linverse.experiments.companions import load_with_companions
from linverse.experiments.framework import ExperimentResult
from linverse.experiments.solver_tables import KID, OURS, TABLES, SolverTable, quantity
from linverse.experiments.tables import Cell, ResultTable
from linverse.metrics import Interval, available_metrics, metric_label
from linverse.metrics.distribution import cubic_kernel
from linverse.progress import Progress

METRICS = ("PSNR", "LPIPS-Alex", "DISTS")
BLOCKS = 20  # of the jackknife


@dataclass(frozen=True)
class SolversOptions:
    """Which table, of which model and images."""

    table: Literal["main", "more", "unseen"] = "main"
    """table 1; ×4 and half masks; degradations that were not trained on"""
    model: str = "fashion-mnist"
    """the energy: a bundled name or a folder"""
    companions: str = ""
    """the bundled model whose score and Palette networks the other methods use (default: the same)"""
    data: str = ""
    """whose test images (default: those of the model)"""
    images: int = 0
    """how many (default: as the paper's table)"""
    method: tuple[str, ...] = ()
    """instead of the table's own; ours among them"""
    batch: int = 16


QUICK_IMAGES = 4
QUICK_METHODS = ("posterior-mean", "dps:steps=10", "red-diff:steps=10", "ours:steps=8", "ours-surrogate:steps=8")
SHOWN = 6


@dataclass(frozen=True)
class TaskGallery:
    """What the figure shows of a task: truth and measurement, [n, C, H, W], the mask of what was not measured, and each method's.

    No images (n = 0) where they may not be passed on: then the intervals of each method's `measures` are drawn.
    """

    title: str
    truth: Tensor
    measured: Tensor
    missing: Tensor
    restored: dict[str, Tensor]
    measures: dict[str, dict[str, Interval]]


def short(label: str) -> str:
    """A method without its settings."""
    return label.partition(":")[0]


def make_the_plan(table: SolverTable, options: SolversOptions, quick: bool) -> Plan:
    """Models, images, tasks and methods; methods whose models are missing are left out."""
    models = load_with_companions(options.model, options.companions)
    data = options.data or trained_on(options.model)
    shape = fixed_shape(models.energy)
    count = options.images or (QUICK_IMAGES if quick else table.images)
    truth = held_out(data, count, shape).x
    known = {short(name) for name in table.methods}
    quickly = tuple(name for name in QUICK_METHODS if short(name) in known)
    names = options.method or (quickly if quick else table.methods)
    metrics = tuple(name for name in METRICS if name in available_metrics())
    setting = EvaluationSetting(data, min(options.batch, count), 0, metrics)
    plan = make_plan(models, truth, tuple(table.tasks), [parse_contender(name) for name in names], setting)
    skipped = plan.skipped()
    usable = [c for c in plan.contenders if not all((task.label, c.label) in skipped for task in plan.tasks)]
    return replace(plan, contenders=tuple(usable))


# --- distances of sets ---------------------------------------------------------------------------------------------------------------


def kernel_distance(k_xx: Tensor, k_xy: Tensor, k_yy: Tensor, keep: Tensor) -> Tensor:
    """Unbiased MMD² of the images in `keep`, from tables of the kernel [N, N]."""
    n = int(keep.sum())
    xx, xy, yy = (table[keep][:, keep] for table in (k_xx, k_xy, k_yy))
    within = [(table.sum() - table.diagonal().sum()) / (n * (n - 1)) for table in (xx, yy)]
    return within[0] + within[1] - 2 * xy.mean()


def kernel_distances(features: dict[str, Tensor], reference: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """KID of every method's features [N, D], and those with a block of images left out, [g]."""
    count = len(reference)
    blocks = min(BLOCKS, count // 2)
    member = torch.arange(count) * blocks // count
    everything = torch.ones(count, dtype=torch.bool)
    y = reference.double()
    k_yy, out = cubic_kernel(y, y), {}
    for name, vectors in features.items():
        x = vectors.double()
        tables = cubic_kernel(x, x), cubic_kernel(x, y), k_yy
        left = [kernel_distance(*tables, member != block) for block in range(blocks)]
        out[name] = (kernel_distance(*tables, everything), torch.stack(left))
    return out


def kernel_metrics(task: str, features: dict[str, Tensor], reference: Tensor) -> dict[str, float]:
    """KID of every method, and ours less each of them."""
    if len(reference) < 4:
        return {}
    found = kernel_distances(features, reference)
    out: dict[str, float] = {}
    for name, (whole, left) in found.items():
        out |= interval_metrics(f"{task}: {KID} of {name}", jackknife_intervals(left[:, None], whole[None])[0])
        if name != OURS and OURS in found:
            whole, left = found[OURS][0] - whole, found[OURS][1] - left
            out |= interval_metrics(quantity(task, KID, name), jackknife_intervals(left[:, None], whole[None])[0])
    return out


# --- one task ------------------------------------------------------------------------------------------------------------------------


def task_metrics(task: str, methods: dict[str, Any]) -> dict[str, float]:
    """Every method's means with their intervals, ours less each of them, and what one image costs."""
    out: dict[str, float] = {}
    done = {short(label): pair for label, pair in methods.items() if pair["status"] == "done"}
    for name, pair in done.items():
        for metric in METRICS:
            values = column(pair, metric)
            if values is None:
                continue
            plain = metric.partition("-")[0]
            out |= interval_metrics(f"{task}: {plain} of {name}", mean_interval(values))
            ours = column(done[OURS], metric) if OURS in done else None
            if name != OURS and ours is not None:
                out |= interval_metrics(quantity(task, plain, name), mean_interval(ours - values))
        for cost in ("evaluations", "gradients"):
            if pair.get(cost) is not None:
                out[f"{task}: {cost} of {name}"] = pair[cost]
    return out


def column(pair: dict[str, Any], metric: str) -> Tensor | None:
    """A metric's values of every image, under whatever full name it has (LPIPS-Alex@56)."""
    for name, values in pair["values"].items():
        if name == metric or name.startswith(f"{metric}@"):
            return torch.tensor(values, dtype=torch.float64).clamp(max=100.0)  # the PSNR of equal images is infinite
    return None


def gallery(
    plan: Plan, store: EvaluationFolder, task_number: int, title: str, metrics: dict[str, float]
) -> TaskGallery:
    """The first images of a task, and its numbers out of all metrics."""
    task = plan.tasks[task_number]
    unit = Unit(task, None, 0)
    shown = min(SHOWN, len(plan.images(unit))) if may_be_shown(plan.setting.data) else 0
    seen = task.degradation.from_raw(plan.raw(unit))
    truth = plan.images(unit)[:shown]
    skipped = plan.skipped()
    restored = {
        short(c.label): pair_tensors(plan, store, task, c, "samples")[:shown]
        for c in plan.contenders
        if (task.label, c.label) not in skipped and store.done(Unit(task, c, 0))
    }
    missing = torch.zeros_like(truth[:, :1], dtype=torch.bool)
    measured = seen.raw[:shown]
    if isinstance(task.degradation, Masking):
        size = (truth.shape[2], truth.shape[3])
        missing = ~task.degradation.mask_for(size)[:shown].any(dim=1, keepdim=True).expand_as(missing)
    elif measured.shape != truth.shape:
        measured = torch.nn.functional.interpolate(seen.raw, truth.shape[-2:])[:shown]
    measures = {
        name: {
            method: interval_of(metrics, quantity)
            for method in restored
            if (quantity := f"{task.label}: {name} of {method}") in metrics
        }
        for name in ("PSNR", "LPIPS", "DISTS")
    }
    return TaskGallery(
        title, truth, measured, missing, restored, {name: each for name, each in measures.items() if each}
    )


# --- the experiment --------------------------------------------------------------------------------------------------------------------


def run(out: Path, quick: bool, progress: Progress, options: SolversOptions) -> ExperimentResult:
    """All methods on all tasks of the table."""
    table = TABLES[options.table]
    plan = make_the_plan(table, options, quick)
    store = EvaluationFolder(cache_folder("solvers", out) / f"{options.table}-{folder_name(plan)}", plan)
    run_units(plan, store, progress=progress)
    report, timings = build_report(plan, store), read_timings(plan, store)
    metrics: dict[str, float] = {"images": float(len(plan.truth))}
    galleries = []
    for number, (task, title) in enumerate(table.tasks.items()):
        methods = report["tasks"][task]["methods"]
        metrics |= task_metrics(task, {label: pair for label, pair in methods.items() if label != "truth"})
        done = [c for c in plan.contenders if methods[c.label]["status"] == "done"]
        features = {short(c.label): pair_tensors(plan, store, plan.tasks[number], c, "features") for c in done}
        metrics |= kernel_metrics(task, features, pair_tensors(plan, store, plan.tasks[number], None, "features"))
        metrics |= {f"{task}: seconds of {short(c.label)}": timings["tasks"][task][c.label]["per_image"] for c in done}
        galleries.append(gallery(plan, store, number, title, metrics))
    claims = testable(table.claims, plan)
    tables = tuple(comparison_table(table, task, metrics, plan) for task in table.tasks)
    paper = {
        "source": "table 1 and appendix D.1",
        "claims": [claim.text for claim in claims],
        "figures": table.paper,
        "departures": [
            *table.departures,
            f"{plan.setting.data}, {len(plan.truth)} images of {plan.truth.shape[-2]}×{plan.truth.shape[-1]} "
            "(paper: CelebA, 400 of 64×64)",
            "LPIPS and DISTS are fed as their authors do, in [−1, 1]; the paper's code feeds LPIPS [0, 1]",
            *([] if plan.models.palettes else ["Palette, which needs a network of its own for each task, is left out"]),
            f"no FID: of so few images it says little; KID is on the features of {report['configuration']['features']}",
        ],
    }
    configuration = {"images": len(plan.truth), "methods": [c.label for c in plan.contenders], "tasks": [*table.tasks]}
    return ExperimentResult(
        metrics, paper, galleries, configuration, plan.models.weights(), {"seed": plan.setting.seed}, claims, tables
    )


def testable(claims: tuple[Claim, ...], plan: Plan) -> tuple[Claim, ...]:
    """Claims without their comparisons with Palette where no conditional network was trained for these images."""
    if plan.models.palettes:
        return claims
    return tuple(replace(c, rule=tuple(r for r in c.rule if not r.quantity.endswith("less palette"))) for c in claims)


def folder_name(plan: Plan) -> str:
    """A folder for these weights and images: those of another run are not gone on with."""
    return hashlib.sha256(json.dumps(plan.configuration, sort_keys=True).encode()).hexdigest()[:12]


def comparison_table(table: SolverTable, task: str, metrics: dict[str, float], plan: Plan) -> ResultTable:
    """The paper's numbers and ours, method by method."""
    size = (plan.truth.shape[2], plan.truth.shape[3])
    names = {"PSNR": "PSNR", "LPIPS": metric_label("LPIPS-Alex", size), "DISTS": "DISTS", KID: f"1000 {KID}"}
    columns = ("method", *names.values(), "evaluations", "s/image", *(f"paper's {name}" for name in table.columns))
    rows = []
    for contender in plan.contenders:
        method = short(contender.label)
        theirs = table.paper[task].get(method, (None,) * len(table.columns))
        if f"{task}: PSNR of {method}" not in metrics:
            continue
        factors = {name: 1000.0 if name == KID else 1.0 for name in names}
        cells: list[Cell] = [shown_interval(metrics, f"{task}: {n} of {method}", f) for n, f in factors.items()]
        cells += [metrics.get(f"{task}: {cost} of {method}") for cost in ("evaluations", "seconds")]
        rows.append((method, *cells, *theirs))
    return ResultTable(table.tasks[task], columns, tuple(rows))


def shown_interval(metrics: dict[str, float], name: str, factor: float) -> Cell:
    """An interval of the record in another unit; None where it was not measured."""
    if name not in metrics:
        return None
    found = interval_of(metrics, name)
    return Interval(factor * found.estimate, factor * found.low, factor * found.high)

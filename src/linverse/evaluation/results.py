"""From the parts to the result: every value of every image, means with confidence intervals, and what did not work.

`results.json` holds all that is determined by the seed, and the same run gives the same bytes; seconds are in `timings.json`. Intervals
are bootstrapped over images. The Fréchet distance is between a method's pictures and the true ones, on the features that its name says
(Inception's, if the user supplies them: then it is the FID); of few images it is biased upwards, alike for all methods of a table.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from linverse.energy import fixed_shape
from linverse.evaluation.audit import POSTERIOR, PRIOR
from linverse.evaluation.contenders import TRUTH, Contender
from linverse.evaluation.measures import choose_features, frechet_name
from linverse.evaluation.plan import Plan, Task, Unit
from linverse.evaluation.runner import UNKNOWN
from linverse.evaluation.spread import COVERAGE
from linverse.evaluation.storage import EvaluationFolder
from linverse.extras import require
from linverse.metrics import (
    Features,
    Interval,
    bootstrap_mean,
    frechet_from_features,
    metric_label,
)
from linverse.rng import keyed_generator

FRECHET_RESAMPLES = 20
SPENT = {
    "solving": "seconds",
    "metrics": "metrics",
    "densities": "densities",
    "coverage": "coverage",
}  # what a unit's time went into
Record = dict[str, Any]


def build_report(plan: Plan, store: EvaluationFolder) -> Record:
    """All that is known, in the order of the plan; pairs that are not finished say so."""
    features, tasks = choose_features(plan), {}
    for task in plan.tasks:
        truth = read_pair(plan, store, task, None)
        methods = {TRUTH: truth}
        for contender in plan.contenders:
            pair = read_pair(plan, store, task, contender)
            if pair["status"] == truth["status"] == "done":
                pair["summary"] |= frechet(plan, store, task, contender, features)
                pair["audit"] = gaps(pair, truth)
            methods[contender.label] = pair
        about = {"options": task.options, "sigma": task.degradation.sigma, "audit_sigma": task.audited.sigma}
        tasks[task.label] = about | {"methods": methods}
    return {"configuration": plan.configuration | {"features": features.name}, "tasks": tasks}


def read_timings(plan: Plan, store: EvaluationFolder) -> Record:
    """Seconds an image of every finished pair, and of each batch; and what all units took together, of every kind of work."""
    tasks: Record = {}
    total = dict.fromkeys(SPENT, 0.0)
    for task in plan.tasks:
        tasks[task.label] = {}
        for contender in (None, *plan.contenders):
            done = [store.timing(unit) for unit in pair_units(plan, task, contender) if store.done(unit)]
            for name, key in SPENT.items():
                total[name] += sum(timing.get(key, 0.0) for timing in done)
            if contender is not None and len(done) == len(plan.batches):
                seconds = [timing["seconds"] for timing in done]
                tasks[task.label][contender.label] = {"per_image": sum(seconds) / len(plan.truth), "batches": seconds}
    return {"tasks": tasks, "spent": total}


# --- one pair ----------------------------------------------------------------------------------------------------------------


def pair_units(plan: Plan, task: Task, contender: Contender | None) -> list[Unit]:
    """The batches of a pair."""
    return [Unit(task, contender, k) for k in range(len(plan.batches))]


def read_pair(plan: Plan, store: EvaluationFolder, task: Task, contender: Contender | None) -> Record:
    """A pair's values image by image and their summary; or why there are none."""
    label = TRUTH if contender is None else contender.label
    reason = plan.skipped().get((task.label, label))
    if reason:
        return {"status": "skipped", "reason": reason}
    units = pair_units(plan, task, contender)
    errors = [error for unit in units if (error := store.error(unit))]
    if errors:
        return {"status": errors[0]["kind"], "reason": errors[0]["reason"]}
    missing = sum(not store.done(unit) for unit in units)
    if missing:
        return {
            "status": "unfinished",
            "reason": f"{missing} of {len(units)} batches are not done: run the command again",
        }
    return merge([store.record(unit) for unit in units], plan, task, contender)


def merge(records: list[Record], plan: Plan, task: Task, contender: Contender | None) -> Record:
    """The batches of a pair side by side."""
    size = fixed_shape(plan.models.energy)[1:]
    names = {name: metric_label(name, size) if name in plan.setting.metrics else name for name in records[0]["values"]}
    values = {text: [value for record in records for value in record["values"][name]] for name, text in names.items()}
    merged: Record = {
        "status": "done",
        "network": "none" if contender is None else plan.choose(task, contender).kind,
        "settings": {} if contender is None else {key: repr(value) for key, value in contender.settings.items()},
        "values": values,
        "summary": {name: summary(torch.tensor(v, dtype=torch.float64)) for name, v in values.items()},
        "warnings": sorted({note for record in records for note in record["warnings"]}),
    }
    covered = [share for record in records for share in record.get("coverage", [])]
    if covered:
        merged["coverage"] = covered
        merged["summary"][COVERAGE] = summary(torch.tensor(covered, dtype=torch.float64))
    costs = {name: max(record[name] for record in records) for name in ("evaluations", "gradients")}
    return merged | {name: None if cost == UNKNOWN else cost for name, cost in costs.items()}


def summary(values: Tensor) -> dict[str, float | None]:
    """The mean and its interval; of one image there is no interval."""
    if len(values) < 2:
        return {"estimate": float(values.mean()), "low": None, "high": None}
    return as_record(bootstrap_mean(values))


def as_record(interval: Interval) -> dict[str, float | None]:
    """An interval as JSON keeps it."""
    return {key: value for key, value in asdict(interval).items() if key != "level"}


def gaps(pair: Record, truth: Record) -> Record:
    """log p of a method's images less that of the true ones, image by image: 0 on average for exact samples."""
    out: Record = {}
    for name in (PRIOR, POSTERIOR):
        ours, theirs = (torch.tensor(p["values"][name], dtype=torch.float64) for p in (pair, truth))
        out[f"{name} less the truth's"] = summary(ours - theirs)
    return out


# --- sets of images ----------------------------------------------------------------------------------------------------------


def pair_tensors(plan: Plan, store: EvaluationFolder, task: Task, contender: Contender | None, name: str) -> Tensor:
    """All restorations of a pair ("samples"), [N, C, H, W], or their "features", [N, D]."""
    return torch.cat([store.tensors(unit)[name] for unit in pair_units(plan, task, contender)])


def frechet(plan: Plan, store: EvaluationFolder, task: Task, contender: Contender, features: Features) -> Record:
    """The Fréchet distance of a pair under its full name, with its interval; of one image there is none."""
    if len(plan.truth) < 2:
        return {}
    vectors, true = (pair_tensors(plan, store, task, c, "features").double() for c in (contender, None))
    return {frechet_name(features, vectors.shape[1]): frechet_interval(vectors, true)}


def frechet_interval(vectors: Tensor, reference: Tensor) -> dict[str, float | None]:
    """d² ± t standard errors, those of a few resamples of both sets.

    The interval is for d² of so many images: resamples hold fewer different ones and are biased upwards, so that quantiles of them would
    not even contain d². Twenty resamples give the standard error to 16 %; each costs a decomposition of all features.
    """
    t = require("scipy.stats", "evaluate").t
    generator = keyed_generator("frechet")
    estimate, draws = float(frechet_from_features(vectors, reference)), []
    for _ in range(FRECHET_RESAMPLES):
        rows = [torch.randint(len(v), (len(v),), generator=generator) for v in (vectors, reference)]
        draws.append(float(frechet_from_features(vectors[rows[0]], reference[rows[1]])))
    margin = float(t.ppf(0.975, FRECHET_RESAMPLES - 1) * torch.tensor(draws, dtype=torch.float64).std())
    return {"estimate": estimate, "low": estimate - margin, "high": estimate + margin}

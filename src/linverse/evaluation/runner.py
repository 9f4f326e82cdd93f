"""Doing the work: unit after unit, what fails is written down and the rest goes on.

Units are dealt out to processes by their number (`rank` of `world`); each process writes its own parts into the shared folder, and one
of them reports when all are done.
"""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from torch import Tensor

from linverse.baselines import NotApplicable, Solution
from linverse.evaluation.audit import densities, extrapolation
from linverse.evaluation.plan import Plan, Unit
from linverse.evaluation.scoring import Scorer
from linverse.evaluation.spread import unit_coverage
from linverse.evaluation.storage import EvaluationFolder
from linverse.progress import Progress, silent

UNKNOWN = -1  # the cost of a user's solver that returns images and no more


def run_units(
    plan: Plan,
    store: EvaluationFolder,
    rank: int = 0,
    world: int = 1,
    progress: Progress = silent,
    tell: Callable[[str], None] = lambda text: None,
) -> int:
    """Do this process's share of what is not done; returns how many units it did.

    A method that fails is told at once: nobody should learn of it hours later.
    """
    mine = [unit for unit in plan.units()[rank::world] if not store.done(unit)]
    broken, scorer = set[tuple[str, str]](), Scorer(plan)
    for done, unit in enumerate(mine):
        pair = (unit.task.label, unit.label)
        error = None if pair in broken else run_unit(plan, store, unit, scorer)
        if error is not None:
            broken.add(pair)  # a method that failed on one batch is not tried on the others
            verdict = "is left out" if error["kind"] == "skipped" else "failed, the others go on"
            tell(f"{unit.label} on {unit.task.label} {verdict}: {error['reason']}")
        progress("batches", done + 1, len(mine))
    return len(mine)


def run_unit(plan: Plan, store: EvaluationFolder, unit: Unit, scorer: Scorer) -> dict[str, Any] | None:
    """Solve, score, audit and save one unit; what went wrong, if something did."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            solution, seconds = solve_unit(plan, unit)
            record, vectors, judging = measure_unit(plan, unit, solution, scorer)
            begun = time.perf_counter()
            record["coverage"] = unit_coverage(plan, unit)
            judging["coverage"] = time.perf_counter() - begun
    except Exception as error:  # whatever a method does, the others go on
        store.save_error(unit, describe(error))
        return describe(error)
    notes = {str(w.message) for w in caught if issubclass(w.category, UserWarning)} | set(record["warnings"])
    timing = {"seconds": seconds} | judging
    tensors = {"samples": solution.samples.detach().cpu(), "features": vectors}
    store.save(unit, record | {"warnings": sorted(notes)}, timing, tensors)
    return None


def describe(error: Exception) -> dict[str, Any]:
    """An error as it is kept."""
    text = str(error).strip() or type(error).__name__
    kind = "skipped" if isinstance(error, NotApplicable) else "failed"
    reason = text if isinstance(error, NotApplicable | ValueError) else f"{type(error).__name__}: {text}"
    return {"kind": kind, "reason": reason, "traceback": "".join(traceback.format_exception(error))}


def solve_unit(plan: Plan, unit: Unit) -> tuple[Solution, float]:
    """What the method says, checked, and the seconds it took."""
    truth = plan.images(unit)
    if unit.contender is None:
        return Solution(truth, 0, 0, 0.0), 0.0
    model = plan.choose(unit.task, unit.contender).network
    raw, generator = plan.raw(unit).to(plan.device), plan.solver_generator(unit)
    begun = time.perf_counter()
    answer = unit.contender.solve(model, unit.task.degradation, raw, generator, **unit.contender.given)
    seconds = time.perf_counter() - begun
    solution = answer if isinstance(answer, Solution) else Solution(answer, UNKNOWN, UNKNOWN, seconds)
    check_samples(solution.samples, truth)
    return solution, seconds


def check_samples(samples: Tensor, truth: Tensor) -> None:
    """Refuse what are not finite images of the truth's shape."""
    if not isinstance(samples, Tensor) or samples.shape != truth.shape:
        shape = tuple(samples.shape) if isinstance(samples, Tensor) else type(samples).__name__
        raise ValueError(f"it returned {shape}; images of shape {tuple(truth.shape)} were asked for")
    if not bool(samples.isfinite().all()):
        raise ValueError(f"it returned {int((~samples.isfinite()).sum())} NaN or infinite pixels")


UnitValues = tuple[dict[str, Any], Tensor, dict[str, float]]


def measure_unit(plan: Plan, unit: Unit, solution: Solution, scorer: Scorer) -> UnitValues:
    """Every per-image value of a unit, its features, and the seconds they took.

    Metrics and features are of the picture (clamped to [0, 1]), densities of the answer as it is.
    """
    x = solution.samples.detach().cpu().to(plan.truth.dtype)
    moments = [time.perf_counter()]
    pictures = x.clamp(0, 1)
    values = {} if unit.contender is None else scorer(unit, pictures)
    vectors = scorer.features(pictures).float()
    moments.append(time.perf_counter())
    audited, notes = audit_unit(plan, unit, x)
    moments.append(time.perf_counter())
    values |= audited
    bad = [name for name, value in values.items() if not bool(value.isfinite().all())]
    if bad:
        raise FloatingPointError(f"{', '.join(bad)} of its images is NaN or infinite")
    record = {
        "images": [plan.batches[unit.batch].start, plan.batches[unit.batch].stop],
        "evaluations": solution.evaluations,
        "gradients": solution.gradients,
        "values": {name: value.double().tolist() for name, value in values.items()},
        "warnings": notes,
    }
    return record, vectors, {"metrics": moments[1] - moments[0], "densities": moments[2] - moments[1]}


def audit_unit(plan: Plan, unit: Unit, x: Tensor) -> tuple[dict[str, Tensor], list[str]]:
    """Densities of a unit's images by our energy, and what is to be said about them."""
    raw = plan.audit_raw(unit, plan.raw(unit)).to(plan.device)
    found = densities(
        plan.models.energy, x.to(plan.device), plan.audit_noise(unit).to(plan.device), unit.task.audited, raw
    )
    excess = extrapolation(plan.models.energy, unit.task.audited, raw)
    notes = [f"densities are extrapolated: Σ has {excess}"] if excess else []
    return {name: value.cpu() for name, value in found.items()}, notes

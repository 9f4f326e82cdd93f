"""A comparison that is fair: the same measurements and seeds for every method, resumed where it stopped, with its uncertainty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from linverse.evaluation.contenders import Contender, parse_contender
from linverse.evaluation.measures import check_measures
from linverse.evaluation.networks import Models, PaletteModel
from linverse.evaluation.plan import EvaluationSetting, Plan, make_plan, standard_metrics
from linverse.evaluation.results import Record, build_report, read_timings
from linverse.evaluation.runner import run_units
from linverse.evaluation.storage import EvaluationFolder
from linverse.files import write_json
from linverse.progress import Progress, silent

__all__ = [
    "Contender",
    "EvaluationFolder",
    "EvaluationSetting",
    "Models",
    "PaletteModel",
    "Plan",
    "Record",
    "check_measures",
    "conclude",
    "evaluate_methods",
    "make_plan",
    "parse_contender",
    "run_units",
    "standard_metrics",
]


def evaluate_methods(plan: Plan, folder: Path, progress: Progress = silent) -> Record:
    """Everything in one process: run what is not done, and report (`report.evaluation.write_report` adds tables and pictures)."""
    check_measures(plan)
    store = EvaluationFolder(folder, plan)
    run_units(plan, store, progress=progress)
    return conclude(plan, store)[0]


def conclude(plan: Plan, store: EvaluationFolder) -> tuple[Record, dict[str, Any]]:
    """The report and the timings of all parts, which are also written as results.json and timings.json."""
    report, timings = build_report(plan, store), read_timings(plan, store)
    write_json(store.folder / "results.json", report, 1)
    write_json(store.folder / "timings.json", timings, 1)
    return report, timings

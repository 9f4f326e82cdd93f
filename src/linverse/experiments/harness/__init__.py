"""A comparison that is fair: the same measurements and seeds for every method, resumed where it stopped, reported with its uncertainty."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from linverse.experiments.harness.contenders import Contender, parse_contender
from linverse.experiments.harness.measures import check_measures
from linverse.experiments.harness.networks import Models, PaletteModel
from linverse.experiments.harness.pictures import write_pictures
from linverse.experiments.harness.plan import Plan, Setting, make_plan, standard_metrics
from linverse.experiments.harness.report import Record, build_report, read_timings
from linverse.experiments.harness.runner import Clock, Watch, run_units, unwatched
from linverse.experiments.harness.storage import Store
from linverse.experiments.harness.tables import csv_text, markdown
from linverse.files import write_json, write_whole

__all__ = [
    "Clock",
    "Contender",
    "Models",
    "PaletteModel",
    "Plan",
    "Setting",
    "Store",
    "Watch",
    "check_measures",
    "conclude",
    "evaluate_methods",
    "make_plan",
    "parse_contender",
    "run_units",
    "standard_metrics",
]


def evaluate_methods(plan: Plan, folder: Path, watch: Watch = unwatched, pictures: int = 8) -> Record:
    """Everything in one process: run what is not done, and report."""
    if pictures < 0:
        raise ValueError(f"pictures is the number of images in a grid, 0 for none; got {pictures}")
    check_measures(plan)
    store = Store(folder, plan)
    run_units(plan, store, watch=watch)
    return conclude(plan, store, pictures)[0]


def conclude(plan: Plan, store: Store, pictures: int = 8) -> tuple[Record, dict[str, Any]]:
    """results.json, timings.json, table.md, table.csv and the pictures, from the parts; returns what the first two hold."""
    begun = time.perf_counter()
    report, timings = build_report(plan, store), read_timings(plan, store)
    write_json(store.folder / "results.json", report, 1)
    write_whole(store.folder / "table.md", markdown(report, timings).encode())
    write_whole(store.folder / "table.csv", csv_text(report, timings).encode())
    if pictures:
        write_pictures(store.folder, plan, store, report, pictures)
    timings["spent"]["tables and pictures"] = time.perf_counter() - begun
    write_json(store.folder / "timings.json", timings, 1)
    return report, timings

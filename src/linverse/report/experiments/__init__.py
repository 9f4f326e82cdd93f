"""The record and the figure of an experiment: DIR/NAME.json and DIR/NAME.png, each written whole.

A module of the experiment's name has `draw(found) -> Figure`.
"""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linverse.experiments import run_experiment
from linverse.experiments.cache import cache_folder
from linverse.files import write_json, write_whole
from linverse.progress import Progress, silent
from linverse.report.style import figure_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(name: str, found: Any) -> Figure:
    """The figure of an experiment, from what it found."""
    module = importlib.import_module(f"linverse.report.experiments.{name.replace('-', '_')}")
    figure: Figure = module.draw(found)
    return figure


def write_experiment(
    name: str, out: Path, quick: bool = False, progress: Progress = silent, options: Any = None, label: str = ""
) -> dict[str, Any]:
    """Run an experiment and write its record and figure, under its name or a `label`; returns the record."""
    label = label or name
    # what an interrupted run keeps is its own: two items of the paper may be the same experiment with other options
    work = out if label == name else cache_folder(label, out)
    record, result = run_experiment(name, work, quick, progress, options)
    # the numbers first: a figure that fails to draw must not take them along
    write_json(out / f"{label}.json", record)
    write_whole(out / f"{label}.png", figure_bytes(lambda: draw(name, result.found)))
    shutil.rmtree(cache_folder(label, out), ignore_errors=True)
    return record

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
    name: str, out: Path, quick: bool = False, progress: Progress = silent, options: Any = None
) -> dict[str, Any]:
    """Run an experiment and write its record and figure; returns the record."""
    record, result = run_experiment(name, out, quick, progress, options)
    # the numbers first: a figure that fails to draw must not take them along
    write_json(out / f"{name}.json", record)
    write_whole(out / f"{name}.png", figure_bytes(lambda: draw(name, result.found)))
    shutil.rmtree(cache_folder(name, out), ignore_errors=True)
    return record

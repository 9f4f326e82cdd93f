"""The galleries of a table of solvers: truth, measurement, and a row for each method; intervals where images may not be shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from linverse.experiments.solver_tables import OURS
from linverse.experiments.solvers import TaskGallery
from linverse.report.galleries import draw_rows
from linverse.report.style import BLUE, VERMILION, painted

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(found: list[TaskGallery]) -> Figure:
    """A panel for each task."""
    from matplotlib.figure import Figure

    if not len(found[0].truth):
        return draw_measures(found)
    rows = max(len(task.restored) for task in found) + 2
    columns = len(found[0].truth)
    figure = Figure(figsize=((0.85 * columns + 1.4) * len(found), 0.88 * rows + 0.5), layout="constrained")
    for part, task in zip(figure.subfigures(1, len(found), squeeze=False).flat, found, strict=True):
        draw_rows(part, {"truth": task.truth, "measured": seen(task), **task.restored}, task.title)
    return figure


def draw_measures(found: list[TaskGallery]) -> Figure:
    """A row for each task, a panel for each measure: every method with its interval."""
    from matplotlib.figure import Figure

    names = [*found[0].measures]
    methods = max(len(task.restored) for task in found)
    figure = Figure(figsize=(3.0 * len(names) + 1.0, (0.26 * methods + 0.9) * len(found)), layout="constrained")
    for row, task in zip(figure.subplots(len(found), len(names), squeeze=False, sharey="row"), found, strict=True):
        for axes, (name, each) in zip(row, task.measures.items(), strict=True):
            for place, (method, value) in enumerate(each.items()):
                colour = VERMILION if method == OURS else BLUE
                axes.plot([value.low, value.high], [place, place], color=colour, alpha=0.5, linewidth=3)
                axes.plot(value.estimate, place, "o", color=colour, markersize=4)
            axes.set_yticks(range(len(each)), [*each])
            axes.set_title(f"{task.title}: {name} {'↑' if name == 'PSNR' else '↓'}")
        row[0].invert_yaxis()
    return figure


def seen(task: TaskGallery) -> Tensor:
    """The measurement, with what was not measured in its own colour."""
    pairs = zip(task.measured, task.missing, strict=True)
    return torch.stack([painted(x, hole) if bool(hole.any()) else x.expand(3, -1, -1) for x, hole in pairs])

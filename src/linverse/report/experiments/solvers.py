"""The galleries of a table of solvers: truth, measurement, and a row for each method."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from linverse.experiments.solvers import TaskGallery
from linverse.report.galleries import draw_rows
from linverse.report.style import painted

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(found: list[TaskGallery]) -> Figure:
    """A panel for each task."""
    from matplotlib.figure import Figure

    rows = max(len(task.restored) for task in found) + 2
    columns = len(found[0].truth)
    figure = Figure(figsize=((0.85 * columns + 1.4) * len(found), 0.88 * rows + 0.5), layout="constrained")
    for part, task in zip(figure.subfigures(1, len(found), squeeze=False).flat, found, strict=True):
        draw_rows(part, {"truth": task.truth, "measured": seen(task), **task.restored}, task.title)
    return figure


def seen(task: TaskGallery) -> Tensor:
    """The measurement, with what was not measured in its own colour."""
    pairs = zip(task.measured, task.missing, strict=True)
    return torch.stack([painted(x, hole) if bool(hole.any()) else x.expand(3, -1, -1) for x, hole in pairs])

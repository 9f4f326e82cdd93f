"""Samples along guided and fixed paths, of boxes and of digits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from linverse.report.galleries import draw_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(found: dict[str, dict[str, Tensor]]) -> Figure:
    """A panel for each problem, a row for each path."""
    from matplotlib.figure import Figure

    columns = len(next(iter(found.values()))["truth"])
    rows = max(len(part) for part in found.values())
    figure = Figure(figsize=((0.85 * columns + 1.2) * len(found), 0.88 * rows + 0.5), layout="constrained")
    for part, (name, pictures) in zip(figure.subfigures(1, len(found), squeeze=False).flat, found.items(), strict=True):
        draw_rows(part, pictures, name.capitalize())
    return figure

"""Rows of pictures with their names at the left, and coloured borders where they mean something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from linverse.report.style import draw_cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_rows(figure: Any, rows: dict[str, Tensor], title: str = "") -> None:
    """A row of images [n, C, H, W] for each name, in a figure or a part of one."""
    count = max(len(images) for images in rows.values())
    grid = figure.subplots(len(rows), count, squeeze=False, gridspec_kw={"wspace": 0.03, "hspace": 0.03})
    for cells, (name, images) in zip(grid, rows.items(), strict=True):
        for number, axes in enumerate(cells):
            draw_cell(axes, images[number] if number < len(images) else None, None)
        cells[0].set_ylabel(name, fontsize=9, rotation=0, ha="right", va="center")
    if title:
        figure.suptitle(title, fontsize=11, fontweight="bold")


def draw_sorted(
    figure: Any, images: Tensor, columns: int, borders: Sequence[Any] | None = None, title: str = ""
) -> None:
    """Images [n, C, H, W] in reading order, each with a border in its colour."""
    rows = -(-len(images) // columns)
    grid = figure.subplots(rows, columns, squeeze=False, gridspec_kw={"wspace": 0.06, "hspace": 0.06})
    for number, axes in enumerate(grid.flat):
        draw_cell(axes, images[number] if number < len(images) else None, None)
        if borders is not None and number < len(images):
            frame(axes, borders[number])
    if title:
        figure.suptitle(title, fontsize=11, fontweight="bold")


def frame(axes: Axes, colour: Any, width: float = 2.5) -> None:
    """A border around a picture."""
    for spine in axes.spines.values():
        spine.set(visible=True, color=colour, linewidth=width)

"""The figure of any-order generation: what is there, and what the model expects, on the way through three orders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from linverse.experiments.any_order import FRAMES, ORDERS, Generated
from linverse.report.style import draw_cell, set_gaps

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(found: dict[str, Generated]) -> Figure:
    """For each order a row of what is there and a row of what the model expects; side by side, several digits."""
    from matplotlib.figure import Figure

    shown = next(iter(found.values())).frames.shape[1]
    widths = ([1.0] * (FRAMES + 1) + [0.25]) * shown  # a gap after each digit
    size = (0.85 * sum(widths) + 0.8, 0.9 * 2 * len(found) + 0.5)
    figure = Figure(figsize=size, layout="constrained")
    set_gaps(figure, 0.01, 0.01)
    grid = figure.subplots(2 * len(found), len(widths), squeeze=False, width_ratios=widths)
    for axes in grid.flat:
        draw_cell(axes, None, None)
    for number, (name, generated) in enumerate(found.items()):
        for row, stack in ((2 * number, generated.frames), (2 * number + 1, generated.means)):
            for digit in range(shown):
                for frame in range(FRAMES + 1):
                    draw_cell(grid[row, digit * (FRAMES + 2) + frame], stack[frame, digit], None)
        grid[2 * number, 0].set_ylabel(ORDERS[name].title, fontsize=9)
        grid[2 * number + 1, 0].set_ylabel("expected", fontsize=9)
    figure.suptitle("Three orders, one noise", fontsize=11, fontweight="bold", x=0.01, ha="left")
    return figure

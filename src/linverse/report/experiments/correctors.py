"""The pictures of the correctors: the same measurements, corrected more and more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from linverse.report.galleries import draw_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(found: dict[str, Tensor]) -> Figure:
    """A row for the truth, and one for each kind and number of steps."""
    from matplotlib.figure import Figure

    columns = len(found["truth"])
    figure = Figure(figsize=(0.85 * columns + 1.6, 0.88 * len(found) + 0.4), layout="constrained")
    draw_rows(figure, found, "Corrector, and its steps per level")
    return figure

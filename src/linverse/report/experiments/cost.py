"""Bars of what samples cost, and of what the embeddings cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from linverse.report.style import BLUE, GREEN, VERMILION, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(found: dict[str, dict[str, Tensor]]) -> Figure:
    """Two panels."""
    figure, (left, right) = panels(2, width=4.8, height=3.0)
    titles = {"solvers": "A batch, deblurred", "embeddings": "An energy and its gradient"}
    for axes, (kind, seconds) in zip((left, right), found.items(), strict=True):
        values = [float(times.mean()) for times in seconds.values()]
        spread = [float(times.std()) if len(times) > 1 else 0.0 for times in seconds.values()]
        axes.barh([*seconds], values, xerr=spread, color=[BLUE, VERMILION, GREEN][: len(values)], alpha=0.8)
        axes.invert_yaxis()
        axes.set(xlabel="processor seconds")
        axes.set_title(titles[kind])
    return figure

"""Days of a training on the paper's number of GPUs, by arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from linverse.report.style import BLUE, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(found: tuple[dict[str, Any], list[tuple[Any, dict[str, float]]]]) -> Figure:
    """Bars of what was reckoned, or of what was measured where nothing was."""
    costs, reckoned = found
    figure, (axes,) = panels(1, width=6.5, height=3.2)
    if reckoned:
        names = [f"{training.preset} ({training.devices} GPUs)" for training, _ in reckoned]
        values, label = [numbers["days on its devices"] for _, numbers in reckoned], "days (A100, by arithmetic)"
    else:
        names, values, label = (
            [*costs],
            [cost.seconds for cost in costs.values()],
            "seconds per image and step, one thread",
        )
    axes.barh(names, values, color=BLUE, alpha=0.8)
    axes.invert_yaxis()
    axes.set(xlabel=label, xscale="log")
    axes.set_title("What training costs")
    return figure

"""Held-out losses against processor seconds, for both ways of training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from linverse.experiments.sliced_training import TrainingRun
from linverse.report.style import BLUE, VERMILION, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOOKS = {"double backward": (BLUE, "-"), "sliced": (VERMILION, "--")}


def draw(found: dict[str, list[TrainingRun]]) -> Figure:
    """A panel for each loss, a line for each seed."""
    figure, (left, right) = panels(2, width=4.6, height=3.2)
    for axes, loss, title in ((left, "dsm", "A-DSM"), (right, "csm", "A-CSM")):
        for way, runs in found.items():
            colour, line = LOOKS[way]
            for number, run in enumerate(runs):
                label = way if number == 0 else None
                axes.plot(run.seconds.numpy(), getattr(run, loss).numpy(), color=colour, ls=line, lw=1.2, label=label)
        axes.set(xlabel="processor seconds", ylabel=f"held-out {title}")
        axes.set_title(title)
        axes.legend()
    return figure

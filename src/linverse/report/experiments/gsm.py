"""The figure of the normalisation experiment: the energy along the radius, and the radial score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from linverse.experiments.gsm import OBJECTIVES, Curves
from linverse.report.style import BLUE, GREEN, GREY, SKY, VERMILION, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(curves: Curves) -> Figure:
    """The paper's two panels: the energy along the radius, and the radial score."""
    figure, (left, right) = panels(2)
    left.set_title(f"Energy at Σ = {curves.t_min:g}·I")
    left.set_ylabel("U / d   (nats per dimension)")
    right.set_title("Radial score")
    right.set_ylabel("(∂U/∂r) / √d")
    for axes, which in ((left, 0), (right, 1)):
        draw_panel(axes, curves, which)
    handles, names = left.get_legend_handles_labels()
    wrong = {name: f"{name}: off by {error:.2g} nats/dim" for name, error in curves.errors.items()}
    labels = {"truth": "truth", "support": "where the data lie"} | wrong
    figure.legend(handles, [labels[name] for name in names], loc="outside lower center", ncols=4, columnspacing=2.5)
    return figure


def draw_panel(axes: Axes, curves: Curves, which: int) -> None:
    """One panel: truth, both models, and the shells where the data lie."""
    lines = {"truth": curves.truth[which]} | {name: curves.models[name][which] for name in OBJECTIVES}
    looks: dict[str, dict[str, Any]] = {
        "truth": {"color": BLUE, "lw": 5, "alpha": 0.4},
        "single": {"color": GREEN, "lw": 1.8},
        "dual": {"color": VERMILION, "lw": 1.8, "ls": (0, (4, 2))},
    }
    for name, look in looks.items():
        axes.plot(curves.radii.numpy(), lines[name].numpy(), label=name, **look)
    values = torch.cat(list(lines.values()))
    low, high = float(values.min()), float(values.max())
    room = 0.16 * (high - low)  # at the foot, for the histogram
    axes.set_ylim(low - room, high + 0.25 * room)
    axes.set_xlim(0, float(curves.radii[-1]))
    axes.set_xlabel("‖y‖ / √d")
    shade_support(axes, curves.support, 0.9 * room)


def shade_support(axes: Axes, support: Tensor, height: float) -> None:
    """The histogram of ‖y‖/√d at the foot of the panel, and a pale band behind each shell."""
    counts, edges = (part.numpy() for part in torch.histogram(support, bins=160))
    foot = axes.get_ylim()[0]
    heights = counts / counts.max() * height
    axes.bar(edges[:-1], heights, edges[1:] - edges[:-1], bottom=foot, align="edge", color=SKY, label="support")
    middle = 0.5 * (float(support.min()) + float(support.max()))
    for shell in (support[support < middle], support[support >= middle]):
        axes.axvspan(float(shell.min()), float(shell.max()), color=GREY, alpha=0.12, lw=0)

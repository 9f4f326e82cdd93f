"""The figure of the two forms of the energy: losses, and blind noise levels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from linverse.experiments.parameterisations import FORMS, FormFindings
from linverse.report.style import BLUE, GREY, VERMILION, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(found: FormFindings) -> Figure:
    """Losses on held-out images, and errors of blind noise levels."""
    metrics, errors = found.metrics, found.errors
    figure, (left, right) = panels(2)
    terms, looks = {"dsm": "A-DSM", "csm": "A-CSM"}, {"residual": (BLUE, -0.2), "inner": (VERMILION, 0.2)}
    for name, (colour, shift) in looks.items():
        heights = [metrics[f"{name}_held_out_{term}"] for term in terms]
        bars = left.bar([i + shift for i in range(len(terms))], heights, 0.38, color=colour, label=FORMS[name])
        left.bar_label(bars, fmt="%.3f", fontsize=8)
        axis = list(errors[name])
        right.semilogx(
            axis, [e.bias for e in errors[name].values()], color=colour, marker="s", label=f"bias, {FORMS[name]}"
        )
        spread = [e.spread for e in errors[name].values()]
        right.semilogx(axis, spread, color=colour, marker="o", linestyle=":", label="spread")
    left.set_xticks(range(len(terms)), list(terms.values()))
    left.set_title("Loss on held-out images")
    left.set_ylim(top=1.25 * left.get_ylim()[1])
    left.legend(loc="upper right", ncols=2)
    right.axhline(0, color=GREY, linewidth=0.8)
    right.set_xlabel("noise variance σ²")
    right.set_title("log σ̂² of a single image")
    right.legend(fontsize=7)
    return figure

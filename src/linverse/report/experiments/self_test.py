"""The figure of the self-tests: each as a share of its limit, and the covariance score against its target."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from linverse.experiments.self_test import LIMITS, Verdict, metrics_of
from linverse.report.style import BLUE, GREEN, GREY, ORANGE, VERMILION, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


TITLES = {
    "normalisation_error": "normalisation at large Σ\n(0.01 nats/pixel)",
    "agreement": "agreement of bases\n(0.01 nats/pixel)",
    "bias_largest": "mean of κ\n(0.01)",
    "slope_error": "slope on κ, less 1\n(0.1)",
    "ratio_largest": "ratio of neighbours\n(0.5 nats)",
    "floor_gap_size": "gap to the denoiser's bound\nat the floor (0.02 nats/pixel)",
    "band_mean_largest": "mean of κ, worst band\n(0.02)",
    "band_slope_error": "slope on κ, worst band\n(0.1)",
    "unseen_band_slope_error": "the same, unseen noise\n(0.3)",
}
COLOURS = (VERMILION, BLUE, GREEN, ORANGE)


def draw(verdicts: dict[str, Verdict]) -> Figure:
    """Every test as a share of its limit; the covariance score against its target."""
    figure, (limits, *curves) = panels(1 + len(verdicts), width=4.6, height=5.4)
    draw_limits(limits, {name: metrics_of(verdict) for name, verdict in verdicts.items()})
    for axes, (name, verdict) in zip(curves, verdicts.items(), strict=True):
        axes.axline((0, 0), slope=1, color=GREY, lw=1)
        for colour, (basis, curve) in zip(COLOURS, verdict.reliability.items(), strict=False):
            axes.plot(curve[:, 0].numpy(), curve[:, 1].numpy(), "o-", ms=4, lw=1, color=colour, label=basis)
        axes.set(xlabel="covariance score κ", ylabel="mean of ½(1 − ε²)")
        axes.set_title(f"Covariance score of {name}")
        axes.legend(loc="best")
    return figure


def draw_limits(axes: Axes, metrics: dict[str, dict[str, float]]) -> None:
    """Dots left of 1 are within the limit."""
    rows = torch.arange(len(LIMITS)).flip(0).tolist()
    axes.axvspan(1e-4, 1, color=GREEN, alpha=0.10, lw=0)
    for colour, (model, found) in zip(COLOURS, metrics.items(), strict=False):
        shares = [max(found.get(name, math.nan) / limit, 1.2e-4) for name, limit in LIMITS.items()]
        axes.plot(shares, rows, "o", ms=8, color=colour, label=model, alpha=0.8)
    axes.set_yticks(rows, [TITLES[name] for name in LIMITS])
    axes.set(xscale="log", xlim=(1e-4, None), ylim=(-0.7, len(LIMITS) - 0.3), xlabel="share of the limit")
    axes.set_title("Self-tests")
    axes.legend(loc="upper center", bbox_to_anchor=(0.3, -0.14), ncols=2)  # below: its dots are no data

"""The figure of the one-shot experiment: gains over the best linear estimate, what the error bars cover, and images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from linverse.experiments.one_shot import JudgedNoise, Stranger, metrics_of
from linverse.report.style import BLUE, GREEN, GREY, VERMILION, draw_cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(found: tuple[dict[str, JudgedNoise], dict[str, Stranger]]) -> Figure:
    """Gains and coverages by kind of noise, above one image of each kind."""
    from matplotlib.figure import Figure

    judged, _ = found
    metrics = {name: metrics_of(one) for name, one in judged.items()}
    figure = Figure(figsize=(13.0, 10.4), layout="constrained")
    top, bottom = figure.subfigures(2, 1, squeeze=False, height_ratios=[1.0, 1.25]).flat
    gains, coverage = top.subplots(1, 2, sharey=True, squeeze=False)[0]
    draw_gains(gains, metrics)
    draw_coverage(coverage, metrics)
    rows = next(iter(judged.values())).shown
    grid = bottom.subplots(len(rows), len(judged), squeeze=False, gridspec_kw={"wspace": 0.03, "hspace": 0.03})
    for column, (name, one) in enumerate(judged.items()):
        grid[0, column].set_title(name, fontsize=9, fontweight="normal", loc="center", pad=4)
        for row, (title, images) in enumerate(one.shown.items()):
            draw_cell(grid[row, column], images[0], ("magma", 0.0, 0.3) if title == "std" else None)
            grid[row, 0].set_ylabel(title, fontsize=9)
    return figure


def draw_gains(axes: Axes, metrics: dict[str, dict[str, float]]) -> None:
    """PSNR over the linear estimate's, two paired standard errors."""
    rows = list(range(len(metrics)))[::-1]
    values, errors = ([one[key] for one in metrics.values()] for key in ("gain_db", "gain_standard_error"))
    axes.axvline(0, color=GREY, lw=1)
    axes.errorbar(values, rows, xerr=[2 * e for e in errors], fmt="o", color=VERMILION, capsize=2)
    axes.set_yticks(rows, list(metrics))
    axes.set(xlabel="PSNR over the best linear estimate (dB)")
    axes.set_title("One-shot means")


def draw_coverage(axes: Axes, metrics: dict[str, dict[str, float]]) -> None:
    """Shares of the pixels within the 90 % interval; the band is what is asked for."""
    rows = list(range(len(metrics)))[::-1]
    axes.axvspan(0.85, 0.95, color=GREEN, alpha=0.10, lw=0)
    for key, colour, label in (("coverage_90", VERMILION, "ours"), ("linear_coverage_90", BLUE, "linear")):
        values = [one[key] for one in metrics.values()]
        axes.plot(values, rows, "o", color=colour, mfc=colour if label == "ours" else "none", label=label)
    axes.set(xlim=(0.4, 1.0), xlabel="share of pixels in the 90 % interval")
    axes.set_title("One-shot error bars")
    axes.legend(loc="lower left")

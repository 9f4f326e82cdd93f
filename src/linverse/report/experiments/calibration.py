"""The figure of the calibration experiment: reliability, one-shot variances against errors, and images."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from linverse.experiments.calibration import TaskCalibration
from linverse.report.style import BLUE, GREY, INK, VERMILION, draw_cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (VERMILION, BLUE)
MAPS = {"std of samples": ("magma", 0.0, 0.4), "|error|": ("magma", 0.0, 0.4)}


def draw(found: dict[str, TaskCalibration]) -> Figure:
    """Reliability, and the one-shot std against what it predicts, above rows of images."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 9.2), layout="constrained")
    top, bottom = figure.subfigures(2, 1, squeeze=False, height_ratios=[1.0, 1.45]).flat
    reliability, *scales = top.subplots(1, 1 + len(found), squeeze=False)[0]
    draw_reliability(reliability, found)
    for axes, (task, one) in zip(scales, found.items(), strict=True):
        draw_scales(axes, task, one)
    for part, (task, one) in zip(bottom.subfigures(1, len(found), squeeze=False)[0], found.items(), strict=True):
        count = len(one.shown["truth"])
        grid = part.subplots(count, len(one.shown), squeeze=False, gridspec_kw={"wspace": 0.03, "hspace": 0.03})
        for column, (title, images) in enumerate(one.shown.items()):
            grid[0, column].set_title(title, fontsize=9, fontweight="normal", loc="center", pad=4)
            for axes, image in zip(grid[:, column], images, strict=True):
                draw_cell(axes, image, MAPS.get(title))
        part.suptitle(task, fontsize=11, fontweight="bold")
    return figure


def draw_reliability(axes: Axes, found: dict[str, TaskCalibration]) -> None:
    """Coverage against level, two standard errors; the wedge is what is asked for at 90 %."""
    axes.axline((0, 0), slope=1, color=GREY, lw=1)
    axes.plot([0.9, 0.9], [0.85, 0.95], color=INK, lw=6, alpha=0.25, solid_capstyle="butt")
    for colour, (task, one) in zip(COLOURS, found.items(), strict=False):
        curve = one.curve
        levels, coverage = curve.levels.numpy(), curve.coverage.numpy()
        axes.errorbar(levels, coverage, 2 * curve.error.numpy(), fmt="o-", ms=4, capsize=2, color=colour, label=task)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="level of the interval", ylabel="share of pixels inside")
    axes.set_title("Credible intervals")
    axes.legend(loc="upper left")


def draw_scales(axes: Axes, task: str, one: TaskCalibration, bins: int = 20) -> None:
    """Error of the mean and spread of samples, root mean squares over coefficients of like one-shot std."""
    order = one.std.flatten().argsort()
    triples = torch.stack([one.std.flatten(), one.error.flatten(), one.spread.flatten()], dim=1)[order]
    curve = torch.stack([part.square().mean(dim=0).sqrt() for part in triples.tensor_split(bins)]).clamp_min(1e-4)
    axes.axline((1e-2, 1e-2), (1, 1), color=GREY, lw=1)
    axes.plot(curve[:, 0].numpy(), curve[:, 1].numpy(), "o", ms=5, color=VERMILION, label="error of the mean")
    axes.plot(curve[:, 0].numpy(), curve[:, 2].numpy(), "o", ms=8, mfc="none", color=BLUE, label="spread of samples")
    where = "pixels" if one.basis == "spatial" else f"{one.basis} coefficients"
    axes.set(xscale="log", yscale="log", xlabel=f"one-shot std ({where})", ylabel="root mean square")
    axes.set_title(f"One-shot std, {task}")
    axes.legend(loc="upper left")

"""What is known of one pixel, as a figure: a histogram of its samples, the 90 % interval, the mean and, where it is known, the truth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from linverse.report.style import BLUE, GREEN, GREY, VERMILION
from linverse.restoration import PixelMarginal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHANNELS = {1: (("value", GREY),), 3: (("red", VERMILION), ("green", GREEN), ("blue", BLUE))}
BINS = 16


def marginal_figure(pixel: PixelMarginal) -> Figure:
    """A panel for each colour; without samples, the Gaussian of mean and std instead of a histogram."""
    from matplotlib.figure import Figure

    named = CHANNELS.get(len(pixel.mean), tuple((f"channel {i}", GREY) for i in range(len(pixel.mean))))
    figure = Figure(figsize=(4.2, 1.3 + 1.2 * len(named)), layout="constrained")
    for i, (axes, (name, colour)) in enumerate(
        zip(figure.subplots(len(named), squeeze=False).flat, named, strict=True)
    ):
        low, high, mean = float(pixel.low[i]), float(pixel.high[i]), float(pixel.mean[i])
        values = pixel.samples[:, i].double().cpu().numpy()
        reach = max(high - low, 0.02)
        ends = min([low, *values]) - 0.3 * reach, max([high, *values]) + 0.3 * reach
        if len(values):
            axes.hist(values, bins=np.linspace(*ends, BINS + 1), color=colour, alpha=0.75)
        else:
            x, std = np.linspace(*ends, 200), max(float(pixel.std[i]), 1e-6)
            axes.fill_between(x, np.exp(-0.5 * ((x - mean) / std) ** 2), color=colour, alpha=0.5, linewidth=0)
        axes.axvspan(low, high, color=colour, alpha=0.15, linewidth=0, label="90 %")
        axes.axvline(mean, color="black", linewidth=1.2, label="mean")
        if pixel.truth is not None:
            axes.axvline(float(pixel.truth[i]), color=VERMILION, linestyle=(0, (4, 2)), linewidth=1.6, label="truth")
        axes.set_xlim(*ends)
        axes.set_yticks([])
        axes.set_ylabel(name)
        if i == 0:
            axes.legend(loc="best", fontsize=7)
    figure.suptitle(f"row {pixel.row}, column {pixel.column}; 0 black, 1 white", fontsize=9)
    return figure


def marginal_words(pixel: PixelMarginal) -> str:
    """The same in a sentence."""
    names = [name for name, _ in CHANNELS.get(len(pixel.mean), ())] or [f"channel {i}" for i in range(len(pixel.mean))]
    parts = [
        f"{name}: mean {float(pixel.mean[i]):.3f}, 90 % in [{float(pixel.low[i]):.3f}, {float(pixel.high[i]):.3f}]"
        for i, name in enumerate(names)
    ]
    return f"row {pixel.row}, column {pixel.column}: {'; '.join(parts)} (by {pixel.interval_from})"

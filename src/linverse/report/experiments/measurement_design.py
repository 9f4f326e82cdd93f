"""Errors against the number of measured pixels, and where they were measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from linverse.experiments.measurement_design import WAYS, Measured, MeasurementDesignSetting
from linverse.report.galleries import draw_rows
from linverse.report.style import BLUE, GREY, VERMILION, painted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOOKS = {"chosen": (VERMILION, "o", "-"), "random": (BLUE, "s", "--")}


def draw(found: tuple[dict[str, Measured], Tensor, dict[str, float], MeasurementDesignSetting]) -> Figure:
    """Curves at the left, digits at the right."""
    from matplotlib.figure import Figure

    measured, x, metrics, setting = found
    figure = Figure(figsize=(11.5, 4.6), layout="constrained")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[1.0, 1.2]).flat
    axes = left.subplots()
    for way in WAYS:
        colour, marker, line = LOOKS[way]
        values, low, high = (
            [100 * metrics[f"error of {way}, {count} pixels{end}"] for count in setting.counts]
            for end in ("", "_low", "_high")
        )
        axes.plot(setting.counts, values, color=colour, marker=marker, ls=line, label=f"{way} pixels")
        axes.fill_between(setting.counts, low, high, color=colour, alpha=0.15, lw=0)
    axes.axhline(100 * metrics["error of clean images"], color=GREY, lw=1, ls=":")
    axes.set(xlabel="measured pixels", ylabel="wrong digits (%)", ylim=(0, None))
    axes.set_title("Digits from a few pixels")
    axes.legend()
    count = setting.counts[min(1, len(setting.counts) - 1)]
    rows: dict[str, Tensor] = {"truth": x[: setting.shown]}
    for way in WAYS:
        masks, means = measured[way].masks[count], measured[way].means[count]
        pairs = zip(x[: setting.shown], ~masks[: setting.shown], strict=True)
        rows |= {
            way: torch.stack([painted(image, hole) for image, hole in pairs]),
            f"mean, {way}": means[: setting.shown],
        }
    draw_rows(right, rows, f"{count} pixels")
    return figure

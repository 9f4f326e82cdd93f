"""The figure of the one-shot experiment: PSNR against the noise in a box, and images."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from linverse.experiments.mmse import MmseFindings, MmseSetting, Sweep, psnr_of
from linverse.report.style import BLUE, GREY, VERMILION, draw_cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


COLOURS = {"dual": VERMILION, "single": BLUE}


def draw(found: MmseFindings) -> Figure:
    """PSNR against the noise, a panel per box; below, images."""
    from matplotlib.figure import Figure

    sweeps, shown, setting = found.sweeps, found.shown, found.setting
    count = len(shown["truth"])
    figure = Figure(figsize=(9.6, 8.2), layout="constrained")
    top, bottom = figure.subfigures(2, 1, squeeze=False, height_ratios=[1.0, 1.15]).flat
    panels = top.subplots(1, len(setting.sides), sharey=True, squeeze=False)[0]
    for axes, side in zip(panels, setting.sides, strict=True):
        draw_sweep(axes, {name: by_side[side] for name, by_side in sweeps.items()}, setting, side)
    panels[0].set_ylabel("PSNR in the box (dB)")
    panels[0].legend(loc="best", fontsize=8)
    grid = bottom.subplots(len(shown), count, squeeze=False, gridspec_kw={"wspace": 0.03, "hspace": 0.03})
    for row, (name, images) in enumerate(shown.items()):
        grid[row, 0].set_ylabel(name, fontsize=9)
        for axes, image in zip(grid[row], images, strict=True):
            draw_cell(axes, image, ("magma", 0.0, 0.25) if name.startswith("std") else None)
    side, inside, outside = setting.example
    title = f"One evaluation each: noise {inside:g} in the {side}×{side} box, {outside:g} outside"
    bottom.suptitle(title, fontsize=11, fontweight="bold")
    return figure


def draw_sweep(axes: Axes, found: dict[str, Sweep], setting: MmseSetting, side: int) -> None:
    """One box: both models, what the dual one expects of itself, and the observation."""
    sigma = torch.tensor(setting.variances).sqrt().numpy()
    for name, values in found.items():
        style = "-" if name == "dual" else (0, (4, 2))
        axes.plot(sigma, psnr_of(values.actual).numpy(), color=COLOURS[name], ls=style, marker="o", ms=4, label=name)
    expected = psnr_of(found["dual"].expected).numpy()
    axes.plot(sigma, expected, color=VERMILION, ls="none", marker="o", ms=9, mfc="none", label="expected by dual")
    low = float(torch.cat([psnr_of(values.actual) for values in found.values()]).min())
    low = max(low, float(psnr_of(found["dual"].actual).min()) - 10)  # a model that fails must not squeeze the rest
    observed = psnr_of(found["dual"].observed)
    axes.plot(sigma, observed.numpy(), color=GREY, lw=1, label="observation")
    axes.set(xscale="log", xlabel="noise σ₁ in the box", ylim=(low - 4, float(psnr_of(found["dual"].actual).max()) + 2))
    axes.set_title(f"Box of {side}×{side}")

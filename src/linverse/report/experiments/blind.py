"""The figure of the blind experiment: the paper's observations and evidence curves, and all estimates against the truth."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from linverse.experiments.blind import Findings
from linverse.report.style import BLUE, GREEN, GREY, SKY, VERMILION, draw_cell, set_gaps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS: dict[str, dict[str, Any]] = {
    "dual": {"color": VERMILION, "ls": "-"},
    "single": {"color": BLUE, "ls": (0, (4, 2))},
}


def draw(found: dict[str, Findings]) -> Figure:
    """A column for each of the paper's settings, and one for all estimates."""
    from matplotlib.figure import Figure

    cases = found["dual"].cases
    figure = Figure(figsize=(3.1 * (len(cases) + 1) + 0.8, 8.2), layout="constrained")
    set_gaps(figure, 0.08, 0.08, 0.02, 0.02)
    grid = figure.subplots(3, len(cases) + 1, squeeze=False, width_ratios=[1.0] * len(cases) + [1.25])
    for column, case in enumerate(cases):
        draw_cell(grid[0, column], case.observation, None)
        grid[0, column].set_title(f"s = {case.side},  σ₁ = {case.sigma:g}", loc="center")
        of_case = {name: findings.cases[column] for name, findings in found.items()}
        draw_curves(grid[1, column], {n: c.by_side for n, c in of_case.items()}, case.side, "side s of the box")
        draw_curves(grid[2, column], {n: c.by_sigma for n, c in of_case.items()}, case.sigma, "noise σ₁ in the box")
        mark_factors(grid[2, column], case.sigma)
    for axes in grid[1:, 0]:
        axes.set_ylabel("log p(y|Σ) − its maximum   (nats)")
    draw_isotropic(grid[0, -1], found)
    draw_sides(grid[1, -1], found)
    draw_blurs(grid[2, -1], found)
    handles, names = grid[1, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, columnspacing=2.5)
    return figure


def draw_curves(axes: Axes, curves: dict[str, tuple[Tensor, Tensor]], truth: float, label: str) -> None:
    """log p against a parameter, less its maximum; the window is that of the dual energy."""
    axes.axvline(truth, color=GREEN, lw=2.5, alpha=0.7, label="truth")
    for name, (axis, values) in curves.items():
        best = int(values.argmax())
        axes.plot(axis.numpy(), (values - values.max()).numpy(), label=name, **LOOKS[name])
        axes.axvline(float(axis[best]), color=LOOKS[name]["color"], lw=1.2, ls=":")
    axis, values = curves["dual"]
    depth = max(float(values.max() - values.quantile(0.15)), 1.0)
    axes.set_ylim(-1.1 * depth, 0.06 * depth)
    axes.set_xlabel(label)


def mark_factors(axes: Axes, centre: float) -> None:
    """A logarithmic axis with plain numbers at simple multiples of a value."""
    ticks = [centre * factor for factor in (0.2, 0.5, 1.0, 2.0, 5.0)]
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()


def draw_isotropic(axes: Axes, found: dict[str, Findings]) -> None:
    """Bias and spread of log σ̂², and the band that no estimator can beat."""
    bound = math.sqrt(2 / found["dual"].dim)
    axes.axhspan(-bound, bound, color=SKY, alpha=0.25, lw=0)
    for offset, (name, findings) in enumerate(found.items()):
        levels = torch.tensor(list(findings.isotropic))
        errors = list(findings.isotropic.values())
        middle, spread = (torch.stack([f(e) for e in errors]).numpy() for f in (torch.mean, torch.std))
        shifted = (levels * 1.15**offset).numpy()
        axes.errorbar(shifted, middle, spread, fmt="o", ms=4, capsize=3, color=LOOKS[name]["color"])
    reach = max(4 * bound, 1.3 * max(float(e.abs().quantile(0.9)) for e in found["dual"].isotropic.values()))
    axes.set(xscale="log", ylim=(-reach, reach), xlabel="true σ² of white noise", ylabel="log σ̂² − log σ²")
    axes.set_title("White noise (band: Cramér–Rao)", fontsize=10)


def draw_sides(axes: Axes, found: dict[str, Findings]) -> None:
    """Estimated against true sides."""
    for offset, (name, findings) in enumerate(found.items()):
        guess, shift = findings.boxes, 0.15 * offset
        exact = float((guess.truth == guess.found).double().mean())
        look: dict[str, Any] = {"color": LOOKS[name]["color"], "marker": "ox"[offset], "alpha": 0.6}
        label = f"{name}: {100 * exact:.0f} % exact"
        axes.scatter((guess.truth + shift).numpy(), guess.found.numpy(), s=14, lw=1, label=label, **look)
    axes.axline((0, 0), slope=1, color=GREY, lw=0.8, zorder=0)
    axes.set(xlabel="true side", ylabel="estimated side")
    axes.set_title("Box, side unknown", fontsize=10)
    axes.legend(loc="best", fontsize=8)


def draw_blurs(axes: Axes, found: dict[str, Findings]) -> None:
    """Estimated against true widths of a blur; crosses: by the energy alone."""
    axes.axline((0, 0), slope=1, color=GREY, lw=0.8, zorder=0)
    for offset, (name, findings) in enumerate(found.items()):
        for blur in findings.blurs:
            shift = blur.width + 0.03 * offset + torch.linspace(-0.02, 0.02, len(blur.full))
            axes.scatter(shift.numpy(), blur.full.numpy(), s=10, alpha=0.6, lw=0, color=LOOKS[name]["color"])
            if name == "dual":
                axes.scatter(shift.numpy(), blur.alone.numpy(), s=12, marker="x", lw=0.8, color=GREY)
    axes.set(xlabel="true width (pixels)", ylabel="estimated width")
    axes.set_title("Gaussian blur (×: energy alone)", fontsize=10)

"""A blind estimate as figures, tables and words: evidence, the posterior over the parameters, and the picture restored with them."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from linverse.blind import Axis, CorrectedSearch, NoiseSearch, Search
from linverse.data.reading import shown
from linverse.report.console import note
from linverse.report.output import OutputFolder
from linverse.report.style import BLUE, SKY, VERMILION, caption, draw_cell
from linverse.restoration import BlindRestoration

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def axis_label(axis: Axis) -> str:
    """A parameter and its unit."""
    return f"{axis.name} ({axis.unit})" if axis.unit else axis.name


def draw_evidence(axes: Axes, search: Search, axis: Axis, truth: float | None) -> None:
    """log p(y|θ) of the first grid below its maximum, over the whole axis (other parameters at their posterior)."""
    first, result = search.rounds[0]
    whole = next(a for a in first if a.name == axis.name)
    log_p = result.log_marginal(axis.name).double()
    axes.plot(whole.values(), log_p - log_p.max(), color=BLUE, marker=".", markersize=4, linewidth=1.4)
    axes.set_yscale("symlog", linthresh=10)
    lowest = float((log_p - log_p.max()).min())
    axes.set_ylim(1.5 * lowest, 5)
    axes.set_yticks([-(10.0**n) for n in range(1, 7) if -(10.0**n) > 1.5 * lowest] + [0])
    finish_axis(axes, whole, truth)
    axes.set_ylabel("log-evidence below its maximum (nats)")


def draw_posterior(axes: Axes, search: Search, axis: Axis, truth: float | None) -> None:
    """p(θ|y) on the last grid with its 90 % interval."""
    values, p = axis.values().double(), search.final.marginal(axis.name).double()
    height = p / p.max()
    if axis.spacing == "whole":
        axes.bar(values, height, width=0.7, color=SKY)
    else:
        low, high = search.interval(axis)
        inside = torch.cat([torch.tensor([low]), values[(values > low) & (values < high)], torch.tensor([high])])
        axes.fill_between(values, height, color=SKY, alpha=0.35, linewidth=0)
        axes.fill_between(inside, np_interpolate(inside, values, height), color=SKY, linewidth=0)
        axes.plot(values, height, color=BLUE)
    seen = values[height > 1e-3]
    margin = max(1.0, float(values[1] - values[0])) if axis.spacing == "whole" else 0.15 * float(seen[-1] - seen[0])
    axes.set_xlim(float(seen[0]) - margin, float(seen[-1]) + margin)
    finish_axis(axes, replace(axis, spacing="linear") if axis.spacing == "log" else axis, truth)
    axes.set_ylim(bottom=0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def np_interpolate(x: Tensor, xs: Tensor, ys: Tensor) -> Any:
    """Straight lines through (xs, ys), at x."""
    import numpy as np

    return np.interp(x.numpy(), xs.numpy(), ys.numpy())


def estimate_text(search: Search, axis: Axis) -> str:
    """`sigma = 0.151, 90 % in [0.144, 0.158]`."""
    low, high = search.interval(axis)
    decimals = decimals_for(high - low, axis)
    return f"{axis.name} = {search.value(axis):.{decimals}f},  90 % in [{low:.{decimals}f}, {high:.{decimals}f}]"


def decimals_for(width: float, axis: Axis) -> int:
    """So many that an interval's width has two significant digits."""
    if axis.spacing == "whole" or width <= 0:
        return 0 if axis.spacing == "whole" else 4
    return min(6, max(0, 1 - math.floor(math.log10(width))))


def finish_axis(axes: Axes, axis: Axis, truth: float | None) -> None:
    """Scale, label, and the truth where it is known (and near enough to be seen)."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, ScalarFormatter

    if axis.spacing == "log":
        axes.set_xscale("log")
        if axis.high < 100 * axis.low:  # 0.2, 0.5, 1, 2: powers of ten would be one or two
            axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.xaxis.set_major_formatter(ScalarFormatter())
            axes.xaxis.set_minor_formatter(NullFormatter())
    if axis.spacing == "whole":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(axis_label(axis))
    if truth is not None:
        low, high = axes.get_xlim()
        axes.set_xlim(min(low, truth), max(high, truth))
        axes.axvline(truth, color=VERMILION, linestyle=(0, (4, 2)), linewidth=1.6, label="truth")
        axes.legend(loc="best", handlelength=1.6)


def draw_plane(axes: Axes, search: Search, truth: dict[str, float] | None) -> None:
    """log p(θ|y) over two parameters, on the first grid."""
    (down, across), result = search.rounds[0]
    depth = -torch.log1p((result.log_posterior.max() - result.log_posterior).double())
    axes.pcolormesh(across.values(), down.values(), depth.numpy(), cmap="magma", shading="nearest", rasterized=True)
    if across.spacing == "log":
        axes.set_xscale("log")
    axes.set_xlabel(axis_label(across))
    axes.set_ylabel(axis_label(down))
    best = search.value(across), search.value(down)
    axes.plot(*best, marker="o", markersize=9, markerfacecolor="none", markeredgecolor=SKY, markeredgewidth=2)
    if truth is not None:
        axes.plot(truth[across.name], truth[down.name], marker="+", color=VERMILION, markersize=9, markeredgewidth=2)
    axes.set_title("log-posterior (o best, + truth)" if truth else "log-posterior (o best)", fontsize=10)


def blind_figure(
    search: Search, pictures: Sequence[tuple[str, Tensor]], truth: dict[str, float] | None, title: str
) -> Figure:
    """The pictures, the evidence over the whole grid, and the posterior of each parameter."""
    from matplotlib.figure import Figure

    axes = search.axes
    figure = Figure(figsize=(3.0 + 3.9 * (1 + len(axes)), 3.7), layout="constrained")
    parts: Any = figure.subfigures(1, 2, width_ratios=[1.6, 3.9 * (1 + len(axes))])
    left, right = parts
    for cell, (name, image) in zip(left.subplots(len(pictures), 1, squeeze=False).flat, pictures, strict=True):
        draw_cell(cell, image, None)
        caption(cell, name)
    plots = right.subplots(1, 1 + len(axes))
    known = truth or {}
    if len(axes) == 1:
        draw_evidence(plots[0], search, axes[0], known.get(axes[0].name))
        plots[0].set_title("evidence", fontsize=10)
    else:
        draw_plane(plots[0], search, truth)
    for plot, axis in zip(plots[1:], axes, strict=True):
        draw_posterior(plot, search, axis, known.get(axis.name))
        plot.set_title(estimate_text(search, axis), fontsize=10)
    figure.suptitle(shown(title), fontsize=10, fontweight="bold", x=0.01, ha="left", parse_math=False)
    return figure


# --- tables and words --------------------------------------------------------------------------------------------------------------


def estimates(found: Search, truth: dict[str, float] | None) -> dict[str, Any]:
    """Value, interval and prior of each parameter."""
    out: dict[str, Any] = {}
    for axis in found.axes:
        low, high = found.interval(axis)
        out[axis.name] = {
            "value": found.value(axis),
            "low": low,
            "high": high,
            "level": 0.9,
            "unit": axis.unit,
            "prior": f"uniform in log {axis.name}" if axis.spacing == "log" else f"uniform in {axis.name}",
        }
        if truth is not None:
            out[axis.name]["truth"] = truth[axis.name]
    return out


def evidence_table(found: Search) -> str:
    """Every point of every grid: its round, parameters and log-evidence in nats."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["round", *(axis.name for axis in found.axes), "log_evidence_nats"])
    for number, (axes, result) in enumerate(found.rounds, start=1):
        points = itertools.product(*(axis.values().tolist() for axis in axes))
        for point, value in zip(points, result.log_evidence.flatten().tolist(), strict=True):
            writer.writerow([number, *(f"{p:.6g}" for p in point), f"{value:.4f}"])
    return text.getvalue()


def noise_text(found: NoiseSearch) -> str:
    """How a noise level was found, in a line."""
    words = [f"{found.evaluations} evaluations"]
    if found.tiles > 1:
        words.append(f"{found.tiles} tiles of the picture")
    if found.censored:
        share = f"{100 * found.censored:.2g} % of its values are clipped"
        words.append(f"{share} and were drawn anew; Monte Carlo error {100 * found.monte_carlo_error:.1g} %")
    if found.model_error or found.model_bias:
        words.append(model_text(found))
    return "; ".join(words)


def model_text(found: NoiseSearch | CorrectedSearch) -> str:
    """What the model is known to be wrong by, in a line."""
    bias = f"{100 * found.model_bias:+.1f} " if found.model_bias else ""
    off = f"{bias}± {100 * found.model_error:.1f} %"
    return f"on held-out images the model is off by {off}, which is allowed for"


def show(console: Console, result: BlindRestoration, truth: dict[str, float] | None, out: OutputFolder) -> None:
    """The estimates as a table, whether the picture is typical, and a warning where the grid was too short."""
    found, judged = result.search, result.typicality
    table = Table("parameter", "estimate", "90 % interval", *(["truth"] if truth else []), box=None)
    for axis in found.axes:
        low, high = found.interval(axis)
        digits = f".{decimals_for(high - low, axis)}f"
        row = [axis.name, f"{found.value(axis):{digits}} {axis.unit}", f"{low:{digits}} … {high:{digits}}"]
        table.add_row(*row, *([f"{truth[axis.name]:g}"] if truth else []))
    console.print(table)
    if isinstance(found, NoiseSearch):
        note(console, noise_text(found))
    elif isinstance(found, CorrectedSearch):
        note(console, model_text(found))
    if judged is not None:
        note(console, f"with these values, against {judged.count} held-out images: {judged.describe()[0]}")
    for axis in found.at_edge():
        hint = "" if axis.spacing == "whole" else ": widen it with --grid LOW HIGH N"
        note(console, f"note: the evidence is largest at the edge of the grid of {axis.name}{hint}")
    note(console, f"wrote {out.folder}/: figure.png, restored.png, evidence.csv, result.json")

"""Pictures of answers: a measurement and its restorations, an evidence curve, a gallery. All are drawn in the style of the experiments.

Missing pixels are painted in a colour that no grey picture has; maps of standard deviations run from black (sure) to bright (unsure).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from linverse.cli.grids import Axis, Search
from linverse.cli.restoration import Restoration
from linverse.experiments.figures import BLUE, GREY, INK, SKY, VERMILION, draw_cell, painted, set_gaps
from linverse.measurement import Measurement

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STD_COLOURS = "inferno"
LARGEST_STD = 0.5  # of anything between 0 and 1


def seen_picture(measurement: Measurement) -> Tensor:
    """What a person would look at, [C, H, W]."""
    raw, missing = measurement.raw[0], ~measurement.measured[0]
    if measurement.template.basis == "spatial" and bool(missing.any()):
        return painted(raw, missing)
    return raw


def caption(axes: Axes, title: str = "", below: str = "", *, size: float = 8.5, colour: str = INK) -> None:
    """Words above and below a picture."""
    if title:
        axes.set_title(title, fontsize=size, fontweight="normal", loc="center", pad=4, color=colour)
    if below:
        axes.set_xlabel(below, fontsize=size, labelpad=3, color=colour)


def nats(value: float) -> str:
    """A log-density as it stands under a picture."""
    return f"{value:+,.0f}".replace(",", "\u2009").replace("-", "−")


def draw_std(axes: Axes, std: Tensor, highest: float | None = None) -> None:
    """A map of standard deviations; colour channels are averaged."""
    top = float(std.max()) if highest is None else highest
    draw_cell(axes, std.mean(dim=0), (STD_COLOURS, 0.0, min(max(top, 1e-9), LARGEST_STD)))


# --- restorations -----------------------------------------------------------------------------------------------------------------


def restoration_figure(result: Restoration, title: str, across: int = 8) -> Figure:
    """The answers in large, the samples in small below them."""
    from matplotlib.figure import Figure

    count = len(result.samples)
    rows = math.ceil(count / across)
    figure = Figure(figsize=(9.6, 3.2 + 1.55 * rows), layout="constrained")
    set_gaps(figure, 0.03, 0.05)
    parts: Any = figure.subfigures(2, 1, height_ratios=[2.9, 1.55 * rows]) if rows else [figure]
    draw_answers(parts[0], result)
    if rows:
        draw_samples(parts[1], result, rows, across)
    figure.suptitle(title, fontsize=10, fontweight="bold", x=0.01, ha="left", parse_math=False)
    return figure


def draw_answers(figure: Any, result: Restoration) -> None:
    """Measurement, mean, standard deviation and, where it is known, the truth."""
    cells = figure.subplots(1, 4 if result.truth is not None else 3)
    draw_cell(cells[0], seen_picture(result.measurement), None)
    caption(cells[0], "measurement", f"log p(y) = {nats(result.evidence)} nats")
    draw_cell(cells[1], result.mean, None)
    caption(cells[1], "posterior mean", "one network evaluation")
    draw_std(cells[2], result.std)
    caption(cells[2], f"posterior std, up to {float(result.std.max()):.2f}", result.std_from)
    if result.truth is not None:
        draw_cell(cells[3], result.truth, None)
        below = "" if result.log_prob_truth is None else f"log p(x|y) = {nats(result.log_prob_truth)} nats"
        caption(cells[3], "truth", below)


def draw_samples(figure: Any, result: Restoration, rows: int, across: int) -> None:
    """The samples in reading order, most probable first, each with its log-density."""
    cells = figure.subplots(rows, across, squeeze=False)
    for number, axes in enumerate(cells.flat):
        draw_cell(axes, result.samples[number] if number < len(result.samples) else None, None)
        if number < len(result.log_probs):
            caption(axes, below=nats(float(result.log_probs[number])), size=8)
    ranked = "most probable first; log p(x|y) in nats" if len(result.log_probs) else "interrupted, not ranked"
    figure.suptitle(f"posterior samples, {ranked}", fontsize=8.5, x=0.01, ha="left")


# --- evidence ----------------------------------------------------------------------------------------------------------------------


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
    if axis.spacing == "log":
        axes.set_xscale("log")
    if axis.spacing == "whole":
        from matplotlib.ticker import MaxNLocator

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
    figure.suptitle(title, fontsize=10, fontweight="bold", x=0.01, ha="left", parse_math=False)
    return figure


# --- galleries -----------------------------------------------------------------------------------------------------------------------


def gallery_figure(images: Sequence[Tensor], below: Sequence[str], title: str, across: int = 10) -> Figure:
    """Pictures in reading order, each with a word below it."""
    from matplotlib.figure import Figure

    rows = math.ceil(len(images) / across)
    across = min(across, len(images))
    figure = Figure(figsize=(max(1.1 * across, 4.5), 1.3 * rows + 0.5), layout="constrained")
    set_gaps(figure, 0.02, 0.03)
    for number, axes in enumerate(figure.subplots(rows, across, squeeze=False).flat):
        draw_cell(axes, images[number] if number < len(images) else None, None)
        if number < len(images):
            caption(axes, below=below[number], size=7.5, colour=INK if below[number] else GREY)
    figure.suptitle(title, fontsize=10, fontweight="bold", x=0.01, ha="left", parse_math=False)
    return figure

"""The result to look at: truth, measurement and every method side by side; and how their log-densities are distributed.

Both figures use few axes (one for all pictures, one a density): matplotlib takes longer to lay out a hundred small axes than some methods
take to solve.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from linverse.experiments.figures import GREY, INK, PALETTE, as_picture, panels
from linverse.experiments.framework import picture, write_whole
from linverse.experiments.harness.audit import POSTERIOR, PRIOR
from linverse.experiments.harness.contenders import TRUTH
from linverse.experiments.harness.plan import Plan, Task, Unit
from linverse.experiments.harness.report import pair_samples
from linverse.experiments.harness.storage import Store, slug

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Record = dict[str, Any]
SHOWN = 64  # pixels, at least, of a cell in the grid of pictures
GAP = 3


def write_pictures(folder: Path, plan: Plan, store: Store, report: Record, rows: int = 8) -> list[Path]:
    """grid-TASK.png and audit-TASK.png of every task of which something is done."""
    written = []
    for task in plan.tasks:
        methods = report["tasks"][task.label]["methods"]
        done = [label for label, method in methods.items() if method["status"] == "done" and label != TRUTH]
        if not done:
            continue
        grid, audit = folder / f"grid-{slug(task.label)}.png", folder / f"audit-{slug(task.label)}.png"
        write_whole(grid, picture(lambda task=task, done=done: draw_grid(plan, store, task, done, rows)))  # type: ignore[misc]
        write_whole(audit, picture(lambda task=task, methods=methods: draw_audit(task.label, methods)))  # type: ignore[misc]
        written += [grid, audit]
    return written


# --- pictures --------------------------------------------------------------------------------------------------------------------


def draw_grid(plan: Plan, store: Store, task: Task, done: list[str], rows: int) -> Figure:
    """A row an image: truth, measurement, each method."""
    count = min(rows, len(plan.truth))
    measured = torch.cat([plan.raw(Unit(task, None, k)) for k in range(-(-count // plan.setting.batch))])
    chosen = [contender for contender in plan.contenders if contender.label in done]
    columns = [plan.truth, measured, *(pair_samples(plan, store, task, contender) for contender in chosen)]
    titles = ["truth", "measurement", *(short(contender.label) for contender in chosen)]
    return draw_mosaic([column[:count] for column in columns], titles, task.label)


def short(label: str, width: int = 16) -> str:
    """A title that fits its column: settings go to a line of their own."""
    name, _, rest = label.partition(":")
    return name if not rest else f"{name}\n{rest if len(rest) <= width else rest[: width - 1] + '…'}"


def mosaic(columns: list[Tensor]) -> tuple[Tensor, int]:
    """Columns of images [N, C, h, w] as one picture [C, …] on white, each cell enlarged to one height, and that of a cell."""
    tallest = max(column.shape[2] for column in columns)
    side = tallest * -(-SHOWN // tallest)
    out = []
    for column in columns:
        width = max(1, round(column.shape[3] * side / column.shape[2]))
        cells = F.interpolate(column.float().clamp(0, 1), (side, width), mode="nearest")
        out.append(F.pad(cells, (GAP, GAP, GAP, GAP), value=1.0).permute(1, 0, 2, 3).flatten(1, 2))
    return torch.cat(out, dim=2), side + 2 * GAP


def draw_mosaic(columns: list[Tensor], titles: list[str], title: str, inches: float = 1.05) -> Figure:
    """The picture with a title above each column."""
    from matplotlib.figure import Figure

    image, cell = mosaic(columns)
    height, width = image.shape[1] / cell * inches, image.shape[2] / cell * inches
    figure = Figure(figsize=(width, height + 0.7))
    axes = figure.add_axes((0, 0, 1, height / (height + 0.7)))
    axes.imshow(as_picture(image), vmin=0, vmax=1, aspect="auto")
    axes.set_axis_off()
    step = image.shape[2] / len(columns)
    for index, text in enumerate(titles):
        axes.text((index + 0.5) * step, -0.04 * cell, text, ha="center", va="bottom", fontsize=8)
    figure.text(0.01, 0.99, title, ha="left", va="top", fontsize=11, fontweight="bold")
    return figure


# --- densities -------------------------------------------------------------------------------------------------------------------


def draw_audit(label: str, methods: Record) -> Figure:
    """Histograms above each other, the truth's on top: prior log-density left, posterior right."""
    done = {name: method for name, method in methods.items() if method["status"] == "done"}
    figure, axes = panels(2, width=4.4, height=1.0 + 0.45 * len(done))
    for panel, name in zip(axes, (PRIOR, POSTERIOR), strict=True):
        values = {key: torch.tensor(m["values"][name], dtype=torch.float64) for key, m in done.items()}
        draw_ridges(panel, values, labelled=name == PRIOR)
        panel.set_xlabel(f"{name}, nats")
        panel.set_title("prior" if name == PRIOR else "posterior", fontsize=10)
    figure.suptitle(label, fontsize=11, fontweight="bold", x=0.01, ha="left")
    return figure


def histogram_range(values: dict[str, Tensor]) -> tuple[float, float]:
    """About the truth, as wide as to tell its spread: a hopelessly improbable method must not flatten all others to one bar."""
    everything = torch.cat(list(values.values()))
    low, high = (float(values.get(TRUTH, everything).quantile(q)) for q in (0.05, 0.95))
    width = max(high - low, 1e-6 * abs(high), 1e-9)
    bottom, top = max(float(everything.min()), low - 8 * width), min(float(everything.max()), high + 4 * width)
    return bottom, top if top > bottom else bottom + 1


def draw_ridges(axes: Axes, values: dict[str, Tensor], labelled: bool, bins: int = 48) -> None:
    """One histogram a method, each at a height of its own; the line is the truth's mean, what lies beyond an edge is counted there."""
    low, high = histogram_range(values)
    edges = torch.linspace(low, high, bins + 1, dtype=torch.float64)
    heights = range(len(values) - 1, -1, -1)
    for index, (height, (name, v)) in enumerate(zip(heights, values.items(), strict=True)):
        counts = torch.histogram(v[(v >= low) & (v <= high)], edges).hist
        colour = GREY if name == TRUTH else PALETTE[(index - 1) % len(PALETTE)]
        scaled = height + 0.8 * counts / counts.max().clamp_min(1)
        axes.stairs(scaled.numpy(), edges.numpy(), baseline=height, fill=True, color=colour)
        axes.axhline(height, color=GREY, lw=0.6)
        for count, place, side in ((v < low, low, "left"), (v > high, high, "right")):
            if bool(count.any()):
                text = f"◂ {int(count.sum())}" if side == "left" else f"{int(count.sum())} ▸"
                axes.text(place, height + 0.82, text, ha=side, va="top", fontsize=8, color=INK)
    if TRUTH in values:
        axes.axvline(float(values[TRUTH].mean()), color=INK, lw=0.8, ls=(0, (3, 3)))
    axes.set_xlim(low, high)
    axes.set_ylim(0, len(values))
    axes.set_yticks([height + 0.35 for height in heights], list(values) if labelled else [""] * len(values))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)

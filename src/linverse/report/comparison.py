"""The result to look at: truth, measurement and every method side by side; and how their log-densities are distributed.

Both figures use few axes (one for all pictures, one per density): matplotlib takes longer to lay out a hundred small axes than some methods
take to solve.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from linverse.degradations import GeneralOperator, Masking
from linverse.evaluation.audit import POSTERIOR, PRIOR
from linverse.evaluation.contenders import TRUTH
from linverse.evaluation.plan import Plan, Task, Unit
from linverse.evaluation.results import pair_tensors
from linverse.evaluation.storage import EvaluationFolder, slug
from linverse.files import write_whole
from linverse.report.style import GREY, INK, PALETTE, as_picture, figure_bytes, painted, panels
from linverse.report.tables import options_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Record = dict[str, Any]
SHOWN = 100  # pixels, at least, of a cell in the grid of pictures
GAP = 4
DPI = 120  # of the grid: its pixels are large enough, and a finer one takes eight times as long
HEAD = 0.8  # inches above the grid, for titles


def write_pictures(folder: Path, plan: Plan, store: EvaluationFolder, report: Record, rows: int = 8) -> list[Path]:
    """grid-TASK.png and audit-TASK.png of every task of which something is done."""
    written = []
    for task in plan.tasks:
        methods = report["tasks"][task.label]["methods"]
        done = [label for label, method in methods.items() if method["status"] == "done" and label != TRUTH]
        if not done:
            continue
        grid, audit = folder / f"grid-{slug(task.label)}.png", folder / f"audit-{slug(task.label)}.png"
        write_whole(grid, figure_bytes(partial(draw_grid, plan, store, task, done, rows), DPI))
        write_whole(audit, figure_bytes(partial(draw_audit, task.label, methods)))
        written += [grid, audit]
    return written


# --- pictures --------------------------------------------------------------------------------------------------------------------


def draw_grid(plan: Plan, store: EvaluationFolder, task: Task, done: list[str], rows: int) -> Figure:
    """A row per image: truth, measurement, each method."""
    count = min(rows, len(plan.truth))
    measured = torch.cat([plan.raw(Unit(task, None, k)) for k in range(-(-count // plan.setting.batch))])
    measured = as_seen(task, measured)
    chosen = [contender for contender in plan.contenders if contender.label in done]
    columns = [plan.truth, measured, *(pair_tensors(plan, store, task, contender, "samples") for contender in chosen)]
    titles = ["truth", "measurement", *(short(contender.label) for contender in chosen)]
    return draw_mosaic([column[:count] for column in columns], titles, task.label, options_text(task.options))


def as_seen(task: Task, raw: Tensor) -> Tensor:
    """Raw data as a person should see them: missing pixels in a colour of their own, not in that of black ones."""
    if raw.ndim != 4 or isinstance(
        task.degradation, GeneralOperator
    ):  # no picture: what can be made of it without a model
        return task.degradation.from_raw(raw).pseudo_inverse()
    if not isinstance(task.degradation, Masking):
        return raw
    missing = ~task.degradation.mask_for((raw.shape[2], raw.shape[3])).expand(len(raw), -1, -1, -1)
    return torch.stack([painted(image, hidden) for image, hidden in zip(raw, missing, strict=True)])


def short(label: str, width: int = 16) -> str:
    """A title that fits its column: settings go to a line of their own."""
    name, _, rest = label.partition(":")
    return name if not rest else f"{name}\n{rest if len(rest) <= width else rest[: width - 1] + '…'}"


def mosaic(columns: list[Tensor]) -> tuple[Tensor, int]:
    """Columns of images [N, C, h, w] as one picture [C, …] on white, each cell enlarged to one height, and that of a cell."""
    tallest, channels = (max(column.shape[axis] for column in columns) for axis in (2, 1))
    side = tallest * -(-SHOWN // tallest)
    out = []
    for column in columns:
        column = column.expand(-1, channels, -1, -1)  # grey beside colour
        width = max(1, round(column.shape[3] * side / column.shape[2]))
        cells = F.interpolate(column.float().clamp(0, 1), (side, width), mode="nearest")
        out.append(F.pad(cells, (GAP, GAP, GAP, GAP), value=1.0).permute(1, 0, 2, 3).flatten(1, 2))
    return torch.cat(out, dim=2), side + 2 * GAP


def draw_mosaic(columns: list[Tensor], titles: list[str], title: str, subtitle: str = "") -> Figure:
    """The picture, pixel by pixel, with a title above each column."""
    from matplotlib.figure import Figure

    image, _ = mosaic(columns)
    height, width = image.shape[1] / DPI, image.shape[2] / DPI
    figure = Figure(figsize=(width, height + HEAD), dpi=DPI)
    figure.figimage(as_picture(image), 0, 0, vmin=0, vmax=1, cmap="gray")
    for index, text in enumerate(titles):
        place = ((index + 0.5) / len(columns), (height + 0.04) / (height + HEAD))
        figure.text(*place, text, ha="center", va="bottom", fontsize=8)
    left, top = 0.05 / width, height + HEAD
    figure.text(left, 1 - 0.05 / top, title, ha="left", va="top", fontsize=11, fontweight="bold")
    figure.text(left, 1 - 0.25 / top, subtitle, ha="left", va="top", fontsize=7)
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
        panel.set_title("prior (dashed: the truth's mean)" if name == PRIOR else "posterior", fontsize=10)
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
    """One histogram per method, each at a height of its own; the line is the truth's mean, what lies beyond an edge is counted there."""
    low, high = histogram_range(values)
    margin = 0.07 * (high - low)  # room for the counts
    edges = torch.linspace(low, high, bins + 1, dtype=torch.float64)
    heights = range(len(values) - 1, -1, -1)
    for index, (height, (name, v)) in enumerate(zip(heights, values.items(), strict=True)):
        counts = torch.histogram(v[(v >= low) & (v <= high)], edges).hist
        colour = GREY if name == TRUTH else PALETTE[(index - 1) % len(PALETTE)]
        scaled = height + 0.8 * counts / counts.max().clamp_min(1)
        axes.stairs(scaled.numpy(), edges.numpy(), baseline=height, fill=True, color=colour)
        axes.axhline(height, color=GREY, lw=0.6)
        for count, place, side in ((v < low, low - margin, "left"), (v > high, high + margin, "right")):
            if bool(count.any()):
                text = f"◂ {int(count.sum())}" if side == "left" else f"{int(count.sum())} ▸"
                axes.text(place, height + 0.82, text, ha=side, va="top", fontsize=8, color=INK)
    if TRUTH in values:
        axes.axvline(float(values[TRUTH].mean()), color=INK, lw=0.8, ls=(0, (3, 3)))
    axes.set_xlim(low - margin, high + margin)
    axes.set_ylim(0, len(values))
    axes.set_yticks([height + 0.35 for height in heights], list(values) if labelled else [""] * len(values))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)

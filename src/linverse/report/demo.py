"""The picture of the demo: three restorations, two blind estimates, digits in three orders. Laid out by hand, in inches."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from linverse.experiments.demo import BlindAnswer, Demo, DemoTask, Generation
from linverse.report.blind import draw_posterior, estimate_text
from linverse.report.restoration import draw_std, seen_picture
from linverse.report.style import GREY, INK, caption, draw_cell, nats, painted
from linverse.restoration import Restoration

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 14.0, 9.5
CELL, GAP, ROW = 1.1, 0.05, 1.4  # a picture, the space between two, from one row to the next
LEFT, TOP = 1.72, 1.62  # of the first restoration
SHOWN = 6  # samples per row
BELOW = TOP + 3 * ROW + 0.3  # of the lower half


@dataclass(frozen=True)
class Sheet:
    """A figure measured in inches from its upper left corner."""

    figure: Figure

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        return self.figure.add_axes(
            (left / WIDTH, 1 - (top + height) / HEIGHT, width / WIDTH, height / HEIGHT), anchor="C"
        )

    def text(
        self, left: float, top: float, words: str, size: float = 9, bold: bool = False, grey: bool = False
    ) -> None:
        # one line stands on its baseline, so that words with and without descenders are level
        single = "\n" not in words
        self.figure.text(
            left / WIDTH,
            1 - (top + 0.76 * size / 72 * single) / HEIGHT,
            words,
            fontsize=size,
            fontweight="bold" if bold else "normal",
            color=GREY if grey else INK,
            va="baseline" if single else "top",
            linespacing=1.3,
        )

    def rule(self, left: float, top: float, width: float) -> None:
        """A thin line under the heading of some columns."""
        from matplotlib.lines import Line2D

        y = 1 - top / HEIGHT
        self.figure.add_artist(Line2D([left / WIDTH, (left + width) / WIDTH], [y, y], color=GREY, linewidth=0.8))


def demo_figure(demo: Demo) -> Figure:
    """All of it."""
    from matplotlib.figure import Figure

    sheet = Sheet(Figure(figsize=(WIDTH, HEIGHT)))
    sheet.text(0.35, 0.28, "One model, every question", 20, bold=True)
    words = f"U(y, Σ) = −log p(y | Σ) for every noise covariance Σ.   Model: {demo.stage.name}.   Pictures it has never seen."
    sheet.text(0.37, 0.70, words, 10, grey=True)
    headings(sheet)
    for row, (task, result) in enumerate(zip(demo.stage.tasks, demo.restorations, strict=True)):
        draw_row(sheet, TOP + row * ROW, task, result)
    draw_blind(sheet, demo)
    draw_generations(sheet, demo)
    return sheet.figure


# --- restorations ------------------------------------------------------------------------------------------------------------------


def column(number: int) -> float:
    """The left edge of a column; what was seen, the one-shot answers, the samples and the truth stand a little apart."""
    apart = sum(number >= first for first in (1, 3, 3 + SHOWN))
    return LEFT + number * (CELL + GAP) + 0.16 * apart


def headings(sheet: Sheet) -> None:
    """What stands in the columns."""
    groups = (
        (0, 1, "measured"),
        (1, 2, "one evaluation"),
        (3, SHOWN, "posterior samples, most probable first;  log p(x|y) in nats"),
        (3 + SHOWN, 1, "truth"),
    )
    for first, count, words in groups:
        left, right = column(first), column(first + count - 1) + CELL
        sheet.text(left, TOP - 0.46, words, 9.5, bold=True)
        sheet.rule(left, TOP - 0.24, right - left)


def draw_row(sheet: Sheet, top: float, task: DemoTask, result: Restoration) -> None:
    """One picture degraded, restored, and what else it could have been."""
    lines = textwrap.wrap(task.title, 14)
    sheet.text(0.37, top + CELL / 2 - 0.1 * len(lines), "\n".join(lines), 10, bold=True)
    cells = [sheet.axes(column(number), top, CELL, CELL) for number in range(4 + SHOWN)]
    draw_cell(cells[0], seen_picture(result.measurement), None)
    draw_cell(cells[1], result.mean, None)
    caption(cells[1], below="mean", size=8)
    draw_std(cells[2], result.std)
    own = "" if result.std_from == "one-shot" else " (samples)"
    caption(cells[2], below=f"std ≤ {float(result.std.max()):.2f}{own}", size=8)
    chosen = [round(n * (len(result.samples) - 1) / max(1, SHOWN - 1)) for n in range(SHOWN)]
    for axes, number in zip(cells[3:], chosen, strict=False):
        draw_cell(axes, result.samples[number], None)
        caption(axes, below=nats(float(result.log_probs[number])), size=8)
    assert result.truth is not None
    assert result.log_prob_truth is not None
    draw_cell(cells[-1], result.truth, None)
    caption(cells[-1], below=nats(result.log_prob_truth), size=8)


# --- blind estimates -----------------------------------------------------------------------------------------------------------------

QUESTIONS = {
    "sigma": ("How much noise is on it?", "noise level σ"),
    "std": ("How wide was the blur?", "std of the blur, pixels"),
}


def draw_blind(sheet: Sheet, demo: Demo) -> None:
    """Evidence turned into a posterior over the unknown parameter, and the picture restored with it integrated out."""
    sheet.text(0.35, BELOW, "Blind: the evidence tells what degraded it", 12, bold=True)
    sheet.text(0.35, BELOW + 0.28, "curve: evidence p(y | θ) as a posterior over θ; dark: 90 % of it", 9, grey=True)
    for number, blind in enumerate(demo.blind):
        draw_found(sheet, 0.37 + 3.45 * number, BELOW + 0.58, blind)


def draw_found(sheet: Sheet, left: float, top: float, blind: BlindAnswer) -> None:
    """What was seen, the restoration, and the posterior of one parameter."""
    question, label = QUESTIONS[blind.axis.name]
    sheet.text(left, top, question, 10)
    for number, (image, words) in enumerate(((blind.found.raw, "measured"), (blind.found.mean, "restored"))):
        axes = sheet.axes(left, top + 0.30 + 1.22 * number, 0.98, 0.98)
        draw_cell(axes, image, None)
        caption(axes, below=words, size=8)
    plot = sheet.axes(left + 1.2, top + 0.62, 1.85, 1.56)
    draw_posterior(plot, blind.found.search, blind.axis, blind.truth)
    plot.set_xlabel(label, fontsize=9)
    plot.tick_params(labelsize=8)
    plot.locator_params(axis="x", nbins=4)
    if (legend := plot.get_legend()) is not None:
        legend.remove()
    plot.set_ylim(0, 1.18)
    plot.annotate("truth", (blind.truth, 1.16), xytext=(4, 0), textcoords="offset points", fontsize=8, va="top")
    sheet.text(left + 1.2, top + 0.32, estimate_text(blind.found.search, blind.axis).partition("= ")[2], 9)


# --- digits ------------------------------------------------------------------------------------------------------------------------------


def draw_generations(sheet: Sheet, demo: Demo) -> None:
    """Digits in three orders of patches, from the same noise."""
    left = 7.22
    sheet.text(left, BELOW, "Any order: digits drawn patch by patch", 12, bold=True)
    sheet.text(left, BELOW + 0.28, f"model: {demo.drawing.name}", 9, grey=True)
    for row, generation in enumerate(demo.generations):
        draw_generation(sheet, left, BELOW + 0.66 + 0.84 * row, generation)


def draw_generation(
    sheet: Sheet, left: float, top: float, generation: Generation, side: float = 0.75, gap: float = 0.04
) -> None:
    """The first digit at every stop, then the others."""
    sheet.text(left, top + side / 2 - 0.08, generation.order, 9)
    start = left + 0.82
    floor = float(generation.stages[-1].cov.variance.max())
    for number, stage in enumerate(generation.stages[1:]):
        axes = sheet.axes(start + number * (side + gap), top, side, side)
        draw_cell(axes, painted(stage.x[0], stage.waiting(floor)), None)
    after = start + (len(generation.stages) - 1) * (side + gap) + 0.12
    for number, image in enumerate(generation.stages[-1].x[1:]):
        draw_cell(sheet.axes(after + number * (side + gap), top, side, side), image, None)


# --- words ---------------------------------------------------------------------------------------------------------------------------


def show(console: Console, demo: Demo) -> None:
    """Two short tables."""
    table = Table("", "PSNR of the mean", "log p(x|y) of samples", "of the truth", box=None)
    for task, result in zip(demo.stage.tasks, demo.restorations, strict=True):
        spread = f"{float(result.log_probs[-1]):.0f} … {float(result.log_probs[0]):.0f} nats"
        decibels = f"{result.psnr:.1f} dB"
        table.add_row(task.title, decibels, spread, f"{result.log_prob_truth:.0f} nats")
    console.print(table)
    table = Table("blind", "estimate", "90 % interval", "truth", box=None)
    for blind in demo.blind:
        low, high = blind.found.search.interval(blind.axis)
        name = "noise level" if blind.axis.name == "sigma" else "blur width, pixels"
        table.add_row(
            name, f"{blind.found.search.value(blind.axis):.3f}", f"{low:.3f} … {high:.3f}", f"{blind.truth:g}"
        )
    console.print(table)

"""The photographs of the demo as a figure and a table: what was seen, restored, expected and actual errors, samples, the truth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from linverse.experiments.photographs_demo import PhotographAnswer
from linverse.report.restoration import STD_COLOURS, seen_picture, smoothed
from linverse.report.style import caption, draw_cell, set_gaps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 2  # samples per row
LABELS = {"sigma": "σ", "std": "blur"}


def photographs_figure(answers: tuple[PhotographAnswer, ...], model: str) -> Figure:
    """A row for each photograph."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.25 * (5 + SHOWN), 2.75 * len(answers) + 0.5), layout="constrained")
    set_gaps(figure, 0.02, 0.03)
    figure.suptitle(
        f"Your photograph, restored with error bars   (model: {model})",
        fontsize=13,
        fontweight="bold",
        x=0.01,
        ha="left",
    )
    for row, answer in zip(figure.subplots(len(answers), 5 + SHOWN, squeeze=False), answers, strict=True):
        result = answer.result
        assert result.truth is not None
        draw_cell(row[0], seen_picture(result.measurement), None)
        caption(row[0], answer.title, found_text(answer))
        draw_cell(row[1], result.mean, None)
        caption(row[1], "restored", f"{result.psnr:.1f} dB, {result.mean_from}")
        expected, actual = smoothed(result.std), smoothed((result.mean - result.truth).abs())
        top = 255 * max(float(values.flatten().quantile(0.99)) for values in (expected, actual))
        for cell, values, name in ((row[2], expected, "expected error"), (row[3], actual, "actual error")):
            draw_cell(cell, 255 * values, (STD_COLOURS, 0.0, max(top, 1e-6)))
            caption(cell, name, f"{255 * float(values.square().mean().sqrt()):.1f} of 255; bright: {top:.0f}")
        for number in range(SHOWN):
            draw_cell(row[4 + number], result.samples[number] if number < len(result.samples) else None, None)
            caption(row[4 + number], "posterior sample")
        draw_cell(row[-1], result.truth, None)
        caption(row[-1], "truth", answer.credit)
    return figure


def found_text(answer: PhotographAnswer) -> str:
    """`σ found 0.101, true 0.1`, a line for each parameter."""
    return "\n".join(
        f"{LABELS[name]} found {value:.3g}, true {truth:g}" for name, (value, _, _, truth) in answer.found.items()
    )


def show_photographs(console: Console, answers: tuple[PhotographAnswer, ...]) -> None:
    """A short table."""
    table = Table("photograph", "found", "90 % interval", "truth", "PSNR of the mean", box=None)
    for answer in answers:
        decibels = f"{answer.result.psnr:.1f} dB"
        if not answer.found:
            table.add_row(answer.title, "", "", "", decibels)
        for name, (value, low, high, truth) in answer.found.items():
            table.add_row(
                answer.title, f"{LABELS[name]} {value:.3g}", f"{low:.3g} … {high:.3g}", f"{truth:g}", decibels
            )
    console.print(table)

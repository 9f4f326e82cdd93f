"""A restoration as a figure, as files and as a short table.

Missing pixels are painted in a colour that no grey picture has; maps of standard deviations run from black (sure) to bright (unsure).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from torch import Tensor

from linverse.data.reading import shown
from linverse.measurement import Measurement
from linverse.posterior import Posterior
from linverse.report.console import note
from linverse.report.output import OutputFolder
from linverse.report.style import caption, draw_cell, figure_bytes, nats, painted, set_gaps, style
from linverse.restoration import LARGEST_STD, Restoration, restore

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STD_COLOURS = "inferno"


def seen_picture(measurement: Measurement) -> Tensor:
    """What a person would look at, [C, H, W]."""
    raw, missing = measurement.raw[0], ~measurement.measured[0]
    if measurement.template.basis == "spatial" and bool(missing.any()):
        return painted(raw, missing)
    return raw


def draw_std(axes: Axes, std: Tensor, highest: float | None = None) -> None:
    """A map of standard deviations; colour channels are averaged."""
    top = float(std.max()) if highest is None else highest
    draw_cell(axes, std.mean(dim=0), (STD_COLOURS, 0.0, min(max(top, 1e-9), LARGEST_STD)))


def plot(
    posterior: Posterior, samples: int = 8, path: int = 50, *, seed: int = 0, truth: Tensor | None = None
) -> Figure:
    """All answers about one measurement as a figure: what was seen, the mean, its standard deviation, and samples.

    >>> import torch, linverse as lv
    >>> from linverse.data.examples import load_examples
    >>> boot = load_examples("fashion-mnist").batch(torch.tensor([0]))
    >>> post = lv.Posterior(lv.load("fashion-mnist"), lv.Box(14, sigma=0.01).measure(boot))
    >>> lv.plot(post, samples=0)
    <Figure size 960x320 with 3 Axes>
    """
    result = restore(posterior, samples=samples, path=path, seed=seed, truth=truth)
    with style():
        return restoration_figure(result, repr(posterior.measurement))


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
    figure.suptitle(shown(title), fontsize=10, fontweight="bold", x=0.01, ha="left", parse_math=False)
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


# --- files and words ---------------------------------------------------------------------------------------------------------------


def sample_name(number: int) -> str:
    """The file of a sample; 1 is the most probable."""
    return f"samples/{number:02d}.png"


def planned_files(samples: int) -> list[str]:
    """All that is going to be written."""
    names = ["measurement.png", "measurement.npy", "mean.png", "mean.npy", "std.png", "std.npy", "figure.png"]
    return names + [sample_name(number + 1) for number in range(samples)]


def write_one_shot(out: OutputFolder, result: Restoration) -> None:
    """What is known before any sample is drawn: an interruption leaves it there."""
    out.write_image("measurement.png", seen_picture(result.measurement))
    out.write_array("measurement.npy", result.measurement.raw[0])
    out.write_image("mean.png", result.mean)
    out.write_array("mean.npy", result.mean)


def write_rest(out: OutputFolder, result: Restoration, settings: dict[str, Any]) -> None:
    """The map of standard deviations (white: the largest), samples, a figure and the numbers."""
    out.write_image("std.png", result.std / result.std.max().clamp_min(1e-12))
    out.write_array("std.npy", result.std)
    for number, sample in enumerate(result.samples):
        out.write_image(sample_name(number + 1), sample)
    title = f"{settings['image']}  ·  {settings['task']}  ·  model {Path(settings['model']).name}"
    out.write("figure.png", figure_bytes(lambda: restoration_figure(result, title)))
    out.finish({"completed": result.completed, **settings, **result.record()})


def show(console: Console, result: Restoration, out: OutputFolder) -> None:
    """A short table, and where the files are."""
    table = Table("", "value", box=None)
    table.add_row("log-evidence of the measurement", f"{result.evidence:.1f} nats")
    if result.typicality is not None:
        verdict = result.typicality.describe()[0]
        table.add_row(f"against {result.typicality.count} held-out images", verdict)
    table.add_row("largest posterior std of a pixel", f"{float(result.std.max()):.3f} ({result.std_from})")
    if len(result.log_probs):
        best, worst = result.density(float(result.log_probs[0])), result.density(float(result.log_probs[-1]))
        table.add_row("log p(x|y), most probable sample", f"{best['log_density_nats']:.1f} nats")
        table.add_row("log p(x|y), least probable sample", f"{worst['log_density_nats']:.1f} nats")
    if result.log_prob_truth is not None:
        table.add_row("log p(x|y), the truth", f"{result.log_prob_truth:.1f} nats")
    if result.psnr is not None:
        table.add_row("PSNR of the mean", f"{result.psnr:.1f} dB")
    console.print(table)
    names = ["figure.png", "mean.png", "std.png", *(["samples/"] if len(result.samples) else []), "result.json"]
    note(console, f"wrote {out.folder}/: {', '.join(names)}")

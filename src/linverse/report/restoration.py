"""A restoration as a figure, as files and as a short table.

Missing pixels are painted in a colour that no grey picture has; maps of standard deviations run from black (sure) to bright (unsure).
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn import functional as F

from linverse.data.picture import Picture
from linverse.data.reading import shown
from linverse.data.writing import encoded
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
    caption(cells[1], "posterior mean", result.mean_from)
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


def error_map_figure(result: Restoration) -> Figure:
    """The restored picture, how wrong it is expected to be everywhere and, where the truth is known, how wrong it is: in levels of 255."""
    from matplotlib.figure import Figure

    height, width = result.mean.shape[1:]
    maps = [("expected error (posterior std)", smoothed(result.std))]
    if result.truth is not None:
        maps.append(("actual error (root mean square)", smoothed((result.mean - result.truth).abs())))
    top = 255 * max(float(values.flatten().sort()[0][int(0.995 * (values.numel() - 1))]) for _, values in maps)
    across = 3.6 * min(2.0, max(0.5, width / height))
    figure = Figure(figsize=(across * (1 + len(maps)) + 0.6, 4.2), layout="constrained")
    set_gaps(figure, 0.04, 0.05)
    cells = figure.subplots(1, 1 + len(maps))
    draw_cell(cells[0], result.mean, None)
    caption(cells[0], "restored", result.mean_from)
    for cell, (title, values) in zip(cells[1:], maps, strict=True):
        draw_cell(cell, 255 * values, (STD_COLOURS, 0.0, max(top, 1e-6)))
        typical = f"typically {255 * float(values.square().mean().sqrt()):.1f} of 255"
        caption(cell, title, typical)
    bar = figure.colorbar(cells[-1].images[0], ax=list(cells[1:]), shrink=0.8, pad=0.02)
    bar.set_label("levels of 255", fontsize=8.5)
    return figure


def smoothed(values: Tensor) -> Tensor:
    """The root mean square over colours and, in pictures of 64 pixels and more, over 5×5 pixels, [H, W]: what a person can read."""
    square = values.square().mean(dim=0, keepdim=True)
    if min(square.shape[1:]) >= 64:
        square = F.avg_pool2d(F.pad(square[None], (2, 2, 2, 2), mode="replicate"), 5, stride=1)[0]
    return square[0].sqrt()


# --- files and words ---------------------------------------------------------------------------------------------------------------


def sample_name(number: int) -> str:
    """The file of a sample; 1 is the most probable."""
    return f"samples/{number:02d}.png"


def planned_files(samples: int) -> list[str]:
    """All that is going to be written."""
    names = ["measurement.png", "measurement.npy", "mean.png", "mean.npy", "std.png", "std.npy"]
    names += ["figure.png", "error-map.png"]
    return names + [sample_name(number + 1) for number in range(samples)]


def write_one_shot(out: OutputFolder, result: Restoration, like: Picture | None = None) -> None:
    """What is known before any sample is drawn: an interruption leaves it there."""
    out.write_image("measurement.png", seen_picture(result.measurement))
    out.write_array("measurement.npy", result.measurement.raw[0])
    write_mean(out, result, like)


def write_mean(out: OutputFolder, result: Restoration, like: Picture | None) -> None:
    """The restored picture, at the depth and with the transparency of the one that was given, and as an array."""
    if like is not None and like.size == tuple(result.mean.shape[1:]) and like.channels == len(result.mean):
        out.write("mean.png", encoded(dataclasses.replace(like, pixels=result.mean[None].float())))
    else:
        deep = like is not None and like.depth is not None and like.depth > 8
        out.write("mean.png", encoded(result.mean, 16 if deep else 8))
    out.write_array("mean.npy", result.mean)


def write_rest(out: OutputFolder, result: Restoration, settings: dict[str, Any], like: Picture | None = None) -> None:
    """Mean, map of standard deviations (white: the largest), samples, figures and the numbers."""
    write_mean(out, result, like)
    out.write_image("std.png", result.std / result.std.max().clamp_min(1e-12))
    out.write_array("std.npy", result.std)
    for number, sample in enumerate(result.samples):
        out.write_image(sample_name(number + 1), sample)
    title = f"{settings['image']}  ·  {settings['task']}  ·  model {Path(settings['model']).name}"
    out.write("figure.png", figure_bytes(lambda: restoration_figure(result, title)))
    out.write("error-map.png", figure_bytes(lambda: error_map_figure(result)))
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
    names = ["mean.png", "error-map.png", "figure.png", *(["samples/"] if len(result.samples) else []), "result.json"]
    note(console, f"wrote {out.folder}/: {', '.join(names)}")

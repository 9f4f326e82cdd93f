"""Histograms of both log-densities, the gallery of one measurement with coloured borders, and galleries sorted by prior and posterior."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from linverse.experiments.posterior_samples import SampleSet
from linverse.report.galleries import draw_rows, draw_sorted
from linverse.report.style import BLUE, GREEN, INK, VERMILION, painted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"dps": GREEN, "red-diff": VERMILION, "ours": BLUE}  # as in the paper


def draw(found: tuple[SampleSet, SampleSet, int]) -> Figure:
    """One y above, many y in the middle, sorted galleries below."""
    from matplotlib.figure import Figure

    one, many, shown = found
    figure = Figure(figsize=(13.0, 11.5), layout="constrained")
    top, middle, bottom = figure.subfigures(3, 1, squeeze=False, height_ratios=[1.0, 0.85, 1.15]).flat
    left, right = top.subfigures(1, 2, squeeze=False, width_ratios=[1.6, 1.0]).flat
    draw_histograms(left, one, "samples of one y")
    draw_gallery(right, one, shown)
    draw_histograms(middle, many, "one sample of each of many y")
    draw_by_probability(bottom, many, shown)
    return figure


def draw_histograms(part: Any, found: SampleSet, title: str) -> None:
    """log p(x̂) and log p(x̂|y) of every solver; the truth's in black."""
    panels = part.subplots(1, 2)
    for axes, kind, name in zip(panels, ("prior", "posterior"), ("log p(x̂)", "log p(x̂|y)"), strict=True):
        low, high = window([getattr(judged, kind) for judged in (found.truth, *found.solved.values())])
        for solver, judged in found.solved.items():
            values = getattr(judged, kind).clamp(low, high)
            axes.hist(values.numpy(), bins=40, range=(low, high), color=COLOURS[solver], alpha=0.5, label=solver)
        draw_truth(axes, getattr(found.truth, kind), (low, high))
        axes.set(xlabel=f"{name}   (nats; what lies beyond is drawn at the edge)", yticks=[], xlim=(low, high))
        axes.set_title(f"{name}, {title}", fontsize=10)
    panels[0].legend(fontsize=8)


def window(values: list[Tensor]) -> tuple[float, float]:
    """From low to high of what is to be seen: all but far outliers of any solver."""
    middles = torch.stack([v.quantile(0.5) for v in values])
    spread = torch.stack([v.quantile(0.9) - v.quantile(0.1) for v in values]).quantile(0.5)
    reach = max(3 * float(spread), 1.5 * float((middles - middles[0]).abs().quantile(0.7)), 1.0)
    return float(middles[0]) - reach, float(middles[0]) + reach


def draw_truth(axes: Axes, values: Tensor, limits: tuple[float, float]) -> None:
    """A line for one truth, a histogram for many."""
    if len(values) == 1:
        axes.axvline(float(values), color=INK, lw=1.5, label="truth")
    else:
        axes.hist(values.numpy(), bins=40, range=limits, histtype="step", color=INK, label="truth")


def draw_gallery(part: Any, found: SampleSet, shown: int) -> None:
    """Samples of all solvers, least probable first, in the colour of their solver; darker is less probable."""
    pool = [(name, number) for name, j in found.solved.items() for number in range(len(j.prior))]
    values = torch.cat([j.prior for j in found.solved.values()])
    order = values.argsort()
    picked = order[torch.linspace(0, len(order) - 1, min(3 * shown - 2, len(order))).round().long()].tolist()
    images = [found.solved[name].images[number] for name, number in (pool[i] for i in picked)]
    ranks = torch.linspace(0.45, 1.0, len(picked)).tolist()
    borders = [shade(COLOURS[pool[i][0]], rank) for i, rank in zip(picked, ranks, strict=True)]
    hole = painted(found.raw[0], found.missing[0])
    first = [found.truth.images[0].expand(3, -1, -1), hole]
    everything = torch.stack([*first, *(image.expand(3, -1, -1) for image in images)])
    draw_sorted(part, everything, 6, [SKY_TRUTH, INK, *borders], "Truth, measured; then by log p(x̂), low to high")


SKY_TRUTH = "#56B4E9"


def shade(colour: str, strength: float) -> tuple[float, ...]:
    """A colour, darkened."""
    from matplotlib.colors import to_rgb

    return tuple(strength * channel for channel in to_rgb(colour))


def draw_by_probability(part: Any, found: SampleSet, shown: int) -> None:
    """Our samples from high to low, by prior and by posterior, the truth below each."""
    ours = found.solved["ours"]
    for side, (kind, name) in zip(
        part.subfigures(1, 2), (("prior", "log p(x̂)"), ("posterior", "log p(x̂|y)")), strict=True
    ):
        order = getattr(ours, kind).argsort(descending=True)
        picked = order[torch.linspace(0, len(order) - 1, min(shown, len(order))).round().long()]
        rows = {"ours": ours.images[picked], "truth": found.truth.images[picked]}
        draw_rows(side, rows, f"From high to low {name}")

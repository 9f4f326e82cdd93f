"""The histogram of log p with its Gumbel fit, and images from low to high probability."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from linverse.experiments.gumbel import GumbelFound
from linverse.report.galleries import draw_sorted
from linverse.report.style import BLUE, GREY, VERMILION

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(found: GumbelFound) -> Figure:
    """The histogram at the left, the images, where there are any, at the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.5 if len(found.images) else 6.0, 4.6), layout="constrained")
    parts = figure.subfigures(1, 2, squeeze=False, width_ratios=[1.0, 1.3]).flat if len(found.images) else [figure]
    axes = parts[0].subplots()
    values = found.values
    axes.hist(values.numpy(), bins=60, density=True, color=BLUE, alpha=0.6, label="test images")
    if bool(found.grey.any()):
        axes.hist(values[found.grey].numpy(), bins=30, density=True, color=GREY, alpha=0.7, label="grey images alone")
    line = torch.linspace(float(values.min()), float(values.max()), 400, dtype=torch.float64)
    axes.plot(line.numpy(), found.fit.log_density(line).exp().numpy(), color=VERMILION, label="Gumbel")
    axes.set(xlabel="log p(x)   (dB/dim)", ylabel="density")
    axes.set_title("Log-probabilities of the test set")
    axes.legend()
    if len(found.images):
        draw_sorted(parts[1], found.images, 12, title="From low to high probability, in reading order")
    return figure

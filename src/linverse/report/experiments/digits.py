"""The figure of the digits experiment: what the model draws, and how well it tells the noise of one image."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from linverse.experiments.digits import DigitFindings
from linverse.report.style import BLUE, GREY, VERMILION, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(found: DigitFindings) -> Figure:
    """Generated digits, and the errors of the noise level against their bound."""
    images, errors = found.images, found.errors
    figure, (left, right) = panels(2)
    apart = torch.nn.functional.pad(images.clamp(0, 1), (1, 1, 1, 1))
    rows = [torch.cat(list(row[:, 0]), dim=1) for row in apart.split(8)]
    left.imshow(1 - torch.cat(rows).numpy(), vmin=0, vmax=1)
    left.set_axis_off()
    left.set_title("Drawn from the model")
    axis = list(errors)
    spread, bound = [e.spread for e in errors.values()], [e.bound for e in errors.values()]
    right.semilogx(axis, bound, color=GREY, linestyle="--", label="Cramér–Rao bound of the spread")
    right.semilogx(axis, spread, color=BLUE, marker="o", label="spread of log σ̂²")
    right.semilogx(axis, [e.bias for e in errors.values()], color=VERMILION, marker="s", label="bias of log σ̂²")
    right.axhline(0, color=GREY, linewidth=0.8)
    right.set_xlabel("noise variance σ²")
    right.set_title("Noise of a single image")
    right.legend()
    return figure

"""Histograms of bits per dimension, and lines for what is published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from linverse.experiments.code_length import PUBLISHED
from linverse.report.style import GREY, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(found: tuple[dict[str, Tensor], dict[str, float]]) -> Figure:
    """One panel."""
    bits, _ = found
    figure, (axes,) = panels(1, width=7.0, height=3.4)
    top = max(float(values.quantile(0.99)) for values in bits.values())
    for name, values in bits.items():
        axes.hist(
            values.clamp(max=top).numpy(),
            bins=40,
            density=True,
            alpha=0.45,
            label=f"{name}: {float(values.mean()):.2f}",
        )
    for name, value in PUBLISHED.items():
        axes.axvline(value, color=GREY, lw=1, ls=":")
        axes.annotate(name, (value, axes.get_ylim()[1]), rotation=90, fontsize=7, va="top", ha="right", color=GREY)
    axes.set(xlabel="bits per dimension (one file each)", yticks=[])
    axes.set_title("Code lengths (lines: published for CIFAR-10)")
    axes.legend(fontsize=8)
    return figure

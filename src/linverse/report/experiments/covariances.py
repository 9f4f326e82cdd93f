"""Covariances as pictures of log₁₀ λ, and paths as curves in the plane of two variances."""

from __future__ import annotations

from typing import TYPE_CHECKING

from linverse.experiments.covariances import CovariancesFound
from linverse.report.style import draw_cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(found: CovariancesFound) -> Figure:
    """Fields at the left, a row for each kind; paths at the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 6.0), layout="constrained")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[1.2, 1.0]).flat
    count = len(next(iter(found.fields.values())))
    grid = left.subplots(len(found.fields), count, squeeze=False, gridspec_kw={"wspace": 0.05, "hspace": 0.05})
    for cells, (name, values) in zip(grid, found.fields.items(), strict=True):
        for axes, value in zip(cells, values, strict=True):
            draw_cell(axes, value, ("viridis", -9.0, 3.0))
        cells[0].set_ylabel(name, fontsize=9, rotation=0, ha="right", va="center")
    left.suptitle("log₁₀ λ of covariances drawn in training (−9 dark … 3 bright)", fontsize=10, fontweight="bold")
    axes = right.subplots()
    styles = ("-", "--", "-.", ":", (0, (6, 1, 1, 1)))
    for (name, path), line in zip(found.paths.items(), styles, strict=True):
        axes.plot(path[:, 0].numpy(), path[:, 1].numpy(), ls=line, marker=".", ms=4, label=name)
    axes.set(xlabel="log₁₀ λ of a hidden pixel", ylabel="log₁₀ λ of a measured pixel")
    axes.set_title("Paths through covariance space")
    axes.legend(fontsize=8)
    return figure

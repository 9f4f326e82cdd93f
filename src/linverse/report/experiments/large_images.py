"""Large pictures with their boxes filled, and the evidence of a box of unknown size and noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from linverse.experiments.large_images import LargeImagesSetting
from linverse.report.experiments.blind import draw_curves, mark_factors
from linverse.report.galleries import draw_rows
from linverse.report.style import draw_cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(found: tuple[dict[int, dict[str, Tensor]], dict[str, Any], LargeImagesSetting]) -> Figure:
    """A panel for each box, and below the blind question."""
    from matplotlib.figure import Figure

    shown, curves, setting = found
    columns = len(next(iter(shown.values()))["truth"])
    figure = Figure(figsize=((1.3 * columns + 1.0) * len(shown), 10.0), layout="constrained")
    top, bottom = figure.subfigures(2, 1, squeeze=False, height_ratios=[2.4, 1.0]).flat
    for part, (box, rows) in zip(top.subfigures(1, len(shown), squeeze=False).flat, shown.items(), strict=True):
        draw_rows(part, rows, f"Box of {box}×{box} in {setting.side}×{setting.side}")
    cells = bottom.subplots(1, 3)
    draw_cell(cells[0], curves["observation"], None)
    draw_curves(cells[1], {"dual": curves["by_side"]}, setting.blind_box, "side s of the box")
    draw_curves(cells[2], {"dual": curves["by_sigma"]}, setting.blind_sigma, "noise σ₁ in the box")
    mark_factors(cells[2], setting.blind_sigma)
    return figure

"""Images, their first tangent directions, and pictures moved along the first of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from linverse.experiments.local_geometry import Geometry, LocalGeometrySetting
from linverse.report.style import caption, draw_cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TANGENTS, STEP = 4, 2.5


def draw(found: tuple[Tensor, list[Geometry], LocalGeometrySetting]) -> Figure:
    """A row for each image."""
    from matplotlib.figure import Figure

    images, geometry, setting = found
    count = min(TANGENTS, setting.tangents)
    columns = 1 + count + 2
    figure = Figure(figsize=(1.25 * columns, 1.4 * len(images) + 0.4), layout="constrained")
    grid = figure.subplots(len(images), columns, squeeze=False, gridspec_kw={"wspace": 0.04, "hspace": 0.04})
    for cells, image, local in zip(grid, images, geometry, strict=True):
        draw_cell(cells[0], image, None)
        for number in range(count):
            tangent = local.tangents[number].mean(dim=0)
            reach = float(tangent.abs().max())
            draw_cell(cells[1 + number], tangent, ("RdBu_r", -reach, reach))
            caption(cells[1 + number], below=f"{float(local.eigenvalues[number]):.2f}")
        for cell, sign in zip(cells[1 + count :], (-1, 1), strict=True):
            draw_cell(cell, image + sign * STEP * local.tangents[0], None)
    titles = ["image", *(f"tangent {n + 1}" for n in range(count)), "− tangent 1", "+ tangent 1"]
    for axes, title in zip(grid[0], titles, strict=True):
        caption(axes, title)
    return figure

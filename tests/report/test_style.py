"""Cells of pictures: what a screen shows, and colours for maps."""

from __future__ import annotations

import pytest
import torch

from linverse.report.style import draw_cell, panels


def test_cells_show_pictures_as_a_screen_does() -> None:
    _, axes = panels(4)
    draw_cell(axes[0], torch.full((3, 4, 5), 0.5), None)
    draw_cell(axes[1], torch.rand(4, 5), ("magma", 0.0, 0.3))
    draw_cell(axes[2], torch.full((1, 4, 5), 2.0), None)
    draw_cell(axes[3], None, None)
    assert [len(a.images) for a in axes] == [1, 1, 1, 0]
    assert axes[0].images[0].get_array().shape == (4, 5, 3)
    assert float(axes[2].images[0].get_array().max()) == 1.0  # clamped
    assert axes[1].images[0].get_clim() == (0.0, 0.3)
    with pytest.raises(ValueError, match=r"shape \(2, 4, 4\)"):
        draw_cell(axes[3], torch.zeros(2, 4, 4), None)

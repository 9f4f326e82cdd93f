"""Pictures and numbers as people see them."""

from __future__ import annotations

from pathlib import Path

import torch

from linverse.blind.search import Axis
from linverse.data.pictures import expand_paths
from linverse.degradations import Box, Denoising
from linverse.report.blind import decimals_for
from linverse.report.restoration import seen_picture
from linverse.report.scores import ScoredPicture, ends
from linverse.report.style import MISSING, nats
from small import SHAPE, digit


def test_missing_pixels_are_painted() -> None:
    seen = seen_picture(Box(4).measure(digit()))
    assert seen.shape == (3, 8, 8)
    assert torch.allclose(seen[:, 4, 4], torch.tensor(MISSING))
    assert torch.equal(seen[:, 0], digit()[0, 0, 0].expand(3, -1))
    assert seen_picture(Denoising(0.1).measure(digit())).shape == SHAPE


def test_numbers_are_written_for_people() -> None:
    assert nats(-1234.4) == "−1\u2009234"
    axis = Axis("sigma", 0.1, 1, 3)
    assert [decimals_for(width, axis) for width in (0.02, 0.5, 3.0, 40.0)] == [3, 2, 1, 0]


def test_hidden_order_of_many_scores() -> None:
    many = [ScoredPicture(Path(f"{n}.png"), torch.zeros(SHAPE), -float(n)) for n in range(30)]
    kept, gap = ends(many, 10)
    assert gap
    assert [int(-one.log_density) for one in kept] == [0, 1, 2, 3, 4, 25, 26, 27, 28, 29]
    assert expand_paths([Path("a.png")]) == [Path("a.png")]

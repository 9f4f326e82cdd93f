"""A user's pictures and arrays as tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from linverse.data.pictures import read_image
from linverse.rng import keyed_generator
from small import SHAPE


def test_arrays_keep_what_pictures_cut_off(tmp_path: Path) -> None:
    x = 3 * torch.randn(SHAPE, generator=keyed_generator("array"))
    np.save(tmp_path / "x.npy", x.numpy())
    assert torch.equal(read_image(tmp_path / "x.npy", SHAPE, print), x[None])
    np.save(tmp_path / "flat.npy", np.full((8, 8), 51, np.uint8))
    assert torch.allclose(read_image(tmp_path / "flat.npy", SHAPE, print), torch.tensor(0.2))


def test_changes_to_a_picture_are_announced(tmp_path: Path) -> None:
    Image.fromarray(np.full((10, 16, 3), 51, np.uint8)).save(tmp_path / "colour.png")
    told: list[str] = []
    x = read_image(tmp_path / "colour.png", SHAPE, told.append, resize=True)
    said = " ".join(told)
    assert "10×16 scaled and cropped to 8×8" in said
    assert "colour to grey" in said
    assert torch.allclose(x, torch.tensor(0.2))

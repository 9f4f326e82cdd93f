"""What compression took from a picture decides the size at which it is learnt from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from linverse.data.compression import was_compressed


@pytest.fixture
def picture() -> Image.Image:
    rows, columns = np.mgrid[:40, :48]
    return Image.fromarray(np.stack([3 * rows, 5 * columns, rows + columns], axis=-1).astype(np.uint8))


def test_fine_jpeg_with_all_its_colours_is_as_good_as_none(picture: Image.Image, tmp_path: Path) -> None:
    kinds = {
        "fine.jpg": {"quality": 99, "subsampling": 0},
        "halved.jpg": {"quality": 99, "subsampling": 2},
        "coarse.jpg": {"quality": 95, "subsampling": 0},
        "picture.png": {},
        "lossy.webp": {"quality": 99},
    }
    for name, options in kinds.items():
        picture.save(tmp_path / name, **options)
    picture.convert("L").save(tmp_path / "grey.jpg", quality=99)
    found = {name: was_compressed(tmp_path / name) for name in (*kinds, "grey.jpg")}
    assert [name for name, compressed in found.items() if not compressed] == ["fine.jpg", "picture.png", "grey.jpg"]


def test_what_calls_itself_a_jpeg_and_is_none_counts_as_compressed(picture: Image.Image, tmp_path: Path) -> None:
    picture.save(tmp_path / "wrong.jpg", format="WEBP")
    assert was_compressed(tmp_path / "wrong.jpg")

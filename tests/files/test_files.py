"""Files are written whole or not at all; images come out pixel for pixel."""

from __future__ import annotations

import errno
import json
import os
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from linverse.files import file_digest, replacing, write_json, write_together, write_whole
from linverse.files.png import png_bytes, sheet


def fail_half_way(path: Path) -> None:
    with replacing(path) as stream:
        stream.write(b"half")
        raise RuntimeError("in the middle")


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")
    with pytest.raises(RuntimeError, match="middle"):
        fail_half_way(path)
    assert path.read_bytes() == b"old"
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_several_files_change_together_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_together(tmp_path, {"weights": b"old", "manifest": b"old"})
    room, fsync = [True, False], os.fsync

    def sync(number: int) -> None:
        if not room.pop(0):
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(number)

    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(OSError, match="No space left"):
        write_together(tmp_path, {"weights": b"new", "manifest": b"new"})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"weights": b"old", "manifest": b"old"}


def test_an_error_of_the_disk_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"cannot write .*nowhere"):
        write_whole(tmp_path / "nowhere" / "file", b"")


def test_json_keeps_letters_and_refuses_what_json_does_not_know(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"σ": 0.1})
    assert "σ" in (tmp_path / "a.json").read_text()
    assert json.loads((tmp_path / "a.json").read_text()) == {"σ": 0.1}
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "b.json", float("nan"))
    assert not (tmp_path / "b.json").exists()


def test_the_digest_is_that_of_the_bytes(tmp_path: Path) -> None:
    write_whole(tmp_path / "file", b"abc")
    assert file_digest(tmp_path / "file").startswith("ba7816bf")


@pytest.mark.parametrize("channels", [1, 3])
def test_images_come_out_pixel_for_pixel(channels: int) -> None:
    x = torch.randint(256, (channels, 3, 4)) / 255
    pixels = np.asarray(Image.open(BytesIO(png_bytes(x, scale=2))))
    planes = torch.from_numpy(pixels.copy()).reshape(6, 8, channels).permute(2, 0, 1)
    assert torch.equal(planes[:, ::2, ::2], (255 * x).round().byte())
    assert torch.equal(planes[:, 1::2, 1::2], planes[:, ::2, ::2])


def test_a_sheet_is_rows_of_images() -> None:
    rows = torch.arange(2 * 3 * 1 * 2 * 2.0).reshape(2, 3, 1, 2, 2)
    whole = sheet(rows)
    assert whole.shape == (1, 4, 6)
    assert torch.equal(whole[:, 2:, 4:], rows[1, 2])

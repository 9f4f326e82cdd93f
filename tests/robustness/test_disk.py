"""Runs on a disk that is really full: a small tmpfs, where mounting is possible."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from linverse.files.saving import WEIGHTS, hash_weights
from linverse.store.hub import load
from linverse.training.checkpoint import STATE, read_state
from robustness.commands import make_files, typed
from robustness.models import saved_model
from small import SHAPE
from tiny import DIGITS_FLAGS, tiny_energy


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("mounting a small disk takes root and `mount`")
    answer = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if answer.returncode:
        pytest.skip(f"no disk can be mounted here: {answer.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=False, capture_output=True)


def fill(disk: Path, leave: int) -> None:
    """All but `leave` bytes."""
    (disk / "ballast").unlink(missing_ok=True)
    free = shutil.disk_usage(disk).free
    (disk / "ballast").write_bytes(bytes(max(0, free - leave)))


def test_a_full_disk_loses_neither_model_nor_results(small_disk: Path) -> None:
    energy = tiny_energy(SHAPE).float()
    energy.save_pretrained(small_disk / "model")
    make_files(small_disk)
    weights = (small_disk / "model" / WEIGHTS).stat().st_size
    for room in (weights + 8192, 8192):  # for the new weights but not for what belongs to them; not even for them
        fill(small_disk, room)
        with pytest.raises(OSError, match="No space left"):
            tiny_energy(SHAPE, size=0.5).float().save_pretrained(small_disk / "model")
        assert hash_weights(load(small_disk / "model")) == hash_weights(energy)
    words = [
        "restore",
        "good.png",
        "--task",
        "denoise",
        "--samples",
        "1",
        "--steps",
        "1",
        "--model",
        str(saved_model()),
    ]
    code, _, complained = typed(words, small_disk)
    assert code == 1
    assert "No space left" in complained
    assert not list(small_disk.rglob("*.partial"))
    (small_disk / "ballast").unlink()
    assert typed(words, small_disk)[0] == 0


def test_a_full_disk_stops_training_and_keeps_the_state(small_disk: Path) -> None:
    words = ["train", "digits", "--out", "run", *DIGITS_FLAGS, "--no-tensorboard", "--checkpoint-seconds=0"]
    assert typed([*words, "--steps=2"], small_disk)[0] == 0
    fill(small_disk, 8192)
    code, _, complained = typed([*words, "--steps=4"], small_disk)
    assert code == 1, complained
    assert "No space left" in complained
    state = read_state(small_disk / "run")
    assert state is not None
    assert state.step >= 2
    assert (small_disk / "run" / STATE).exists()
    (small_disk / "ballast").unlink()
    assert typed([*words, "--steps=4"], small_disk)[0] == 0

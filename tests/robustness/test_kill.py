"""SIGKILL at random moments: whatever was cut off goes on, and ends with the same bits.

`LINVERSE_KILLS` says how often training is killed (3 by default; three of five are aimed at the moment when the checkpoint is written).
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from linverse.files.saving import hash_weights
from linverse.store.hub import load
from linverse.training.checkpoint import STATE
from robustness.models import saved_model
from tiny import DIGITS_FLAGS

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
Moment = Callable[[subprocess.Popen[bytes]], None]
KILLS = int(os.environ.get("LINVERSE_KILLS", "3"))


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "linverse", *words]


def training(folder: Path, steps: int = 60) -> list[str]:
    options = ("--no-tensorboard", "--threads=1", f"--steps={steps}", "--checkpoint-seconds=0", "--preview-every=0")
    return command("train", "digits", "--out", str(folder), *DIGITS_FLAGS, *options)


def finish(words: list[str], folder: Path) -> None:
    answer = subprocess.run(words, cwd=folder, capture_output=True, timeout=500, check=False, env=ENVIRONMENT)
    assert answer.returncode == 0, answer.stderr.decode()
    assert b"Traceback" not in answer.stderr


def killed(words: list[str], folder: Path, moment: Moment) -> bool:
    """Start a command, kill it when `moment` has come; whether it was still alive."""
    process = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
    moment(process)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def writing(run: Path, dice: random.Random) -> Moment:
    """The moment when a new checkpoint is being written: its partial file is there."""
    remains = set(run.glob(f"{STATE}.*.partial"))  # of those that were killed before

    def wait(process: subprocess.Popen[bytes]) -> None:
        wanted, seen = dice.randrange(1, 5), set[Path]()
        while process.poll() is None and len(seen) < wanted:
            seen |= set(run.glob(f"{STATE}.*.partial")) - remains
        time.sleep(dice.choice((0, 0, 1e-4, 1e-3)))

    return wait


def written(run: Path) -> int:
    """When the newest checkpoint was written; 0 while there is none."""
    try:
        return (run / STATE).stat().st_mtime_ns
    except FileNotFoundError:  # for a moment between two renames it is not there
        return 0


def at_random(run: Path, dice: random.Random) -> Moment:
    """Any moment after the first new checkpoint."""
    before = written(run)

    def wait(process: subprocess.Popen[bytes]) -> None:
        while process.poll() is None and written(run) in (0, before):
            time.sleep(0.002)
        time.sleep(0.2 * dice.random())

    return wait


@pytest.mark.slow
@pytest.mark.timeout(1200 + 60 * KILLS)
def test_a_killed_training_ends_with_the_same_bits(tmp_path: Path) -> None:
    finish(training(tmp_path / "whole"), tmp_path)
    expected = hash_weights(load(tmp_path / "whole"))
    dice, run, alive, number = random.Random(KILLS), tmp_path / "run0", 0, 0
    for kill in range(KILLS):
        moment = at_random(run, dice) if kill % 5 >= 3 else writing(run, dice)
        alive += killed(training(run), tmp_path, moment)
        if (run / "model" / "manifest.json").exists() or kill == KILLS - 1:
            finish(training(run), tmp_path)
            assert hash_weights(load(run)) == expected, f"kill {kill}"
            number += 1
            assert not list(run.glob("*.partial"))
            run = tmp_path / f"run{number}"
    assert alive > 0
    print(f"{alive} of {KILLS} kills met a living run; {number} models, all of the same bits")


@pytest.mark.slow
def test_a_killed_evaluation_ends_with_the_same_bytes(tmp_path: Path) -> None:
    words = command(
        "evaluate", "--model", str(saved_model()), "--data", "digits", "--images=12", "--batch=1", "--task=box"
    )
    words += ["--method=ours:steps=4", "--metric=PSNR", "--features=pixels", "--pictures=0", "--threads=1"]
    finish([*words, "--out=whole"], tmp_path)
    dice, parts = random.Random(1), tmp_path / "killed" / "parts"
    for _ in range(2):
        before = len(list(parts.rglob("*.safetensors")))

        def moment(process: subprocess.Popen[bytes], before: int = before) -> None:
            while process.poll() is None and len(list(parts.rglob("*.safetensors"))) <= before:
                time.sleep(0.002)
            time.sleep(0.05 * dice.random())

        killed([*words, "--out=killed"], tmp_path, moment)
    finish([*words, "--out=killed"], tmp_path)
    assert (tmp_path / "killed" / "results.json").read_bytes() == (tmp_path / "whole" / "results.json").read_bytes()
    tables = [(tmp_path / run / "table.csv").read_text().splitlines() for run in ("killed", "whole")]
    # the last column holds seconds
    assert [row.rpartition(",")[0] for row in tables[0]] == [row.rpartition(",")[0] for row in tables[1]]


SMALL_EXPERIMENT = """
import sys
from linverse.cli import main
from linverse.experiments import calibration
calibration.QUICK = calibration.CalibrationSetting(("box", "gauss:std=0.4", "superres:factor=4", "half"), 3, 19, 0.0, 2)
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_a_killed_experiment_ends_with_the_same_numbers(tmp_path: Path) -> None:
    words = [sys.executable, "-W", "ignore", "-c", SMALL_EXPERIMENT, "experiment", "calibration", "--quick"]
    words += ["--model", str(saved_model()), "--data=digits", "--steps=4"]
    finish([*words, "--out=whole"], tmp_path)
    dice, pieces, alive = random.Random(2), tmp_path / "killed" / "calibration.cache", 0
    for _ in range(2):
        before = len(list(pieces.glob("*")))

        def moment(process: subprocess.Popen[bytes], before: int = before) -> None:
            while process.poll() is None and len(list(pieces.glob("*"))) <= before:
                time.sleep(0.002)
            time.sleep(0.05 * dice.random())

        alive += killed([*words, "--out=killed"], tmp_path, moment)
    assert alive > 0
    finish([*words, "--out=killed"], tmp_path)
    records = [json.loads((tmp_path / run / "calibration.json").read_text()) for run in ("killed", "whole")]
    assert records[0]["metrics"] == records[1]["metrics"]
    assert not pieces.exists()

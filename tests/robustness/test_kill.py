"""SIGKILL at random moments and in the middle of a checkpoint: whatever was cut off goes on, and ends with the same bits.

Two kills and a flipped byte of each kind in every `make test`; before a release twenty kills, twelve of them aimed at the checkpoint, and
ten flipped bytes.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from linverse.files.saving import hash_tensors, hash_weights
from linverse.store.hub import load
from linverse.training.checkpoint import PREVIOUS, STATE, TrainingState, read_state
from robustness.models import saved_model
from tiny import DIGITS_FLAGS

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
Moment = Callable[[subprocess.Popen[bytes]], None]
STEPS = 40
TRAINING = ("--no-tensorboard", "--threads=1", "--checkpoint-seconds=0", "--preview-every=0")


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "linverse", *words]


def training(folder: Path, steps: int = STEPS) -> list[str]:
    """The words of a training that writes a checkpoint after every step."""
    return ["train", "digits", "--out", str(folder), *DIGITS_FLAGS, *TRAINING, f"--steps={steps}"]


def finish(words: list[str], folder: Path) -> str:
    """Run to the end; what was said on stderr."""
    answer = subprocess.run(words, cwd=folder, capture_output=True, timeout=900, check=False, env=ENVIRONMENT)
    assert answer.returncode == 0, answer.stderr.decode()
    assert b"Traceback" not in answer.stderr
    return (answer.stdout + answer.stderr).decode()


def killed(words: list[str], folder: Path, moment: Moment) -> bool:
    """Start a command, kill it when `moment` has come; whether it was still alive."""
    process = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
    moment(process)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


# --- training ------------------------------------------------------------------------------------------------------------------------

# argv: where and in which checkpoint the process kills itself, then the words of the command
SUICIDE = """
import os, signal, sys
from pathlib import Path
from linverse import files
from linverse.training import checkpoint

place, number, *words = sys.argv[1:]
begun = 0

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def counted(write):
    def writing(self, content):
        global begun, share
        if self.hash.digest() == checkpoint.hashlib.sha256().digest():
            begun, share = begun + 1, 0
        share += 1
        if place == "half written" and begun == int(number) and share == 20:
            self.stream.flush()
            die()
        return write(self, content)
    return writing

def before(step, where, name):
    def stepping(path, *rest):
        if place == where and begun == int(number) and name(path):
            die()
        return step(path, *rest)
    return stepping

checkpoint._Hashing.write = counted(checkpoint._Hashing.write)
os.fsync = before(os.fsync, "not on the disk yet", lambda stream: True)
Path.replace = before(Path.replace, "before the old one is put aside", lambda path: path.name == checkpoint.STATE)
Path.replace = before(Path.replace, "between the two renames", lambda path: path.name.startswith(checkpoint.STATE + "."))

from linverse.cli import main
main(words)
"""
PLACES = ("half written", "not on the disk yet", "before the old one is put aside", "between the two renames")

# argv: a file, then the words of the command; every state's hash by its step goes into the file
WATCHED = """
import json, sys
from pathlib import Path
from linverse.training import loop
from robustness.test_kill import hash_of

record, hashes, write = Path(sys.argv[1]), {}, loop.write_state

def watched(folder, state):
    hashes[state.step] = hash_of(state)
    return write(folder, state)

loop.write_state = watched
from linverse.cli import main
main(sys.argv[2:])
record.write_text(json.dumps(hashes))
"""


def hash_of(state: TrainingState) -> str:
    """Of all that a run goes on with: weights, their average, the optimiser's moments."""
    moments = {f"{i} {k}": v for i, each in state.optimiser["state"].items() for k, v in each.items()}
    tensors = {name: value for name, value in moments.items() if hasattr(value, "detach")}
    return hash_tensors(state.model) + hash_tensors(state.ema) + hash_tensors(tensors)


def script(text: str, *arguments: str) -> list[str]:
    return [sys.executable, "-W", "ignore", "-c", text, *arguments]


def reference(folder: Path) -> tuple[str, dict[int, str], float]:
    """A training that nobody disturbs: the hash of its model, those of its states, and its seconds."""
    record, begun = folder / "hashes.json", time.monotonic()
    environment = {**ENVIRONMENT, "PYTHONPATH": str(Path(__file__).parents[1])}
    words = script(WATCHED, str(record), *training(folder / "whole"))
    subprocess.run(words, cwd=folder, check=True, capture_output=True, timeout=900, env=environment)
    hashes = {int(step): value for step, value in json.loads(record.read_text()).items()}
    return hash_weights(load(folder / "whole")), hashes, time.monotonic() - begun


@pytest.mark.slow
@pytest.mark.timeout(5400)
@pytest.mark.parametrize(("aimed", "anywhere"), [(2, 1), pytest.param(12, 8, marks=pytest.mark.release)])
def test_a_killed_training_ends_with_the_same_bits(aimed: int, anywhere: int, tmp_path: Path) -> None:
    expected, hashes, seconds = reference(tmp_path)
    assert len(set(hashes.values())) == STEPS
    dice, run, models, steps = random.Random(aimed), tmp_path / "run0", 0, []

    def wait(process: subprocess.Popen[bytes]) -> None:
        """For any moment of the life of a run: while it starts, trains, tests and saves its model."""
        moment = time.monotonic() + seconds * dice.random()
        while process.poll() is None and time.monotonic() < moment:
            time.sleep(0.002)

    waiting = [*(PLACES[number % len(PLACES)] for number in range(aimed)), *["anywhere"] * anywhere]
    dice.shuffle(waiting)
    while waiting:
        kill = waiting.pop()
        if kill == "anywhere":
            alive = killed(command(*training(run)), tmp_path, wait)
        else:
            words = script(SUICIDE, kill, str(dice.randrange(2, 5)), *training(run))
            answer = subprocess.run(words, cwd=tmp_path, capture_output=True, timeout=900, check=False, env=ENVIRONMENT)
            alive = answer.returncode == -signal.SIGKILL
            assert alive, answer.stderr.decode()
        state = read_state(run) if run.exists() else None
        steps.append(
            f"{kill}: {'killed' if alive else 'too late'}, goes on from step {0 if state is None else state.step}"
        )
        if state is not None:
            assert hash_of(state) == hashes[state.step], steps
        if not alive:
            waiting.insert(0, kill)
        if state is not None and state.step > STEPS - 5:  # hardly anything is left to kill
            finish(command(*training(run)), tmp_path)
            assert hash_weights(load(run)) == expected, steps
            models += 1
            run = tmp_path / f"run{models}"
    finish(command(*training(run)), tmp_path)
    assert hash_weights(load(run)) == expected, steps
    assert not list(run.glob("*.partial"))
    print(f"{aimed + anywhere} kills, {models + 1} models, all of the same bits:", *steps, sep="\n  ")


@pytest.mark.slow
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("flips", [2, pytest.param(10, marks=pytest.mark.release)])
def test_a_flipped_byte_of_a_checkpoint_is_never_another_model(flips: int, tmp_path: Path) -> None:
    """The run goes on from the state before and says so, to the same bits; with both damaged it says so and stops."""
    finish(command(*training(tmp_path / "whole", 6)), tmp_path)
    expected, dice = hash_weights(load(tmp_path / "whole")), random.Random(flips)
    shutil.rmtree(tmp_path / "whole" / "model")
    for number in range(flips):
        run = tmp_path / f"flipped{number}"
        shutil.copytree(tmp_path / "whole", run)
        flip(run / STATE, dice)
        said = finish(command(*training(run, 6)), tmp_path)
        assert "going on from step 5" in " ".join(said.split())
        assert hash_weights(load(run)) == expected
    for name in (STATE, PREVIOUS):
        flip(tmp_path / "whole" / name, dice)
    words = command(*training(tmp_path / "whole", 6))
    answer = subprocess.run(words, cwd=tmp_path, capture_output=True, timeout=900, check=False, env=ENVIRONMENT)
    assert answer.returncode == 1
    assert b"no checkpoint can be read" in answer.stderr
    assert not (tmp_path / "whole" / "model").exists()


def flip(path: Path, dice: random.Random) -> None:
    """One bit of a file."""
    content = bytearray(path.read_bytes())
    content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    path.write_bytes(content)


# --- evaluation, experiments -----------------------------------------------------------------------------------------------------------


def next_file(folder: Path, pattern: str, dice: random.Random) -> Moment:
    """Shortly after the next finished part lies in a folder."""
    before = len(list(folder.rglob(pattern)))

    def wait(process: subprocess.Popen[bytes]) -> None:
        while process.poll() is None and len(list(folder.rglob(pattern))) <= before:
            time.sleep(0.002)
        time.sleep(0.05 * dice.random())

    return wait


@pytest.mark.slow
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("kills", [2, pytest.param(8, marks=pytest.mark.release)])
def test_a_killed_evaluation_ends_with_the_same_bytes(kills: int, tmp_path: Path) -> None:
    words = command(
        "evaluate", "--model", str(saved_model()), "--data", "digits", "--images=12", "--batch=1", "--task=box"
    )
    words += ["--method=ours:steps=4", "--metric=PSNR", "--features=pixels", "--pictures=0", "--threads=1"]
    finish([*words, "--out=whole"], tmp_path)
    dice, parts, alive = random.Random(1), tmp_path / "killed" / "parts", 0
    for _ in range(kills):
        alive += killed([*words, "--out=killed"], tmp_path, next_file(parts, "*.safetensors", dice))
    assert alive > 0
    finish([*words, "--out=killed"], tmp_path)
    assert (tmp_path / "killed" / "results.json").read_bytes() == (tmp_path / "whole" / "results.json").read_bytes()
    tables = [(tmp_path / run / "table.csv").read_text().splitlines() for run in ("killed", "whole")]
    # the last column holds seconds
    assert [row.rpartition(",")[0] for row in tables[0]] == [row.rpartition(",")[0] for row in tables[1]]
    print(f"{alive} of {kills} kills met a living evaluation; the same bytes")


SMALL_EXPERIMENT = """
import sys
from linverse.cli import main
from linverse.experiments import calibration
calibration.QUICK = calibration.CalibrationSetting(("box", "gauss:std=0.4", "superres:factor=4", "half"), 3, 19, 0.0, 2)
main(sys.argv[1:])
"""


@pytest.mark.slow
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("kills", [2, pytest.param(8, marks=pytest.mark.release)])
def test_a_killed_experiment_ends_with_the_same_numbers(kills: int, tmp_path: Path) -> None:
    words = script(SMALL_EXPERIMENT, "experiment", "calibration", "--quick")
    words += ["--model", str(saved_model()), "--data=digits", "--steps=4"]
    finish([*words, "--out=whole"], tmp_path)
    whole = (tmp_path / "whole" / "calibration.json").read_bytes()
    dice, alive = random.Random(2), 0
    for number in range(kills):
        out = tmp_path / f"killed{number // 2}"  # two kills each: there are four parts
        alive += killed([*words, f"--out={out}"], tmp_path, next_file(out / "calibration.cache", "*.pt", dice))
        if number % 2:
            finish([*words, f"--out={out}"], tmp_path)
            records = [json.loads(content) for content in ((out / "calibration.json").read_bytes(), whole)]
            assert records[0]["metrics"] == records[1]["metrics"]
            assert not (out / "calibration.cache").exists()
    assert alive > 0
    print(f"{alive} of {kills} kills met a living experiment; the same numbers")

"""Two processes (gloo, on a CPU) train the same model as one with the whole batch, and resume."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from linverse.data import load_images
from linverse.training.checkpoint import TrainingState, read_state
from linverse.training.loop import Trainer, make_accelerator
from tiny import DIGITS_FLAGS, digits_config


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launch(folder: Path, steps: int) -> str:
    """`accelerate launch … -m linverse train digits` with two processes; what it prints."""
    command = [
        sys.executable,
        "-m",
        "accelerate.commands.accelerate_cli",
        "launch",
        "--multi_gpu",
        "--num_processes",
        "2",
    ]
    command += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    command += ["--main_process_port", str(free_port()), "-m", "linverse", "train", "digits", "--out", str(folder)]
    command += [*DIGITS_FLAGS, "--double", "--no-tensorboard", "--threads=1", f"--steps={steps}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def state_of(folder: Path) -> TrainingState:
    state = read_state(folder)
    assert state is not None
    return state


def alone(folder: Path, steps: int) -> Trainer:
    """The same run in one process."""
    train, held_out = (load_images("digits", split) for split in ("train", "test"))
    trainer = Trainer(digits_config(steps, double=True), train, held_out, folder)
    while trainer.step < steps:
        trainer.train_step()
    return trainer


def assert_close(state: TrainingState, trainer: Trainer, start: Trainer) -> None:
    assert state.step == trainer.step
    for name, ours, first in (
        ("model", trainer.model.state_dict(), start.model.state_dict()),
        ("ema", trainer.ema.state_dict(), start.ema.state_dict()),
    ):
        theirs = getattr(state, name)
        assert ours.keys() == theirs.keys()
        gaps = [float((ours[key].double() - theirs[key].double()).abs().max()) for key in ours]
        assert max(gaps) < 1e-9, f"{name}: {max(gaps)}"
        assert max(float((ours[key].double() - first[key].double()).abs().max()) for key in ours) > 1e-4  # it has moved


@pytest.mark.slow
def test_two_processes_train_as_one_and_resume(tmp_path: Path) -> None:
    folder = tmp_path / "two"
    said = launch(folder, steps=3)
    assert said.count("starting on 2 processes") == 1  # one of the two speaks
    start = alone(tmp_path / "start", 0)
    assert_close(state_of(folder), alone(tmp_path / "one", 3), start)
    assert "resuming at step 3 on 2 processes" in launch(folder, steps=5)
    assert_close(state_of(folder), alone(tmp_path / "one", 5), start)


def test_the_comparison_can_fail(tmp_path: Path) -> None:
    """Half the batch, as a process that did not share its gradients would see it, ends elsewhere."""
    train, held_out = (load_images("digits", split) for split in ("train", "test"))
    config = digits_config(2, double=True, batch=4)
    lonely = Trainer(config, train, held_out, tmp_path / "half")
    for _ in range(2):
        lonely.train_step()
    (tmp_path / "half").mkdir()
    lonely.save()
    whole, start = alone(tmp_path / "whole", 2), alone(tmp_path / "start", 0)
    with pytest.raises(AssertionError, match="model"):
        assert_close(state_of(tmp_path / "half"), whole, start)


def test_double_precision_is_meant(tmp_path: Path) -> None:
    assert all(p.dtype == torch.float64 for p in alone(tmp_path, 0).model.parameters())


def test_processes_that_do_not_know_of_each_other_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    make_accelerator()  # of this process alone
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match="2 processes were launched, but accelerate joins 1"):
        make_accelerator()

"""The state of a run on disk: written atomically, the last one and the one before kept, read without unpickling code."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from linverse.files import replacing

STATE, PREVIOUS = "state.pt", "state-previous.pt"


class CheckpointError(RuntimeError):
    """A checkpoint could not be written or read."""


@dataclass
class TrainingState:
    """What a run needs to go on; randomness is keyed by the step and needs no state."""

    step: int
    seconds: float
    config: str
    model: dict[str, Any]
    ema: dict[str, Any]
    optimiser: dict[str, Any]


def write_state(folder: Path, state: TrainingState) -> Path:
    """Write beside, then rename: a crash or a full disk leaves the last good state in place."""
    path, previous = folder / STATE, folder / PREVIOUS
    try:
        with replacing(path) as stream:
            torch.save(vars(state), stream)
            if path.exists():
                path.replace(previous)
    except (OSError, RuntimeError) as error:
        good = next((p for p in (path, previous) if p.exists()), None)
        raise CheckpointError(f"cannot write the checkpoint {path}: {error}. Last good one: {good}") from error
    return path


def read_state(folder: Path) -> TrainingState | None:
    """The latest readable state, or None if the run is new."""
    failures = []
    for path in (folder / STATE, folder / PREVIOUS):
        if not path.exists():
            continue
        try:
            state = TrainingState(**torch.load(path, map_location="cpu", weights_only=True))
        except Exception as error:  # a truncated file raises many kinds
            failures.append(f"{path}: {error}")
            continue
        if failures:
            warnings.warn(f"going on from step {state.step} in {path}, because of {failures[0]}", stacklevel=2)
        return state
    if failures:
        raise CheckpointError("no checkpoint can be read:\n" + "\n".join(failures))
    return None

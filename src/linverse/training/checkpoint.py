"""The state of a run on disk: written atomically, hashed, the last good one and the one before kept, read without unpickling code.

    state.pt = MAGIC · sha256 of the rest · torch's own file

A file that is not the one that was written (cut short, a flipped bit) is never taken for a state: the one before takes its place, and a
warning says so. Files of earlier versions have no hash; they are read as they are, and a warning says so.
"""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import torch

from linverse.files import replacing

STATE, PREVIOUS = "state.pt", "state-previous.pt"
MAGIC, OLD_MAGIC = b"linverse training state 1\n", b"PK\x03\x04"
HASH_BYTES, BLOCK = hashlib.sha256().digest_size, 1 << 20


class CheckpointError(RuntimeError):
    """A checkpoint could not be written or read."""


@dataclass
class TrainingState:
    """What a run needs to go on; randomness is keyed by the step and needs no state. `data` is a hash of the training images."""

    step: int
    seconds: float
    config: str
    model: dict[str, Any]
    ema: dict[str, Any]
    optimiser: dict[str, Any]
    data: str = ""


class _Hashing:
    """A stream that hashes what is written to it."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.hash = stream, hashlib.sha256()

    def write(self, content: Any) -> int:
        self.hash.update(content)
        return self.stream.write(content)

    def flush(self) -> None:
        self.stream.flush()


def write_state(folder: Path, state: TrainingState) -> Path:
    """Write beside, then rename: a crash or a full disk leaves the last good state in place."""
    path, previous = folder / STATE, folder / PREVIOUS
    try:
        with replacing(path) as stream:
            stream.write(MAGIC + bytes(HASH_BYTES))
            hashing = _Hashing(stream)
            torch.save(vars(state), hashing)  # type: ignore[arg-type]  # it writes and flushes, no more
            stream.seek(len(MAGIC))
            stream.write(hashing.hash.digest())
            if path.exists() and is_whole(path):  # a damaged one must not take the place of a good one
                path.replace(previous)
    except (OSError, RuntimeError) as error:
        good = next((p for p in (path, previous) if p.exists()), None)
        raise CheckpointError(f"cannot write the checkpoint {path}: {error}. Last good one: {good}") from error
    return path


def is_whole(path: Path) -> bool:
    """Whether a state is the one that was written, as far as its file tells."""
    with path.open("rb") as stream:
        start = stream.read(len(MAGIC))
        if start != MAGIC:
            return start.startswith(OLD_MAGIC)
        expected, found = stream.read(HASH_BYTES), hashlib.sha256()
        while block := stream.read(BLOCK):
            found.update(block)
    return found.digest() == expected


def read_state(folder: Path) -> TrainingState | None:
    """The latest whole state, or None if the run is new."""
    failures = []
    for path in (folder / STATE, folder / PREVIOUS):
        if not path.exists():
            continue
        try:
            state = _read(path)
        except Exception as error:  # a damaged file raises many kinds
            failures.append(f"{path}: {error}")
            continue
        if failures:
            warnings.warn(f"going on from step {state.step} in {path}, because of {failures[0]}", stacklevel=2)
        return state
    if failures:
        raise CheckpointError("no checkpoint can be read:\n" + "\n".join(failures))
    return None


def _read(path: Path) -> TrainingState:
    content = path.read_bytes()
    start = len(MAGIC) + HASH_BYTES
    if content.startswith(OLD_MAGIC):
        warnings.warn(f"{path} is of an earlier version, without a hash: it is taken as it is", stacklevel=3)
        start = 0
    elif not content.startswith(MAGIC):
        raise CheckpointError("it is no training state, or its beginning was damaged")
    elif hashlib.sha256(memoryview(content)[start:]).digest() != content[len(MAGIC) : start]:
        raise CheckpointError("it is not the file that was written (its sha256 is another)")
    return TrainingState(**torch.load(BytesIO(content[start:]), map_location="cpu", weights_only=True))

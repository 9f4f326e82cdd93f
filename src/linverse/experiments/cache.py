"""Finished parts of a long experiment, kept until its record is written: a run that was cut off goes on where it was.

Each part is a file in DIR/NAME.cache, named by what it is and by a digest of what it was made from (settings, weights) and of the
library's revision: a part of another run is never taken for this one's.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile

import torch

import linverse
from linverse.experiments.framework import revision
from linverse.files import make_folder, write_whole

T = TypeVar("T")


def cache_folder(name: str, out: Path) -> Path:
    """Where an experiment keeps what it has finished so far; removed when its record is written."""
    return out / f"{name}.cache"


@dataclass(frozen=True)
class Cache:
    """The finished parts of one experiment: tensors, plain values, and dataclasses of the given kinds."""

    folder: Path
    kinds: tuple[type, ...]

    @classmethod
    def of(cls, name: str, out: Path, *kinds: type) -> Cache:
        return cls(cache_folder(name, out), kinds)

    def get(self, name: str, made_from: dict[str, Any], make: Callable[[], T]) -> T:
        """The part of an earlier run, or a new one, which is kept."""
        text = json.dumps([linverse.__version__, revision(), made_from], sort_keys=True, default=str)
        path = self.folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.pt"
        if path.exists():
            try:
                with torch.serialization.safe_globals(list(self.kinds)):
                    kept: T = torch.load(path, weights_only=True)
                return kept
            except (OSError, EOFError, RuntimeError, BadZipFile, pickle.UnpicklingError):
                path.unlink()  # broken: made again
        made = make()
        make_folder(self.folder)
        buffer = BytesIO()
        torch.save(made, buffer)
        write_whole(path, buffer.getvalue())
        return made

"""Finished parts of a long experiment, kept until its record is written: a run that was cut off goes on where it was.

Each part is a file in DIR/NAME.cache, named by what it is and by a digest of what it was made from (settings, weights) and of the
library's revision: a part of another run is never taken for this one's. It begins with the sha256 of the rest: a part that was damaged is
made again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import torch

import linverse
from linverse.experiments.framework import revision
from linverse.files import make_folder, write_whole

T = TypeVar("T")
Keep = Callable[[str, Callable[[], Any]], Any]
"""Hands back what an interrupted run found under a name, or finds it now."""
HASH_BYTES = hashlib.sha256().digest_size


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
        content = path.read_bytes() if path.exists() else b""
        if content[:HASH_BYTES] == hashlib.sha256(content[HASH_BYTES:]).digest():
            with torch.serialization.safe_globals(list(self.kinds)):
                kept: T = torch.load(BytesIO(content[HASH_BYTES:]), weights_only=True)
            return kept
        made = make()
        make_folder(self.folder)
        buffer = BytesIO()
        torch.save(made, buffer)
        write_whole(path, hashlib.sha256(buffer.getvalue()).digest() + buffer.getvalue())
        return made

    def keeper(self, made_from: dict[str, Any], prefix: str = "") -> Keep:
        """`get` for parts that are made from the same and whose names begin alike."""
        return lambda name, make: self.get(f"{prefix}{name}", made_from, make)

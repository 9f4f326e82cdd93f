"""8×8 digits, and what commands leave behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from linverse.data.digits import load_digits
from linverse.files.saving import CONFIG, MANIFEST, REFERENCE, WEIGHTS, manifest_of
from linverse.report.output import RECORD

SHAPE = (1, 8, 8)


def digit(number: int = 0) -> Tensor:
    """A test digit, [1, 1, 8, 8]."""
    return load_digits("test").batch([number])


def write_manifest(folder: Path) -> None:
    """Make a forged model look as if it had been saved so."""
    names = [name for name in (WEIGHTS, CONFIG, REFERENCE) if (folder / name).is_file()]
    (folder / MANIFEST).write_bytes(manifest_of({name: (folder / name).read_bytes() for name in names}))


def record(folder: str | Path) -> dict[str, Any]:
    """The record of a command's output folder."""
    return json.loads((Path(folder) / RECORD).read_text())

"""8×8 digits, and what commands leave behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from linverse.data.digits import load_digits
from linverse.report.output import RECORD

SHAPE = (1, 8, 8)


def digit(number: int = 0) -> Tensor:
    """A test digit, [1, 1, 8, 8]."""
    return load_digits("test").batch([number])


def record(folder: str | Path) -> dict[str, Any]:
    """The record of a command's output folder."""
    return json.loads((Path(folder) / RECORD).read_text())

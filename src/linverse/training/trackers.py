"""Weights & Biases, MLflow and the other trackers that accelerate knows, beside our own log: `linverse train … --track wandb mlflow`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from linverse.extras import MissingExtra, require

Plain = bool | int | float | str


def open_trackers(names: Sequence[str], folder: Path, config: Mapping[str, Any]) -> list[Any]:
    """Started trackers of a run, told its configuration; one that is not installed, or that nobody knows, is an error."""
    if not names:
        return []
    tracking = require("accelerate.tracking", "train")
    kinds, installed = tracking.LOGGER_TYPE_TO_CLASS, {str(name) for name in tracking.get_available_trackers()}
    opened = []
    for name in names:
        if name not in kinds:
            raise ValueError(f"there is no tracker {name!r}; accelerate knows {', '.join(sorted(kinds))}")
        if name not in installed:
            raise MissingExtra(f"the tracker {name} is not installed: pip install {name}")
        kind = kinds[name]
        places = (folder / name,) if kind.requires_logging_directory else ()
        tracker = kind(folder.name, *places)
        tracker.start()
        tracker.store_init_configuration(flattened(config))
        opened.append(tracker)
    return opened


def flattened(config: Mapping[str, Any], prefix: str = "") -> dict[str, Plain]:
    """A nested configuration as trackers want it: `optimiser.rate` → 0.001; what is no plain value is said in words."""
    plain: dict[str, Plain] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            plain |= flattened(value, f"{prefix}{key}.")
        else:
            plain[f"{prefix}{key}"] = value if isinstance(value, bool | int | float | str) else str(value)
    return plain

"""Packages that restoring a picture does not need: training, evaluation, scientific files and other libraries bring them as extras.

`require("scipy.stats", "evaluate")` is the module, or an error that says what to install.
"""

from __future__ import annotations

import importlib
from typing import Any


class MissingExtra(ImportError):
    """An optional package is not installed; the message names the extra that brings it."""


def require(module: str, extra: str) -> Any:
    """An optional module, imported now.

    >>> require("math", "evaluate").sqrt(4.0)
    2.0
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # it is there, but something that it needs itself is not: its own words are better
        raise MissingExtra(
            f"this needs the package {package}, which is not installed: pip install 'linverse[{extra}]'"
        ) from error

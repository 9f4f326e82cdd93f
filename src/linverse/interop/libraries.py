"""deepinv and azula, imported when they are asked for.

deepinv imports torchvision, whose builds without compiled operators stop at their own import (`operator torchvision::nms does not exist`).
deepinv uses none of these operators here: declaring them, without any body, lets the import go on. A torchvision that works is left alone.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import torch

from linverse.extras import require

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_OPERATORS = ("nms", "qnms")
_declared: list[torch.library.Library] = []  # a library that nobody holds takes its operators with it


def load_deepinv() -> Any:
    """The package deepinv, or an error that names the extra."""
    complete_torchvision()
    return require("deepinv", "interop")


def load_azula(module: str) -> Any:
    """One of azula's modules, or an error that names the extra."""
    return require(f"azula.{module}", "interop")


def complete_torchvision() -> None:
    """Declare the operators that torchvision misses, if it is installed and misses them."""
    try:
        importlib.import_module("torchvision")
    except ModuleNotFoundError:
        return  # deepinv itself will say what is missing
    except RuntimeError as error:
        if "torchvision::" not in str(error) or _declared:
            raise
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in _OPERATORS:
            library.define(name + _SCHEMA)
        _declared.append(library)
        for module in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[module]  # what the first attempt left behind
        importlib.import_module("torchvision")

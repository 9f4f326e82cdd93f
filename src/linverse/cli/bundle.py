"""`linverse bundle RUN NAME`: put a finished training run among the models that come with the package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from linverse.cli.parsing import parse
from linverse.store.bundle import bundle


@dataclass(frozen=True)
class BundleOptions:
    """Put the model of a finished training run among the bundled ones, with its card, a licence and a manifest."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """folder of the run, or of its model"""
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """what `lv.load` and the commands will call it"""
    replace: bool = False
    """put it in the place of a bundled model of that name"""


def main(arguments: list[str]) -> None:
    """Parse and run."""
    options = parse(BundleOptions, arguments, "bundle")
    folder = bundle(options.run, options.name, replace=options.replace)
    files = ", ".join(sorted(path.name for path in folder.iterdir()))
    Console().print(f"bundled {options.name}: {folder} holds {files}", highlight=False, soft_wrap=True)

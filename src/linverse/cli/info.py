"""`linverse info [MODEL]`: the card of a model, or the list of bundled ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.console import Console

from linverse.files import read_object
from linverse.files.saving import CARD, CONFIG, ModelFileError, check_manifest
from linverse.report.card import show_card
from linverse.store.card import Card
from linverse.store.hub import bundled, find_model


@dataclass(frozen=True)
class InfoOptions:
    """Print the card of a model: what it was trained on, for which noises, for how long, and how it did in its self-tests."""

    model: Annotated[str | None, tyro.conf.Positional] = None
    """a bundled name, a folder, or an id of the hub; without one the bundled models are listed"""


def main(arguments: list[str]) -> None:
    """Parse and run."""
    options = tyro.cli(InfoOptions, args=arguments, prog="linverse info")
    console = Console()
    if options.model is None:
        names = bundled()
        console.print("bundled models: " + (", ".join(names) if names else "none yet; `linverse train` makes one"))
        return
    folder = find_model(options.model)
    check_manifest(folder)
    content = (folder / CARD).read_bytes() if (folder / CARD).is_file() else b'{"name": ""}'
    show_card(console, read_object(folder / CONFIG, ModelFileError), Card.decode(content))

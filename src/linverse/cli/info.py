"""`linverse info [MODEL]`: the card of a model, or the list of bundled ones."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from linverse.hub import bundled, find_model
from linverse.models.saving import CARD, CONFIG
from linverse.training.normalise import SelfTest


@dataclass(frozen=True)
class Options:
    """Print the card of a model: what it was trained on, for which noises, for how long, and how it did in its self-tests."""

    model: Annotated[str | None, tyro.conf.Positional] = None
    """a bundled name, a folder, or an id of the hub; without one the bundled models are listed"""


def main(arguments: list[str]) -> None:
    """Parse and run."""
    options = tyro.cli(Options, args=arguments, prog="linverse info")
    console = Console()
    if options.model is None:
        names = bundled()
        console.print("bundled models: " + (", ".join(names) if names else "none yet; `linverse train` makes one"))
        return
    folder = find_model(options.model)
    config = json.loads((folder / CONFIG).read_text())
    card = json.loads((folder / CARD).read_text()) if (folder / CARD).exists() else {}
    print_card(console, config, card)


def print_card(console: Console, config: dict[str, object], card: dict[str, object]) -> None:
    """The card as a table, and the self-tests as another."""
    table = Table("model", str(card.get("name", "")), show_header=True)
    if "about" in card:
        table.add_row("", str(card["about"]))
    for key in ("kind", "shape", "minimum", "maximum", "bases", "parameterisation", "embedding"):
        if key in config:
            table.add_row(key, str(config[key]))
    for key in (
        "data",
        "title",
        "licence",
        "parameters",
        "steps",
        "seconds",
        "constant",
        "limits",
        "test_error",
        "reference_images",
    ):
        if key in card:
            table.add_row(key, str(card[key]))
    console.print(table)
    if isinstance(card.get("self_test"), dict):
        tests = Table("self-test", "value", "meaning")
        for row in SelfTest(**card["self_test"]).table():  # type: ignore[arg-type]
            tests.add_row(*row)
        console.print(tests)

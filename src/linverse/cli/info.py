"""`linverse info [MODEL]`: the card of a model, or the list of bundled ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from linverse.cli.train import print_self_test
from linverse.files import read_object
from linverse.files.saving import CARD, CONFIG, ModelFileError
from linverse.store.card import Card
from linverse.store.hub import bundled, find_model

CONFIGURED = ("kind", "shape", "minimum", "maximum", "bases", "parameterisation", "embedding")
LAST = ("constant", "limits", "reference_images")


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
    content = (folder / CARD).read_bytes() if (folder / CARD).is_file() else b'{"name": ""}'
    print_card(console, read_object(folder / CONFIG, ModelFileError), Card.decode(content))


def print_card(console: Console, config: dict[str, object], card: Card) -> None:
    """The card as a table, and the self-tests as another."""
    table = Table("model", card.name, show_header=True)
    rows = [("", card.about)] if card.about else []
    rows += [(key, str(config[key])) for key in CONFIGURED if key in config]
    rows += [*card.rows(), *((key, str(value)) for key in LAST if (value := getattr(card, key)) not in (None, ""))]
    for row in rows:
        table.add_row(*row)
    console.print(table)
    print_self_test(console, card)

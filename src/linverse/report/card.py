"""A model's card on the console."""

from __future__ import annotations

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from linverse.store.card import Card

CONFIGURED = ("kind", "shape", "minimum", "maximum", "bases", "parameterisation", "embedding")
LAST = ("constant", "limits", "reference_images")


def show_card(console: Console, config: dict[str, object], card: Card) -> None:
    """The card as a table, and the self-tests as another."""
    table = Table("model", Column(Text(card.name)), show_header=True)
    rows = [("", card.about)] if card.about else []
    rows += [(key, str(config[key])) for key in CONFIGURED if key in config]
    rows += [*card.rows(), *((key, str(value)) for key in LAST if (value := getattr(card, key)) not in (None, ""))]
    for row in rows:
        table.add_row(*map(Text, row))  # as it is: a card of somebody else's may hold what a console takes for markup
    console.print(table)
    show_self_test(console, card)


def show_self_test(console: Console, card: Card) -> None:
    """The self-tests as a table a user understands; a denoiser has none."""
    if card.tests:
        table = Table("self-test", "value", "meaning")
        for row in card.tests:
            table.add_row(*map(Text, row))
        console.print(table)

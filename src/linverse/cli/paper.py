"""`linverse paper [--quick] [--only ITEM …]`: every table and figure of the paper, judged, and the page that shows them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from linverse.cli.parsing import parse
from linverse.experiments.paper import ITEMS, items_named
from linverse.report.console import ProgressBars, note
from linverse.report.paper import Outcome, run_items, stored, write_page

HELP = """Repeat every table and figure of the paper, judge its claims by rules written down beforehand, and write docs/paper.md.

Rerun the same command to go on where it stopped: items whose record was made of the same options and weights are not run again.

examples:
  linverse paper                                   all items, in full (hours)
  linverse paper --quick                           all items on small counts, in minutes; nothing is judged
  linverse paper --list                            every item with its verdict and its command
  linverse paper --only gumbel --only blind
  linverse paper --model cifar10=runs/cifar10      a model of your own in the place of a bundled one"""


@dataclass(frozen=True)
class PaperOptions:
    """What to run, and where to put it."""

    only: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="ITEM")] = ()
    """an item (repeatable); by default all"""
    quick: bool = False
    """small counts: shows that everything runs, and judges nothing"""
    again: bool = False
    """run items again whose records are current"""
    list: bool = False
    """say what the records hold, and stop"""
    page: bool = False
    """write the page from the records that are there, and stop"""
    model: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME=FOLDER")] = ()
    """a model in the place of a bundled one (repeatable)"""
    out: Path | None = None
    """folder of records and pictures (default: results; with --quick: paper-quick)"""
    to: Path | None = None
    """the page (default: docs/paper.md; with --quick: paper.md in the folder of the records)"""


def main(arguments: list[str]) -> None:
    """Parse and run."""
    options = parse(PaperOptions, arguments, "paper", HELP)
    console = Console()
    out = options.out or Path("paper-quick" if options.quick else "results")
    page = options.to or (out / "paper.md" if options.quick else Path("docs") / "paper.md")
    if options.list:
        show(console, stored(out))
        return
    outcomes = [] if options.page else run(options, out, console)
    write_page(out, page)
    show(console, outcomes or stored(out))
    note(console, f"wrote {page}")
    if any(outcome.reason.startswith("failed") for outcome in outcomes):
        raise SystemExit(1)


def run(options: PaperOptions, out: Path, console: Console) -> list[Outcome]:
    """The items that were asked for."""
    items, instead = items_named(options.only), replacements(options.model)
    with ProgressBars(console) as progress:
        return run_items(items, out, options.quick, progress, instead, partial(note, console), options.again)


def replacements(given: tuple[str, ...]) -> dict[str, str]:
    """NAME=FOLDER → {NAME: FOLDER}."""
    pairs = [text.partition("=") for text in given]
    wrong = [text for text, (name, _, folder) in zip(given, pairs, strict=True) if not name or not folder]
    if wrong:
        raise ValueError(f"--model is written NAME=FOLDER, the bundled name and what to take instead; got {wrong[0]!r}")
    return {name: folder for name, _, folder in pairs}


def show(console: Console, outcomes: list[Outcome]) -> None:
    """Every item with its verdict and its command."""
    table = Table("item", "verdict", "command", box=None)
    for outcome in outcomes:
        table.add_row(outcome.item.name, outcome.verdict, outcome.item.command())
    console.print(table)
    console.print(f"{len(ITEMS)} items; linverse experiment NAME --help lists the options of one.", highlight=False)

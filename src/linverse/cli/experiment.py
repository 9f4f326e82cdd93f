"""`linverse experiment NAME --out DIR [--quick] [options of the experiment]`: reproduce a table or figure of the paper."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table

from linverse.experiments import EXPERIMENTS, experiment_options, run_experiment


@dataclasses.dataclass(frozen=True)
class Options:
    """Reproduce a table or figure of the paper: writes DIR/NAME.json (numbers, the paper's beside ours) and DIR/NAME.png."""

    name: tyro.conf.Positional[str] = ""
    """which experiment"""
    out: Path = Path("results")
    """folder for NAME.json and NAME.png"""
    quick: bool = False
    """a small version that shows the same effect"""
    list: bool = False
    """name the experiments and stop"""


class Watcher:
    """Progress on a terminal as bars, elsewhere a line a minute."""

    def __init__(self, console: Console) -> None:
        self.console, self.last_line = console, time.monotonic()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self.bars = Bars(
            *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, disable=not console.is_terminal
        )
        self.tasks: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()

    def __call__(self, task: str, done: int, total: int) -> None:
        if task not in self.tasks:
            self.tasks[task] = self.bars.add_task(task, total=total)
        self.bars.update(self.tasks[task], completed=done, total=total)
        if not self.console.is_terminal and time.monotonic() - self.last_line > 60:
            self.console.print(f"{task}: {done}/{total}", highlight=False)
            self.last_line = time.monotonic()


def main(arguments: list[str]) -> None:
    """Parse and run."""
    options, own = parse(arguments)
    console = Console()
    if options.list or not options.name:
        show_list(console)
        return
    with Watcher(console) as watcher:
        record = run_experiment(options.name, options.out, options.quick, watcher, own)
    show_record(console, record)
    for suffix in ("json", "png"):
        console.print(f"wrote {options.out / options.name}.{suffix}", highlight=False, soft_wrap=True)


def parse(arguments: list[str]) -> tuple[Options, Any]:
    """The options that all experiments share, and those of the one that is named (None: it has none)."""
    if arguments and arguments[0] in ("-h", "--help"):
        return tyro.cli(Options, args=arguments, prog="linverse experiment", description=usage()), None
    shared, _ = tyro.cli(Options, args=arguments, return_unknown_args=True, add_help=False, prog="linverse experiment")
    own = experiment_options(shared.name) if shared.name and not shared.list else None
    if own is None:
        return tyro.cli(Options, args=arguments, prog="linverse experiment"), None
    both: Any = dataclasses.make_dataclass("both", [("shared", Options), ("own", own)], frozen=True)
    chosen = tyro.cli(
        both,
        args=arguments,
        config=(tyro.conf.OmitArgPrefixes,),
        prog=f"linverse experiment {shared.name}",
        description=f"{EXPERIMENTS[shared.name]}. Writes DIR/{shared.name}.json and DIR/{shared.name}.png.",
    )
    return chosen.shared, chosen.own


def usage() -> str:
    """What `linverse experiment --help` says before the options."""
    lines = [f"  {name:<18} {text}" for name, text in EXPERIMENTS.items()]
    about = "Reproduce a table or figure of the paper: writes DIR/NAME.json (numbers, the paper's beside ours) and DIR/NAME.png."
    return "\n".join(
        [about, "", "experiments:", *lines, "", "linverse experiment NAME --help lists the options of one."]
    )


def show_list(console: Console) -> None:
    """The experiments and what they show."""
    table = Table("experiment", "what it shows", box=None)
    for name, text in EXPERIMENTS.items():
        table.add_row(name, text)
    console.print(table)
    console.print(
        "\nlinverse experiment NAME --out DIR [--quick] runs one; NAME --help lists its options.", highlight=False
    )


def show_record(console: Console, record: dict[str, Any]) -> None:
    """The numbers, and the paper's claim."""
    table = Table("metric", "value")
    for name, value in record["metrics"].items():
        table.add_row(name, f"{value:.4g}")
    console.print(table)
    for claim in record["paper"].get("claims", []):
        console.print(f"paper: {claim}", highlight=False, markup=False)
    seconds = record["provenance"]["seconds"]
    console.print(f"{seconds:.0f} s", highlight=False)

"""`linverse experiment NAME --out DIR [--quick] [options of the experiment]`: reproduce a table or figure of the paper."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table

from linverse.experiments import EXPERIMENTS, experiment_options
from linverse.report.console import ProgressBars
from linverse.report.experiments import write_experiment


@dataclasses.dataclass(frozen=True)
class ExperimentOptions:
    """Reproduce a table or figure of the paper: writes DIR/NAME.json (numbers, the paper's beside ours) and DIR/NAME.png."""

    name: tyro.conf.Positional[str] = ""
    """which experiment"""
    out: Path = Path("results")
    """folder for NAME.json and NAME.png"""
    quick: bool = False
    """a small version that shows the same effect"""
    list: bool = False
    """name the experiments and stop"""


def main(arguments: list[str]) -> None:
    """Parse and run."""
    options, own = parse(arguments)
    console = Console()
    if options.list or not options.name:
        show_list(console)
        return
    with ProgressBars(console) as progress:
        record = write_experiment(options.name, options.out, options.quick, progress, own)
    show_record(console, record)
    for suffix in ("json", "png"):
        console.print(f"wrote {options.out / options.name}.{suffix}", highlight=False, soft_wrap=True)


def parse(arguments: list[str]) -> tuple[ExperimentOptions, Any]:
    """The options that all experiments share, and those of the one that is named (None: it has none)."""
    if arguments and arguments[0] in ("-h", "--help"):
        return tyro.cli(ExperimentOptions, args=arguments, prog="linverse experiment", description=usage()), None
    shared, _ = tyro.cli(
        ExperimentOptions, args=arguments, return_unknown_args=True, add_help=False, prog="linverse experiment"
    )
    own = experiment_options(shared.name) if shared.name and not shared.list else None
    if own is None:
        return tyro.cli(ExperimentOptions, args=arguments, prog="linverse experiment"), None
    both: Any = dataclasses.make_dataclass("both", [("shared", ExperimentOptions), ("own", own)], frozen=True)
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

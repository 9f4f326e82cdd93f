"""`linverse demo`: one model, every question; a picture and a table in less than a minute."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from linverse.report.console import note, open_picture, plain_warnings

HELP = """One model, every question. Held-out pictures are degraded and restored: what they were, how sure we are, what else they could have
been and how probable that is; which degradation made them; and digits drawn patch by patch in any order.

Nothing is downloaded. It takes less than a minute on two cores and writes one picture.

examples:
  linverse demo
  linverse demo --out somewhere --seed 1
"""
MOST_SAMPLES = 1000


@dataclass(frozen=True)
class DemoOptions:
    """One model, every question."""

    out: Path = Path("linverse-demo")
    """folder for demo.png and result.json"""
    model: Annotated[
        str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: the bundled fashion-mnist)")
    ] = None
    """the model that restores 28×28 pictures of clothing"""
    digits_model: Annotated[
        str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: the bundled mnist)")
    ] = None
    """the model that draws 28×28 digits"""
    samples: int = 12
    """posterior samples per picture"""
    steps: int = 50
    """network evaluations per sample"""
    seed: int = 0
    """of all that is random"""
    show: bool = True
    """open the picture where there is a desktop"""


def main(arguments: list[str]) -> None:
    """Parse and run."""
    options = tyro.cli(DemoOptions, args=arguments, prog="linverse demo", description=HELP)
    if options.samples < 1 or options.steps < 1:
        raise ValueError(f"--samples and --steps are at least 1; got {options.samples} and {options.steps}")
    if options.samples > MOST_SAMPLES:
        raise ValueError(f"--samples is at most {MOST_SAMPLES}; got {options.samples}")
    console = Console()
    with plain_warnings(console):
        run(options, console)


def run(options: DemoOptions, console: Console) -> None:
    """Ask everything, draw, tell."""
    from linverse.experiments.demo import ask_everything, choose_stages
    from linverse.report.console import ProgressBars
    from linverse.report.demo import demo_figure, show
    from linverse.report.output import OutputFolder
    from linverse.report.style import figure_bytes

    started = time.monotonic()
    out = OutputFolder(options.out, "linverse demo", ["demo.png"])
    stage, drawing, missing = choose_stages(options.model, options.digits_model)
    if missing:
        note(console, f"note: not bundled here: {', '.join(missing)}. An exact energy of 8×8 digits answers instead")
    with ProgressBars(console) as progress:
        demo = ask_everything(stage, drawing, options.samples, options.steps, options.seed, progress)
    path = out.write("demo.png", figure_bytes(lambda: demo_figure(demo)))
    seconds = time.monotonic() - started
    asked = {"seed": options.seed, "steps": options.steps, "seconds": round(seconds, 1)}
    out.finish({"completed": True, **asked, **demo.record()})
    show(console, demo)
    note(console, f"{seconds:.0f} s; the picture is {path}")
    if options.show:
        open_picture(path)

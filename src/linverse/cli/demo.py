"""`linverse demo`: one model, every question; a picture and a table in less than a minute."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console

from linverse.report.console import note, open_picture, plain_warnings

if TYPE_CHECKING:
    from linverse.report.output import OutputFolder

HELP = """Photographs first: noisy by an unknown amount, scratched, blurred, each restored with a map of errors and samples. Then one
model, every question: held-out pictures degraded and restored, what they were, how sure we are, what else they could have been and how
probable that is; which degradation made them; and digits drawn patch by patch in any order.

Nothing is downloaded. It takes a minute or two on two idle cores and writes two pictures.

examples:
  linverse demo
  linverse demo --out somewhere --seed 1
"""
MOST_SAMPLES = 1000


@dataclass(frozen=True)
class DemoOptions:
    """One model, every question."""

    out: Path = Path("linverse-demo")
    """folder for photographs.png, demo.png and result.json"""
    model: Annotated[
        str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: the bundled fashion-mnist)")
    ] = None
    """the model that restores 28×28 pictures of clothing"""
    digits_model: Annotated[
        str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: the bundled mnist)")
    ] = None
    """the model that draws 28×28 digits"""
    photographs_model: Annotated[
        str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: the bundled photographs)")
    ] = None
    """the model that restores photographs"""
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
    out = OutputFolder(options.out, "linverse demo", ["photographs.png", "demo.png"])
    photographs = open_with_photographs(options, console, out)
    stage, drawing, missing = choose_stages(options.model, options.digits_model)
    if missing:
        note(console, f"note: not bundled here: {', '.join(missing)}. An exact energy of 8×8 digits answers instead")
    with ProgressBars(console) as progress:
        demo = ask_everything(stage, drawing, options.samples, options.steps, options.seed, progress)
    path = out.write("demo.png", figure_bytes(lambda: demo_figure(demo)))
    seconds = time.monotonic() - started
    asked = {"seed": options.seed, "steps": options.steps, "seconds": round(seconds, 1)}
    out.finish({"completed": True, **asked, **photographs, **demo.record()})
    show(console, demo)
    pictures = [out.folder / "photographs.png", path] if photographs else [path]
    note(
        console,
        f"{seconds:.0f} s; the {'pictures are' if photographs else 'picture is'} {' and '.join(map(str, pictures))}",
    )
    if options.show:
        for picture in reversed(pictures):
            open_picture(picture)


def open_with_photographs(options: DemoOptions, console: Console, out: OutputFolder) -> dict[str, Any]:
    """The photographs, drawn and told of; nothing but a note where their model is not bundled."""
    from linverse.experiments.photographs_demo import ask_photographs
    from linverse.report.console import ProgressBars
    from linverse.report.photographs_demo import photographs_figure, show_photographs
    from linverse.report.style import figure_bytes
    from linverse.store import hub

    name = options.photographs_model or ("photographs" if "photographs" in hub.bundled() else None)
    if name is None:
        note(console, "note: the model of photographs is not bundled here: the demo goes on with garments and digits")
        return {}
    with ProgressBars(console) as progress:
        answers = ask_photographs(hub.load(name), seed=options.seed, progress=progress)
    out.write("photographs.png", figure_bytes(lambda: photographs_figure(answers, Path(name).name)))
    show_photographs(console, answers)
    return {"photographs": {answer.title: answer.record() for answer in answers}}

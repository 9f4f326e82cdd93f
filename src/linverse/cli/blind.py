"""`linverse blind IMAGE --family NAME`: which degradation made this picture? Estimates, credible intervals, and a restoration."""

from __future__ import annotations

import csv
import io
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from linverse.cli.show import note, plain_warnings

if TYPE_CHECKING:
    from torch import Tensor

    from linverse.blind import Family
    from linverse.cli.grids import Axis, Question, Search
    from linverse.cli.output import OutputFolder
    from linverse.models.learned import LearnedEnergy
    from linverse.typicality import Typicality

HELP = """Which degradation made this picture? The evidence p(y|θ) over a grid of parameters, credible intervals, and the picture
restored with the parameters integrated out.

families:
  noise            white noise of unknown level
  noise-box        noise of unknown level in a centred square of unknown side; --sigma is the noise outside of it
  gaussian-blur    a Gaussian blur of unknown width; --sigma is the noise on top of it
  line-blur        a straight motion of unknown angle and length; --sigma is the noise on top of it

examples:
  linverse blind noisy.npy --family noise
  linverse blind blurred.png --family gaussian-blur --sigma 0.01
  linverse blind shoe.png --family noise --simulate sigma=0.2        degrade a clean picture first, and compare

8-bit pictures cut noise off at black and white; a numpy array (.npy) of the raw values does not.
"""
PLANNED = ("measurement.png", "measurement.npy", "restored.png", "restored.npy", "evidence.csv", "figure.png")


@dataclass(frozen=True)
class Options:
    """Which degradation made this picture?"""

    image: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE")]
    """the picture, or a numpy array (.npy)"""
    family: Annotated[str, tyro.conf.arg(metavar="NAME")]
    """noise, noise-box, gaussian-blur or line-blur"""
    sigma: Annotated[
        float | None,
        tyro.conf.arg(metavar="FLOAT", help_behavior_hint="(default: 0.01 on blurs, 0.001 outside of a box)"),
    ] = None
    """standard deviation of the noise that is known"""
    grid: Annotated[
        tuple[float, float, int] | None,
        tyro.conf.arg(metavar="LOW HIGH N", help_behavior_hint="(default: all that is plausible)"),
    ] = None
    """where to look for sigma (noise, noise-box), std (gaussian-blur) or length (line-blur); it is refined from there"""
    simulate: Annotated[str | None, tyro.conf.arg(metavar="NAME=VALUE,…", help_behavior_hint="")] = None
    """the picture is clean: degrade it first with these parameters, as in sigma=0.2 or angle=30,length=7"""
    model: str = "fashion-mnist"
    """a bundled name, a folder, or an id of the hub"""
    seed: int = 0
    """of all that is random"""
    resize: bool = False
    """scale and crop a picture of another size"""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: IMAGE-blind)")] = None
    """folder for the results"""


def main(arguments: list[str]) -> None:
    """Parse and run."""
    options = tyro.cli(
        Options, args=arguments, prog="linverse blind", description=HELP, config=(tyro.conf.FlagCreatePairsOff,)
    )
    console = Console()
    with plain_warnings(console):
        run(options, console)


def run(options: Options, console: Console) -> None:
    """Load, search, restore, write."""
    from linverse.blind import restore
    from linverse.cli.experiment import Watcher
    from linverse.cli.grids import search
    from linverse.cli.output import OutputFolder
    from linverse.store.hub import load

    started = time.monotonic()
    question = ask(options)
    energy = load(options.model)
    axes = chosen_axes(options, question, energy.shape[1:])
    family = question.build(known_noise(options, question))
    truth = parse_truth(options.simulate, axes) if options.simulate is not None else None
    raw, clean = measure(options, family, axes, truth, energy, console)
    out = OutputFolder(options.out or Path(f"{options.image.stem}-blind"), "linverse blind", PLANNED)
    out.write_image("measurement.png", raw[0])
    out.write_array("measurement.npy", raw[0])
    with Watcher(console) as watcher:
        found = search(energy, raw, family, axes, seed=options.seed, progress=lambda d, t: watcher("evidence", d, t))
    restored = restore(energy, found.final, seed=options.seed)
    judged = judge(energy, found)
    extra = {"seconds": round(time.monotonic() - started, 1), **({"typicality": judged.records()[0]} if judged else {})}
    write(out, options, found, restored, truth, clean, extra)
    show(console, found, truth, out, judged)


# --- the question ------------------------------------------------------------------------------------------------------------------


def ask(options: Options) -> Question:
    """The family that was named."""
    from linverse.cli.grids import QUESTIONS

    if options.family not in QUESTIONS:
        raise ValueError(f"there is no family {options.family!r}; there are {', '.join(QUESTIONS)}")
    return QUESTIONS[options.family]


def known_noise(options: Options, question: Question) -> float:
    """--sigma, where the family has a known noise."""
    if options.sigma is None:
        return question.sigma or 0.0
    if question.sigma is None:
        raise ValueError(f"the family {options.family} looks for sigma: it cannot be given (--grid says where to look)")
    if not 0 < options.sigma < float("inf"):
        raise ValueError(f"--sigma is a positive standard deviation; got {options.sigma:g}")
    return options.sigma


def chosen_axes(options: Options, question: Question, size: tuple[int, int]) -> tuple[Axis, ...]:
    """The family's axes, the main one as --grid has it."""
    axes = question.axes(size)
    if options.grid is None:
        return axes
    low, high, count = options.grid
    return tuple(replace(a, low=low, high=high, count=count) if a.name == question.main else a for a in axes)


def parse_truth(text: str, axes: tuple[Axis, ...]) -> dict[str, float]:
    """`angle=30,length=7` → {"angle": 30.0, "length": 7.0}: one value for each axis, as a person reads it."""
    names = [axis.name for axis in axes]
    wanted = ",".join(f"{name}=NUMBER" for name in names)
    values: dict[str, float] = {}
    for pair in text.split(","):
        name, _, value = pair.partition("=")
        try:
            values[name.strip()] = float(value)
        except ValueError:
            raise ValueError(f"--simulate takes {wanted}; got {text!r}") from None
    if sorted(values) != sorted(names) or not all(0 <= value < float("inf") for value in values.values()):
        raise ValueError(f"--simulate takes {wanted} with numbers ≥ 0; got {text!r}")
    if values.get("sigma") == 0:
        raise ValueError("--simulate sigma=0: there is no noise to look for")
    for axis in axes:
        if axis.spacing == "whole" and values[axis.name] not in axis.values():
            raise ValueError(
                f"{axis.name} is a whole number from {axis.low:g} to {axis.high:g}; got {values[axis.name]:g}"
            )
    return values


def measure(
    options: Options,
    family: Family,
    axes: tuple[Axis, ...],
    truth: dict[str, float] | None,
    energy: LearnedEnergy,
    console: Console,
) -> tuple[Tensor, Tensor | None]:
    """The raw data [1, C, H, W], and the clean picture if they were simulated."""
    from linverse.cli.files import read_image
    from linverse.cli.grids import simulate
    from linverse.rng import keyed_generator

    x = read_image(options.image, energy.shape, console, resize=options.resize)
    if truth is not None:
        theta = {axis.name: truth[axis.name] * axis.scale for axis in axes}
        return simulate(family, x, theta, keyed_generator(options.seed, "measure")), x
    cut = float(((x == 0) | (x == 1)).float().mean())
    if "sigma" in family.names and options.image.suffix.lower() != ".npy" and cut > 0.2:
        note(
            console,
            f"note: {100 * cut:.0f} % of the pixels are black or white. If noise was cut off there it is underestimated: "
            "give the raw values as a .npy array",
        )
    return x, None


def judge(energy: LearnedEnergy, found: Search) -> Typicality | None:
    """Whether the picture, degraded as is most probable, is like the held-out images that the model carries; None if it has none."""
    from linverse.rng import keyed_generator
    from linverse.typicality import measurement_typicality, reference_images

    reference = reference_images(energy)
    if reference is None:
        return None
    final = found.final
    theta = {name: final.raw.new_tensor([value]) for name, value in final.best.items()}
    measurement = final.family.measurement(final.raw, theta)
    return measurement_typicality(energy, measurement, reference, keyed_generator("typicality"))


# --- what comes out ----------------------------------------------------------------------------------------------------------------


def write(
    out: OutputFolder,
    options: Options,
    found: Search,
    restored: Tensor,
    truth: dict[str, float] | None,
    clean: Tensor | None,
    extra: dict[str, Any],
) -> None:
    """The picture restored, the evidence as a table and a figure, the numbers."""
    import linverse
    from linverse.cli.pictures import blind_figure
    from linverse.experiments.framework import picture

    raw = found.final.raw[0]
    out.write_image("restored.png", restored[0])
    out.write_array("restored.npy", restored[0])
    out.write("evidence.csv", evidence_table(found).encode())
    pictures = [("measurement", raw), ("restored", restored[0])] + ([("truth", clean[0])] if clean is not None else [])
    title = f"{options.image.name}  ·  {options.family}  ·  model {Path(options.model).name}"
    out.write("figure.png", picture(lambda: blind_figure(found, pictures, truth, title)))
    settings = {
        "image": options.image.name,
        "family": options.family,
        "sigma": options.sigma,
        "model": options.model,
        "seed": options.seed,
        "linverse": linverse.__version__,
    }
    out.finish({"completed": True, **settings, **extra, "estimates": estimates(found, truth)})


def estimates(found: Search, truth: dict[str, float] | None) -> dict[str, Any]:
    """Value, interval and prior of each parameter."""
    out: dict[str, Any] = {}
    for axis in found.axes:
        low, high = found.interval(axis)
        out[axis.name] = {
            "value": found.value(axis),
            "low": low,
            "high": high,
            "level": 0.9,
            "unit": axis.unit,
            "prior": f"uniform in log {axis.name}" if axis.spacing == "log" else f"uniform in {axis.name}",
        }
        if truth is not None:
            out[axis.name]["truth"] = truth[axis.name]
    return out


def evidence_table(found: Search) -> str:
    """Every point of every grid: its round, parameters and log-evidence in nats."""
    import itertools

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["round", *(axis.name for axis in found.axes), "log_evidence_nats"])
    for number, (axes, result) in enumerate(found.rounds, start=1):
        points = itertools.product(*(axis.values().tolist() for axis in axes))
        for point, value in zip(points, result.log_evidence.flatten().tolist(), strict=True):
            writer.writerow([number, *(f"{p:.6g}" for p in point), f"{value:.4f}"])
    return text.getvalue()


def show(
    console: Console, found: Search, truth: dict[str, float] | None, out: OutputFolder, judged: Typicality | None = None
) -> None:
    """The estimates as a table, whether the picture is typical, and a warning where the grid was too short."""
    from linverse.cli.pictures import decimals_for

    table = Table("parameter", "estimate", "90 % interval", *(["truth"] if truth else []), box=None)
    for axis in found.axes:
        low, high = found.interval(axis)
        digits = f".{decimals_for(high - low, axis)}f"
        row = [axis.name, f"{found.value(axis):{digits}} {axis.unit}", f"{low:{digits}} … {high:{digits}}"]
        table.add_row(*row, *([f"{truth[axis.name]:g}"] if truth else []))
    console.print(table)
    if judged is not None:
        note(console, f"with these values, against {judged.count} held-out images: {judged.describe()[0]}")
    for axis in found.at_edge():
        hint = "" if axis.spacing == "whole" else ": widen it with --grid LOW HIGH N"
        note(console, f"note: the evidence is largest at the edge of the grid of {axis.name}{hint}")
    note(console, f"wrote {out.folder}/: figure.png, restored.png, evidence.csv, result.json")

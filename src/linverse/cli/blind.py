"""`linverse blind IMAGE --family NAME`: which degradation made this picture? Estimates, credible intervals, and a restoration."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console

from linverse.cli.parsing import DeviceOption, ModelOption, parse
from linverse.report.console import note, plain_warnings

if TYPE_CHECKING:
    from torch import Tensor

    from linverse.blind import Axis, Family, FamilyPreset, Search
    from linverse.data.picture import Picture
    from linverse.models.energies.learned import LearnedEnergy
    from linverse.progress import Progress
    from linverse.report.output import OutputFolder
    from linverse.restoration import BlindRestoration

HELP = """Which degradation made this picture? The evidence p(y|θ) over a grid of parameters, credible intervals, and the picture
restored with the parameters integrated out.

families:
  noise            white noise of unknown level
  noise-box        noise of unknown level in a centred square of unknown side; --sigma is the noise outside of it
  gaussian-blur    a Gaussian blur of unknown width; --sigma is the noise on top of it
  line-blur        a straight motion of unknown angle and length; --sigma is the noise on top of it

examples:
  linverse blind photo.png                                             how noisy is it?
  linverse blind blurred.png --family gaussian-blur --sigma 0.01
  linverse blind shoe.png --family noise --simulate sigma=0.2 --model fashion-mnist     degrade a clean picture, and compare

Files of 8 or 16 bits cut noise off at black and white and round it: the noise family knows that. Of a large picture it looks at tiles
spread over it, gaussian-blur at its middle.
"""
PLANNED = ("measurement.png", "measurement.npy", "restored.png", "restored.npy", "evidence.csv", "figure.png")


@dataclass(frozen=True)
class BlindOptions:
    """Which degradation made this picture?"""

    image: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE")]
    """the picture, or a numpy array (.npy)"""
    family: Annotated[str, tyro.conf.arg(metavar="NAME")] = "noise"
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
    model: ModelOption = None
    device: DeviceOption = "cpu"
    seed: int = 0
    """of all that is random"""
    resize: bool = False
    """scale and crop a picture of another size"""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: IMAGE-blind)")] = None
    """folder for the results"""


def main(arguments: list[str]) -> None:
    """Parse and run."""
    options = parse(BlindOptions, arguments, "blind", HELP)
    console = Console()
    with plain_warnings(console):
        run(options, console)


def run(options: BlindOptions, console: Console) -> None:
    """Load, search, restore, write."""
    from linverse.blind import NoiseSearch, reflecting
    from linverse.data.pictures import fitted, read_told
    from linverse.report.blind import show
    from linverse.report.console import ProgressBars
    from linverse.report.output import OutputFolder
    from linverse.restoration import restore_found
    from linverse.store.choice import model_for
    from linverse.store.hub import load

    started = time.monotonic()
    preset, tell = named_family(options), partial(note, console)
    sigma = known_noise(options, preset)
    picture = read_told(options.image, tell)
    name = options.model or model_for(picture.channels)
    energy = load(name, options.device)
    picture = fitted(picture, energy.shape, tell=tell, resize=options.resize)
    axes, family = chosen_axes(options, preset, picture.size), preset.build(sigma)
    if None in energy.shape:
        family = reflecting(family)
    truth = parse_truth(options.simulate, axes) if options.simulate is not None else None
    picture, clean = measure(options, family, axes, truth, picture)
    raw = picture.pixels
    out = OutputFolder(options.out or Path(f"{options.image.stem}-blind"), "linverse blind", PLANNED)
    out.write_image("measurement.png", raw[0])
    out.write_array("measurement.npy", raw[0])
    with ProgressBars(console) as progress:
        found = find_out(options, energy, picture, family, axes, progress)
    cut = float(picture.clipped.float().mean())
    if "sigma" in family.names and not isinstance(found, NoiseSearch) and cut > 0.2:
        tell(
            f"note: {100 * cut:.0f} % of the pixels are black or white. If noise was cut off there it is underestimated: give the raw "
            "values as a .npy array, or ask for the noise family without --grid"
        )
    result = restore_found(energy, raw.to(options.device), family, found, seed=options.seed)
    write(out, options, name, result, truth, clean, time.monotonic() - started)
    show(console, result, truth, out)


# --- the question ------------------------------------------------------------------------------------------------------------------


def named_family(options: BlindOptions) -> FamilyPreset:
    """The family that was named."""
    from linverse.blind.search import FAMILIES

    if options.family not in FAMILIES:
        raise ValueError(f"there is no family {options.family!r}; there are {', '.join(FAMILIES)}")
    return FAMILIES[options.family]


def known_noise(options: BlindOptions, preset: FamilyPreset) -> float:
    """--sigma, where the family has a known noise."""
    if options.sigma is None:
        return preset.sigma or 0.0
    if preset.sigma is None:
        raise ValueError(f"the family {options.family} looks for sigma: it cannot be given (--grid says where to look)")
    if not 0 < options.sigma < float("inf"):
        raise ValueError(f"--sigma is a positive standard deviation; got {options.sigma:g}")
    return options.sigma


def chosen_axes(options: BlindOptions, preset: FamilyPreset, size: tuple[int, int]) -> tuple[Axis, ...]:
    """The family's axes, the main one as --grid has it."""
    axes = preset.axes(size)
    if options.grid is None:
        return axes
    low, high, count = options.grid
    return tuple(replace(a, low=low, high=high, count=count) if a.name == preset.main else a for a in axes)


def parse_truth(text: str, axes: tuple[Axis, ...]) -> dict[str, float]:
    """`angle=30,length=7` → {"angle": 30.0, "length": 7.0}: one value for each axis, as a person reads it."""
    from linverse.blind import check_truth

    names = [axis.name for axis in axes]
    wanted = ",".join(f"{name}=NUMBER" for name in names)
    values: dict[str, float] = {}
    for pair in text.split(","):
        name, _, value = pair.partition("=")
        try:
            values[name.strip()] = float(value)
        except ValueError:
            raise ValueError(f"--simulate takes {wanted}; got {text!r}") from None
    if sorted(values) != sorted(names):
        raise ValueError(f"--simulate takes {wanted}; got {text!r}")
    check_truth(values, axes)
    return values


def measure(
    options: BlindOptions, family: Family, axes: tuple[Axis, ...], truth: dict[str, float] | None, picture: Picture
) -> tuple[Picture, Tensor | None]:
    """The raw data, and the clean picture if they were simulated."""
    from linverse.blind.search import simulate
    from linverse.rng import keyed_generator

    if truth is None:
        return picture, None
    theta = {axis.name: truth[axis.name] * axis.scale for axis in axes}
    raw = simulate(family, picture.pixels, theta, keyed_generator(options.seed, "measure"))
    return replace(picture, pixels=raw, depth=None, step=None), picture.pixels


def find_out(
    options: BlindOptions,
    energy: LearnedEnergy,
    picture: Picture,
    family: Family,
    axes: tuple[Axis, ...],
    progress: Progress,
) -> Search:
    """The posterior over the family's parameters: on grids, or by few evaluations for clipped noise and for large pictures."""
    from linverse.blind import search, search_family

    raw = picture.pixels.to(options.device)
    if options.grid is not None:
        return search(energy, raw, family, axes, seed=options.seed, progress=progress)
    return search_family(energy, replace(picture, pixels=raw), family, axes, seed=options.seed, progress=progress)


def write(
    out: OutputFolder,
    options: BlindOptions,
    model: str,
    result: BlindRestoration,
    truth: dict[str, float] | None,
    clean: Tensor | None,
    seconds: float,
) -> None:
    """The picture restored, the evidence as a table and a figure, the numbers."""
    import linverse
    from linverse.blind import NoiseSearch
    from linverse.report.blind import blind_figure, estimates, evidence_table
    from linverse.report.style import figure_bytes

    out.write_image("restored.png", result.mean)
    out.write_array("restored.npy", result.mean)
    out.write("evidence.csv", evidence_table(result.search).encode())
    pictures = [("measurement", result.raw), ("restored", result.mean)]
    pictures += [("truth", clean[0])] if clean is not None else []
    title = f"{options.image.name}  ·  {options.family}  ·  model {Path(model).name}"
    out.write("figure.png", figure_bytes(lambda: blind_figure(result.search, pictures, truth, title)))
    named = ("family", "sigma", "seed")
    settings: dict[str, Any] = {"image": options.image.name, "model": model} | {
        name: getattr(options, name) for name in named
    }
    if isinstance(result.search, NoiseSearch):
        settings["search"] = result.search.record()
    judged = {"typicality": result.typicality.records()[0]} if result.typicality else {}
    record = {**settings, "linverse": linverse.__version__, "seconds": round(seconds, 1), **judged}
    out.finish({"completed": True, **record, "estimates": estimates(result.search, truth)})

"""`linverse demo`: one model, every question; a picture and a table in less than a minute."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from linverse.cli.show import note, open_picture, plain_warnings

if TYPE_CHECKING:
    from torch import Tensor

    from linverse.cli.generation import Growth
    from linverse.cli.grids import Axis, Search
    from linverse.cli.restoration import Restoration
    from linverse.energy import Energy
    from linverse.progress import Progress

HELP = """One model, every question. Held-out pictures are degraded and restored: what they were, how sure we are, what else they could have
been and how probable that is; which degradation made them; and digits drawn patch by patch in any order.

Nothing is downloaded. It takes less than a minute on two cores and writes one picture.

examples:
  linverse demo
  linverse demo --out somewhere --seed 1
"""
ORDERS = ("reading", "reversed", "centre-out")


@dataclass(frozen=True)
class Options:
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
    """posterior samples a picture"""
    steps: int = 50
    """network evaluations a sample"""
    seed: int = 0
    """of all that is random"""
    show: bool = True
    """open the picture where there is a desktop"""


@dataclass(frozen=True)
class Setting:
    """A task of the demo: what is said of it, its name for `linverse restore`, and the number of the bundled picture."""

    title: str
    task: str
    picture: int


@dataclass(frozen=True)
class Stage:
    """An energy, pictures that it has not seen [N, C, H, W], and what to do with them."""

    name: str
    energy: Energy
    pictures: Tensor
    settings: tuple[Setting, ...]
    noise: tuple[int, float]  # the number of a picture, and the noise on it that is to be found out
    blur: tuple[int, float, float]  # likewise: picture, std, noise
    patch: int


@dataclass(frozen=True)
class Blind:
    """What was found out about a degradation, and the restoration with it integrated out."""

    search: Search
    truth: float
    raw: Tensor
    restored: Tensor

    @property
    def axis(self) -> Axis:
        return self.search.axes[0]


@dataclass(frozen=True)
class Demo:
    """All answers."""

    stage: Stage
    drawing: Stage
    restorations: tuple[Restoration, ...]
    blind: tuple[Blind, ...]
    growths: tuple[Growth, ...]


def main(arguments: list[str]) -> None:
    """Parse and run."""
    options = tyro.cli(Options, args=arguments, prog="linverse demo", description=HELP)
    if options.samples < 1 or options.steps < 1:
        raise ValueError(f"--samples and --steps are at least 1; got {options.samples} and {options.steps}")
    console = Console()
    with plain_warnings(console):
        run(options, console)


def run(options: Options, console: Console) -> None:
    """Ask everything, draw, tell."""
    from linverse.cli.demo_figure import demo_figure
    from linverse.cli.experiment import Watcher
    from linverse.cli.output import OutputFolder
    from linverse.experiments.framework import picture

    started = time.monotonic()
    out = OutputFolder(options.out, "linverse demo", ["demo.png"])
    stage, drawing = stages(options, console)
    with Watcher(console) as watcher:
        demo = ask_everything(stage, drawing, options, watcher)
    path = out.write("demo.png", picture(lambda: demo_figure(demo)))
    seconds = time.monotonic() - started
    out.finish({"completed": True, "seconds": round(seconds, 1), **record(demo, options)})
    show(console, demo)
    note(console, f"{seconds:.0f} s; the picture is {path}")
    if options.show:
        open_picture(path)


# --- who plays ---------------------------------------------------------------------------------------------------------------------


def stages(options: Options, console: Console) -> tuple[Stage, Stage]:
    """Who restores and who draws: trained models, or an exact energy where there is none."""
    from linverse.store.hub import bundled, load

    restoring = options.model or ("fashion-mnist" if "fashion-mnist" in bundled() else None)
    drawing = options.digits_model or ("mnist" if "mnist" in bundled() else None)
    missing = [name for name, found in (("fashion-mnist", restoring), ("mnist", drawing)) if found is None]
    if missing:
        note(console, f"note: not bundled here: {', '.join(missing)}. An exact energy of 8×8 digits answers instead")
    first = trained_stage(restoring, load(restoring), "fashion-mnist") if restoring is not None else exact_stage()
    return first, trained_stage(drawing, load(drawing), "mnist") if drawing is not None else exact_stage()


def trained_stage(name: str, energy: Energy, pictures: str) -> Stage:
    """A learned energy with the bundled pictures."""
    import torch

    from linverse.data.examples import load_examples

    examples = load_examples(pictures)
    if energy.shape != examples.shape:
        given, wanted = ("×".join(map(str, shape)) for shape in (energy.shape, examples.shape))
        raise ValueError(
            f"the demo's pictures are {wanted}; the model {name} takes {given} (`linverse restore` takes your own)"
        )
    settings = (
        Setting("20×20 pixels missing", "box", 0),
        Setting("Gaussian blur, std 1.5", "gauss:std=1.5,sigma=0.02", 5),
        Setting("×4 super-resolution", "superres:sigma=0.01", 1),
    )
    x = examples.batch(torch.arange(len(examples)))
    return Stage(Path(name).name, energy, x, settings, (3, 0.15), (4, 1.2, 0.02), patch=7)


def exact_stage() -> Stage:
    """The exact energy of small digits with held-out ones."""
    import torch

    from linverse.cli.exact import digit_mixture
    from linverse.data.digits import load_digits

    settings = (
        Setting("5×5 pixels missing", "box:side=5,sigma=0.05", 3),
        Setting("Gaussian blur, std 0.7", "gauss:std=0.7,sigma=0.05", 1),
        Setting("×2 super-resolution", "superres:factor=2,sigma=0.05", 2),
    )
    x = load_digits("test").batch(torch.arange(8))
    return Stage("exact mixture of 8×8 digits", digit_mixture(), x, settings, (4, 0.2), (5, 0.8, 0.05), patch=2)


# --- the questions -----------------------------------------------------------------------------------------------------------------


def ask_everything(stage: Stage, drawing: Stage, options: Options, watch: Progress) -> Demo:
    """The restorations, the blind estimates, the digits."""
    restorations = tuple(restored(stage, setting, options, watch) for setting in stage.settings)
    blind = (found_noise(stage, options, watch), found_blur(stage, options, watch))
    growths = tuple(grown(drawing, order, options, watch) for order in ORDERS)
    return Demo(stage, drawing, restorations, blind, growths)


def restored(stage: Stage, setting: Setting, options: Options, watch: Progress) -> Restoration:
    """One picture degraded and restored."""
    from linverse.cli.restoration import add_samples, one_shot
    from linverse.degradations.tasks import parse_task
    from linverse.rng import keyed_generator

    x = stage.pictures[setting.picture]
    degradation = parse_task(setting.task, stage.energy.shape[1:])
    measurement = degradation.measure(x[None], keyed_generator(options.seed, "demo", setting.task))
    result = one_shot(stage.energy, measurement, x)
    add_samples(
        result,
        stage.energy,
        options.samples,
        options.steps,
        seed=options.seed,
        progress=lambda done, total: watch(setting.title, done, total),
    )
    if not result.completed:
        raise KeyboardInterrupt
    return result


def found_noise(stage: Stage, options: Options, watch: Progress) -> Blind:
    """How much noise is on this picture?"""
    number, sigma = stage.noise
    return found(stage, "noise", 0.0, number, sigma, options, watch)


def found_blur(stage: Stage, options: Options, watch: Progress) -> Blind:
    """How wide was the blur?"""
    number, std, sigma = stage.blur
    return found(stage, "gaussian-blur", sigma, number, std, options, watch)


def found(stage: Stage, name: str, sigma: float, number: int, truth: float, options: Options, watch: Progress) -> Blind:
    """A family of one parameter: simulate, search, restore."""
    from linverse.blind import restore
    from linverse.cli.grids import QUESTIONS, search, simulate
    from linverse.rng import keyed_generator

    question = QUESTIONS[name]
    family, axes = question.build(sigma), question.axes(stage.energy.shape[1:])
    x = stage.pictures[number : number + 1]
    raw = simulate(family, x, {axes[0].name: truth}, keyed_generator(options.seed, "demo", name))
    result = search(
        stage.energy, raw, family, axes, seed=options.seed, progress=lambda d, t: watch(f"blind: {name}", d, t)
    )
    return Blind(result, truth, raw, restore(stage.energy, result.final, seed=options.seed))


def grown(stage: Stage, order: str, options: Options, watch: Progress) -> Growth:
    """Digits drawn patch by patch."""
    from linverse.cli.generation import grow

    return grow(
        stage.energy,
        4,
        order,
        patch=stage.patch,
        levels=20,  # with 12 one digit in fourteen has a patch of speckles
        stops=4,
        seed=options.seed,
        progress=lambda done, total: watch(f"digits, {order}", done, total),
    )


# --- what comes out ----------------------------------------------------------------------------------------------------------------


def record(demo: Demo, options: Options) -> dict[str, Any]:
    """The numbers."""
    import linverse

    return {
        "linverse": linverse.__version__,
        "model": demo.stage.name,
        "digits_model": demo.drawing.name,
        "seed": options.seed,
        "steps": options.steps,
        "restorations": {
            setting.task: result.record()
            for setting, result in zip(demo.stage.settings, demo.restorations, strict=True)
        },
        "blind": {
            blind.axis.name: {
                "value": blind.search.value(blind.axis),
                "interval_90": blind.search.interval(blind.axis),
                "truth": blind.truth,
            }
            for blind in demo.blind
        },
    }


def show(console: Console, demo: Demo) -> None:
    """Two short tables."""
    from linverse.cli.restoration import psnr

    table = Table("", "PSNR of the mean", "log p(x|y) of samples", "of the truth", box=None)
    for setting, result in zip(demo.stage.settings, demo.restorations, strict=True):
        assert result.truth is not None
        spread = f"{float(result.log_probs[-1]):.0f} … {float(result.log_probs[0]):.0f} nats"
        decibels = f"{psnr(result.mean, result.truth):.1f} dB"
        table.add_row(setting.title, decibels, spread, f"{result.log_prob_truth:.0f} nats")
    console.print(table)
    table = Table("blind", "estimate", "90 % interval", "truth", box=None)
    for blind in demo.blind:
        low, high = blind.search.interval(blind.axis)
        name = "noise level" if blind.axis.name == "sigma" else "blur width, pixels"
        table.add_row(name, f"{blind.search.value(blind.axis):.3f}", f"{low:.3f} … {high:.3f}", f"{blind.truth:g}")
    console.print(table)

"""`linverse restore IMAGE --task NAME | --mask MASK`: what the picture was, how sure we are, what else it could have been."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from linverse.cli.show import note, plain_warnings

if TYPE_CHECKING:
    from torch import Tensor

    from linverse.cli.output import OutputFolder
    from linverse.cli.restoration import Restoration
    from linverse.degradations import Degradation
    from linverse.measurement import Measurement
    from linverse.models.learned import LearnedEnergy

HELP = """Restore a degraded picture: the posterior mean, how sure it is, and samples ranked by their log-density.

The picture is the measurement itself, unless --simulate says that it is clean and shall be degraded first.

examples:
  linverse restore shoe.png --task box --simulate        hide a square of a clean picture, then restore it
  linverse restore blurred.png --task gauss:std=1.5        undo a known blur; its noise is sigma=0.01 unless you say
  linverse restore torn.png --mask mask.png                white = measured, black = missing (or use the alpha channel)
  linverse restore small.png --task superres                    a 7×7 picture becomes a 28×28 one

tasks: denoise, box, half, right-half, random-pixels, gauss, motion, defocus, superres, demosaic;
options follow a colon: gauss:std=1,sigma=0.02
"""


@dataclass(frozen=True)
class Options:
    """Restore a degraded picture."""

    image: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE")]
    """the picture; colour is converted with a notice. A .npy array keeps noise beyond black and white"""
    task: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """which degradation made it (or shall, with --simulate)"""
    mask: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """a picture that says which pixels were measured (white) and which are missing (black)"""
    sigma: Annotated[
        float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="(default: the task's own; 0.001 with --mask)")
    ] = None
    """standard deviation of the noise, white being 1"""
    simulate: bool = False
    """the picture is clean: degrade it first, and compare with it"""
    model: str = "fashion-mnist"
    """a bundled name, a folder, or an id of the hub"""
    samples: int = 8
    """how many posterior samples to draw (0: only the one-shot mean and standard deviation)"""
    steps: int = 50
    """network evaluations a sample"""
    seed: int = 0
    """of all that is random"""
    resize: bool = False
    """scale and crop a picture of another size"""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: IMAGE-restored)")] = None
    """folder for the results"""


def main(arguments: list[str]) -> None:
    """Parse and run."""
    options = tyro.cli(
        Options, args=arguments, prog="linverse restore", description=HELP, config=(tyro.conf.FlagCreatePairsOff,)
    )
    console = Console()
    check(options)
    with plain_warnings(console):
        run(options, console)


def check(options: Options) -> None:
    """Refuse what makes no sense, before anything is loaded."""
    if (options.task is None) == (options.mask is None):
        both = "both" if options.task else "neither"
        raise ValueError(f"say how the picture was degraded by --task NAME or by --mask FILE; got {both}")
    if options.samples < 0 or options.steps < 1:
        raise ValueError(f"--samples is at least 0 and --steps at least 1; got {options.samples} and {options.steps}")
    for path in filter(None, (options.image, options.mask)):
        if not path.is_file():
            raise ValueError(f"{path} {'is a folder, not an image' if path.is_dir() else 'does not exist'}")


def run(options: Options, console: Console) -> None:
    """Load, restore, write."""
    from linverse.cli.experiment import Watcher
    from linverse.cli.output import OutputFolder
    from linverse.cli.restoration import add_samples, judge, one_shot
    from linverse.store.hub import load

    started = time.monotonic()
    energy = load(options.model)
    degradation = degradation_of(options, energy.shape[1:])
    measurement, truth = measure(options, degradation, energy, console)
    out = OutputFolder(options.out or default_folder(options.image), "linverse restore", planned_files(options))
    result = one_shot(energy, measurement, truth)
    judge(result, energy)
    for text in doubts(result):
        note(console, f"note: {text}")
    write_one_shot(out, result)
    with Watcher(console) as watcher:
        add_samples(
            result,
            energy,
            options.samples,
            options.steps,
            seed=options.seed,
            progress=lambda done, total: watcher("sampling", done, total),
        )
    seconds = time.monotonic() - started
    write_rest(out, result, {**settings(options, degradation, energy), "seconds": round(seconds, 1)})
    show(console, result, out)
    if not result.completed:
        note(console, f"interrupted: {out.folder} holds what there was")
        raise SystemExit(130)


# --- what was measured -----------------------------------------------------------------------------------------------------------


def degradation_of(options: Options, size: tuple[int, int]) -> Degradation:
    """The degradation that --task or --mask names."""
    from linverse.cli.files import read_mask_file
    from linverse.degradations import Inpainting
    from linverse.degradations.tasks import parse_task

    if options.mask is not None:
        return Inpainting(read_mask_file(options.mask, size), 1e-3 if options.sigma is None else options.sigma)
    assert options.task is not None
    return parse_task(options.task, size, sigma=options.sigma)


def measure(
    options: Options, degradation: Degradation, energy: LearnedEnergy, console: Console
) -> tuple[Measurement, Tensor | None]:
    """The picture as a measurement; with --simulate, a measurement of it, and the picture itself as the truth."""
    import torch

    from linverse.cli.files import read_image
    from linverse.rng import keyed_generator

    if options.simulate:
        x = read_image(options.image, energy.shape, console, resize=options.resize)
        return degradation.measure(x, keyed_generator(options.seed, "measure")), x[0]
    seen = degradation.operator(torch.zeros(1, *energy.shape)).shape[1:]
    shape = (seen[0], seen[1], seen[2])
    wants = "the model takes {} images" if shape == energy.shape else "this task measures {} pixels"
    if shape != energy.shape:
        wants += " (--simulate degrades a clean picture of the model's size)"
    raw = read_image(options.image, shape, console, resize=options.resize, wants=wants)
    return degradation.from_raw(raw), None


def doubts(result: Restoration) -> list[str]:
    """Reasons not to trust the answer, for a user to read; that Σ lies outside of the model's range is said where it is used."""
    from linverse.cli.pictures import LARGEST_STD

    out = []
    if result.typicality is not None and bool(result.typicality.unusual()[0]):
        out.append(f"this picture is {result.typicality.describe()[0]}")
    if result.calibration is not None and (doubt := result.calibration.doubt()):
        out.append(doubt)
    largest = float(result.std.max())
    if largest > 1.1 * LARGEST_STD:
        out.append(
            f"the model says that a pixel has std {largest:.2f}, where {LARGEST_STD} is the most possible: do not trust it here"
        )
    return out


# --- what comes out ----------------------------------------------------------------------------------------------------------------


def default_folder(image: Path) -> Path:
    """Beside where the user is, named after the picture."""
    return Path(f"{image.stem}-restored")


def sample_name(number: int) -> str:
    """The file of a sample; 1 is the most probable."""
    return f"samples/{number:02d}.png"


def planned_files(options: Options) -> list[str]:
    """All that is going to be written."""
    names = ["measurement.png", "measurement.npy", "mean.png", "mean.npy", "std.png", "std.npy", "figure.png"]
    return names + [sample_name(number + 1) for number in range(options.samples)]


def write_one_shot(out: OutputFolder, result: Restoration) -> None:
    """What is known before any sample is drawn: an interruption leaves it there."""
    from linverse.cli.pictures import seen_picture

    out.write_image("measurement.png", seen_picture(result.measurement))
    out.write_array("measurement.npy", result.measurement.raw[0])
    out.write_image("mean.png", result.mean)
    out.write_array("mean.npy", result.mean)


def write_rest(out: OutputFolder, result: Restoration, settings: dict[str, Any]) -> None:
    """The map of standard deviations (white: the largest), samples, a figure and the numbers."""
    from linverse.cli.pictures import restoration_figure
    from linverse.experiments.framework import picture

    out.write_image("std.png", result.std / result.std.max().clamp_min(1e-12))
    out.write_array("std.npy", result.std)
    for number, sample in enumerate(result.samples):
        out.write_image(sample_name(number + 1), sample)
    title = f"{settings['image']}  ·  {settings['task']}  ·  model {Path(settings['model']).name}"
    out.write("figure.png", picture(lambda: restoration_figure(result, title)))
    out.finish({"completed": result.completed, **settings, **result.record()})


def settings(options: Options, degradation: Degradation, energy: LearnedEnergy) -> dict[str, Any]:
    """All that is needed to repeat the run."""
    import linverse
    from linverse.files.saving import hash_weights

    return {
        "image": options.image.name,
        "task": options.task if options.task is not None else f"mask {options.mask.name if options.mask else ''}",
        "sigma": degradation.sigma,
        "simulated": options.simulate,
        "model": options.model,
        "weights": hash_weights(energy),
        "smallest_variance": energy.range.minimum,
        "steps": options.steps,
        "seed": options.seed,
        "linverse": linverse.__version__,
    }


def show(console: Console, result: Restoration, out: OutputFolder) -> None:
    """A short table, and where the files are."""
    table = Table("", "value", box=None)
    table.add_row("log-evidence of the measurement", f"{result.evidence:.1f} nats")
    if result.typicality is not None:
        verdict = result.typicality.describe()[0]
        table.add_row(f"against {result.typicality.count} held-out images", verdict)
    table.add_row("largest posterior std of a pixel", f"{float(result.std.max()):.3f} ({result.std_from})")
    if len(result.log_probs):
        best, worst = result.density(float(result.log_probs[0])), result.density(float(result.log_probs[-1]))
        table.add_row("log p(x|y), most probable sample", f"{best['log_density_nats']:.1f} nats")
        table.add_row("log p(x|y), least probable sample", f"{worst['log_density_nats']:.1f} nats")
    if result.log_prob_truth is not None:
        table.add_row("log p(x|y), the truth", f"{result.log_prob_truth:.1f} nats")
    if result.truth is not None:
        from linverse.cli.restoration import psnr

        table.add_row("PSNR of the mean", f"{psnr(result.mean, result.truth):.1f} dB")
    console.print(table)
    names = ["figure.png", "mean.png", "std.png", *(["samples/"] if len(result.samples) else []), "result.json"]
    note(console, f"wrote {out.folder}/: {', '.join(names)}")

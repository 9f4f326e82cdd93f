"""`linverse restore IMAGE --task NAME | --mask MASK`: what the picture was, how sure we are, what else it could have been."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console

from linverse.cli.parsing import parse
from linverse.report.console import note, plain_warnings

if TYPE_CHECKING:
    from torch import Tensor

    from linverse.degradations import Degradation
    from linverse.measurement import Measurement
    from linverse.models.energies.learned import LearnedEnergy
    from linverse.restoration import Restoration

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
MOST_SAMPLES = 1000


@dataclass(frozen=True)
class RestoreOptions:
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
    device: str = "cpu"
    """where the network runs: cpu, cuda, mps"""
    samples: int = 8
    """how many posterior samples to draw (0: only the one-shot mean and standard deviation)"""
    steps: int = 50
    """network evaluations per sample"""
    measure_next: int = 0
    """name so many pixels that would tell the most if they were measured next, at least two pixels apart"""
    seed: int = 0
    """of all that is random"""
    resize: bool = False
    """scale and crop a picture of another size, and its mask"""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: IMAGE-restored)")] = None
    """folder for the results"""


def main(arguments: list[str]) -> None:
    """Parse and run."""
    options = parse(RestoreOptions, arguments, "restore", HELP)
    console = Console()
    check(options)
    with plain_warnings(console):
        run(options, console)


def check(options: RestoreOptions) -> None:
    """Refuse what makes no sense, before anything is loaded."""
    if (options.task is None) == (options.mask is None):
        both = "both" if options.task else "neither"
        raise ValueError(f"say how the picture was degraded by --task NAME or by --mask FILE; got {both}")
    if options.samples < 0 or options.steps < 1:
        raise ValueError(f"--samples is at least 0 and --steps at least 1; got {options.samples} and {options.steps}")
    if options.samples > MOST_SAMPLES:
        raise ValueError(
            f"--samples is at most {MOST_SAMPLES}, a picture each; got {options.samples}. The library draws more"
        )
    for path in filter(None, (options.image, options.mask)):
        if not path.is_file():
            raise ValueError(f"{path} {'is a folder, not an image' if path.is_dir() else 'does not exist'}")


def run(options: RestoreOptions, console: Console) -> None:
    """Load, restore, write."""
    from linverse.energy import fixed_shape
    from linverse.posterior import Posterior
    from linverse.report.console import ProgressBars
    from linverse.report.output import OutputFolder
    from linverse.report.restoration import planned_files, show, write_one_shot, write_rest
    from linverse.restoration import add_samples, one_shot
    from linverse.store.hub import load

    started = time.monotonic()
    energy = load(options.model, options.device)
    degradation = degradation_of(options, fixed_shape(energy)[1:])
    measurement, truth = measure(options, degradation, energy, console)
    folder = options.out or Path(f"{options.image.stem}-restored")
    out = OutputFolder(folder, "linverse restore", planned_files(options.samples))
    posterior = Posterior(energy, measurement.to(options.device))
    result = one_shot(posterior, truth)
    for text in result.doubts():
        note(console, f"note: {text}")
    write_one_shot(out, result)
    with ProgressBars(console) as progress:
        result = add_samples(result, posterior, options.samples, options.steps, seed=options.seed, progress=progress)
    next_pixels = measure_next(options, result, degradation.sigma)
    told = {"measure_next": next_pixels, "seconds": round(time.monotonic() - started, 1)}
    write_rest(out, result, settings(options, degradation, energy) | told)
    show(console, result, out)
    if next_pixels:
        note(console, f"measure next (row, column): {', '.join(map(str, next_pixels))}")
    if not result.completed:
        note(console, f"interrupted: {out.folder} holds what there was")
        raise SystemExit(130)


# --- what was measured -----------------------------------------------------------------------------------------------------------


def degradation_of(options: RestoreOptions, size: tuple[int, int]) -> Degradation:
    """The degradation that --task or --mask names."""
    from linverse.data import read_mask
    from linverse.degradations import Inpainting
    from linverse.degradations.tasks import parse_task

    if options.mask is not None:
        mask = read_mask(options.mask, size, resize=options.resize)
        return Inpainting(mask, 1e-3 if options.sigma is None else options.sigma)
    assert options.task is not None
    return parse_task(options.task, size, sigma=options.sigma)


def measure(
    options: RestoreOptions, degradation: Degradation, energy: LearnedEnergy, console: Console
) -> tuple[Measurement, Tensor | None]:
    """The picture as a measurement; with --simulate, a measurement of it, and the picture itself as the truth."""
    import torch

    from linverse.data.pictures import read_image
    from linverse.energy import fixed_shape
    from linverse.rng import keyed_generator

    if options.simulate:
        x = read_image(options.image, fixed_shape(energy), partial(note, console), resize=options.resize)
        return degradation.measure(x, keyed_generator(options.seed, "measure")), x[0]
    seen = degradation.operator(torch.zeros(1, *fixed_shape(energy))).shape[1:]
    shape = (seen[0], seen[1], seen[2])
    wants = "the model takes {} images" if shape == energy.shape else "this task measures {} pixels"
    if shape != energy.shape:
        wants += " (--simulate degrades a clean picture of the model's size)"
    raw = read_image(options.image, shape, partial(note, console), resize=options.resize, wants=wants)
    return degradation.from_raw(raw), None


def measure_next(options: RestoreOptions, result: Restoration, sigma: float) -> list[tuple[int, ...]]:
    """Rows and columns of the pixels that --measure-next asks for, measured as well as the others."""
    from linverse.information import most_informative

    if not options.measure_next:
        return []
    places = most_informative(result.std[None].square(), max(sigma, 1e-3), options.measure_next, spacing=2)
    return [tuple(place) for place in places[0].tolist()]


def settings(options: RestoreOptions, degradation: Degradation, energy: LearnedEnergy) -> dict[str, Any]:
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

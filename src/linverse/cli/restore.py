"""`linverse restore IMAGE … --task NAME | --mask MASK | --auto`: what the picture was, how sure we are, what else it could have been."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console

from linverse.cli.parsing import DeviceOption, ModelOption, parse
from linverse.report.console import note, plain_warnings

if TYPE_CHECKING:
    from torch import Tensor

    from linverse.data.picture import Picture
    from linverse.models.energies.learned import LearnedEnergy
    from linverse.question import Damage, Question
    from linverse.restoration import Restoration

HELP = """Restore a degraded picture: the posterior mean, how sure it is, and samples ranked by their log-density.

The picture is the measurement itself, of any size, in colour or grey, unless --simulate says that it is clean and shall be degraded first.

examples:
  linverse restore photo.jpg --auto                        find out how noisy it is, and take the noise away
  linverse restore photo.jpg --task denoise --sigma 0.1    white noise of a known level; or a map of it: --sigma map.npy
  linverse restore blurred.png --task gauss:std=1.5        undo a known blur; its noise is sigma=0.01 unless you say
  linverse restore blurred.png --task gauss --auto         undo a Gaussian blur of unknown width and noise
  linverse restore torn.png --mask mask.png                white = measured, black = missing (or use the alpha channel)
  linverse restore small.png --task sr4                    a picture of four times the width and height
  linverse restore shoe.png --task box --simulate --model fashion-mnist       hide a square of a clean picture, then restore it

tasks: denoise, box, half, right-half, random-pixels, gauss, motion, defocus, superres (sr2, sr4), demosaic;
options follow a colon: gauss:std=1,sigma=0.02

Mean and standard deviation of noisy and masked pictures come from one evaluation; those of blurs and super-resolution from the samples,
from four on (one evaluation is up to 4 dB worse there). With --samples 0 they always are of one evaluation.
"""
MOST_SAMPLES = 1000
SCANNED = ("tomography", "projections", "mri")  # tasks whose data are no pictures


@dataclass(frozen=True)
class RestoreOptions:
    """Restore degraded pictures."""

    images: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE …")]
    """the pictures: PNG, JPEG, TIFF, WebP, … A .npy array keeps noise beyond black and white"""
    task: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """which degradation made them (or shall, with --simulate)"""
    mask: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """a picture that says which pixels were measured (white) and which are missing (black)"""
    sigma: Annotated[
        str | None,
        tyro.conf.arg(metavar="FLOAT|FILE", help_behavior_hint="(default: the task's own; 0.001 with --mask)"),
    ] = None
    """standard deviation of the noise, white being 1; or a file that holds that of every pixel (denoise)"""
    auto: bool = False
    """find the noise level, and with --task gauss the width of the blur, from the picture itself"""
    simulate: bool = False
    """the picture is clean: degrade it first, and compare with it"""
    model: ModelOption = None
    device: DeviceOption = "cpu"
    samples: int = 8
    """how many posterior samples to draw (0: only the one-shot mean and standard deviation)"""
    steps: int = 50
    """network evaluations per sample"""
    measure_next: int = 0
    """name so many pixels (or all there are) that would tell the most if they were measured next, at least two pixels apart"""
    seed: int = 0
    """of all that is random"""
    resize: bool = False
    """scale and crop a picture of another size than the model's, and a mask of another size than the picture's"""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: IMAGE-restored)")] = None
    """folder for the results; several pictures get folders of their own in it"""

    @property
    def task_name(self) -> str:
        """The task without its options."""
        return (self.task or "denoise").partition(":")[0]


def main(arguments: list[str]) -> None:
    """Parse and run."""
    options = parse(RestoreOptions, arguments, "restore", HELP)
    console = Console()
    check(options)
    loaded: dict[str, LearnedEnergy] = {}
    with plain_warnings(console):
        for image in options.images:
            if len(options.images) > 1:
                note(console, f"{image}:")
            run(options, image, console, loaded)


def check(options: RestoreOptions) -> None:
    """Refuse what makes no sense, before anything is loaded."""
    if not options.images:
        raise ValueError("name at least one picture: linverse restore photo.jpg --auto")
    if (options.task is None) == (options.mask is None) and not (
        options.auto and options.task is None and options.mask is None
    ):
        both = "both" if options.task else "neither"
        raise ValueError(f"say how the picture was degraded by --task NAME, by --mask FILE or by --auto; got {both}")
    if options.auto and (options.mask is not None or options.task_name not in ("denoise", "gauss")):
        raise ValueError(
            "--auto finds noise (--task denoise) and Gaussian blurs (--task gauss); give --sigma for all else"
        )
    if (name := options.task_name) in SCANNED:
        raise ValueError(
            f"the data of {name} are no picture: `linverse evaluate --task {name}` simulates them, lv.Posterior takes yours"
        )
    if options.auto and options.sigma is not None:
        raise ValueError("--auto looks for the noise level: --sigma cannot be given")
    if options.samples < 0 or options.steps < 1:
        raise ValueError(f"--samples is at least 0 and --steps at least 1; got {options.samples} and {options.steps}")
    if options.measure_next < 0:
        raise ValueError(f"--measure-next is a number of pixels, at least 0; got {options.measure_next}")
    if options.samples > MOST_SAMPLES:
        raise ValueError(
            f"--samples is at most {MOST_SAMPLES}, a picture each; got {options.samples}. The library draws more"
        )
    for path in filter(None, (*options.images, options.mask)):
        if not path.is_file():
            raise ValueError(f"{path} {'is a folder, not an image' if path.is_dir() else 'does not exist'}")
    stems = [path.stem for path in options.images]
    if options.out is not None and len(set(stems)) < len(stems):
        raise ValueError("two of the pictures have the same name: restore them one by one, each with its --out")


def run(options: RestoreOptions, image: Path, console: Console, loaded: dict[str, LearnedEnergy]) -> None:
    """Load, restore, write."""
    from linverse.data.pictures import read_told
    from linverse.posterior import Posterior
    from linverse.question import ask
    from linverse.report.console import ProgressBars
    from linverse.report.output import OutputFolder
    from linverse.report.restoration import planned_files, show, write_one_shot, write_rest
    from linverse.restoration import add_samples, one_shot

    started = time.monotonic()
    tell = partial(note, console)
    picture = read_told(image, tell)
    name, energy = chosen_model(options, picture, loaded)
    out = OutputFolder(results_folder(options, image), "linverse restore", planned_files(options.samples))
    described = damage(options)
    with ProgressBars(console) as progress:
        question = ask(
            energy, picture, described, resize=options.resize, seed=options.seed, tell=tell, progress=progress
        )
    posterior = Posterior(energy, question.measurement.to(options.device), check=False)
    result = one_shot(posterior, question.truth)
    for text in (*question.found, *result.doubts()):
        note(console, f"note: {text}")
    write_one_shot(out, result, question.picture)
    with ProgressBars(console) as progress:
        result = add_samples(result, posterior, options.samples, options.steps, seed=options.seed, progress=progress)
    next_pixels = measure_next(options, result, question.degradation.sigma)
    told = {"measure_next": next_pixels, "seconds": round(time.monotonic() - started, 1)}
    write_rest(out, result, settings(options, image, name, question, energy) | told, question.picture)
    show(console, result, out)
    if next_pixels:
        note(console, f"measure next (row, column): {', '.join(map(str, next_pixels))}")
    if not result.completed:
        note(console, f"interrupted: {out.folder} holds what there was")
        raise SystemExit(130)


def chosen_model(
    options: RestoreOptions, picture: Picture, loaded: dict[str, LearnedEnergy]
) -> tuple[str, LearnedEnergy]:
    """The model that was named, or that of the picture's channels; each is loaded once for all pictures."""
    from linverse.store.choice import model_for
    from linverse.store.hub import load

    name = options.model or model_for(3 if options.task_name == "demosaic" else picture.channels)
    if name not in loaded:
        loaded[name] = load(name, options.device)
    return name, loaded[name]


def results_folder(options: RestoreOptions, image: Path) -> Path:
    """Where the results of a picture go."""
    if options.out is None:
        return Path(f"{image.stem}-restored")
    return options.out if len(options.images) == 1 else options.out / image.stem


# --- what was measured -----------------------------------------------------------------------------------------------------------


def damage(options: RestoreOptions) -> Damage:
    """What the options say of a picture."""
    from linverse.data import read_mask
    from linverse.question import Damage

    mask = None if options.mask is None else partial(read_mask, options.mask, resize=options.resize)
    task = options.task or "denoise"
    return Damage(task, noise_level(options.sigma), mask, auto=options.auto, simulate=options.simulate)


def noise_level(text: str | None) -> float | Tensor | None:
    """--sigma as a number, or the file that it names as a map [H, W] or [C, H, W]."""
    from linverse.data import read

    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        if not Path(text).is_file():
            raise ValueError(
                f"--sigma is a number, or a file that holds the noise of every pixel; got {text!r}"
            ) from None
    return read(Path(text)).pixels[0]


def measure_next(options: RestoreOptions, result: Restoration, sigma: float) -> list[tuple[int, ...]]:
    """Rows and columns of the pixels that --measure-next asks for, measured as well as the others."""
    from linverse.information import most_informative

    if not options.measure_next:
        return []
    places = most_informative(result.std[None].square(), max(sigma, 1e-3), options.measure_next, spacing=2)
    return [tuple(place) for place in places[0].tolist()]


def settings(
    options: RestoreOptions, image: Path, model: str, question: Question, energy: LearnedEnergy
) -> dict[str, Any]:
    """All that is needed to repeat the run."""
    import linverse
    from linverse.files.saving import hash_weights

    return {
        "image": image.name,
        "task": f"mask {options.mask.name}" if options.mask is not None else options.task or "denoise",
        "degradation": repr(question.degradation),
        "sigma": question.degradation.sigma,
        "found": question.record,
        "simulated": options.simulate,
        "model": model,
        "weights": hash_weights(energy),
        "smallest_variance": energy.range.minimum,
        "steps": options.steps,
        "seed": options.seed,
        "linverse": linverse.__version__,
    }

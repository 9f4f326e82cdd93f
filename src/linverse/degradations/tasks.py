"""Named degradations, for the command line and comparisons: `box`, `gauss`, `superres`, or with options `gauss:std=1.2,sigma=0.02`.

A name carries no number: sizes are options, and their defaults are those of the paper's 64×64 tasks or of our 28×28 ones, scaled to
the image.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from linverse.degradations.base import Degradation, Size
from linverse.degradations.blurs import Blur, Defocus, GaussianBlur, MotionBlur, disc_kernel
from linverse.degradations.masks import Box, Demosaicing, HalfMask, RandomPixels
from linverse.degradations.mri import MRI
from linverse.degradations.noise import Denoising
from linverse.degradations.resolution import SuperResolution
from linverse.degradations.scanners import CompressedSensing, Tomography, patterns_for

Options = dict[str, float]


@dataclass(frozen=True)
class Task:
    """A degradation by name: `defaults` are its options, for an image of some size."""

    description: str
    defaults: Callable[[Size], Options]
    build: Callable[[Options, Size], Degradation]


def _scaled(pixels: float, reference: int, size: Size) -> int:
    return max(1, round(pixels / reference * min(size)))


def _odd(number: int) -> int:
    return number | 1


TASKS: dict[str, Task] = {
    "denoise": Task("white noise", lambda size: {"sigma": 0.2}, lambda o, size: Denoising(o["sigma"])),
    "box": Task(
        "a missing square in the centre",
        lambda size: {"side": _scaled(20, 28, size), "sigma": 1e-3},
        lambda o, size: Box(round(o["side"]), o["sigma"]),
    ),
    "half": Task(
        "the lower half is missing",
        lambda size: {"depth": size[0] // 2, "sigma": 1e-3},
        lambda o, size: HalfMask("bottom", round(o["depth"]), o["sigma"]),
    ),
    "right-half": Task(
        "the right side is missing (30 of 64 columns, as in the paper)",
        lambda size: {"depth": _scaled(30, 64, size), "sigma": 1e-3},
        lambda o, size: HalfMask("right", round(o["depth"]), o["sigma"]),
    ),
    "random-pixels": Task(
        "most pixels are missing, at random",
        lambda size: {"missing": 0.7, "sigma": 1e-3, "seed": 0},
        lambda o, size: RandomPixels(o["missing"], sigma=o["sigma"], seed=round(o["seed"])),
    ),
    "gauss": Task(
        "Gaussian blur and noise (taps: of the kernel; 0 takes all that count, 8 is the paper's)",
        lambda size: {"std": 0.8, "sigma": 0.01, "taps": 0},
        lambda o, size: GaussianBlur(o["std"], o["sigma"], size=round(o["taps"]) or None),
    ),
    "motion": Task(
        "camera shake and a little noise",
        lambda size: {"size": _odd(max(3, _scaled(15, 64, size))), "intensity": 0.3, "sigma": 2e-3, "seed": 0},
        lambda o, size: MotionBlur(round(o["size"]), o["intensity"], o["sigma"], round(o["seed"])),
    ),
    "defocus": Task(
        "a lens out of focus (a disc) and noise",
        lambda size: {"radius": 2.0, "sigma": 0.01},
        lambda o, size: Defocus(o["radius"], o["sigma"]),
    ),
    "superres": Task(
        "low resolution: the mean of every factor×factor box",
        lambda size: {"factor": 4, "sigma": 0.01},
        lambda o, size: SuperResolution(round(o["factor"]), o["sigma"]),
    ),
    "demosaic": Task(
        "a Bayer pattern (RGGB): one colour per pixel, and noise",
        lambda size: {"sigma": 0.01},
        lambda o, size: Demosaicing("RGGB", o["sigma"]),
    ),
    "tomography": Task(
        "line integrals under so many angles (parallel beam), and noise",
        lambda size: {"angles": 30, "sigma": 0.05},
        lambda o, size: Tomography(size, round(o["angles"]), o["sigma"]),
    ),
    "projections": Task(
        "products with random patterns, a share of as many as pixels, and noise",
        lambda size: {"share": 0.25, "sigma": 0.05, "seed": 0},
        lambda o, size: CompressedSensing(size, o["share"], o["sigma"], patterns_for(size), round(o["seed"])),
    ),
    "mri": Task(
        "one in so many lines of k-space, and noise",
        lambda size: {"acceleration": 4, "centre": 0.08, "sigma": 0.05, "seed": 0},
        lambda o, size: MRI(o["acceleration"], o["sigma"], o["centre"], round(o["seed"])),
    ),
}


def parse_task(text: str, size: Size, *, sigma: float | None = None) -> Degradation:
    """`name` or `name:option=value,…` → a degradation for images of the given size; a `sigma` given here wins over the text's.

    >>> from linverse.degradations.tasks import parse_task
    >>> parse_task("gauss:std=1.2", (28, 28), sigma=0.05)
    GaussianBlur(std=1.2, sigma=0.05)
    """
    return TASKS[task_name(text)].build(task_options(text, size, sigma=sigma), size)


def mirrored(degradation: Degradation) -> Degradation:
    """The same blur of pictures that go on mirrored beyond their edges, as photographs do rather than periodically, if it can."""
    if isinstance(degradation, GaussianBlur):
        return GaussianBlur(degradation.std, degradation.sigma, "reflecting", degradation.size)
    if isinstance(degradation, Defocus):
        return Blur(disc_kernel(degradation.radius), degradation.sigma, "reflecting")
    return degradation


SHORT = {"sr2": "superres:factor=2", "sr4": "superres:factor=4"}


def written_out(text: str) -> str:
    """`sr4:sigma=0.02` → `superres:factor=4,sigma=0.02`; all else as it is."""
    name, colon, options = text.partition(":")
    return SHORT[name] + (f",{options}" if colon else "") if name in SHORT else text


def task_name(text: str) -> str:
    """The name in `name:option=value,…`, or an error that lists the names."""
    name = written_out(text).partition(":")[0]
    if name not in TASKS:
        raise ValueError(f"there is no task {name!r}; there are {', '.join([*TASKS, *SHORT])}")
    return name


def task_options(text: str, size: Size, *, sigma: float | None = None) -> Options:
    """All options of `name:option=value,…` for images of the given size: those that are given, and the defaults."""
    name, text = task_name(text), written_out(text)
    options = dict(TASKS[name].defaults(size))
    for pair in filter(None, text.partition(":")[2].split(",")):
        key, separator, value = pair.partition("=")
        if key not in options or not separator:
            raise ValueError(f"task {name} takes {', '.join(f'{k}={v:g}' for k, v in options.items())}; got {pair!r}")
        options[key] = _number(name, key, value)
    return options if sigma is None else {**options, "sigma": sigma}


def _number(name: str, key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"task {name}: {key} is a number; got {text!r}")
    return value

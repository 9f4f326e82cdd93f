"""Named degradations, for the command line and the evaluation harness: `box20`, `gauss`, `sr4`, or with options `gauss:std=1.2,sigma=0.02`.

Sizes are those of the paper's 64×64 tasks or of our 28×28 ones, scaled to the image.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from linverse.degradations import (
    Box,
    Degradation,
    Denoising,
    GaussianBlur,
    HalfMask,
    MotionBlur,
    RandomPixels,
    Size,
    SuperResolution,
)

Options = dict[str, float]


@dataclass(frozen=True)
class Task:
    """A degradation by name: `defaults` are its options, for an image of some size."""

    description: str
    defaults: Callable[[Size], Options]
    build: Callable[[Options], Degradation]


def _scaled(pixels: float, reference: int, size: Size) -> int:
    return max(1, round(pixels / reference * min(size)))


def _odd(number: int) -> int:
    return number | 1


TASKS: dict[str, Task] = {
    "denoise": Task("white noise", lambda size: {"sigma": 0.2}, lambda o: Denoising(o["sigma"])),
    "box20": Task(
        "a missing square in the centre, 20 of 28 pixels wide",
        lambda size: {"side": _scaled(20, 28, size), "sigma": 1e-3},
        lambda o: Box(round(o["side"]), o["sigma"]),
    ),
    "half": Task(
        "the lower half is missing",
        lambda size: {"depth": size[0] // 2, "sigma": 1e-3},
        lambda o: HalfMask("bottom", round(o["depth"]), o["sigma"]),
    ),
    "vhalf": Task(
        "the right half is missing (30 of 64 columns, as in the paper)",
        lambda size: {"depth": _scaled(30, 64, size), "sigma": 1e-3},
        lambda o: HalfMask("right", round(o["depth"]), o["sigma"]),
    ),
    "random70": Task(
        "70 % of the pixels are missing",
        lambda size: {"missing": 0.7, "sigma": 1e-3, "seed": 0},
        lambda o: RandomPixels(o["missing"], sigma=o["sigma"], seed=round(o["seed"])),
    ),
    "gauss": Task(
        "Gaussian blur, std 0.8 pixels, and noise",
        lambda size: {"std": 0.8, "sigma": 0.01},
        lambda o: GaussianBlur(o["std"], o["sigma"]),
    ),
    "motion": Task(
        "camera shake, 15 of 64 pixels, and a little noise",
        lambda size: {"size": _odd(max(3, _scaled(15, 64, size))), "intensity": 0.3, "sigma": 2e-3, "seed": 0},
        lambda o: MotionBlur(round(o["size"]), o["intensity"], o["sigma"], round(o["seed"])),
    ),
    "sr4": Task(
        "the mean of every 4×4 box: a quarter of the resolution",
        lambda size: {"factor": 4, "sigma": 0.01},
        lambda o: SuperResolution(round(o["factor"]), o["sigma"]),
    ),
}


def parse_task(text: str, size: Size) -> Degradation:
    """`name` or `name:option=value,…` → a degradation for images of the given size."""
    options = task_options(text, size)
    return TASKS[text.partition(":")[0]].build(options)


def task_options(text: str, size: Size) -> Options:
    """All options of `name:option=value,…` for images of the given size: those that are given, and the defaults."""
    name, _, rest = text.partition(":")
    if name not in TASKS:
        raise ValueError(f"there is no task {name!r}; there are {', '.join(TASKS)}")
    options = dict(TASKS[name].defaults(size))
    for pair in filter(None, rest.split(",")):
        key, separator, value = pair.partition("=")
        if key not in options or not separator:
            raise ValueError(f"task {name} takes {', '.join(f'{k}={v:g}' for k, v in options.items())}; got {pair!r}")
        try:
            options[key] = float(value)
        except ValueError:
            options[key] = math.nan
        if not math.isfinite(options[key]):
            raise ValueError(f"task {name}: {key} is a number; got {value!r}")
    return options

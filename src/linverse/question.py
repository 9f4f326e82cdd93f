"""A picture as a question to a model: the picture and what is said of it → degradation → measurement, for commands and page alike.

Somebody has a damaged picture and names what happened to it (`Damage`); or the degradation is found out by its evidence (`auto`); or
the picture is clean and damaged here (`simulate`), and then the truth is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from linverse.blind import find_degradation
from linverse.data.picture import Picture
from linverse.data.pictures import fitted
from linverse.degradations import Degradation, Denoising, Inpainting
from linverse.degradations.tasks import mirrored, parse_task, task_name, task_options
from linverse.energy import Energy, Shape
from linverse.measurement import Measurement
from linverse.progress import Progress, silent
from linverse.rng import keyed_generator

Size = tuple[int, int]
MASK_NOISE = 1e-3  # standard deviation of what a mask leaves, unless it is said


@dataclass(frozen=True, eq=False)
class Damage:
    """What is said of a picture: a task by its name or a mask, its noise, whether that is to be found out, and whether it is clean yet.

    `mask` is called with the size of the image; `sigma` is one standard deviation or, for the task `denoise`, a map of them.
    """

    task: str = "denoise"
    sigma: float | Tensor | None = None
    mask: Callable[[Size], Tensor] | None = None
    auto: bool = False
    simulate: bool = False

    def degradation(self, size: Size, *, mirror: bool = False) -> Degradation:
        """Of images of a size; with `mirror` they go on mirrored beyond their edges where a blur looks there.

        >>> Damage("gauss:std=1.2", sigma=0.05).degradation((28, 28))
        GaussianBlur(std=1.2, sigma=0.05)
        """
        if isinstance(self.sigma, Tensor):
            if self.mask is not None or task_name(self.task) != "denoise":
                other = "a mask" if self.mask is not None else self.task
                raise ValueError(f"a map of noise levels goes with the task denoise; got it with {other}")
            return Denoising(self.sigma)
        if self.mask is not None:
            return Inpainting(self.mask(size), MASK_NOISE if self.sigma is None else self.sigma)
        named = parse_task(self.task, size, sigma=self.sigma)
        return mirrored(named) if mirror else named

    def image_size(self, size: Size) -> Size:
        """Height and width of the image that raw data of a size were made of.

        >>> Damage("sr4").image_size((16, 20))
        (64, 80)
        """
        factor = 1
        if self.mask is None and task_name(self.task) == "superres":
            factor = round(task_options(self.task, size)["factor"])
        return size[0] * factor, size[1] * factor

    def raw_shape(self, shape: Shape) -> Shape:
        """Channels and size of the raw data of a model's images (None: any).

        >>> Damage("sr2").raw_shape((1, 28, 28)), Damage("demosaic").raw_shape((3, None, None))
        ((1, 14, 14), (1, None, None))
        """
        channels, height, width = shape
        if height is None or width is None:
            return 1 if self.mask is None and task_name(self.task) == "demosaic" else channels, None, None
        seen = self.degradation((height, width)).operator(torch.zeros(1, channels, height, width)).shape
        return seen[1], seen[2], seen[3]


@dataclass(frozen=True, eq=False)
class Question:
    """A picture as a measurement: the degradation, what was found out about it (words, numbers), and the truth of a simulation."""

    picture: Picture
    degradation: Degradation
    measurement: Measurement
    truth: Tensor | None = None
    found: tuple[str, ...] = ()
    record: dict[str, Any] = field(default_factory=dict)


def ask(
    energy: Energy,
    picture: Picture,
    damage: Damage,
    *,
    resize: bool = False,
    seed: int = 0,
    tell: Callable[[str], None] = print,
    progress: Progress = silent,
) -> Question:
    """The measurement that a picture is, or that is made of it; `tell` is told what was done to make it fit (`resize`: scaled, too).

    >>> import torch, linverse as lv
    >>> boot = lv.Picture(torch.rand(1, 1, 14, 14, generator=torch.Generator().manual_seed(0)), "boot.png")
    >>> ask(lv.load("fashion-mnist"), boot, Damage("sr2")).measurement.template.size
    (28, 28)
    """
    mirror = None in energy.shape
    if damage.simulate:
        picture = fitted(picture, energy.shape, tell=tell, resize=resize)
        degradation = damage.degradation(picture.size, mirror=mirror)
        measurement = degradation.measure(picture.pixels, keyed_generator(seed, "measure"))
        return Question(picture, degradation, measurement, picture.pixels[0])
    shape = damage.raw_shape(energy.shape)
    wants = "the model takes {} images"
    if shape[1:] != energy.shape[1:]:
        wants = "this task measures {} pixels (--simulate degrades a clean picture of the model's size)"
    picture = fitted(picture, shape, wants, tell, resize=resize)
    found: tuple[str, ...] = ()
    record: dict[str, Any] = {}
    if damage.auto:
        blur = task_name(damage.task) == "gauss"
        answer = find_degradation(energy, picture, blur=blur, seed=seed, progress=progress)
        degradation, found, record = answer.degradation, (f"found {answer.describe()}",), answer.record()
    else:
        degradation = damage.degradation(damage.image_size(picture.size), mirror=mirror)
    measurement = degradation.from_raw(picture.pixels)
    if picture.step is not None:
        measurement = measurement.rounded(picture.step)
    return Question(picture, degradation, measurement, None, found, record)

"""Calls of the library with sensible and senseless arguments: the right answer, or a ValueError or TypeError in words."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import linverse as lv
from linverse.blind import UnknownNoise, estimate
from linverse.energy import log_prob
from linverse.models.energies.learned import LearnedEnergy
from linverse.restoration import restore
from linverse.typicality import score_images
from robustness.cases import Wrong
from robustness.models import saved_model
from small import SHAPE

REFUSALS = (ValueError, TypeError, MemoryError, FloatingPointError, OSError)
NUMBERS: tuple[Any, ...] = (
    0,
    1,
    2,
    -1,
    0.5,
    1e-9,
    1e9,
    10**12,
    float("nan"),
    float("inf"),
    None,
    "x",
    "0.1",
    True,
    [],
    torch.ones(2),
)


@lru_cache(maxsize=1)
def energy() -> LearnedEnergy:
    return lv.load(saved_model())


def image(dice: random.Random) -> Any:
    """An image, in one of the forms that people have them in, or what is none."""
    x = torch.rand(1, *SHAPE, generator=torch.Generator().manual_seed(dice.randrange(100)))
    good: tuple[Callable[[], Any], ...] = (
        lambda: x,
        lambda: x.numpy(),
        lambda: x.tolist(),
        lambda: x.double(),
        lambda: x.half(),
        lambda: x.bfloat16(),
        lambda: x.repeat(3, 1, 1, 1),
        lambda: x.transpose(2, 3),
        lambda: x.repeat(1, 1, 1, 2)[..., ::2],
        lambda: x.clone().requires_grad_(),
        lambda: np.asfortranarray(x.numpy()),
    )
    bad: tuple[Callable[[], Any], ...] = (
        lambda: None,
        lambda: "x",
        lambda: 0.5,
        lambda: [],
        lambda: x[:0],
        lambda: x[0],
        lambda: x[..., :7],
        lambda: x.repeat(1, 3, 1, 1),
        lambda: (x * 255).byte(),
        lambda: x > 0.5,
        lambda: x.to(torch.complex64),
        lambda: x * float("nan"),
        lambda: torch.where(x > 0.9, torch.inf, x),
        lambda: x * 255,
        lambda: [[["x"]]],
        lambda: [[1.0], [1.0, 2.0]],
        lambda: np.array([[None]], dtype=object),
        lambda: {},
        lambda: x.numpy().astype("U4"),
        lambda: torch.zeros(1, 1, 0, 8),
        lambda: x.to_sparse(),
        lambda: torch.empty(1, *SHAPE, device="meta"),
    )
    return dice.choice(good if dice.random() < 0.5 else bad)()


def degradation(dice: random.Random) -> Any:
    """A degradation with one of its numbers sensible or not."""

    def value(*good: Any) -> Any:
        return dice.choice(good) if dice.random() < 0.6 else dice.choice(NUMBERS)

    makers: tuple[Callable[[], Any], ...] = (
        lambda: lv.Denoising(value(0.1, 0.5)),
        lambda: lv.Box(value(2, 4), value(0.1)),
        lambda: lv.HalfMask(dice.choice(("bottom", "left", "x", None)), value(2, None), value(0.1)),
        lambda: lv.RandomPixels(value(0.5), value(None), value(0.1)),
        lambda: lv.GaussianBlur(value(0.7), value(0.1), dice.choice(("periodic", "reflecting", "x"))),
        lambda: lv.Defocus(value(1.2), value(0.1)),
        lambda: lv.MotionBlur(value(3, 5), value(0.3), value(0.1)),
        lambda: lv.SuperResolution(value(2, 4), value(0.1)),
        lambda: lv.Inpainting(dice.choice((torch.rand(8, 8) > 0.5, image(dice))), value(0.1)),
        lambda: lv.Blur(dice.choice((torch.full((3, 3), 1 / 9), torch.zeros(3, 3), image(dice))), value(0.1)),
    )
    return dice.choice(makers)()


def covariance(dice: random.Random) -> Any:
    kinds = (lv.SpatialCovariance, lv.FourierCovariance, lv.DCTCovariance)
    shape = dice.choice(((1, 1, 8, 8), (1, 1, 8, 8), (3, 1, 8, 8), (1, 1, 4, 4), (0, 1, 8, 8), (8, 8)))
    values = torch.full(shape, dice.choice((-2.0, 0.0, -20.0, 30.0, float("nan"))))
    return dice.choice(kinds)(values.double() if dice.random() < 0.2 else values)


def measured(dice: random.Random) -> lv.Posterior:
    made = degradation(dice)
    measurement = made.measure(image(dice)) if dice.random() < 0.5 else made.from_raw(image(dice))
    return lv.Posterior(energy(), measurement)


def call(dice: random.Random, folder: Path) -> str:
    """One call of the library."""
    post = measured
    axis = torch.logspace(-2, 0, 5)
    calls: dict[str, Callable[[], Any]] = {
        "mean": lambda: post(dice).mean(),
        "std": lambda: post(dice).std(dice.choice((None, 2, 0, -1)), 2),
        "evidence": lambda: post(dice).evidence(),
        "sample": lambda: post(dice).sample(dice.choice((1, 2, 0, -1, 10**12)), dice.choice((1, 2, 0, 10**12))),
        "posterior.log_prob": lambda: post(dice).log_prob(image(dice), unit=dice.choice(("nats", "bits/dim", "x"))),
        "rank": lambda: post(dice).rank(image(dice)),
        "log_prob": lambda: log_prob(energy(), image(dice)),
        "score_images": lambda: score_images(energy(), image(dice)).log_density,
        "evaluate": lambda: lv.evaluate(energy(), image(dice), covariance(dice)).mean,
        "estimate": lambda: estimate(energy(), image(dice), UnknownNoise(), {"sigma": axis}).log_posterior,
        "restore": lambda: restore(post(dice), samples=dice.choice((0, 1)), path=2).mean,
        "write": lambda: lv.write(folder / "x.png", image(dice)),
        "posterior": lambda: lv.Posterior(dice.choice((None, "x", energy())), dice.choice((None, image(dice)))),
        "load": lambda: lv.load(dice.choice(("", "nope", "x/y/z", folder, folder / "gone", "\x00", "." * 300))),
        "read": lambda: lv.read(dice.choice(("gone", folder, "", "\x00"))),
    }
    name = dice.choice(tuple(calls))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = calls[name]()
    except REFUSALS as error:
        if not str(error).strip():
            raise Wrong(f"{name}: {type(error).__name__} without a word") from error
        return f"{name} refused"
    except Exception as error:
        raise Wrong(f"{name}: {type(error).__name__}: {error}") from error
    if isinstance(answer, Tensor) and not bool(torch.isfinite(answer).all()):
        raise Wrong(f"{name}: the answer is not finite")
    return f"{name} answered"

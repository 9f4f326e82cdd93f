"""Named tasks: their options, their noise, their names."""

from __future__ import annotations

import re

import pytest
import torch

from linverse import degradations as dg
from linverse.degradations.tasks import TASKS, parse_task, task_options

COLOUR_ONLY = {"demosaic"}


@pytest.mark.parametrize("size", [(8, 8), (28, 28), (64, 64), (60, 100)])
@pytest.mark.parametrize("name", TASKS)
def test_every_task_measures_images_of_any_size(name: str, size: tuple[int, int]) -> None:
    x = torch.rand(1, 3 if name in COLOUR_ONLY else 1, *size)
    seen = parse_task(name, size).measure(x)
    assert seen.shape == tuple(x.shape)
    assert bool(seen.residual(x).isfinite().all())


def test_names_carry_no_number() -> None:
    assert not [name for name in TASKS if re.search(r"\d", name)]


@pytest.mark.parametrize("name", TASKS)
def test_sigma_is_an_argument_and_wins_over_the_text(name: str) -> None:
    size = (28, 28)
    for text in (name, f"{name}:sigma=0.5"):
        assert parse_task(text, size, sigma=0.125).sigma == pytest.approx(0.125)
        assert task_options(text, size, sigma=0.125)["sigma"] == 0.125
    assert parse_task(f"{name}:sigma=0.5", size).sigma == pytest.approx(0.5)
    with pytest.raises(ValueError, match="sigma is a standard deviation"):
        parse_task(name, size, sigma=-1.0)


def test_options_reach_the_degradation() -> None:
    blur = parse_task("gauss:std=1.5,sigma=0.25", (28, 28))
    assert isinstance(blur, dg.GaussianBlur)
    assert (blur.std, blur.sigma) == (1.5, 0.25)
    assert parse_task("box", (64, 64)) == dg.Box(46, 1e-3)
    assert parse_task("box:side=20", (64, 64)) == dg.Box(20, 1e-3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("blur", "no task 'blur'; there are denoise, box"),
        ("gauss:width=2", "takes std="),
        ("box:side=x", "is a number"),
    ],
)
def test_tasks_that_mean_nothing_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_task(text, (28, 28))

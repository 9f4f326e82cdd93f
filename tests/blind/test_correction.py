"""Estimates corrected by what the model is wrong by on held-out images: on an energy that is wrong in a known way."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from linverse.blind import Search, UnknownGaussianBlur, corrected, search, simulate
from linverse.blind.search import Axis
from linverse.covariance import Covariance
from linverse.data.digits import load_digits
from linverse.energy import Energy
from linverse.experiments.demo import exact_digits
from linverse.rng import keyed_generator
from linverse.store.references import References

STD, SIGMA, IMAGES = 1.0, 0.03, 12
FAMILY = UnknownGaussianBlur(SIGMA)


class Tilted:
    """An energy plus a share of ½ log det Σ: its evidence prefers blurs that are too narrow."""

    def __init__(self, energy: Energy, share: float) -> None:
        self.energy, self.share = energy, share
        self.shape, self.range, self.gaussian = energy.shape, energy.range, energy.gaussian

    def __call__(self, y: Tensor, cov: Covariance) -> Tensor:
        return self.energy(y, cov) + 0.5 * self.share * cov.logdet()


def searches(energy: Energy, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Search], list[Search]]:
    """As the energy has it, and corrected, for test digits; training digits are its held-out images."""
    pixels = (16 * load_digits("train").batch(torch.arange(40))).round().to(torch.uint8)
    monkeypatch.setattr("linverse.blind.correction.references_of", lambda _: References(pixels, 16))
    plain, better = [], []
    for number in range(IMAGES):
        x = load_digits("test").batch(torch.tensor([number]))
        raw = simulate(FAMILY, x, {"std": STD}, keyed_generator("corrected", number))
        plain.append(search(energy, raw, FAMILY, (Axis("std", 0.3, 3.0, 19),), count=9))
        better.append(corrected(energy, plain[-1], FAMILY))
    return plain, better


def bias(found: list[Search]) -> float:
    return sum(math.log(one.value(one.axes[0]) / STD) for one in found) / len(found)


def covered(found: list[Search]) -> int:
    intervals = [one.interval(one.axes[0]) for one in found]
    return sum(low <= STD <= high for low, high in intervals)


def test_a_known_bias_is_taken_off_and_intervals_cover(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, better = searches(Tilted(exact_digits(), 0.3), monkeypatch)
    assert bias(plain) < -0.05
    assert abs(bias(better)) < 0.4 * abs(bias(plain))
    assert covered(better) >= 0.75 * IMAGES > covered(plain)


def test_without_held_out_images_the_search_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = simulate(FAMILY, load_digits("test").batch(torch.tensor([0])), {"std": STD}, keyed_generator("corrected"))
    found = search(exact_digits(), raw, FAMILY, (Axis("std", 0.3, 3.0, 19),), count=9)
    assert corrected(exact_digits(), found, FAMILY) is found

"""A noisy square of unknown side and level: its posterior where held-out images judge it, and where there are none."""

from __future__ import annotations

import math

import pytest
import torch

from linverse.analytic import DenseGaussian
from linverse.blind import (
    Axis,
    Calibrations,
    CorrectedSearch,
    Given,
    Search,
    UnknownNoiseBox,
    boxes,
    search,
    search_box,
    simulate,
    slope,
)
from linverse.covariance import FourierCovariance
from linverse.rng import keyed_generator
from linverse.store.references import References
from oracles import matrix_of

SHAPE = (1, 12, 12)
SIDE, LEVEL = 8, 0.2
FAMILY = UnknownNoiseBox(1e-3)
AXES = (Axis("side", 2, 12, 3, "whole"), Axis("sigma", 0.02, 2.0, 13, "log"))


def prior(tilt: float) -> DenseGaussian:
    """Power f^−tilt."""
    f = torch.fft.fftfreq(12, dtype=torch.float64)
    power = -0.5 * tilt * torch.log(f[:, None].square() + f[None, :].square() + 0.01) - 5.0
    basis = matrix_of(FourierCovariance(power[None, None]).synthesis, SHAPE)
    return DenseGaussian(torch.full((144,), 0.5).double(), basis @ torch.diag(power.exp().flatten()) @ basis.mT, SHAPE)


def raw_images(count: int) -> list[torch.Tensor]:
    x = prior(2.0).sample(count, keyed_generator("boxes"))
    theta = {"side": float(SIDE), "sigma": LEVEL}
    return [simulate(FAMILY, one[None], theta, keyed_generator("boxes", i)) for i, one in enumerate(x)]


def covered(found: list[Search]) -> int:
    intervals = [one.interval(one.axes[1]) for one in found]
    return sum(low <= LEVEL <= high for low, high in intervals)


def mean_error(found: list[Search]) -> float:
    return sum(math.log(one.value(one.axes[1]) / LEVEL) for one in found) / len(found)


def test_levels_are_judged_by_held_out_images_and_sides_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """An energy that takes rough pictures for the rule finds too little noise on smooth ones, and is too sure of it."""
    held_out = prior(2.0).sample(40, keyed_generator("held out"))
    pixels = (held_out.clamp(0, 1) * 255).round().to(torch.uint8)
    for module in (slope, boxes):
        monkeypatch.setattr(module, "references_of", lambda _: References(pixels))
    wrong, images, kept = prior(0.0), raw_images(24), Calibrations()
    plain = [search(wrong, raw, FAMILY, AXES) for raw in images]
    judged = [search_box(wrong, raw, FAMILY, AXES, kept) for raw in images]
    assert all(isinstance(one, CorrectedSearch) for one in judged)
    assert [one.value(one.axes[0]) for one in judged] == [one.value(one.axes[0]) for one in plain]
    assert [one.interval(one.axes[0]) for one in judged] == [one.interval(one.axes[0]) for one in plain]
    assert abs(mean_error(judged)) < 0.5 * abs(mean_error(plain))
    assert covered(plain) < covered(judged) >= 0.75 * len(images)
    assert 1 <= len(kept) < len(images)


def test_without_held_out_images_the_evidence_is_all() -> None:
    (raw,) = raw_images(1)
    found, plain = (make(prior(2.0), raw, FAMILY, AXES) for make in (search_box, search))
    assert torch.equal(found.final.log_posterior, plain.final.log_posterior)


def test_what_is_known_of_a_family_is_not_asked_for() -> None:
    (raw,) = raw_images(1)
    sigma = torch.tensor([0.1, 0.2])
    given = Given(FAMILY, {"side": 5.0}, ("sigma",)).measurement(raw, {"sigma": sigma})
    both = FAMILY.measurement(raw, {"sigma": sigma, "side": torch.tensor([5.0, 5.0])})
    assert torch.equal(given.log_noise, both.log_noise)

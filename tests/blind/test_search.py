"""Grids that zoom in on an unknown degradation."""

from __future__ import annotations

import math

import pytest
import torch

from linverse.blind import UnknownGaussianBlur, UnknownLineBlur, UnknownNoise, UnknownNoiseBox, estimate
from linverse.blind.search import FAMILIES, Axis, search, simulate, whole_interval
from linverse.covariance import SpatialCovariance
from linverse.degradations import ColouredNoise, Denoising, GaussianBlur
from linverse.experiments.demo import exact_digits
from linverse.rng import keyed_generator
from small import digit


def test_a_search_zooms_in_to_the_posterior_of_a_dense_grid() -> None:
    energy = exact_digits()
    raw = Denoising(0.2).measure(digit(4), keyed_generator(5)).raw
    axes = FAMILIES["noise"].axes((8, 8))
    found = search(energy, raw, UnknownNoise(), axes)
    dense = estimate(energy, raw, UnknownNoise(), {"sigma": torch.logspace(-1.2, -0.3, 800)})
    low, high = dense.interval("sigma")
    assert len(found.rounds) > 1
    assert found.interval(found.axes[0]) == pytest.approx((low, high), abs=0.02 * (high - low))
    assert found.value(found.axes[0]) == pytest.approx(dense.refined("sigma"), rel=1e-3)
    assert found.at_edge() == []


def test_a_search_says_when_its_grid_is_too_short() -> None:
    raw = Denoising(0.2).measure(digit(4), keyed_generator(5)).raw
    found = search(exact_digits(), raw, UnknownNoise(), (Axis("sigma", 0.5, 2, 9, "log"),))
    assert [axis.name for axis in found.at_edge()] == ["sigma"]


def test_how_near_the_end_is_told_by_the_steps_of_the_first_grid() -> None:
    """The same answer between the points: a coarse grid has none below it but its end, a finer one has."""
    raw = Denoising(0.2).measure(digit(4), keyed_generator(5)).raw
    found = search(exact_digits(), raw, UnknownNoise(), (Axis("sigma", 0.12, 3.0, 4, "log"),))
    assert 0.17 < found.value(found.axes[0]) < 0.21
    assert [axis.name for axis in found.at_edge()] == ["sigma"]
    finer = search(exact_digits(), raw, UnknownNoise(), (Axis("sigma", 0.12, 3.0, 9, "log"),))
    assert finer.at_edge() == []


@pytest.mark.parametrize(
    ("axis", "inside", "ends"),
    [
        (Axis("sigma", 0.01, 1, 5, "log"), (0.0179, 0.1, 0.56), (0.01, 0.0176, 0.57, 1)),
        (Axis("std", 0.0, 4, 5), (0.51, 3.49), (-1, 0.49, 3.51, 4)),
        (Axis("side", 2, 7, 3, "whole"), (3, 6), (2, 7)),
        (Axis("angle", 0, 180, 6, periodic=True), (0, 90, 180), ()),
    ],
)
def test_a_value_is_at_an_end_where_no_other_point_is_nearer(
    axis: Axis, inside: tuple[float, ...], ends: tuple[float, ...]
) -> None:
    assert not any(axis.ends_at(value) for value in inside)
    assert all(axis.ends_at(value) for value in ends)


def test_angles_are_found_across_the_end_of_their_axis() -> None:
    energy = exact_digits()
    family, axes = UnknownLineBlur(0.02), FAMILIES["line-blur"].axes((8, 8))
    theta = {"angle": math.radians(178.0), "length": 3.0}
    raw = simulate(family, digit(2), theta, keyed_generator(6))
    found = search(energy, raw, family, axes)
    angle, length = found.axes
    away = (found.value(angle) - 178.0 + 90) % 180 - 90
    assert abs(away) < 10
    assert abs(found.value(length) - 3.0) < 0.5
    low, high = found.interval(angle)
    assert low < found.value(angle) < high
    assert high - low < 40


def test_periodic_axes_do_not_repeat_their_end() -> None:
    axis = Axis("angle", 0, 180, 6, periodic=True)
    assert axis.values().tolist() == [0, 30, 60, 90, 120, 150]
    narrowed = axis.narrowed(torch.tensor([0.0, -50, -50, -50, -50, -3]), 5)
    assert (narrowed.low, narrowed.high, narrowed.periodic) == (-60, 60, False)
    assert Axis("side", 2, 7, 3, "whole").values().tolist() == [2, 3, 4, 5, 6, 7]


def test_intervals_of_whole_numbers_hold_what_they_say() -> None:
    values = torch.arange(2.0, 8.0)
    assert whole_interval(values, torch.tensor([0.0, 0, 1, 0, 0, 0]), 0.9) == (4, 4)
    assert whole_interval(values, torch.tensor([0.04, 0.06, 0.8, 0.06, 0.04, 0]), 0.9) == (3, 5)


def test_simulations_are_those_of_the_degradations() -> None:
    x = digit(1).double()
    blurred = simulate(UnknownGaussianBlur(1e-9), x, {"std": 0.7}, keyed_generator(0))
    assert torch.allclose(blurred, GaussianBlur(0.7).operator(x), atol=2e-4)  # taps beyond four std
    noisy = simulate(UnknownNoiseBox(0.01), x, {"side": 4.0, "sigma": 0.5}, keyed_generator(0)) - x
    levels = torch.full((1, 1, 8, 8), 0.01, dtype=torch.float64)
    levels[:, :, 2:6, 2:6] = 0.5
    white = noisy / levels
    expected = ColouredNoise(SpatialCovariance(2 * levels.log())).measure(x, keyed_generator(0)).raw - x
    assert torch.allclose(white, expected / levels)

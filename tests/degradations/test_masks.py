"""Masks: polarity, alpha, errors; Bayer patterns."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from linverse import degradations as dg
from linverse.rng import keyed_generator
from measured import LIMITS, image, lift
from oracles import matrix_of


def test_true_means_measured() -> None:
    mask = torch.zeros(6, 6, dtype=torch.bool)
    mask[1, 2] = True
    x = image()
    measurement = dg.Inpainting(mask).measure(x)
    assert torch.equal(measurement.measured[0, 0], mask)
    assert torch.equal(measurement.raw[..., 1, 2], x[..., 1, 2])
    assert int((measurement.raw != 0).sum()) == 4  # two images, two channels
    log_variance = measurement.log_variance[0, 0]
    assert bool((log_variance[~mask] == math.inf).all())
    assert math.isfinite(log_variance[1, 2])


@pytest.mark.parametrize(
    ("degradation", "missing"),
    [
        (dg.Box(2), [(2, 2), (2, 3), (3, 2), (3, 3)]),
        (dg.HalfMask("top", 1), [(0, j) for j in range(6)]),
        (dg.HalfMask("bottom", 1), [(5, j) for j in range(6)]),
        (dg.HalfMask("left", 1), [(i, 0) for i in range(6)]),
        (dg.HalfMask("right", 1), [(i, 5) for i in range(6)]),
    ],
)
def test_named_masks_hide_what_they_name(degradation: dg.Masking, missing: list[tuple[int, int]]) -> None:
    hidden = (~degradation.mask_for((6, 6))[0, 0]).nonzero()
    assert [tuple(pair) for pair in hidden.tolist()] == missing


def test_half_mask_hides_one_half_by_default() -> None:
    assert int((~dg.HalfMask("bottom").mask_for((28, 28))).sum()) == 14 * 28


def test_random_pixels_keep_what_they_say() -> None:
    assert int(dg.RandomPixels(0.7).mask_for((10, 10)).sum()) == 30
    assert int(dg.RandomPixels(keep=7).mask_for((10, 10)).sum()) == 7
    a, b, c = (dg.RandomPixels(0.5, seed=seed).mask_for((10, 10)) for seed in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


@pytest.mark.parametrize(
    "convert",
    [
        torch.clone,
        lambda m: m.float(),
        lambda m: m.to(torch.uint8),
        lambda m: m.to(torch.uint8) * 255,
        lambda m: m.float() * 0.97 + 0.01,
        lambda m: m[None],
        lambda m: m[None, None],
        lambda m: torch.stack([torch.zeros_like(m)] * 3 + [m]).to(torch.uint8) * 255,  # RGBA: the alpha counts
        lambda m: torch.stack([~m, m]).float(),  # grey and alpha
        lambda m: torch.stack([m, m, m, torch.ones_like(m)]).to(torch.uint8) * 255,  # painted, opaque everywhere
    ],
    ids=["bool", "float", "0-1", "0-255", "nearly", "CHW", "BCHW", "RGBA", "LA", "painted"],
)
def test_every_way_of_writing_a_mask(convert: Callable[[Tensor], Tensor]) -> None:
    mask = torch.rand(6, 6, generator=keyed_generator("mask")) < 0.5
    assert torch.equal(dg.Inpainting(convert(mask)).mask_for((6, 6))[0, 0], mask)


def test_masks_a_channel_and_a_sample() -> None:
    mask = torch.rand(2, 3, 6, 6, generator=keyed_generator("mask")) < 0.5
    x = image(2, (3, 6, 6))
    measurement = dg.Inpainting(mask, 0.1).measure(x, keyed_generator("v"))
    assert torch.equal(measurement.measured, mask)
    assert measurement.covariance(LIMITS).log_variance.shape == (2, 3, 6, 6)
    assert torch.equal(measurement[1:].measured, mask[1:])
    with pytest.raises(ValueError, match=r"mask has shape \(2, 3, 6, 6\).*\(5, 3, 6, 6\)"):
        dg.Inpainting(mask).measure(image(5, (3, 6, 6)))
    with pytest.raises(ValueError, match=r"does not fit images of shape \(2, 1, 6, 6\)"):
        dg.Inpainting(mask).measure(image(2, (1, 6, 6)))


def test_whatever_stands_at_missing_pixels_is_ignored() -> None:
    mask = torch.ones(6, 6, dtype=torch.bool)
    mask[:, 3:] = False
    data = image()
    spoiled = torch.where(mask, data, torch.full_like(data, math.nan))
    a, b = (dg.Inpainting(mask, 0.1).from_raw(d) for d in (data, spoiled))
    assert torch.equal(a.coefficients, b.coefficients)
    assert torch.equal(a.raw, b.raw)


def test_masks_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match=r"mask has shape \(6, 5\); the image is 6×6"):
        dg.Inpainting(torch.ones(6, 5, dtype=torch.bool)).measure(image())
    with pytest.raises(ValueError, match=r"all missing.*inverted"):
        dg.Inpainting(torch.zeros(6, 6, dtype=torch.bool))
    one_of_two = torch.ones(2, 1, 6, 6, dtype=torch.bool)
    one_of_two[1] = False
    with pytest.raises(ValueError, match="all missing"):
        dg.Inpainting(one_of_two)
    with pytest.raises(ValueError, match="neither 0 nor the maximum"):
        dg.Inpainting(torch.linspace(0, 1, 36).reshape(6, 6))
    with pytest.raises(ValueError, match="black"):
        dg.Inpainting(torch.ones(6, 6) * -1.0)
    with pytest.raises(ValueError, match="NaN"):
        dg.Inpainting(torch.full((6, 6), math.nan))
    with pytest.raises(ValueError, match=r"\[H, W\]"):
        dg.Inpainting(torch.ones(6))


COLOURS = (3, 6, 5)  # an odd side: the pattern is cut there
RED, GREEN, BLUE = range(3)
PATTERNS = {
    "RGGB": [RED, GREEN, GREEN, BLUE],
    "BGGR": [BLUE, GREEN, GREEN, RED],
    "GRBG": [1, 0, 2, 1],
    "GBRG": [1, 2, 0, 1],
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_bayer_pattern_measures_one_colour_a_pixel(pattern: str) -> None:
    degradation, x = dg.Demosaicing(pattern, 0.1), image(2, COLOURS)
    clean = degradation.operator(x)
    for position, channel in enumerate(PATTERNS[pattern]):
        where = (slice(position // 2, None, 2), slice(position % 2, None, 2))
        assert torch.equal(clean[:, 0, *where], x[:, channel, *where])
    mask = degradation.mask_for((6, 5))
    assert torch.equal(mask.sum(dim=1), torch.ones(1, 6, 5, dtype=torch.int64))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_demosaicing_against_the_dense_operator(pattern: str) -> None:
    """HᵀH is diagonal with a λ a channel; adjoint, pseudo-inverse and proximal point are those of the matrix."""
    degradation, x = dg.Demosaicing(pattern, 0.3), image(2, COLOURS)
    measurement = degradation.measure(x, keyed_generator("v"))
    dense = matrix_of(degradation.operator, COLOURS)
    assert dense.shape == (30, 90)
    torch.testing.assert_close(dense.mT @ dense, torch.diag(measurement.gain.square().flatten()))
    assert measurement.covariance(LIMITS).log_variance.shape == (2, *COLOURS)
    u = image(2, COLOURS, seed=1)
    residual = measurement.raw.flatten(1) - u.flatten(1) @ dense.mT
    torch.testing.assert_close(measurement.adjoint(measurement.residual(u)).flatten(1), residual @ dense)
    torch.testing.assert_close(
        measurement.pseudo_inverse().flatten(1), measurement.raw.flatten(1) @ torch.linalg.pinv(dense).mT
    )
    precision = dense.mT @ dense / 0.09 + torch.eye(90, dtype=torch.float64) / 0.7
    wanted = torch.linalg.solve(precision, (measurement.raw.flatten(1) @ dense / 0.09 + u.flatten(1) / 0.7).mT).mT
    torch.testing.assert_close(measurement.proximal(u, 0.7).flatten(1), wanted)
    seen = measurement.measured.expand(2, -1, -1, -1)
    assert torch.equal(lift(measurement, random_fill=False).y[seen], measurement.coefficients[seen])


def test_bayer_patterns_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'RGB'.*RGGB, GRBG"):
        dg.Demosaicing("RGB")
    with pytest.raises(ValueError, match="3 channels"):
        dg.Demosaicing().measure(image(1, (1, 6, 6)))
    with pytest.raises(ValueError, match="a mosaic has 1 channel"):
        dg.Demosaicing().from_raw(image(1, (3, 6, 6)))

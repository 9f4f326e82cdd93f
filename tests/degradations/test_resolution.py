"""Super-resolution in the DCT of blocks."""

from __future__ import annotations

import math

import torch

from linverse import degradations as dg
from linverse.rng import keyed_generator
from measured import LIMITS, image, lift


def test_super_resolution_measures_the_dc_of_each_block() -> None:
    """y_DC = b·raw, λ_DC = b²σ², the rest unobserved (mathematics §1)."""
    x, factor, sigma = image(), 3, 0.05
    measurement = dg.SuperResolution(factor, sigma).measure(x, keyed_generator("v"))
    assert measurement.raw.shape == (2, 2, 2, 2)
    lifted = lift(measurement)
    y = lifted.cov.analysis(lifted.y)
    dc = (..., slice(None, None, factor), slice(None, None, factor))
    torch.testing.assert_close(y[dc], factor * measurement.raw, rtol=1e-12, atol=0)
    torch.testing.assert_close(
        lifted.cov.variance[dc], torch.full((2, 1, 2, 2), 9 * sigma**2, dtype=torch.float64), rtol=1e-12, atol=0
    )
    rest = lifted.cov.variance.flatten(1)[:, (measurement.log_gain == -math.inf).flatten()]
    torch.testing.assert_close(rest, torch.full_like(rest, LIMITS.maximum))

"""linverse: normalised energy models for linear inverse problems.

One model U(y, Σ) ≈ −log p(y|Σ) answers every question about a degraded image: what it most likely was, how sure we are,
what else it could have been, how probable a restoration is, and which degradation made it.
"""

from typing import TYPE_CHECKING, Any

from linverse.covariance import (
    BlockDCTCovariance,
    Covariance,
    DCTCovariance,
    FourierCovariance,
    SpatialCovariance,
    VarianceRange,
)
from linverse.degradations import (
    Blur,
    Box,
    ColouredNoise,
    Degradation,
    Denoising,
    GaussianBlur,
    HalfMask,
    Inpainting,
    MotionBlur,
    RandomPixels,
    SuperResolution,
)
from linverse.energy import Energy, Evaluation, evaluate
from linverse.measurement import Measurement
from linverse.posterior import Posterior

if TYPE_CHECKING:
    from linverse.hub import load

__version__ = "0.1.0"

__all__ = [
    "BlockDCTCovariance",
    "Blur",
    "Box",
    "ColouredNoise",
    "Covariance",
    "DCTCovariance",
    "Degradation",
    "Denoising",
    "Energy",
    "Evaluation",
    "FourierCovariance",
    "GaussianBlur",
    "HalfMask",
    "Inpainting",
    "Measurement",
    "MotionBlur",
    "Posterior",
    "RandomPixels",
    "SpatialCovariance",
    "SuperResolution",
    "VarianceRange",
    "evaluate",
    "load",
]


def __getattr__(name: str) -> Any:
    """`linverse.load` is imported when it is first used: it brings the hub's client with it."""
    if name == "load":
        from linverse.hub import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

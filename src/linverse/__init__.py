"""linverse: normalised energy models for linear inverse problems.

One model U(y, Σ) ≈ −log p(y|Σ) answers every question about a degraded image: what it most likely was, how sure we are,
what else it could have been, how probable a restoration is, and which degradation made it.
"""

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
]

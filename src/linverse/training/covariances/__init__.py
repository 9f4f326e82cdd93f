"""Training distributions over Σ. Each is a frozen dataclass with `sample(n, shape, limits, generator)`; nothing loops over samples."""

from linverse.training.covariances.interface import CovarianceDistribution
from linverse.training.covariances.masks import (
    BayerPatterns,
    Boxes,
    CentreBox,
    HalfMasks,
    Isotropic,
    Patches,
    RandomPixelMasks,
    Strokes,
)
from linverse.training.covariances.mixture import ISOTROPIC, KINDS, Component, Mixture
from linverse.training.covariances.spectra import (
    BoxSuperResolution,
    DefocusBlurs,
    GaussianBlurs,
    MotionBlurs,
    RandomKernels,
    SmoothSpectra,
)

__all__ = [
    "ISOTROPIC",
    "KINDS",
    "BayerPatterns",
    "BoxSuperResolution",
    "Boxes",
    "CentreBox",
    "Component",
    "CovarianceDistribution",
    "DefocusBlurs",
    "GaussianBlurs",
    "HalfMasks",
    "Isotropic",
    "Mixture",
    "MotionBlurs",
    "Patches",
    "RandomKernels",
    "RandomPixelMasks",
    "SmoothSpectra",
    "Strokes",
]

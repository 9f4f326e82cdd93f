"""linverse: normalised energy models for linear inverse problems.

One model U(y, Σ) ≈ −log p(y|Σ) answers every question about a degraded image: what it most likely was, how sure we are,
what else it could have been, how probable a restoration is, and which degradation made it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from linverse.hub import load
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
    "load",
]

# where the names come from: they are imported when they are first used, so that `linverse --help` does not wait for torch
_HOMES = {
    "covariance": (
        "BlockDCTCovariance",
        "Covariance",
        "DCTCovariance",
        "FourierCovariance",
        "SpatialCovariance",
        "VarianceRange",
    ),
    "degradations": (
        "Blur",
        "Box",
        "ColouredNoise",
        "Degradation",
        "Denoising",
        "GaussianBlur",
        "HalfMask",
        "Inpainting",
        "MotionBlur",
        "RandomPixels",
        "SuperResolution",
    ),
    "energy": ("Energy", "Evaluation", "evaluate"),
    "hub": ("load",),
    "measurement": ("Measurement",),
    "posterior": ("Posterior",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = (
    *_HOMES,
    "analytic",
    "baselines",
    "blind",
    "data",
    "information",
    "metrics",
    "sampling",
    "tasks",
    "typicality",
    "units",
)


def __getattr__(name: str) -> Any:
    """A public name, or one of the modules."""
    if name in _HOME_OF:
        return getattr(importlib.import_module(f"linverse.{_HOME_OF[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"linverse.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES, "__version__"])

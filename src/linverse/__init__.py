"""linverse: normalised energy models for linear inverse problems.

One model U(y, Σ) ≈ −log p(y|Σ) answers every question about a degraded image: what it most likely was, how sure we are,
what else it could have been, how probable a restoration is, and which degradation made it.

Before torch is imported, threads that wait are told to sleep instead of spinning (`wait_passively`).
"""

import importlib
import os
import sys
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
    from linverse.data.mask_files import read_mask
    from linverse.data.picture import Picture
    from linverse.data.reading import read
    from linverse.data.writing import write
    from linverse.degradations import (
        MRI,
        Blur,
        Box,
        ColouredNoise,
        Composed,
        CompressedSensing,
        Decolorise,
        Defocus,
        Degradation,
        Demosaicing,
        Denoising,
        GaussianBlur,
        HalfMask,
        Inpainting,
        LinearOperator,
        MotionBlur,
        PowerLawNoise,
        RandomPixels,
        Stacked,
        SuperResolution,
        Tomography,
        VaryingBlur,
    )
    from linverse.energy import Energy, Evaluation, evaluate
    from linverse.measurement import Measurement
    from linverse.posterior import Posterior
    from linverse.report.restoration import plot
    from linverse.store.hub import load

__version__ = "0.2.0"

__all__ = [
    "MRI",
    "BlockDCTCovariance",
    "Blur",
    "Box",
    "ColouredNoise",
    "Composed",
    "CompressedSensing",
    "Covariance",
    "DCTCovariance",
    "Decolorise",
    "Defocus",
    "Degradation",
    "Demosaicing",
    "Denoising",
    "Energy",
    "Evaluation",
    "FourierCovariance",
    "GaussianBlur",
    "HalfMask",
    "Inpainting",
    "LinearOperator",
    "Measurement",
    "MotionBlur",
    "Picture",
    "Posterior",
    "PowerLawNoise",
    "RandomPixels",
    "SpatialCovariance",
    "Stacked",
    "SuperResolution",
    "Tomography",
    "VarianceRange",
    "VaryingBlur",
    "evaluate",
    "load",
    "plot",
    "read",
    "read_mask",
    "write",
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
        "MRI",
        "Decolorise",
        "Composed",
        "Stacked",
        "CompressedSensing",
        "Tomography",
        "VaryingBlur",
        "Blur",
        "Box",
        "ColouredNoise",
        "Defocus",
        "Degradation",
        "Demosaicing",
        "Denoising",
        "GaussianBlur",
        "HalfMask",
        "Inpainting",
        "LinearOperator",
        "MotionBlur",
        "PowerLawNoise",
        "RandomPixels",
        "SuperResolution",
    ),
    "energy": ("Energy", "Evaluation", "evaluate"),
    "data.picture": ("Picture",),
    "data.reading": ("read",),
    "data.mask_files": ("read_mask",),
    "data.writing": ("write",),
    "report.restoration": ("plot",),
    "store.hub": ("load",),
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
    "interop",
    "metrics",
    "sampling",
    "typicality",
    "units",
)


def wait_passively() -> None:
    """Let waiting OpenMP threads sleep, unless the user said how they shall wait or torch has begun already.

    torch's threads spin while they wait for each other. Beside other work they then burn the cores that the others, and the threads they
    wait for, need: a sample of one second took more than forty (benchmarks/threads.py). A few spins before the sleep give nothing.
    OpenMP reads the variables once, when torch is first imported; `OMP_WAIT_POLICY=ACTIVE` in the environment brings the spinning back.
    """
    if "torch" not in sys.modules and not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"


wait_passively()


def __getattr__(name: str) -> Any:
    """A public name, or one of the modules."""
    if name in _HOME_OF:
        return getattr(importlib.import_module(f"linverse.{_HOME_OF[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"linverse.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES, "__version__"])

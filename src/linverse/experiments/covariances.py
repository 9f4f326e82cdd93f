"""Illustrations: covariances of training, of patches, and paths through covariance space (figures scheme_anisotropic, gaussian_kernel,
cov_mask, covariances_autoregressive).

What is drawn is what training draws: samples of `training.covariances`, and the paths of `sampling.paths` for two coefficients, one of
which was measured well. Nothing here is claimed or judged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linverse.covariance import SpatialCovariance, VarianceRange
from linverse.experiments.framework import ExperimentResult
from linverse.progress import Progress
from linverse.rng import keyed_generator
from linverse.sampling import clamped, geometric, linear
from linverse.sampling.paths import autoregressive
from linverse.training.covariances import BoxSuperResolution, CentreBox, GaussianBlurs, HalfMasks, Patches

LIMITS = VarianceRange(1e-9, 1e3)
SIDE, PATCHED = 64, 28
DRAWN = 4


@dataclass(frozen=True)
class CovariancesFound:
    """log₁₀ λ of covariances by kind, [n, H, W] each, and paths of two coefficients as [T+1, 2] in log₁₀ λ."""

    fields: dict[str, Tensor]
    paths: dict[str, Tensor]


def fields() -> dict[str, Tensor]:
    """A few draws of every kind."""
    kinds: dict[str, tuple[Any, int]] = {
        "Gaussian kernel (spectrum)": (GaussianBlurs(), SIDE),
        "super-resolution ×4 (blocks)": (BoxSuperResolution(4), SIDE),
        "centre box": (CentreBox(), SIDE),
        "half mask": (HalfMasks(), SIDE),
        "patches": (Patches(), PATCHED),
    }
    out = {}
    for name, (kind, side) in kinds.items():
        cov = kind.sample(DRAWN, (1, side, side), LIMITS, keyed_generator("covariances", name))
        values = cov.log_variance.mean(dim=1) / math.log(10)
        out[name] = torch.fft.fftshift(values, dim=(1, 2)) if cov.basis == "fourier" else values
    return out


def paths(steps: int = 40) -> dict[str, Tensor]:
    """Paths of two pixels: the first is hidden (λ = 10³), the second was measured with λ = 10⁻²."""
    start = torch.tensor([[[[1e3, 1e-2]]]], dtype=torch.float64).log()
    cov = SpatialCovariance(start)
    isotropic = cov.with_log_variance(torch.full_like(start, math.log(1e3)))
    found = {
        "isotropic": geometric(isotropic, 1e-6, steps),
        "geometric": geometric(cov, 1e-6, steps),
        "clamped": clamped(cov, 1e-6, steps),
        "linear": linear(cov, 1e-6, steps),
        "one after the other": autoregressive(isotropic, 1e-6, 1, levels=steps // 2),
    }
    return {name: path.log_variance[:, 0, 0, 0] / math.log(10) for name, path in found.items()}


def run(out: Path, quick: bool, progress: Progress) -> ExperimentResult:
    """Draw them."""
    found = CovariancesFound(fields(), paths())
    metrics = {f"largest log10 of λ: {name}": float(values.max()) for name, values in found.fields.items()}
    progress("covariances", 1, 1)
    paper = {
        "source": "figures scheme_anisotropic, gaussian_kernel, cov_mask, covariances_autoregressive",
        "claims": [],
        "figures": {},
    }
    return ExperimentResult(metrics, paper, found)

"""Pixel metrics, one value per image; both are better when higher.

    PSNR = −10 log₁₀ mean((x − x₀)²)  in dB, for pixels in [0, 1]; +∞ for equal images;
    SSIM = mean over 11×11 Gaussian windows (std 1.5) of (2μμ₀ + c₁)(2σ₁₂ + c₂) / ((μ² + μ₀² + c₁)(σ² + σ₀² + c₂)),  c = (0.01², 0.03²).
Wang et al., "Image quality assessment", IEEE TIP 13 (2004). SSIM is torchmetrics': channels are averaged, and windows at the border
see the image mirrored (the authors' Matlab code leaves those windows out: up to 0.003 apart).
"""

from __future__ import annotations

from torch import Tensor

from linverse.extras import require
from linverse.metrics.images import check_pair

SSIM_MARGIN = 5  # half a window: the mirrored border must fit into the image


def psnr(x: Tensor, reference: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB, [B], float64."""
    check_pair(x, reference)
    return decibels((x.double() - reference.double()).square().mean(dim=(1, 2, 3)))


def decibels(mse: Tensor) -> Tensor:
    """−10 log₁₀ of a mean squared error of pixels in [0, 1]."""
    return -10 * mse.log10()


def ssim(x: Tensor, reference: Tensor) -> Tensor:
    """Structural similarity, [B], float64."""
    check_pair(x, reference)
    height, width = x.shape[-2:]
    if min(height, width) <= SSIM_MARGIN:
        raise ValueError(f"images are {height}×{width}; SSIM needs more than {SSIM_MARGIN} pixels a side")
    similarity = require("torchmetrics.functional.image", "evaluate").structural_similarity_index_measure
    values: Tensor = similarity(x.double(), reference.double(), data_range=1.0, reduction="none")
    return values.reshape(len(x))

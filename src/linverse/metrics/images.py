"""What every image metric takes: [B, C, H, W], floating point, pixels in [0, 1].

A restoration may overshoot [0, 1] a little (noise, ringing), so values in [−0.5, 1.5] pass; beyond that they are surely on another
scale ([0, 255], [−1, 1]), and a metric of them would be wrong without looking wrong.
"""

from __future__ import annotations

from torch import Tensor

LOWEST, HIGHEST = -0.5, 1.5


def check_images(images: Tensor, name: str = "images") -> None:
    """Refuse what is not a batch of images in [0, 1]."""
    shape = tuple(images.shape)
    if images.ndim != 4 or 0 in shape:
        raise ValueError(f"{name} has shape {shape}; metrics take batches [B, C, H, W] with at least one image")
    if not images.is_floating_point():
        raise ValueError(f"{name} is {images.dtype}; metrics take floating point pixels in [0, 1]: use {name} / 255")
    low, high = float(images.min()), float(images.max())
    if not (low >= LOWEST and high <= HIGHEST):  # written so that NaN is refused too
        raise ValueError(
            f"{name} has values in [{low:.4g}, {high:.4g}]; metrics take pixels in [0, 1]. {_advice(low, high)}"
        )


def _advice(low: float, high: float) -> str:
    """What to do about pixels in [low, high]."""
    if not (abs(low) < float("inf") and abs(high) < float("inf")):
        return "Find where the restoration became non-finite."
    if 100 < high < 256 and low > LOWEST:
        return "They look like [0, 255]: divide by 255."
    if low >= -1 and high <= 1:
        return "They look like [-1, 1]: use (x + 1) / 2."
    return "Rescale them, or clamp(0, 1) if a restoration overshoots."


def check_pair(x: Tensor, reference: Tensor) -> None:
    """Refuse two batches that cannot be compared image by image."""
    check_images(x, "x")
    check_images(reference, "reference")
    if x.shape != reference.shape:
        raise ValueError(f"x has shape {tuple(x.shape)} and reference {tuple(reference.shape)}; they must be the same")


def to_rgb(images: Tensor) -> Tensor:
    """Grey [B, 1, H, W] repeated to three channels; colour as it is. Networks trained on photographs take nothing else."""
    if images.shape[1] not in (1, 3):
        raise ValueError(f"images have {images.shape[1]} channels; perceptual networks take 1 (grey) or 3 (RGB)")
    return images.expand(-1, 3, -1, -1)

"""Make a picture smaller, as a camera with larger pixels would have taken it.

Light adds up, sRGB values do not: pixels are averaged in linear light, v → ((v + 0.055)/1.055)^2.4, and encoded again; averaging
the encoded values instead would darken fine bright texture. The kernel is Hamming's windowed sinc with a support of two new pixels:
antialiased, nearly as sharp as Lanczos and nowhere negative, because a negative lobe in linear light makes black halos beside
highlights. Reduced by 1.5 or more, a JPEG's 8×8 blocks, its halved chroma and most of a camera's noise are gone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


def linear_light(encoded: NDArray[np.float32]) -> NDArray[np.float32]:
    """sRGB values in [0, 1] → light."""
    return np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4).astype(np.float32)


def encoded_light(light: NDArray[np.float32]) -> NDArray[np.float32]:
    """Light → sRGB values in [0, 1]."""
    clipped = np.clip(light, 0, 1)
    return np.where(clipped <= 0.0031308, 12.92 * clipped, 1.055 * clipped ** (1 / 2.4) - 0.055).astype(np.float32)


LEAST_REDUCTION = 1.5  # of files that were compressed with loss
LARGEST_SIDE, SMALLEST_SIDE = 768, 256  # of the short side, after the reduction
LARGEST_OWN_SIDE = 1024  # of the short side, where nothing asks for a reduction but memory
LIGHT_OF_BYTE = linear_light(np.linspace(0, 1, 256, dtype=np.float32))


def training_size(height: int, width: int, *, lossy: bool) -> tuple[int, int]:
    """The size at which a picture is learnt from.

    Reduced by 1.5 or more, to a short side of at most 768, if it was compressed with loss; else to a short side of at most 1024.
    """
    short = min(height, width)
    factor = max(LEAST_REDUCTION, short / LARGEST_SIDE) if lossy else max(1.0, short / LARGEST_OWN_SIDE)
    return max(1, round(height / factor)), max(1, round(width / factor))


def reduce(pixels: Bytes, size: tuple[int, int]) -> Bytes:
    """Bytes [H, W, C] or [H, W] at a smaller size (height, width)."""
    from PIL import Image

    if size[0] > pixels.shape[0] or size[1] > pixels.shape[1]:
        raise ValueError(f"{pixels.shape[0]}×{pixels.shape[1]} pixels cannot be reduced to {size[0]}×{size[1]}")
    if size == pixels.shape[:2]:
        return pixels
    planes = pixels[..., None] if pixels.ndim == 2 else pixels
    out = np.empty((*size, planes.shape[2]), dtype=np.uint8)
    for channel in range(planes.shape[2]):
        light = Image.fromarray(LIGHT_OF_BYTE[planes[..., channel]])
        smaller = np.asarray(light.resize((size[1], size[0]), Image.Resampling.HAMMING))
        out[..., channel] = np.rint(255 * encoded_light(smaller))
    return out[..., 0] if pixels.ndim == 2 else out

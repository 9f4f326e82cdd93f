"""Is this a drawing? Are these two the same picture? Simple measures that answer well enough for a collection of photographs.

- `flatness`: the share of 2×2 blocks whose four pixels are equal. Film and sensors are never that quiet, brushes and vector
  programs are.
- `Signature`: the picture at 16×16 pixels in colour. Two are the same picture when their signatures differ by 8 of 255 levels on
  average at most, the one mirrored or not: that survives scaling, compression and slight cropping. They show the same scene,
  probably, below 25 levels and with a correlation above 0.8.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
SIDE = 16
SAME_LEVELS = 8.0
SCENE_LEVELS, SCENE_CORRELATION = 25.0, 0.8


def flatness(pixels: Bytes) -> float:
    """The share of 2×2 blocks of equal pixels, [H, W, C]; blocks at the ends of the scale (clipped light, night) do not count."""
    height, width = pixels.shape[0] // 2 * 2, pixels.shape[1] // 2 * 2
    blocks = pixels[:height, :width].reshape(height // 2, 2, width // 2, 2, -1)
    spread = blocks.max(axis=(1, 3)) - blocks.min(axis=(1, 3))
    middle = blocks[:, 0, :, 0].astype(np.float32).mean(axis=-1)
    inside = (middle > 16) & (middle < 240)
    return float(((spread.max(axis=-1) == 0) & inside).mean())


@dataclass(frozen=True, eq=False)
class Signature:
    """A picture at 16×16, float32 [16, 16, 3]."""

    values: NDArray[np.float32]

    def same_picture(self, other: Signature) -> bool:
        """Whether the other is this picture again, mirrored or not."""
        return min(float(np.abs(self.values - mirrored).mean()) for mirrored in other.mirrored()) <= SAME_LEVELS

    def same_scene(self, other: Signature) -> bool:
        """Whether the other probably shows the same from nearly the same place."""
        return any(self._resembles(mirrored) for mirrored in other.mirrored())

    def mirrored(self) -> tuple[NDArray[np.float32], ...]:
        """The four mirrorings."""
        return self.values, self.values[::-1], self.values[:, ::-1], self.values[::-1, ::-1]

    def _resembles(self, values: NDArray[np.float32]) -> bool:
        if float(np.abs(self.values - values).mean()) > SCENE_LEVELS:
            return False
        mine, other = self.values.mean(axis=2).ravel(), values.mean(axis=2).ravel()
        spread = float(mine.std() * other.std())
        covariance = float(((mine - mine.mean()) * (other - other.mean())).mean())
        return covariance >= SCENE_CORRELATION * spread


def signature(pixels: Bytes) -> Signature:
    """The signature of a colour picture [H, W, 3]."""
    from PIL import Image

    small = Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.BOX)
    return Signature(np.asarray(small).astype(np.float32))

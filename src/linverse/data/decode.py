"""A picture of any kind → bytes [C, H, W]: 8 bits, grey or RGB, of the size that is asked for.

The size is reached by scaling the picture (Lanczos, antialiased) until it just covers H×W, then cutting out the centre: for a
square this is "short side to size, then centre crop". Nothing here is random. Grey is the ITU-R 601 luma. Transparency is
composited on black, where it equals premultiplied colour, *before* scaling. Sixteen bits v become round(v/257).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from linverse.data.reading import LARGEST, Raw, read_raw, shown

if TYPE_CHECKING:
    from PIL.Image import Image

Bytes = NDArray[np.uint8]
Shape = tuple[int, int, int]
MODES = {1: "L", 3: "RGB"}


@dataclass(frozen=True)
class PixelFormat:
    """What is asked of each picture; None leaves it as it is."""

    size: tuple[int, int] | None = None  # height, width
    channels: int | None = None
    upscale: bool = False  # whether pictures that are too small may be enlarged

    def __post_init__(self) -> None:
        if self.channels not in (None, 1, 3):
            raise ValueError(f"channels is 1 (grey) or 3 (RGB); got {self.channels}")
        if self.size is not None and min(self.size) < 1:
            raise ValueError(f"size is at least 1×1; got {self.size}")

    def shape(self, native: Shape) -> Shape:
        """[C, H, W] of what becomes of an image of the shape `native`."""
        height, width = self.size or native[1:]
        return self.channels or native[0], height, width


@dataclass(frozen=True)
class Decoded:
    """Pixels [C, H, W] and whether there was transparency in them."""

    pixels: Bytes
    transparent: bool

    @property
    def shape(self) -> Shape:
        """[C, H, W]."""
        channels, height, width = self.pixels.shape
        return channels, height, width


def decode(path: Path, wanted: PixelFormat) -> Decoded:
    """Read one image file; whatever is wrong with it, the error names it."""
    from PIL import Image

    try:
        values, transparent = eight_bits(read_raw(path, LARGEST))
        picture = Image.fromarray(values[..., 0] if values.shape[2] == 1 else values)
        return Decoded(_planar(fit(picture, wanted)), transparent)
    except ValueError as error:
        raise ValueError(
            f"image {shown(path)}: {str(error).removeprefix(f'{shown(path)} cannot be read: ')}"
        ) from error


def conform(images: Bytes, wanted: PixelFormat) -> Bytes:
    """The same for images already in memory, [N, C, H, W]."""
    from PIL import Image

    if wanted.shape(images.shape[1:]) == images.shape[1:]:
        return images
    pictures = (Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)) for image in images)
    return np.stack([_planar(fit(picture, wanted)) for picture in pictures])


def eight_bits(raw: Raw) -> tuple[Bytes, bool]:
    """Values of any depth as bytes [H, W, C], and whether transparency was composited on black."""
    if raw.depth is None or raw.window is None:
        raise ValueError(f"pixels of {raw.values.dtype} have no agreed white; convert it to 8 or 16 bits")
    top = 2.0**raw.depth - 1
    values = raw.values if raw.depth == 8 else np.rint(raw.values * (255 / top))
    if raw.alpha is None or bool((raw.alpha == top).all()):
        return values.astype(np.uint8), False
    return np.rint(values * (raw.alpha[..., None] / top)).astype(np.uint8), True


def fit(image: Image, wanted: PixelFormat) -> Image:
    """Scale an 8-bit picture until it just covers the size, cut out the centre, and set the number of channels."""
    from PIL.Image import Resampling

    if wanted.channels is not None:
        image = image.convert(MODES[wanted.channels])
    if wanted.size is None:
        return image
    height, width = wanted.size
    scale = max(height / image.height, width / image.width)
    if scale > 1 and not wanted.upscale:
        raise ValueError(
            f"{image.height}×{image.width} is smaller than the size {height}×{width} (upscale=True enlarges)"
        )
    if scale != 1:
        covering = max(width, round(image.width * scale)), max(height, round(image.height * scale))
        image = image.resize(covering, Resampling.LANCZOS)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def _planar(image: Image) -> Bytes:
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))

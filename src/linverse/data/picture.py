"""A picture of a user's: its pixels, and what is known of how they were made.

Pixels are [1, C, H, W], float32, 0 black and 1 white. A file of b bits holds clip(round(v·(2ᵇ − 1))): `step` is the width of its
levels, and a pixel at the lowest or highest level says only "at most" or "at least" that (mathematics §12): `clipped`. A `Picture`
can be given wherever an image is taken: it turns into its pixels by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Size = tuple[int, int]
LUMA = (0.299, 0.587, 0.114)  # ITU-R 601


@dataclass(frozen=True, eq=False)
class Picture:
    """What was read from a file.

    >>> import torch
    >>> photo = Picture(torch.rand(1, 3, 4, 6), "photo.png", depth=8)
    >>> photo
    Picture(photo.png: 4×6, colour, 8 bits)
    >>> photo.grey().pixels.shape
    torch.Size([1, 1, 4, 6])
    """

    pixels: Tensor
    name: str = ""
    depth: int | None = None  # bits of each value; None: floating point, nothing was rounded
    alpha: Tensor | None = None  # [1, 1, H, W], 0 transparent … 1 opaque; None: opaque everywhere
    notices: tuple[str, ...] = ()  # what a user should know about the reading
    step: float | None = None  # the distance of two levels in units of the pixels; by default that of `depth`

    def __post_init__(self) -> None:
        if self.pixels.ndim != 4 or len(self.pixels) != 1 or not self.pixels.is_floating_point():
            raise ValueError(
                f"pixels are floating point [1, C, H, W]; got {self.pixels.dtype} {tuple(self.pixels.shape)}"
            )
        if self.step is None and self.depth is not None:
            object.__setattr__(self, "step", 1 / (2**self.depth - 1))

    def __repr__(self) -> str:
        kind = {1: "grey", 3: "colour"}.get(self.channels, f"{self.channels} channels")
        bits = "floating point" if self.depth is None else f"{self.depth} bits"
        clear = "" if self.alpha is None else ", with transparency"
        return f"Picture({self.name}: {self.size[0]}×{self.size[1]}, {kind}, {bits}{clear})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """The pixels, for whoever asks for an array."""
        array = self.pixels.numpy()
        return array.astype(dtype) if dtype is not None else array.copy() if copy else array

    @property
    def channels(self) -> int:
        """1 grey, 3 colour."""
        return self.pixels.shape[1]

    @property
    def size(self) -> Size:
        """Height and width."""
        return self.pixels.shape[2], self.pixels.shape[3]

    @property
    def clipped(self) -> Tensor:
        """True where a pixel stands at the end of its scale, [1, C, H, W]: the light may have been weaker or stronger than that."""
        if self.depth is None:
            return torch.zeros_like(self.pixels, dtype=torch.bool)
        return (self.pixels <= 0) | (self.pixels >= 1)

    def grey(self) -> Picture:
        """One channel: the luma of a colour picture, which lies on no lattice any more."""
        if self.channels == 1:
            return self
        if self.channels != 3:
            raise ValueError(f"{self.name} has {self.channels} channels; grey is made of 3")
        weights = torch.tensor(LUMA, dtype=self.pixels.dtype)[:, None, None]
        return replace(self, pixels=(self.pixels * weights).sum(dim=1, keepdim=True), depth=None, step=None)

    def colour(self) -> Picture:
        """Three channels: those of a grey picture are equal."""
        return self if self.channels == 3 else replace(self, pixels=self.pixels.expand(1, 3, -1, -1).contiguous())

    def resized(self, size: Size) -> Picture:
        """Scaled (Lanczos, antialiased) until it just covers the size (height, width), then cut to its centre."""
        if size == self.size:
            return self
        alpha = None if self.alpha is None else cover(self.alpha, size).clamp(0, 1)
        note = f"{self.size[0]}×{self.size[1]} scaled and cropped to {size[0]}×{size[1]}"
        pixels = cover(self.pixels, size)
        if self.depth is not None:  # no overshoot beyond what the file could say
            pixels = pixels.clamp(0, 1)
        return replace(self, pixels=pixels, alpha=alpha, depth=None, step=None, notices=(*self.notices, note))


def covering_size(old: Size, new: Size) -> Size:
    """The smallest size of the old proportions that covers the new one."""
    scale = max(new[0] / old[0], new[1] / old[1])
    return max(new[0], round(old[0] * scale)), max(new[1], round(old[1] * scale))


def centre(values: Tensor, size: Size) -> Tensor:
    """The middle of [..., H, W]."""
    top, left = (values.shape[-2] - size[0]) // 2, (values.shape[-1] - size[1]) // 2
    return values[..., top : top + size[0], left : left + size[1]].contiguous()


def cover(values: Tensor, size: Size) -> Tensor:
    """[1, C, H, W] scaled until it covers a size and cut to its centre."""
    from PIL import Image

    height, width = covering_size((values.shape[2], values.shape[3]), size)
    planes = [
        np.array(Image.fromarray(plane.float().numpy()).resize((width, height), Image.Resampling.LANCZOS))
        for plane in values[0]
    ]
    return centre(torch.from_numpy(np.stack(planes))[None], size)

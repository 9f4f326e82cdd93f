"""Pillow's pictures as tensors: their mode says what their numbers mean, which an array of integers does not.

    1, L, RGB   8 bits and fewer: v/255 (black 0, white 1)
    I;16        16 bits: v/65535
    F           floating point: taken for pixels in [0, 1] as it is
Whatever else would have to be guessed (transparency, palettes, other colour spaces, 32-bit integers, several frames) is refused by name;
`linverse.read` reads such files and says what it made of them. Pixels come as Pillow holds them: if the file's EXIF says that the picture
is to be turned and nobody has, a warning says so.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

WHITE = {"1": 1, "L": 255, "RGB": 255, "I;16": 65535, "F": 1}
ORIENTATION = 0x0112  # the tag of EXIF


def is_pillow(values: object) -> bool:
    """Whether something is a picture of Pillow's, which is not imported for the question."""
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(values, pillow.Image)


def from_pillow(image: Any, name: str = "image") -> Tensor:
    """Pixels [1, C, H, W] in [0, 1], float32.

    >>> from PIL import Image
    >>> from_pillow(Image.new("RGB", (2, 1), (255, 0, 51)))[0, :, 0, 0]
    tensor([1.0000, 0.0000, 0.2000])
    """
    if image.mode not in WHITE or "transparency" in image.info:
        clear = " with transparency" if "transparency" in image.info else ""
        raise ValueError(
            f"{name} is a Pillow picture of mode {image.mode}{clear}; the modes {', '.join(WHITE)} are taken. Convert it, e.g. "
            "image.convert('RGB'), which drops transparency, or read the file with linverse.read"
        )
    frames = getattr(image, "n_frames", 1)
    if frames > 1 and image.format != "MPO":  # MPO: a photograph and its preview
        raise ValueError(f"{name} is a Pillow picture of {frames} frames; give one of them: image.copy()")
    if image.getexif().get(ORIENTATION, 1) != 1:
        warnings.warn(
            f"{name} is to be turned, its EXIF says, and is taken as it lies: PIL.ImageOps.exif_transpose(image) turns it",
            stacklevel=3,
        )
    return (planes(image).to(torch.float32) / WHITE[image.mode])[None]


def planes(image: Any) -> Tensor:
    """The numbers of a picture as they are, [C, H, W]."""
    values = torch.from_numpy(np.array(image))
    return values[None] if values.ndim == 2 else values.movedim(-1, 0).contiguous()


def batch_from_pillow(images: list[Any] | tuple[Any, ...], name: str = "image") -> Tensor:
    """Pictures of one size and kind, [B, C, H, W]."""
    tensors = [from_pillow(image, f"{name} {number}") for number, image in enumerate(images)]
    shapes = {tuple(tensor.shape[1:]) for tensor in tensors}
    if len(shapes) > 1:
        found = ", ".join("×".join(map(str, shape)) for shape in sorted(shapes))
        raise ValueError(f"{name} holds pictures of several kinds: {found}; a batch has one")
    return torch.cat(tensors)

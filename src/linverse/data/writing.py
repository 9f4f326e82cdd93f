"""`write(path, picture)`: a picture into a file, at its own size and depth, without loss: PNG, TIFF or numpy's .npy."""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linverse.data.deep_png import encode_deep
from linverse.data.picture import Picture
from linverse.data.reading import PathLike, shown
from linverse.degradations.base import ImageLike, as_tensor
from linverse.extras import require
from linverse.files import write_whole

DEPTHS = (8, 16)
Levels = NDArray[np.uint16] | NDArray[np.uint8]  # [H, W, C]


def write(path: PathLike, picture: Picture | ImageLike, depth: int | None = None) -> None:
    """Write pixels [1, C, H, W] or [C, H, W] in [0, 1].

    The file's name says the format: .png and .tif of 8 or 16 bits (`depth`; by default the picture's own, of a tensor 8), clipped to
    [0, 1] and rounded, with the picture's transparency; .npy holds float32 as it is.
    """
    file = Path(os.fsdecode(path))
    pixels, _, _ = _parts(picture)
    ending = file.suffix.lower()
    if ending == ".npy":
        buffer = BytesIO()
        np.save(buffer, pixels.float().numpy()[None])  # [1, C, H, W]: no doubt about its axes
        write_whole(file, buffer.getvalue())
        return
    if ending not in (".png", ".tif", ".tiff"):
        raise ValueError(f"{shown(file)}: pictures are written as .png, .tif or .npy, without loss")
    write_whole(file, encoded(picture, depth, tiff=ending != ".png"))


def encoded(picture: Picture | ImageLike, depth: int | None = None, *, tiff: bool = False) -> bytes:
    """The content of a PNG or TIFF file, as `write` makes it."""
    pixels, alpha, own = _parts(picture)
    bits = depth or (8 if own is None or own <= 8 else 16)
    if bits not in DEPTHS:
        raise ValueError(f"depth is 8 or 16 bits; got {depth}")
    planes = pixels if alpha is None else torch.cat([pixels, alpha])
    values = quantised(planes, bits)
    return _tiff(values, alpha is not None) if tiff else _png(values)


def quantised(pixels: Tensor, depth: int) -> Levels:
    """round(v·(2ᵇ − 1)) of pixels [C, H, W], clipped, as [H, W, C]."""
    if not bool(torch.isfinite(pixels).all()):
        raise ValueError("the picture has NaN or infinite pixels; only .npy can hold them")
    top = 2**depth - 1
    values = (pixels.double().clamp(0, 1) * top).round().permute(1, 2, 0).numpy()
    return values.astype(np.uint8 if depth == 8 else np.uint16)


def _parts(picture: Picture | ImageLike) -> tuple[Tensor, Tensor | None, int | None]:
    """Pixels [C, H, W], alpha [1, H, W] and depth."""
    pixels, alpha, depth = (
        (picture.pixels, picture.alpha, picture.depth)
        if isinstance(picture, Picture)
        else (as_tensor(picture, "picture"), None, None)
    )
    pixels = pixels.detach().cpu()
    if pixels.ndim == 4 and len(pixels) == 1:
        pixels = pixels[0]
    if pixels.ndim != 3 or pixels.shape[0] not in (1, 3) or pixels.numel() == 0:
        raise ValueError(f"one picture is [1, C, H, W] or [C, H, W] with C = 1 or 3; got {tuple(pixels.shape)}")
    return pixels, None if alpha is None else alpha[0].to(pixels.dtype), depth


def _png(values: Levels) -> bytes:
    from PIL import Image

    if values.dtype == np.uint16:
        return encode_deep(values.astype(np.uint16))
    buffer = BytesIO()
    Image.fromarray(values[..., 0] if values.shape[2] == 1 else values).save(buffer, format="PNG")
    return buffer.getvalue()


def _tiff(values: Levels, has_alpha: bool) -> bytes:
    tifffile = require("tifffile", "science")
    buffer = BytesIO()
    tifffile.imwrite(
        buffer,
        values[..., 0] if values.shape[2] == 1 else values,
        photometric="rgb" if values.shape[2] >= 3 else "minisblack",
        extrasamples=["unassalpha"] if has_alpha else None,
        compression="zlib",
        metadata=None,
    )
    return buffer.getvalue()

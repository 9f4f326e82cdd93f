"""A user's files: pictures in (fitted to the model, saying what was done), pictures out."""

from __future__ import annotations

from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from linverse.data.decode import PixelFormat, decode

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")


def read_image(path: Path, shape: tuple[int, int, int], console: Console, *, resize: bool = False) -> Tensor:
    """A picture as [1, C, H, W] in [0, 1] for a model of the given shape.

    Colour is converted with a notice; another size is refused unless `resize`, and then announced.
    """
    if not path.is_file():
        raise ValueError(f"there is no image {path}")
    channels, height, width = shape
    native = decode(path, PixelFormat()).shape
    if native[1:] != (height, width) and not resize:
        raise ValueError(
            f"{path} is {native[1]}×{native[2]}; the model takes {height}×{width} images. --resize scales and crops it to fit"
        )
    if native[1:] != (height, width):
        console.print(f"{path.name}: {native[1]}×{native[2]} scaled and cropped to {height}×{width}", highlight=False)
    if native[0] != channels:
        console.print(f"{path.name}: converted from {'colour' if native[0] == 3 else 'grey'}", highlight=False)
    picture = decode(path, PixelFormat((height, width), channels, upscale=resize))
    return torch.from_numpy(picture.pixels.copy()).float()[None] / 255


def read_mask_file(path: Path, size: tuple[int, int]) -> Tensor:
    """A mask picture as boolean [1, 1, H, W], white (or opaque) = measured."""
    import numpy as np
    from PIL import Image

    from linverse.degradations import read_mask

    if not path.is_file():
        raise ValueError(f"there is no mask {path}")
    with Image.open(path) as source:
        has_alpha = "A" in source.getbands() or "transparency" in source.info
        pixels = np.asarray(source.convert("RGBA" if has_alpha else "L"))
    planar = torch.from_numpy(pixels.copy())
    planar = planar[None] if planar.ndim == 2 else planar.permute(2, 0, 1)
    if tuple(planar.shape[1:]) != size:
        raise ValueError(f"mask {path} has shape {tuple(planar.shape[1:])}; the model takes {size[0]}×{size[1]} images")
    return read_mask(planar)


def expand_paths(paths: list[Path]) -> list[Path]:
    """Files as given; folders replaced by the pictures in them."""
    out: list[Path] = []
    for path in paths:
        if path.is_dir():
            out += sorted(p for p in path.rglob("*") if p.suffix.lower() in IMAGE_SUFFIXES)
        else:
            out.append(path)
    if not out:
        raise ValueError(f"no pictures in {', '.join(map(str, paths))}")
    return out


def write_image(path: Path, x: Tensor) -> None:
    """[C, H, W] in [0, 1] → an 8-bit picture."""
    from PIL import Image

    pixels = (x.clamp(0, 1) * 255).round().to(torch.uint8)
    array = pixels[0].numpy() if len(pixels) == 1 else pixels.permute(1, 2, 0).numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path)

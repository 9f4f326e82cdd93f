"""A user's pictures, masks and arrays as tensors: fitted to a model, and saying what was done to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from linverse.data.decode import PixelFormat, conform, decode

Shape = tuple[int, int, int]
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")


def read_image(
    path: Path,
    shape: Shape,
    tell: Callable[[str], None] = print,
    *,
    resize: bool = False,
    wants: str = "the model takes {} images",
) -> Tensor:
    """A picture as [1, C, H, W] in [0, 1] for a model of the given shape; a numpy array (.npy) as it is.

    Colour is converted and another size is scaled (with `resize`; else it is refused), and `tell` is told so. `wants` says who takes
    which size.
    """
    if not path.is_file():
        what = "is a folder, not an image" if path.is_dir() else "does not exist"
        raise ValueError(f"{path} {what}")
    if path.suffix.lower() == ".npy":
        return read_array(path, shape, wants)
    channels, height, width = shape
    picture = decode(path, PixelFormat())
    native = picture.shape
    if native[1:] != (height, width) and not resize:
        wanted = wants.format(f"{height}×{width}")
        raise ValueError(f"{path} is {native[1]}×{native[2]}; {wanted}. --resize scales and crops it to fit")
    if native[1:] != (height, width):
        tell(f"{path.name}: {native[1]}×{native[2]} scaled and cropped to {height}×{width}")
    if native[0] != channels:
        tell(f"{path.name}: converted from {'colour to grey' if native[0] == 3 else 'grey to colour'}")
    pixels = conform(picture.pixels[None], PixelFormat((height, width), channels, upscale=resize))
    return torch.from_numpy(pixels.copy()).float() / 255


def read_array(path: Path, shape: Shape, wants: str = "the model takes {} images") -> Tensor:
    """A numpy array [H, W] or [C, H, W] of pixels as [1, C, H, W]: noise may reach beyond [0, 1], as no 8-bit picture can show it."""
    import numpy as np

    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:  # numpy would advise to unpickle it: nothing of a user's is
        raise ValueError(f"{path} holds no numpy array of numbers") from error
    if array.dtype == np.uint8:
        array = array / 255
    if array.dtype.kind != "f":
        raise ValueError(f"{path} holds {array.dtype}; pixels are floating-point numbers in [0, 1], or bytes")
    x = torch.from_numpy(array.astype(np.float32))
    x = x[None] if x.ndim == 2 else x[0] if x.ndim == 4 and len(x) == 1 else x
    if tuple(x.shape) != shape:
        raise ValueError(f"{path} has shape {array.shape}; {wants.format('×'.join(map(str, shape)))}")
    return x[None]


def read_mask_file(path: Path, size: tuple[int, int]) -> Tensor:
    """A mask picture as boolean [1, 1, H, W], white (or opaque) = measured."""
    import numpy as np
    from PIL import Image

    from linverse.degradations import read_mask

    if not path.is_file():
        raise ValueError(f"the mask {path} does not exist")
    try:
        with Image.open(path) as source:
            has_alpha = "A" in source.getbands() or "transparency" in source.info
            pixels = np.asarray(source.convert("RGBA" if has_alpha else "L"))
    except (OSError, SyntaxError) as error:  # Pillow's decoders raise either
        raise ValueError(f"the mask {path} cannot be read: {error}") from error
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

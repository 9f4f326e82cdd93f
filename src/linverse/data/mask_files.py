"""`read_mask(path)`: which pixels were measured, from a picture: white (or opaque) = measured, black (or transparent) = missing.

It is read with the same care as a picture: turned as its camera says, at its own depth, whatever its format. A mask of another size
than its picture is refused, or scaled with it: reduced, a pixel counts as measured only if all of it was, so that no missing one
leaks in; enlarged, it takes the value of the nearest one.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from linverse.data.picture import Picture, Size, centre, covering_size
from linverse.data.reading import LARGEST, PathLike, as_path, read_raw, shown
from linverse.degradations.masks import read_mask as boolean_mask


def read_mask(
    path: PathLike, like: Picture | Tensor | Size | None = None, *, resize: bool = False, largest: int = LARGEST
) -> Tensor:
    """A mask as boolean [1, 1, H, W], True where measured.

    like    the picture (or its tensor, or height and width) that the mask belongs to: another size is an error …
    resize  … unless it shall be scaled: until it just covers the picture, then cut to its centre, as pictures are
    """
    file = as_path(path)
    raw = read_raw(file, largest)
    top = 2.0**raw.depth - 1 if raw.depth is not None else max(float(np.nanmax(raw.values)), 1e-300)
    planes = raw.values if raw.alpha is None else np.concatenate([raw.values, raw.alpha[..., None]], axis=2)
    values = torch.from_numpy(np.ascontiguousarray(planes.transpose(2, 0, 1)).astype(np.float64) / top)
    if values.shape[0] == 3:  # painted in any colour: what is not black was measured
        values = values.amax(dim=0, keepdim=True)
    try:
        mask = boolean_mask(values)
    except ValueError as error:
        raise ValueError(f"{shown(file)}: {error}") from error
    size = size_of(like)
    if size is None or size == tuple(mask.shape[2:]):
        return mask
    if not resize:
        height, width = mask.shape[2:]
        raise ValueError(f"the mask {shown(file)} is {height}×{width}; the picture is {size[0]}×{size[1]}")
    return resized_mask(mask, size)


def size_of(like: Picture | Tensor | Size | None) -> Size | None:
    """Height and width of a picture, a tensor [..., H, W] or a pair."""
    if like is None or isinstance(like, tuple):
        return like
    return like.size if isinstance(like, Picture) else (like.shape[-2], like.shape[-1])


def resized_mask(mask: Tensor, size: Size) -> Tensor:
    """A boolean mask [1, 1, H, W] scaled until it covers a size and cut to its centre."""
    from PIL import Image

    height, width = covering_size((mask.shape[2], mask.shape[3]), size)
    missing = Image.fromarray((~mask[0, 0]).float().numpy())
    larger = height >= mask.shape[2]
    method = Image.Resampling.NEAREST if larger else Image.Resampling.BOX
    scaled = torch.from_numpy(np.array(missing.resize((width, height), method)))
    return centre((scaled <= 0)[None, None], size)

"""A user's pictures as tensors that fit a model, and what was done to them on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from linverse.data.reading import read, shown

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

    Colour is converted and another size is scaled (with `resize`; else it is refused), and `tell` is told so, as it is of all that `read`
    has to say. `wants` says who takes which size.
    """
    picture = read(path)
    for notice in picture.notices:
        tell(f"{picture.name}: {notice}")
    channels, size = shape[0], shape[1:]
    if picture.size != size:
        if not resize:
            found, wanted = ("×".join(map(str, pair)) for pair in (picture.size, size))
            raise ValueError(f"{shown(path)} is {found}; {wants.format(wanted)}. --resize scales and crops it to fit")
        picture = picture.resized(size)
        tell(f"{picture.name}: {picture.notices[-1]}")
    if picture.channels != channels:
        tell(f"{picture.name}: converted from {'colour to grey' if channels == 1 else 'grey to colour'}")
        picture = picture.grey() if channels == 1 else picture.colour()
    return picture.pixels


def expand_paths(paths: list[Path]) -> list[Path]:
    """Files as given; folders replaced by the pictures in them."""
    out: list[Path] = []
    for path in paths:
        if path.is_dir():
            out += sorted(p for p in path.rglob("*") if p.suffix.lower() in IMAGE_SUFFIXES)
        else:
            out.append(path)
    if not out:
        raise ValueError(f"no pictures in {', '.join(map(shown, paths))}")
    return out

"""A user's pictures as tensors that fit a model, and what was done to them on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from linverse.data.picture import Picture
from linverse.data.reading import read, shown

Shape = tuple[int, int | None, int | None]  # None: any height and width
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")


def read_told(path: Path, tell: Callable[[str], None] = print) -> Picture:
    """A picture; `tell` is told what `read` has to say about it."""
    picture = read(path)
    for notice in picture.notices:
        tell(f"{picture.name}: {notice}")
    return picture


def fitted(
    picture: Picture,
    shape: Shape,
    wants: str = "the model takes {} images",
    tell: Callable[[str], None] = print,
    *,
    resize: bool = False,
) -> Picture:
    """The picture for a model of the given shape: colour converted, another size scaled (with `resize`; else it is refused).

    `tell` is told what was done, `wants` says who takes which size.
    """
    channels, height, width = shape
    if height is not None and width is not None and picture.size != (height, width):
        if not resize:
            found = "×".join(map(str, picture.size))
            raise ValueError(
                f"{shown(Path(picture.name))} is {found}; {wants.format(f'{height}×{width}')}. --resize scales and crops it to fit"
            )
        picture = picture.resized((height, width))
        tell(f"{picture.name}: {picture.notices[-1]}")
    if picture.channels != channels:
        tell(f"{picture.name}: converted from {'colour to grey' if channels == 1 else 'grey to colour'}")
        picture = picture.grey() if channels == 1 else picture.colour()
    return picture


def read_image(
    path: Path,
    shape: Shape,
    tell: Callable[[str], None] = print,
    *,
    resize: bool = False,
    wants: str = "the model takes {} images",
) -> Tensor:
    """A picture as [1, C, H, W] in [0, 1] for a model of the given shape; a numpy array (.npy) as it is."""
    return fitted(read_told(path, tell), shape, wants, tell, resize=resize).pixels


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

"""A visitor's file as a picture: read with care, and reduced where it is larger than is worked on here."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from linverse.data.picture import Picture
from linverse.data.reading import read

MOST_PIXELS = 512 * 512  # of a picture; a larger one is reduced
MOST_READ = 40_000_000  # pixels of a file that is opened at all
Tell = Callable[[str], None]


def open_picture(path: str | Path, tell: Tell) -> Picture:
    """A file of a visitor's; an error names no file of the server."""
    try:
        picture = read(path, largest=MOST_READ)
    except ValueError as error:
        raise ValueError(str(error).replace(str(path), "this picture")) from None
    for notice in picture.notices:
        tell(notice)
    return reduced(picture, tell)


def reduced(picture: Picture, tell: Tell) -> Picture:
    """A picture of at most `MOST_PIXELS`, in its own proportions."""
    height, width = picture.size
    if height * width <= MOST_PIXELS:
        return picture
    scale = math.sqrt(MOST_PIXELS / (height * width))
    size = max(1, int(height * scale)), max(1, int(width * scale))
    tell(f"{height}×{width} pixels are more than this page works on ({MOST_PIXELS:,}): reduced to {size[0]}×{size[1]}")
    return picture.resized(size)

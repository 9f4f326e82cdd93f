"""Numpy's .npy files, judged by their header before memory is asked for.

A header of a few bytes may announce terabytes. Here the announced size must be what the file holds and at most what is allowed; arrays of
objects are refused, because reading them would run code.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAGIC = b"\x93NUMPY"
NUMBERS = "biuf"  # booleans, integers, floating point


def read_array(path: Path, largest: int) -> NDArray[Any]:
    """The array of numbers in a .npy file, of `largest` values at most."""
    with path.open("rb") as stream:
        try:
            version = np.lib.format.read_magic(stream)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(stream)
        except (ValueError, OverflowError, MemoryError, RecursionError, SyntaxError) as error:
            raise ValueError(f"it holds no numpy array: {error}") from error
        start = stream.tell()
    if dtype.kind not in NUMBERS or dtype.hasobject:
        raise ValueError(f"it holds no numpy array of numbers, but {dtype}")
    count = math.prod(shape)
    if count > largest:
        raise ValueError(f"it announces {count:,} values (shape {shape}); at most {largest:,} are read")
    found = path.stat().st_size - start
    if found != count * dtype.itemsize:
        raise ValueError(f"it announces {count * dtype.itemsize} bytes of data and holds {found}")
    return np.load(path, allow_pickle=False)

"""Astronomers' FITS and physicians' DICOM files, where astropy and pydicom are installed (`pip install 'linverse[science]'`).

Both give an array, the number of bits that the instrument stored, and the values that mean black and white. Sizes are judged by the
headers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linverse.extras import require


@dataclass(frozen=True)
class Recording:
    """Values [H, W] or [H, W, 3], their bits where they are integers, and the range that is shown as [0, 1]."""

    values: NDArray[Any]
    depth: int | None
    window: tuple[float, float] | None
    notices: tuple[str, ...] = ()


def read_fits(path: Path, largest: int) -> Recording:
    """The first image of a FITS file, its rows as they are stored (the first one is at the bottom of the sky's picture)."""
    fits = require("astropy.io.fits", "science")
    with fits.open(path, memmap=False) as units:
        unit = next((u for u in units if u.is_image and u.header.get("NAXIS", 0) >= 2), None)
        if unit is None:
            raise ValueError("it is a FITS file without an image")
        axes = [unit.header[f"NAXIS{n}"] for n in range(1, unit.header["NAXIS"] + 1)]
        check_count(math.prod(axes), largest)
        values = np.asarray(unit.data)
    notices = []
    while values.ndim > 2 and values.shape[0] not in (1, 3):
        notices.append(f"the first of {values.shape[0]} planes")
        values = values[0]
    while values.ndim > 3 or (values.ndim == 3 and values.shape[0] == 1):
        values = values[0]
    if values.ndim == 3:
        values = values.transpose(1, 2, 0)
    depth = 8 * values.dtype.itemsize if values.dtype.kind == "u" else None
    return Recording(values.astype(values.dtype.newbyteorder("=")), depth, None, tuple(notices))


def read_dicom(path: Path, largest: int) -> Recording:
    """The first frame of a DICOM file in its stored values."""
    pydicom = require("pydicom", "science")
    head = pydicom.dcmread(path, stop_before_pixels=True)
    frames = int(head.get("NumberOfFrames") or 1)
    samples = int(head.get("SamplesPerPixel") or 1)
    check_count(frames * samples * int(head.get("Rows") or 0) * int(head.get("Columns") or 0), largest)
    data = pydicom.dcmread(path)
    values, notices = data.pixel_array, []
    if frames > 1:
        notices.append(f"the first of {frames} frames")
        values = values[0]
    bits, signed = int(data.BitsStored), bool(data.get("PixelRepresentation"))
    low = -(2 ** (bits - 1)) if signed else 0
    window = (float(low), float(low + 2**bits - 1))
    if data.get("PhotometricInterpretation") == "MONOCHROME1":
        notices.append("MONOCHROME1: white and black are exchanged")
        window = (window[1], window[0])
    return Recording(values, bits, window, tuple(notices))


def check_count(count: int, largest: int) -> None:
    """Refuse what is too large, before it is read."""
    if count > largest:
        raise ValueError(f"it has {count:,} values; at most {largest:,} are read (`largest=` allows more)")

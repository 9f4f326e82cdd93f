"""How much compression took from a picture, as far as its file says: it decides the size at which the picture is learnt from.

JPEG divides the coefficients of 8×8 blocks by the entries of its quantisation tables and rounds. Entries of 2 on average (a quality of
98) leave an error of about half a step of 8 bits per pixel, and colours that are stored for every pixel are as sharp as luma: such a
picture shows what the camera saw, noise and all. With coarser tables, or with one colour for four pixels, it has to be reduced first
(reduction.py).
"""

from __future__ import annotations

from pathlib import Path

LOSSY = frozenset({".jpg", ".jpeg", ".webp"})
FINEST_TABLES = 2.0  # the mean entry up to which a table is as good as none


def was_compressed(file: Path) -> bool:
    """Whether compression took more than noise: a lossy format, unless a JPEG with fine tables and all of its colours."""
    return file.suffix.lower() in LOSSY and not _is_fine_jpeg(file)


def _is_fine_jpeg(file: Path) -> bool:
    from PIL import Image, JpegImagePlugin

    with Image.open(file) as picture:
        if not isinstance(picture, JpegImagePlugin.JpegImageFile):
            return False
        fine = all(sum(table) <= FINEST_TABLES * len(table) for table in picture.quantization.values())
        return fine and (picture.mode == "L" or JpegImagePlugin.get_sampling(picture) == 0)

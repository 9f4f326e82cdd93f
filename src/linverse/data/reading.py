"""`read(path)`: a user's picture as it is, in [0, 1], with what is known of it.

PNG, JPEG, TIFF, WebP, BMP, GIF and what else Pillow opens, 8 and 16 bits, and 16-bit colour, which Pillow would cut to 8; numpy's
.npy; FITS and DICOM where their packages are installed. What a file is, its first bytes say, not its name. The picture is turned as
its camera says; grey stays grey and colour colour; transparency is kept apart instead of being painted black; of several frames the
first is taken. Whatever a user might not expect is said in `notices`. Sizes are judged by headers, before memory is asked for.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from linverse.data import arrays, deep_png, scientific
from linverse.data.picture import Picture
from linverse.extras import require

if TYPE_CHECKING:
    from PIL.Image import Image

PathLike = str | bytes | os.PathLike[str] | os.PathLike[bytes]
Window = tuple[float, float]
LARGEST = 100_000_000  # pixels: as float32 colour, 1.2 GB
TIGHTEST_PACKING = 4000  # bytes for one: zlib reaches 1032, LZW with codes of 12 bits 2730
ORIENTATION = 0x0112
TIFF_MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
SIXTEEN_BITS = ("I;16", "I;16B", "I;16L", "I;16N")


@dataclass(frozen=True)
class Raw:
    """What a decoder gives: numbers [H, W, C], the values that mean 0 and 1, and the alpha channel [H, W] on the same scale."""

    values: NDArray[Any]
    depth: int | None
    window: Window | None  # None: no agreed white
    alpha: NDArray[Any] | None = None
    notices: tuple[str, ...] = ()
    any_scale: bool = False  # values of an instrument: where white is not agreed, their own range is shown


def read(path: PathLike, *, window: Window | None = None, largest: int = LARGEST) -> Picture:
    """Read a picture: pixels [1, C, H, W] in [0, 1], depth, transparency, notices.

    window   the values that mean 0 and 1, for files that do not say so (floating point, FITS, DICOM); what lies beyond is clipped
    largest  the number of pixels that are read at most

    >>> import tempfile, torch, linverse as lv
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lv.write(f"{folder}/holiday.png", torch.rand(1, 3, 8, 12))
    ...     photo = lv.read(f"{folder}/holiday.png")
    >>> photo
    Picture(holiday.png: 8×12, colour, 8 bits)
    >>> measurement = lv.Denoising(sigma=0.1).from_raw(photo)
    """
    file = as_path(path)
    raw = read_raw(file, largest)
    name = shown(file.name)
    try:
        pixels, step, notices = _scaled(raw, window)
    except ValueError as error:
        raise ValueError(f"{shown(file)}: {error}") from error
    alpha, clear = _transparency(raw)
    planes = torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))[None]
    return Picture(planes, name, raw.depth, alpha, (*raw.notices, *notices, *clear), step)


def as_path(path: PathLike) -> Path:
    """A path of an existing file, or an error that says what is there instead."""
    file = Path(os.fsdecode(path))
    if file.is_file():
        return file
    what = (
        "is a folder, not a picture" if file.is_dir() else "is no ordinary file" if file.exists() else "does not exist"
    )
    raise ValueError(f"{shown(file)} {what}")


def shown(path: str | Path) -> str:
    """A path that can be printed, whatever bytes its name is made of."""
    return os.fsencode(str(path)).decode("utf-8", errors="replace")


def read_raw(file: Path, largest: int) -> Raw:
    """Decode a file by what its first bytes say it is; whatever goes wrong, the error names it."""
    try:
        with file.open("rb") as stream:
            start = stream.read(132)
        if start.startswith(arrays.MAGIC):
            return _from_array(arrays.read_array(file, 4 * largest), largest)
        if start.startswith(b"SIMPLE  ="):
            return _from_recording(scientific.read_fits(file, 4 * largest), largest)
        if start[128:132] == b"DICM":
            return _from_recording(scientific.read_dicom(file, 4 * largest), largest)
        return _from_picture(file, start, largest)
    except Exception as error:  # Pillow's decoders raise a dozen kinds; a user wants the file's name and one line
        raise ValueError(f"{shown(file)} cannot be read: {error or type(error).__name__}") from error


# --- pictures ----------------------------------------------------------------------------------------------------------------------


def _from_picture(file: Path, start: bytes, largest: int) -> Raw:
    from PIL import Image, UnidentifiedImageError

    header = deep_png.read_header(file)
    if header is not None and header.deep_colour:
        return _deep_png(file, header, largest)
    try:
        source = Image.open(file)
    except Image.DecompressionBombError as error:
        raise ValueError(f"it has far more than the {largest:,} pixels that are read at most ({error})") from error
    except UnidentifiedImageError as error:
        if start.startswith(TIFF_MAGIC):
            return _deep_tiff(file, largest)
        raise ValueError("it is no picture that can be read here") from error
    with source:
        check_size(source.width, source.height, largest)
        if source.format == "TIFF":
            tags = source.tag_v2  # type: ignore[attr-defined]
            check_packing(file, source.width * source.height * sum(tags.get(258, (1,))) // 8, tags.get(259) != 1)
            if _is_deep(source):
                return _deep_tiff(file, largest)
        return _from_pillow(source)


def check_size(width: int, height: int, largest: int) -> None:
    """Refuse a picture that is empty or too large, before it is decoded."""
    if width < 1 or height < 1:
        raise ValueError("it has no pixels")
    if width * height > largest:
        raise ValueError(f"it has {height}×{width} pixels; at most {largest:,} are read (`largest=` allows more)")


def check_packing(file: Path, size: int, packed: bool) -> None:
    """Refuse a file that announces more bytes than any packing could have put into it (TIFF fills what is missing with black)."""
    if size > (TIGHTEST_PACKING if packed else 1) * file.stat().st_size:
        raise ValueError(f"it announces {size:,} bytes, which a file of its size cannot hold")


def _is_deep(source: Image) -> bool:
    """Whether a TIFF has more bits in colour than Pillow would give."""
    bits = source.tag_v2.get(258, (1,))  # type: ignore[attr-defined]
    return max(bits) > 8 and int(source.tag_v2.get(277, 1)) > 1  # type: ignore[attr-defined]


def _from_pillow(source: Image) -> Raw:
    from PIL import ImageOps

    notices = _frames(source)
    png = source.format == "PNG"
    image = ImageOps.exif_transpose(source)
    if image.mode in SIXTEEN_BITS or (image.mode == "I" and png):  # older Pillows open 16-bit PNG as "I"
        return _sixteen_grey(image, notices)
    if image.mode in ("I", "F"):
        return Raw(np.asarray(image)[..., None], None, None, None, notices)
    if image.mode == "1":
        return Raw(np.asarray(image)[..., None].astype(np.uint8), 1, (0.0, 1.0), None, notices)
    if image.mode in ("CMYK", "LAB", "HSV", "YCbCr"):
        notices = (*notices, f"converted from {image.mode} to RGB without its colour profile")
    return _eight_bits(image, notices)


def _frames(source: Image) -> tuple[str, ...]:
    count = 1 if source.format == "MPO" else getattr(source, "n_frames", 1)  # MPO: a photograph and its preview
    return (f"the first of {count} frames",) if count > 1 else ()


def _sixteen_grey(image: Image, notices: tuple[str, ...]) -> Raw:
    """PNG may name one grey value that is transparent."""
    values = np.asarray(image).astype(np.uint16)
    clear = image.info.get("transparency")
    alpha = None if not isinstance(clear, int) else np.where(values == clear, 0, 65535)
    return Raw(values[..., None], 16, (0.0, 65535.0), alpha, notices)


def _eight_bits(image: Image, notices: tuple[str, ...]) -> Raw:
    has_alpha = "A" in image.getbands() or "a" in image.getbands() or "transparency" in image.info
    layered = np.asarray(image.convert("RGBA")) if has_alpha else None
    grey = image.mode in ("L", "LA", "La") or (image.mode in ("P", "PA") and _grey_palette(image))
    if layered is not None:
        values = layered[..., :1] if grey else layered[..., :3]
        return Raw(values, 8, (0.0, 255.0), layered[..., 3], notices)
    values = np.asarray(image.convert("L" if grey else "RGB"))
    return Raw(values[..., None] if grey else values, 8, (0.0, 255.0), None, notices)


def _grey_palette(image: Image) -> bool:
    colours = np.asarray(image.getpalette("RGB") or [0, 1, 2]).reshape(-1, 3)
    return bool((colours == colours[:, :1]).all())


def _deep_png(file: Path, header: deep_png.Header, largest: int) -> Raw:
    from PIL import Image

    check_size(header.width, header.height, largest)
    values = deep_png.read_deep(file)
    with Image.open(file) as source:  # the header's notes alone: nothing is decoded
        values = oriented(values, source.getexif().get(ORIENTATION, 1))
    return _with_alpha(values, values.shape[2] in (2, 4), ())


def _deep_tiff(file: Path, largest: int) -> Raw:
    tifffile = require("tifffile", "science")
    with tifffile.TiffFile(file) as tiff:
        page, count = tiff.pages[0], len(tiff.pages)
        if not isinstance(page, tifffile.TiffPage):
            raise ValueError("its first page has no picture")
        check_size(page.imagewidth, page.imagelength, largest)
        if page.samplesperpixel > 4 or page.imagedepth > 1:
            raise ValueError(
                f"it has {page.samplesperpixel} channels; pictures have 1, 3 or, with transparency, 2 or 4"
            )
        check_packing(file, page.nbytes, page.compression != 1)
        values = page.asarray()
        tag = page.tags.get("Orientation")
        extra = len(page.extrasamples)
    planes = values[..., None] if values.ndim == 2 else values
    if planes.shape[0] == page.samplesperpixel and planes.shape[-1] != page.samplesperpixel:
        planes = planes.transpose(1, 2, 0)  # one plane after the other
    notices = (f"the first of {count} frames",) if count > 1 else ()
    return _with_alpha(oriented(planes, int(tag.value) if tag else 1), bool(extra), notices)


def _with_alpha(values: NDArray[Any], has_alpha: bool, notices: tuple[str, ...]) -> Raw:
    """Numbers [H, W, C] of any kind; integers without a sign reach from 0 to their largest value."""
    colours, alpha = (values[..., :-1], values[..., -1]) if has_alpha else (values, None)
    if values.dtype.kind == "u" and values.dtype.itemsize <= 2:
        depth = 8 * values.dtype.itemsize
        return Raw(colours, depth, (0.0, float(2**depth - 1)), alpha, notices)
    return Raw(colours, None, None, None, notices)


def oriented(values: NDArray[Any], code: int) -> NDArray[Any]:
    """An array [H, W, C] turned upright, as EXIF's orientation says it is to be shown."""
    turns = {
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.transpose(1, 0, 2),
        6: lambda a: np.rot90(a, -1),
        7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
        8: lambda a: np.rot90(a, 1),
    }
    return turns[code](values) if code in turns else values


# --- arrays and recordings ---------------------------------------------------------------------------------------------------------


def _from_array(array: NDArray[Any], largest: int) -> Raw:
    """[H, W], [C, H, W], [1, C, H, W] or [H, W, C]; floating point as it is: noise may reach beyond [0, 1]."""
    values = channels_last(array)
    check_size(values.shape[1], values.shape[0], largest)
    if array.dtype == np.bool_:
        return Raw(values.astype(np.uint8), 1, (0.0, 1.0))
    if array.dtype.kind == "f":
        return Raw(values, None, (0.0, 1.0))
    return _with_alpha(values, False, ())


def channels_last(array: NDArray[Any]) -> NDArray[Any]:
    """An image array as [H, W, C]; where it cannot be told which axis is which, an error."""
    if array.ndim == 2:
        return array[..., None]
    batch = array.ndim == 4 and len(array) == 1
    values = array[0] if batch else array
    if batch and values.shape[0] in (1, 3):
        return values.transpose(1, 2, 0)
    if values.ndim == 3 and (values.shape[0] in (1, 3)) != (values.shape[2] in (1, 3)):
        return values.transpose(1, 2, 0) if values.shape[0] in (1, 3) else values
    raise ValueError(
        f"it has shape {array.shape}; accepted are [H, W], [C, H, W], [1, C, H, W] and [H, W, C], C = 1 or 3"
    )


def _from_recording(recording: scientific.Recording, largest: int) -> Raw:
    values = recording.values if recording.values.ndim == 3 else recording.values[..., None]
    check_size(values.shape[1], values.shape[0], largest)
    window = recording.window
    if window is None and recording.depth is not None:
        window = (0.0, float(2**recording.depth - 1))
    return Raw(values, recording.depth, window, None, recording.notices, any_scale=True)


def _scaled(raw: Raw, wanted: Window | None) -> tuple[NDArray[np.float32], float | None, tuple[str, ...]]:
    """Pixels in [0, 1], the distance of their levels, and what there is to say about it."""
    values, notices = raw.values, []
    black, white = wanted or raw.window or (0.0, 1.0)
    if wanted is None and raw.window is None and not _is_unit(values):
        if values.dtype.kind != "f" and not raw.any_scale:
            raise ValueError(f"values of {values.dtype} have no agreed white; give window=(black, white)")
        black, white = float(np.nanmin(values)), float(np.nanmax(values))
        notices.append(f"values from {black:.6g} to {white:.6g} were mapped to [0, 1] (`window=` says otherwise)")
        white = white if white != black else black + 1
    if black == white or not np.isfinite([black, white]).all():
        raise ValueError(f"window is two different numbers, those that mean 0 and 1; got ({black}, {white})")
    if (black, white) == (0.0, 1.0):
        pixels = values.astype(np.float32)
    else:
        pixels = ((values.astype(np.float32) if black == 0 else values - black) / np.float32(white - black)).astype(
            np.float32
        )
    if wanted is not None:
        beyond = float(((pixels < 0) | (pixels > 1)).mean())
        notices += [f"{beyond:.1%} of the values lie outside of the window and were clipped"] if beyond else []
        pixels = pixels.clip(0, 1)
    step = None if values.dtype.kind == "f" else 1 / abs(white - black)
    return pixels, step, tuple(notices)


def _is_unit(values: NDArray[Any]) -> bool:
    """Floating point in about [0, 1], noise included."""
    return values.dtype.kind == "f" and bool(np.nanmin(values) >= -0.5) and bool(np.nanmax(values) <= 1.5)


def _transparency(raw: Raw) -> tuple[torch.Tensor | None, tuple[str, ...]]:
    """Alpha as [1, 1, H, W] and a notice, unless the picture is opaque."""
    if raw.alpha is None or raw.depth is None:
        return None, ()
    alpha = torch.from_numpy(raw.alpha.astype(np.float32) / (2**raw.depth - 1))[None, None]
    clear = float((alpha < 1).float().mean())
    if clear == 0:
        return None, ()
    return alpha, (f"{clear:.1%} of it is transparent: the colours there are read as they stand, `alpha` says where",)

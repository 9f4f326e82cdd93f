"""PNG files of 16 bits: colour and transparency at full depth, which Pillow cuts to 8 bits without a word.

A PNG is a header, zlib-compressed rows and checksums. Each row has a filter type, and each byte is stored as its difference from a
prediction by its neighbours left (a), above (b) and above left (c), the bytes of the pixels beside it:

    0 none    1 a    2 b    3 ⌊(a + b)/2⌋    4 Paeth: that of a, b, c which is nearest to a + b − c

Undoing it goes from left to right and from top to bottom. Rows are shifted against each other by one pixel, so that everything on
an anti-diagonal depends on the two diagonals before it alone and numpy does a whole one at a time. Interlaced files (Adam7) are
seven small pictures.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}  # of the colour types that may have 16 bits
COLOUR_TYPE = {channels: kind for kind, channels in CHANNELS.items()}
BAND = 256  # rows that are unfiltered together
# Adam7: first row, first column, step down, step across
PASSES = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Header:
    """What the first chunk says."""

    width: int
    height: int
    bits: int
    colour_type: int
    interlaced: bool

    @property
    def deep_colour(self) -> bool:
        """Whether this reader is needed: 16 bits and more than one channel."""
        return self.bits == 16 and CHANNELS.get(self.colour_type, 1) > 1


def read_header(path: Path) -> Header | None:
    """The header of a PNG; None if the file is something else."""
    with path.open("rb") as stream:
        start = stream.read(33)
    if len(start) < 33 or not start.startswith(SIGNATURE) or start[12:16] != b"IHDR":
        return None
    width, height, bits, colour_type, _, _, interlaced = struct.unpack(">IIBBBBB", start[16:29])
    return Header(width, height, bits, colour_type, bool(interlaced))


def read_deep(path: Path) -> NDArray[np.uint16]:
    """The values of a 16-bit PNG, [H, W, channels]; the size was judged before."""
    header = read_header(path)
    if header is None or header.bits != 16 or header.colour_type not in CHANNELS or 0 in (header.width, header.height):
        raise ValueError("it is not a PNG of 16 bits")
    channels = CHANNELS[header.colour_type]
    regions = PASSES if header.interlaced else ((0, 0, 1, 1),)
    shapes = [
        (max(0, -(-(header.height - top) // down)), max(0, -(-(header.width - left) // across)))
        for top, left, down, across in regions
    ]
    content = _unpacked(path, sum(rows * (1 + 2 * channels * columns) for rows, columns in shapes if rows and columns))
    out = np.empty((header.height, header.width, channels), dtype=np.uint16)
    at = 0
    for (top, left, down, across), (rows, columns) in zip(regions, shapes, strict=True):
        if rows and columns:
            length = rows * (1 + 2 * channels * columns)
            filtered = content[at : at + length].reshape(rows, -1)
            plain = unfilter(filtered[:, 1:], filtered[:, 0], 2 * channels)
            out[top::down, left::across] = plain.view(">u2").reshape(rows, columns, channels)
            at += length
    return out


def _unpacked(path: Path, expected: int) -> Bytes:
    """The filtered rows, which must be exactly as many bytes as the header implies."""
    unpacker, out = zlib.decompressobj(), bytearray()
    with path.open("rb") as stream:
        stream.seek(len(SIGNATURE))
        while len(head := stream.read(8)) == 8:
            length, kind = struct.unpack(">I4s", head)
            if kind == b"IDAT":
                body = stream.read(length)
                if len(body) != length or stream.read(4) != struct.pack(">I", zlib.crc32(kind + body)):
                    raise ValueError("it is damaged: a checksum is wrong")
                out += unpacker.decompress(body, expected + 1 - len(out))  # a bomb is left packed
            elif kind == b"IEND" or len(out) > expected:
                break
            else:
                stream.seek(length + 4, 1)
    if len(out) != expected:
        raise ValueError(f"it is damaged: {'more' if len(out) > expected else 'less'} data than its header says")
    return np.frombuffer(out, dtype=np.uint8)


def unfilter(rows: Bytes, kinds: Bytes, pixel: int) -> Bytes:
    """Undo the filters of rows [H, W·pixel], `pixel` bytes each."""
    if kinds.max() > 4:
        raise ValueError(f"it is damaged: filter type {kinds.max()} does not exist")
    height, width = rows.shape[0], rows.shape[1] // pixel
    out = np.empty((height, width, pixel), dtype=np.uint8)
    above = np.zeros((width, pixel), dtype=np.int16)
    for start in range(0, height, BAND):
        band = rows[start : start + BAND].reshape(-1, width, pixel)
        out[start : start + len(band)] = _unfilter_band(band, kinds[start : start + len(band)], above)
        above = out[start + len(band) - 1].astype(np.int16)
    return out.reshape(height, -1)


def _unfilter_band(band: Bytes, kinds: Bytes, above: NDArray[np.int16]) -> NDArray[np.int16]:
    """One anti-diagonal after the other: at time t, row r works on column t − r."""
    height, width, pixel = band.shape
    # a column of zeros on the left and the row above on top: neighbours are always there
    plain = np.zeros((height + 1, width + 1, pixel), dtype=np.int16)
    plain[0, 1:] = above
    rows = np.arange(height)
    for time in range(height + width - 1):
        row = rows[max(0, time - width + 1) : time + 1]
        column = time - row
        a, b, c = plain[row + 1, column], plain[row, column + 1], plain[row, column]
        plain[row + 1, column + 1] = (band[row, column] + _predicted(kinds[row, None], a, b, c)) & 255
    return plain[1:, 1:]


def _predicted(kind: Bytes, a: NDArray[np.int16], b: NDArray[np.int16], c: NDArray[np.int16]) -> NDArray[Any]:
    to_a, to_b, to_c = np.abs(b - c), np.abs(a - c), np.abs(a + b - 2 * c)
    paeth = np.where((to_a <= to_b) & (to_a <= to_c), a, np.where(to_b <= to_c, b, c))
    return np.where(
        kind == 4, paeth, np.where(kind == 3, (a + b) >> 1, np.where(kind == 2, b, np.where(kind == 1, a, 0)))
    )


def encode_deep(values: NDArray[np.uint16]) -> bytes:
    """A PNG file of 16 bits from [H, W, 1 … 4]; each row is stored as its difference from the one above."""
    height, width, channels = values.shape
    rows = np.ascontiguousarray(values.astype(">u2")).view(np.uint8).reshape(height, -1)
    filtered = rows.copy()
    filtered[1:] -= rows[:-1]
    kinds = np.full((height, 1), 2, dtype=np.uint8)
    header = struct.pack(">IIBBBBB", width, height, 16, COLOUR_TYPE[channels], 0, 0, 0)
    content = zlib.compress(np.concatenate([kinds, filtered], axis=1).tobytes(), 6)
    return SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", content) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

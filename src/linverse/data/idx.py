"""The idx format of MNIST and its relatives: two zero bytes, the type, the number of dimensions n, n big-endian 32-bit sizes,
then the numbers, last dimension fastest. Compressed with gzip or not: the first bytes tell, not the file's name.

The reader is strict. A file that was cut short or that carries something else is refused by name; a known file's sha256 is
that of its *uncompressed* content, so that it does not matter who compressed it.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

GZIP_MAGIC = b"\x1f\x8b"
UNSIGNED_BYTE = 0x08


class ChecksumError(ValueError):
    """A known file whose content is not the published one."""


def read_idx(path: Path, sha256: str | None = None) -> Tensor:
    """The uint8 array of an idx or idx.gz file; with `sha256`, of that content and no other."""
    content = _uncompressed(path)
    if sha256 is not None:
        _verify(path, content, sha256)
    shape, start = _header(path, content)
    expected, found = math.prod(shape), len(content) - start
    if found != expected:
        state = "cut short" if found < expected else "longer than it says"
        raise ValueError(f"{path} is {state}: its header says {expected} bytes of data ({shape}), it holds {found}")
    if expected == 0:
        raise ValueError(f"{path} holds no data: its header says {shape}")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=start).reshape(shape)


def write_idx(path: Path, array: NDArray[np.uint8]) -> None:
    """The file of an array, byte for byte as its publishers write it."""
    header = struct.pack(f">HBB{array.ndim}I", 0, UNSIGNED_BYTE, array.ndim, *array.shape)
    path.write_bytes(header + np.ascontiguousarray(array, dtype=np.uint8).tobytes())


def _uncompressed(path: Path) -> bytes:
    content = path.read_bytes()
    if not content.startswith(GZIP_MAGIC):
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path} is a damaged gzip file ({error}); fetch it again") from error


def _verify(path: Path, content: bytes, expected: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise ChecksumError(
            f"{path} is not the published file: the sha256 of its uncompressed content is {found}, "
            f"it should be {expected}; delete it and fetch it again"
        )


def _header(path: Path, content: bytes) -> tuple[tuple[int, ...], int]:
    """Sizes, and where the data start."""
    if len(content) < 4 or content[:2] != b"\0\0":
        raise ValueError(f"{path} is not an idx file: it starts with {content[:4].hex(' ') or 'nothing'}")
    kind, dims = content[2], content[3]
    if kind != UNSIGNED_BYTE:
        raise ValueError(f"{path} holds idx type 0x{kind:02x}; images and labels are unsigned bytes (0x08)")
    start = 4 + 4 * dims
    if dims == 0 or len(content) < start:
        raise ValueError(
            f"{path} is cut short: an idx header of {dims} dimensions does not fit its {len(content)} bytes"
        )
    return struct.unpack(f">{dims}I", content[4:start]), start

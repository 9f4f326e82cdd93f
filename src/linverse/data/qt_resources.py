"""Qt's binary resource files (.rcc), in which some programs keep their pictures: a tree of names over a heap of data.

The header is "qres", the version, and the offsets of tree, data and names, all big-endian. A node of the tree is (name offset,
flags) and, for a directory, (number of children, first child), for a file (territory, language, data offset); since version 2 a
date follows. A name is its length, a hash and UTF-16; data are their length and the bytes, which flag 1 says are zlib's (after four
bytes of size).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

COMPRESSED, DIRECTORY = 1, 2
UNKNOWN = ~(COMPRESSED | DIRECTORY)
DEEPEST = 64
LARGEST = 1 << 28  # bytes of one unpacked file


def read_resources(path: Path) -> Iterator[tuple[str, bytes]]:
    """Every file of a .rcc as its path inside and its content."""
    content = path.read_bytes()
    if content[:4] != b"qres" or len(content) < 20:
        raise ValueError(f"{path} is not a Qt resource file")
    version, tree, data, names = struct.unpack_from(">4I", content, 4)
    try:
        yield from _walk(content, (tree, data, names, 14 if version < 2 else 22), 0, "", 0)
    except (struct.error, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is a damaged Qt resource file: {error}") from error


Layout = tuple[int, int, int, int]  # offsets of tree, data and names, and the length of a node


def _walk(content: bytes, layout: Layout, node: int, above: str, depth: int) -> Iterator[tuple[str, bytes]]:
    tree, data, names, step = layout
    at = tree + node * step
    name_at, flags = struct.unpack_from(">IH", content, at)
    if flags & UNKNOWN or depth > DEEPEST:
        raise ValueError(f"flags {flags} at depth {depth} are not understood")
    name = _name(content, names + name_at) if node else ""
    if not flags & DIRECTORY:
        (data_at,) = struct.unpack_from(">I", content, at + 10)
        yield above + name, _data(content, data + data_at, bool(flags & COMPRESSED))
        return
    count, first = struct.unpack_from(">II", content, at + 6)
    for child in range(first, first + count):
        if child <= node:
            raise ValueError("a directory that holds itself")
        yield from _walk(content, layout, child, f"{above}{name}/" if node else "", depth + 1)


def _name(content: bytes, at: int) -> str:
    (length,) = struct.unpack_from(">H", content, at)
    return content[at + 6 : at + 6 + 2 * length].decode("utf-16-be")


def _data(content: bytes, at: int, compressed: bool) -> bytes:
    (length,) = struct.unpack_from(">I", content, at)
    raw = content[at + 4 : at + 4 + length]
    if len(raw) != length:
        raise ValueError("it is cut short")
    if not compressed:
        return raw
    unpacker = zlib.decompressobj()
    unpacked = unpacker.decompress(raw[4:], LARGEST)
    if unpacker.unconsumed_tail:
        raise ValueError(f"a file of it is larger than {LARGEST} bytes when unpacked")
    return unpacked


def unpack_resources(path: Path, folder: Path) -> None:
    """Write every file of a .rcc below a folder; a name that would leave it is refused."""
    root = folder.resolve()
    for name, content in read_resources(path):
        target = (root / name).resolve()
        if not target.is_relative_to(root):
            raise ValueError(f"{path} holds the name {name!r}, which points out of its folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

"""Package clients that hand out what a test puts on their shelf, and pictures that look like photographs to the sieve."""

from __future__ import annotations

import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image


class Shelf:
    """`npm pack NAME@VERSION` gives the folder that was put here under NAME@VERSION; `apt-get download` and `dpkg-deb` likewise."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.bin = root, root / "bin"
        self.bin.mkdir(parents=True)
        self.script("npm", f'cp {root}/$2.tgz . || {{ echo "no such package" >&2; exit 1; }}')
        self.script("apt-get", f'[ -d {root}/$2 ] && touch $2.deb || {{ echo "Unable to locate $2" >&2; exit 100; }}')
        self.script("dpkg-deb", f'name=$(basename "$2" .deb) && cp -r {root}/$name/. "$3"')
        monkeypatch.setenv("PATH", f"{self.bin}:/usr/bin:/bin")
        monkeypatch.setenv("LINVERSE_DATA", str(root / "cache"))

    def script(self, name: str, line: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{line}\n")
        (self.bin / name).chmod(0o755)

    def npm(self, spelled: str, folder: Path) -> None:
        with tarfile.open(self.root / f"{spelled}.tgz", "w:gz") as archive:
            archive.add(folder, "package")

    def deb(self, name: str) -> Path:
        """The tree of a Debian package, to be filled."""
        (self.root / name).mkdir()
        return self.root / name


def photograph(seed: int, height: int = 420, width: int = 600) -> NDArray[np.uint8]:
    """Smooth random colours with a little noise: never flat, and no two alike."""
    generator = np.random.default_rng(seed)
    coarse = Image.fromarray(generator.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC)).astype(float)
    return np.clip(smooth + generator.normal(0, 8, smooth.shape), 0, 255).astype(np.uint8)


def save(pixels: NDArray[np.uint8], path: Path, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)  # type: ignore[arg-type]
    return path


def resource_file(files: dict[str, bytes], *, compress: bool = False) -> bytes:
    """A Qt resource file (version 1) of files in one folder "top"."""
    names, data, nodes = b"", b"", b""

    def add_name(text: str) -> int:
        nonlocal names
        at = len(names)
        names += struct.pack(">HI", len(text), 0) + text.encode("utf-16-be")
        return at

    nodes += struct.pack(">IHII", 0, 2, 1, 1)  # the root holds "top", which holds the files
    nodes += struct.pack(">IHII", add_name("top"), 2, len(files), 2)
    for name, content in files.items():
        stored = struct.pack(">I", len(content)) + zlib.compress(content) if compress else content
        nodes += struct.pack(">IHHHI", add_name(name), int(compress), 0, 0, len(data))
        data += struct.pack(">I", len(stored)) + stored
    tree = 20
    return (
        b"qres" + struct.pack(">4I", 1, tree, tree + len(nodes), tree + len(nodes) + len(data)) + nodes + data + names
    )

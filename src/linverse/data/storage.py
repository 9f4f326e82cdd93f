"""Where the decoded bytes live: in memory, or in a file that is decoded once and mapped ever after.

Blocks [n, C, H, W] arrive one after the other. On disk they form an ordinary .npy file, written under another name and renamed
when it is whole, so that a run that was killed, or a second process, never sees half a file. The tensor over the mapped file is
a tensor like any other; the operating system holds in memory what is used.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from linverse.data.decode import Bytes, Shape
from linverse.files import replacing
from linverse.memory import check_memory

LAYOUT_VERSION = 2  # raise it when decoding changes, so that no file of an older rule is taken for a new one


def in_memory(blocks: Iterable[Bytes], count: int, shape: Shape, name: str) -> Tensor:
    """All blocks in one uint8 tensor [count, C, H, W]."""
    remedy = "pass cache=DIRECTORY to keep the decoded images in a file on disk and map it"
    check_memory(count * math.prod(shape), name, remedy)
    images, start = torch.empty((count, *shape), dtype=torch.uint8), 0
    for block in blocks:
        images[start : start + len(block)] = torch.from_numpy(np.array(block))
        start += len(block)
    if start != count:
        raise RuntimeError(f"{name}: {start} images arrived where {count} were announced")
    return images


def on_disk(blocks: Iterable[Bytes], count: int, shape: Shape, path: Path) -> Tensor:
    """The same tensor over the file `path`, which is written now."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = {"descr": "|u1", "fortran_order": False, "shape": (count, *shape)}
    try:
        # written, not mapped: on a full disk a write fails with a message, a store into a map kills the process
        with replacing(path) as stream:
            np.lib.format.write_array_header_1_0(stream, header)
            for block in blocks:
                stream.write(np.ascontiguousarray(block).tobytes())
    except OSError as error:
        size = count * np.prod(shape) / 1e9
        raise OSError(f"could not write the decoded images ({size:.2f} GB): {error}") from error
    return mapped(path)


def mapped(path: Path) -> Tensor:
    """The tensor over a file that `on_disk` wrote; private: writing to it leaves the file as it is."""
    return torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))


def fingerprint(files: Iterable[Path], *rule: object) -> str:
    """A key for the decoded form of these files under a rule: it changes when a file, its date or the rule does."""
    stamps = [(str(file.absolute()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    text = json.dumps([LAYOUT_VERSION, stamps, [repr(part) for part in rule]])
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()

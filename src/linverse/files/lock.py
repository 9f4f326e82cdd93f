"""One process at a time in a folder: a file that the operating system keeps locked for as long as the process lives.

The system releases the lock of a process that ends, however it ends: a lock that nobody holds is taken over without a question. The
file says who holds it, for people.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

LOCK = ".lock"
HELD_AT = 1 << 30  # Windows locks bytes, and nobody could read those: one far behind the text


class FolderInUse(RuntimeError):
    """Another process works in a folder."""


class FolderLock:
    """Hold a folder, from now until `release` or the end of a `with` block."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOCK
        self._stream: BinaryIO | None = self.path.open("a+b")
        try:
            _lock(self._stream)
        except OSError as error:
            self._stream.seek(0)
            holder = self._stream.read(200).decode(errors="replace").strip() or "another process"
            self._stream.close()
            raise FolderInUse(
                f"{holder} is at work in {folder}; wait for its end, or give this run a folder of its own by --out"
            ) from error
        self._stream.truncate(0)
        self._stream.write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        self._stream.flush()

    def release(self) -> None:
        """Let others in; the file stays: removing it would let two in at once."""
        if self._stream is not None:
            self._stream.truncate(0)
            self._stream.close()
            self._stream = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


if sys.platform == "win32":
    import msvcrt

    def _lock(stream: BinaryIO) -> None:
        stream.seek(HELD_AT)
        msvcrt.locking(stream.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(stream: BinaryIO) -> None:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)

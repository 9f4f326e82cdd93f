"""What the commands say and show: notes of one line, warnings likewise, and a picture on the screen where there is one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from rich.console import Console


def note(console: Console, text: str) -> None:
    """A line as it is: file names may hold what a console would take for markup, and are not to be broken."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def plain_warnings(console: Console) -> Iterator[None]:
    """The library's warnings as notes, each said once; Python's own form names a line of code that is no user's."""
    said: set[str] = set()

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if str(message) not in said:
            said.add(str(message))
            note(console, f"note: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


def open_picture(path: Path) -> bool:
    """Hand a picture to the desktop's viewer and go on; False where there is no desktop, or nobody at it."""
    opener = viewer()
    if opener is None or not sys.stdout.isatty():
        return False
    try:
        subprocess.Popen(
            [opener, str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except OSError:
        return False
    return True


def viewer() -> str | None:
    """The command that opens a file on this desktop."""
    if os.environ.get("SSH_CONNECTION"):
        return None
    if sys.platform == "darwin":
        return shutil.which("open")
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return shutil.which("xdg-open")
    return None

"""What the commands say and show: notes of one line, warnings likewise, how far they are, and a picture on a screen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

LINE_EVERY = 60.0  # seconds, where there is no terminal


def note(console: Console, text: str, prefix: str = "") -> None:
    """A line as it is: file names may hold what a console would take for markup, and are not to be broken."""
    console.print(f"{prefix}{text}", highlight=False, markup=False, soft_wrap=True)


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


class ProgressBars:
    """The progress of one or several tasks (`linverse.progress`): bars on a terminal, elsewhere a line a minute.

    Of several processes each may write lines, under a `prefix` of its own; bars are drawn by the one that is `visible`.
    """

    def __init__(self, console: Console, prefix: str = "", visible: bool = True) -> None:
        self.console, self.prefix = console, prefix
        self.last_line = time.monotonic()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        hidden = not (visible and console.is_terminal)
        self.bars = Bars(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, disable=hidden)
        self.tasks: dict[str, TaskID] = {}
        self.begun: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def __call__(self, task: str, done: int, total: int) -> None:
        if task not in self.tasks:
            self.bars.start()  # not before there is something to show: another bar may be at work until then
            self.tasks[task] = self.bars.add_task(task, total=total)
            self.begun[task] = time.monotonic()
        self.bars.update(self.tasks[task], completed=done, total=total)
        now = time.monotonic()
        if not self.console.is_terminal and now - self.last_line > LINE_EVERY:
            left = (
                f", {timedelta(seconds=round((now - self.begun[task]) * (total - done) / done))} left" if done else ""
            )
            note(self.console, f"{self.prefix}{task}: {done}/{total}{left}")
            self.last_line = now

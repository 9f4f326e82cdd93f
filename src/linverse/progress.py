"""How far a long computation has come: one protocol for every floor of the house.

Whoever computes calls `progress(task, done, total)` now and then; whoever watches (a console, a notebook, a web page) hands in such a
callable. Nothing is drawn here.
"""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told now and then that `done` of `total` steps of a named task are finished."""

    def __call__(self, task: str, done: int, total: int) -> None: ...


def silent(task: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def shifted(progress: Progress, first: int, whole: int) -> Progress:
    """Progress of a part that begins at step `first` of a `whole` number of steps."""

    def report(task: str, done: int, total: int) -> None:
        progress(task, first + done, whole)

    return report


def named(progress: Progress, name: str) -> Progress:
    """Progress whose tasks are called by one name, or begin with it where they have one of their own."""

    def report(task: str, done: int, total: int) -> None:
        progress(f"{name}: {task}" if task else name, done, total)

    return report

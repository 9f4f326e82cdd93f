"""What a fuzzer shares: a case is a kind and a seed, and says in a word how it went, or why it failed.

A case fails by a traceback, by an error that says nothing, by taking more than `PATIENCE` seconds, or by a wrong answer without a word.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

PATIENCE = (
    20  # seconds of the processor; six times that on the wall's clock, which other work on the machine slows down
)
NUMBERS = (
    "0",
    "1",
    "2",
    "3",
    "-1",
    "nan",
    "inf",
    "-inf",
    "1e9",
    "1000000000",
    "1e309",
    "0.5",
    "1e-30",
    "",
    "x",
    "é",
    "9" * 40,
)
WORDS = (
    "",
    "x",
    "é",
    "[bold]",
    "[/]",
    "../x",
    "/",
    ".",
    "a b",
    "-",
    "--",
    "%s",
    "{}",
    "\\",
    "\x07",
    "x" * 300,
    "ünïcødé",
    "\udcff",
)


class Wrong(AssertionError):
    """A case that failed, and why."""


class Hang(BaseException):
    """A case took too long; no `except Exception` may swallow it."""


Case = Callable[[random.Random, Path], str]  # (what is random, a folder of its own) → how it went


@contextmanager
def time_limit(seconds: int = PATIENCE) -> Iterator[None]:
    """Raise `Hang` in the main thread after so many seconds of work, or six times as many of waiting."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise Hang

    clocks = ((signal.SIGPROF, signal.ITIMER_PROF, seconds), (signal.SIGALRM, signal.ITIMER_REAL, 6 * seconds))
    before = [signal.signal(number, ring) for number, _, _ in clocks]
    for _, clock, limit in clocks:
        signal.setitimer(clock, limit)
    try:
        yield
    finally:
        for (number, clock, _), handler in zip(clocks, before, strict=True):
            signal.setitimer(clock, 0)
            signal.signal(number, handler)


def repeat(kind: str, seed: int) -> str:
    """What repeats a case."""
    return f"repeat it by: PYTHONPATH=tests python -m robustness.fuzz --kind {kind} --seed {seed}"


def run_case(kind: str, case: Case, seed: int, folder: Path) -> str:
    """Run one case; `Wrong` tells how to repeat it."""
    again = repeat(kind, seed)
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    try:
        with time_limit():
            return case(random.Random(f"{kind} {seed}"), folder)
    except Hang:
        raise Wrong(f"{kind} {seed}: no end after {time.monotonic() - started:.0f} s; {again}") from None
    except Wrong as error:
        raise Wrong(f"{kind} {seed}: {error}; {again}") from error
    except Exception as error:
        raise Wrong(f"{kind} {seed}: {type(error).__name__}: {error}; {again}") from error

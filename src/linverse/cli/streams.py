"""Where a command's words go: any terminal, any encoding, or nobody at all.

A command that takes an hour must not die of its output: what an encoding lacks is written otherwise (× as x, λ as lambda), and when the
reader is gone (`| head`, a closed terminal, a full disk) the work goes on, with a word on stderr.
"""

from __future__ import annotations

import codecs
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

PLAIN = "linverse-plain"  # an error handler of Python's codecs
NARROWEST = 20  # columns: below that, the libraries that draw tables and help do not come to an end
SPELLINGS = {
    "×": "x",
    "·": "*",
    "−": "-",
    "–": "-",
    "—": "-",
    "…": "...",
    "→": "->",
    "←": "<-",
    "≤": "<=",
    "≥": ">=",
    "≈": "~",
    "±": "+-",
    "∞": "inf",
    "√": "sqrt ",
    "∝": "~",
    "²": "^2",
    "°": " degrees",
    "½": "1/2",
    "’": "'",
    "‘": "'",
    "“": '"',
    "”": '"',
    "•": "*",
    "é": "e",
    "α": "alpha",
    "β": "beta",
    "θ": "theta",
    "κ": "kappa",
    "λ": "lambda",
    "μ": "mu",
    "σ": "sigma",
    "φ": "phi",
    "Π": "Pi",
    "Σ": "Sigma",
}


def spell(error: UnicodeError) -> tuple[str | bytes, int]:
    """What is written for characters that an encoding does not have."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    plain = "".join(SPELLINGS.get(character, "?") for character in error.object[error.start : error.end])
    return plain, error.end


codecs.register_error(PLAIN, spell)


class Unbreakable:
    """A stream that is written to for as long as somebody reads; then what is written is dropped, and `gone` is called once."""

    def __init__(self, stream: TextIO, gone: Any) -> None:
        self.stream, self._gone, self.open = stream, gone, True

    def write(self, text: str) -> int:
        if self.open:
            try:
                return self.stream.write(text)
            except (OSError, ValueError) as error:  # ValueError: the stream was closed
                self._close(error)
        return len(text)

    def flush(self) -> None:
        if self.open:
            try:
                self.stream.flush()
            except (OSError, ValueError) as error:
                self._close(error)

    def _close(self, error: Exception) -> None:
        self.open = False
        with suppress(OSError, ValueError):  # Python itself flushes it once more at the end
            descriptor = self.stream.fileno()
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, descriptor)
            os.close(nothing)
        self._gone(error)

    def isatty(self) -> bool:
        return self.open and self.stream.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def patient_streams(command: str) -> Iterator[None]:
    """Standard output and error that no encoding and no reader's end can break."""
    before = sys.stdout, sys.stderr
    if shutil.get_terminal_size().columns < NARROWEST:
        os.environ["COLUMNS"] = str(NARROWEST)
    for stream in before:
        with suppress(
            AttributeError, OSError, ValueError
        ):  # there may be none, or one that is no text stream of Python's own
            stream.reconfigure(errors=PLAIN)  # type: ignore[union-attr]

    def gone(error: Exception) -> None:
        print(f"linverse {command}: nobody reads the output any more ({error}); the work goes on", file=sys.stderr)

    out, err = before
    if err is not None:
        sys.stderr = Unbreakable(err, lambda error: None)
    if out is not None:
        sys.stdout = Unbreakable(out, gone)
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    finally:
        sys.stdout, sys.stderr = before

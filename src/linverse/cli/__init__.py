"""The command line: `linverse COMMAND …`. Each command lives in its own module and is imported only when it is called."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from linverse.cli.streams import patient_streams
from linverse.memory import keep_freed_memory

COMMANDS = {
    "demo": "one model, every question: a picture in less than a minute",
    "restore": "what a degraded picture was, how sure we are, what else it could have been",
    "score": "how probable pictures are under a model",
    "blind": "which degradation made a picture",
    "studio": "the same in a browser: drop a picture, paint on it, watch",
    "train": "train a model from a preset (rerun to resume)",
    "data": "find, fetch and check a data set",
    "info": "the card of a model",
    "evaluate": "compare solvers on the same measurements (rerun to resume)",
    "bundle": "put a finished training run among the bundled models",
    "experiment": "reproduce a table or figure of the paper",
    "paper": "the whole paper, item by item, with a verdict on each claim",
}

EXPECTED = (MemoryError, ValueError, OSError, RuntimeError, FloatingPointError, ImportError)  # bad input, full disks


def usage() -> str:
    """What `linverse --help` says."""
    lines = [
        "usage: linverse COMMAND [options]",
        "",
        "Normalised energy models for linear inverse problems.",
        "",
        "commands:",
    ]
    lines += [f"  {name:<12} {text}" for name, text in COMMANDS.items()]
    lines += ["", "Start with `linverse demo`.", "linverse COMMAND --help explains a command and its options."]
    return "\n".join(lines)


class Interruption:
    """Whether Ctrl-C was pressed: the libraries that a command imports may catch it and fail over it with an error of their own."""

    happened = False

    def note(self, number: int, frame: FrameType | None) -> None:
        self.happened = True
        signal.default_int_handler(number, frame)


@contextmanager
def noticed_interruption() -> Iterator[Interruption]:
    """Ctrl-C raises KeyboardInterrupt as ever, and is remembered."""
    interruption = Interruption()
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, interruption.note)
    try:
        yield interruption
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `linverse` script."""
    arguments = sys.argv[1:] if arguments is None else arguments
    name = arguments[0] if arguments else "--help"
    keep_freed_memory()
    with patient_streams(shown(name)), noticed_interruption() as interruption:
        try:
            run(name, arguments[1:])
        except (Exception, KeyboardInterrupt) as error:
            if interruption.happened or isinstance(error, KeyboardInterrupt):
                say(f"\nlinverse {shown(name)}: interrupted")
                raise SystemExit(130) from None
            say(f"linverse {name}: {complaint(error)}")
            raise SystemExit(1 if isinstance(error, EXPECTED) else 70) from error


def run(name: str, rest: list[str]) -> None:
    """One command with its options."""
    if name in ("-h", "--help"):
        print(usage())
    elif name == "--version":
        from linverse import __version__

        print(f"linverse {__version__}")
    elif name not in COMMANDS:
        say(f"linverse: there is no command {shown(name)!r}\n\n{usage()}")
        raise SystemExit(2)
    else:
        importlib.import_module(f"linverse.cli.{name.replace('-', '_')}").main(rest)


def say(text: str) -> None:
    """A line on stderr."""
    print(shown(text), file=sys.stderr)


def shown(text: str) -> str:
    """Words that can be printed, also where a file's name is no text."""
    return text.encode("utf-8", errors="replace").decode()


def complaint(error: Exception) -> str:
    """What went wrong, in one line; of a mistake of ours all, where it is asked for."""
    if isinstance(error, MemoryError):
        return f"there is not enough memory for this{f': {error}' if str(error) else ''}"
    if isinstance(error, EXPECTED):
        return str(error) or type(error).__name__
    if os.environ.get("LINVERSE_TRACEBACK"):
        import traceback

        return "".join(traceback.format_exception(error))
    return (
        f"a mistake in linverse ({type(error).__name__}: {error}); LINVERSE_TRACEBACK=1 shows where, please report it"
    )

"""The command line: `linverse COMMAND …`. Each command lives in its own module and is imported only when it is called."""

from __future__ import annotations

import importlib
import sys

COMMANDS = {
    "demo": "one model, every question: a picture in less than a minute",
    "restore": "what a degraded picture was, how sure we are, what else it could have been",
    "score": "how probable pictures are under a model",
    "blind": "which degradation made a picture",
    "train": "train a model from a preset (rerun to resume)",
    "data": "find, fetch and check a data set",
    "info": "the card of a model",
    "evaluate": "compare solvers on the same measurements (rerun to resume)",
    "bundle": "put a finished training run among the bundled models",
    "experiment": "reproduce a table or figure of the paper",
}


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


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `linverse` script."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return
    if arguments[0] == "--version":
        from linverse import __version__

        print(f"linverse {__version__}")
        return
    name, *rest = arguments
    if name not in COMMANDS:
        print(f"linverse: there is no command {name!r}\n\n{usage()}", file=sys.stderr)
        raise SystemExit(2)
    module = importlib.import_module(f"linverse.cli.{name.replace('-', '_')}")
    try:
        module.main(rest)
    except KeyboardInterrupt:
        print(f"\nlinverse {name}: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    except (ValueError, OSError, RuntimeError, FloatingPointError) as error:
        print(f"linverse {name}: {error}", file=sys.stderr)
        raise SystemExit(1) from error

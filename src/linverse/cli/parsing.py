"""How a command reads its options: a frozen dataclass with a docstring for each field becomes flags and their help."""

from __future__ import annotations

from typing import Annotated, TypeVar

import tyro

Options = TypeVar("Options")

ModelOption = Annotated[
    str | None,
    tyro.conf.arg(
        metavar="NAME",
        help="a bundled name, a folder, or an id of the hub",
        help_behavior_hint="(default: photographs, or photographs-grey)",
    ),
]
"""which model answers questions about a user's pictures; None: that of their channels"""

DeviceOption = Annotated[str, tyro.conf.arg(help="where the network runs: cpu, cuda, mps")]


def parse(kind: type[Options], arguments: list[str], command: str, description: str | None = None) -> Options:
    """The options of `linverse COMMAND`; flags have no --no-… twins."""
    config = (tyro.conf.FlagCreatePairsOff,)
    return tyro.cli(kind, args=arguments, prog=f"linverse {command}", description=description, config=config)

"""How a command reads its options: a frozen dataclass with a docstring for each field becomes flags and their help."""

from __future__ import annotations

from typing import TypeVar

import tyro

Options = TypeVar("Options")


def parse(kind: type[Options], arguments: list[str], command: str, description: str | None = None) -> Options:
    """The options of `linverse COMMAND`; flags have no --no-… twins."""
    config = (tyro.conf.FlagCreatePairsOff,)
    return tyro.cli(kind, args=arguments, prog=f"linverse {command}", description=description, config=config)

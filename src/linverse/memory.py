"""Sizes are judged before memory is asked for: a number with some zeros too many gets a sentence, not a machine that stands still."""

from __future__ import annotations

import os

SHARE = 0.5  # of the machine's memory that one thing may take


class TooLarge(MemoryError):
    """Something would take more memory than there is."""


def physical_memory() -> int | None:
    """The bytes of memory of this machine; None where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def check_memory(needed: float, what: str, remedy: str) -> None:
    """Refuse what takes more than half of this machine's memory."""
    available = physical_memory()
    if available is not None and needed > SHARE * available:
        raise TooLarge(
            f"{what} takes {needed / 1e9:,.1f} GB in memory, more than half of this machine's {available / 1e9:.1f} GB; {remedy}"
        )

"""Sizes are judged before memory is asked for: a number with some zeros too many gets a sentence, not a machine that stands still.

And what was asked for once is kept: glibc gives each freed array of more than 32 MB back to the system at once, and a large picture's
evaluation spends a quarter of its time on having the same pages cleared and mapped again.
"""

from __future__ import annotations

import ctypes
import os
import sys

SHARE = 0.5  # of the machine's memory that one thing may take


M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's mallopt


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


def keep_freed_memory() -> bool:
    """Let this process keep the memory that it frees, to use it again; whether the system's allocator knows how (glibc's does).

    For programs that do nothing but evaluate pictures: every command of ours calls it, `import linverse` does not. One evaluation of
    512×512 in colour took 1.8 s without and 1.3 s with it (two cores). The peak of memory stays what it is.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, 2**31 - 1))

"""What a process does with the memory that it frees: kept, the same pages are not cleared and mapped again for the next large picture."""

from __future__ import annotations

import subprocess
import sys

import pytest

FAULTS = """
import resource, sys, torch
from linverse.memory import keep_freed_memory
if sys.argv[1] == "kept":
    assert keep_freed_memory()
for number in range(30):  # of 64 MB; the allocator needs some before it has found its places
    if number == 20:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(1 << 24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(how: str) -> int:
    return int(subprocess.run([sys.executable, "-c", FAULTS, how], check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_freed_memory_is_used_again() -> None:
    assert page_faults("kept") < 0.5 * page_faults("given back")

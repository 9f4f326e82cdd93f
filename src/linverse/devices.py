"""Where things are computed: the CPU, or an accelerator that this machine has, by the names of torch (cuda, cuda:1, mps, xpu); by how
many threads."""

from __future__ import annotations

import torch

MOST_THREADS = 1024  # OpenMP asks for the memory of all of them at once, and ends the process where there is not enough


def check_device(name: str | torch.device) -> torch.device:
    """A device that is there, or an error that says which are.

    >>> check_device("cpu")
    device(type='cpu')
    """
    there = devices()
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = None
    if device is None or (str(device) not in there and str(device) != "cpu:0"):
        raise ValueError(f"there is no device {str(name)!r} here; this machine has {', '.join(there)}")
    return device


def devices() -> list[str]:
    """The names of those that are there: cpu, and for an accelerator its kind and each of its numbers."""
    if not torch.accelerator.is_available():
        return ["cpu"]
    kind = torch.accelerator.current_accelerator()
    assert kind is not None
    return ["cpu", kind.type, *(f"{kind.type}:{number}" for number in range(torch.accelerator.device_count()))]


def use_threads(count: int) -> None:
    """Let torch compute by so many threads."""
    if not 1 <= count <= MOST_THREADS:
        raise ValueError(f"threads are from 1 to {MOST_THREADS}; got {count}")
    torch.set_num_threads(count)

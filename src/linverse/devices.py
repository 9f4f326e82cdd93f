"""Where things are computed: the CPU, or an accelerator that this machine has, by the names of torch (cuda, cuda:1, mps, xpu); by how
many threads."""

from __future__ import annotations

import subprocess
import sys

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


TRIAL = """import torch
x = torch.ones(64, 64, dtype=torch.bfloat16)
torch.conv2d(x.expand(2, 64, 64, 64), x[:, :, None, None])
x @ x
"""


def check_bfloat16(device: torch.device) -> None:
    """Refuse bfloat16 on a processor that announces units for it and stops at their first instruction, as some virtual machines do.

    Tried in a process of its own, which such an instruction ends.
    """
    if device.type == "cpu" and subprocess.run([sys.executable, "-c", TRIAL], capture_output=True).returncode:
        raise ValueError(
            "this machine's processor cannot compute in bfloat16: leave out --precision bf16, or export "
            "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16, which does without the units that fail (and is slow)"
        )

"""Randomness enters as a `torch.Generator`; the same key gives the same bits.

A stream is keyed by integers (seed, step, purpose, …) rather than advanced, so that a run that was killed draws, at step n,
exactly what an uninterrupted one draws there, and so do two processes that share a batch.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def keyed_seed(*key: int | str) -> int:
    """A 63-bit seed from a key of integers and strings (BLAKE2b: the same on every machine and version)."""
    text = "\x1f".join(str(part) for part in key).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


def keyed_generator(*key: int | str, device: str | torch.device = "cpu") -> torch.Generator:
    """A fresh generator for a key."""
    return torch.Generator(device=device).manual_seed(keyed_seed(*key))


def normal_like(x: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Standard normal noise of x's shape, dtype and device, drawn on the generator's device."""
    device = generator.device if generator is not None else x.device
    return torch.randn(x.shape, generator=generator, dtype=x.dtype, device=device).to(x.device)

"""Held-out images that travel with a model: a sample of what it knows, for a user's picture to be compared with (typicality.py).

They lie as bytes in `reference.safetensors` beside the weights, x = pixels/white ∈ [0, 1]. The file stays under `MOST_BYTES`; a set of
fewer than `FEWEST` images cannot tell what is unusual, and is not kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from linverse.files.saving import REFERENCE, ModelFileError

MOST_BYTES, HEADER_BYTES = 2_000_000, 1_000
FEWEST = 20


@dataclass(frozen=True, eq=False)
class References:
    """Images [n, C, H, W] as uint8; the byte `white` means 1 (scikit-learn's digits: 16)."""

    pixels: Tensor
    white: int = 255

    def __post_init__(self) -> None:
        if self.pixels.dtype != torch.uint8 or self.pixels.ndim != 4 or not 1 <= self.white <= 255:
            found = f"{self.pixels.dtype} of shape {tuple(self.pixels.shape)}, white {self.white}"
            raise ValueError(f"reference images are uint8 [n, C, H, W] with white in 1…255; got {found}")

    def __len__(self) -> int:
        return len(self.pixels)

    def images(self) -> Tensor:
        """Float32 in [0, 1]."""
        return self.pixels.to(torch.float32) / self.white

    def encode(self) -> bytes:
        """The file."""
        from safetensors.torch import save

        return save({"images": self.pixels}, metadata={"white": str(self.white)})

    @classmethod
    def decode(cls, content: bytes) -> Self:
        """What `encode` wrote; anything else is refused."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            images = load(content)["images"]
            header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
            return cls(images, int(header["__metadata__"]["white"]))
        except (SafetensorError, KeyError, ValueError) as error:
            raise ModelFileError(f"{REFERENCE} holds no reference images: {error}") from error

    @classmethod
    def last_of(cls, count: int, batch: Callable[[Tensor], Tensor], wanted: int, white: int = 255) -> Self | None:
        """The last `wanted` of `count` images, which `batch` gives by their numbers, or as many as fit; None for too few.

        The last ones, because people try a model on the first.
        """
        if min(count, wanted) < FEWEST:
            return None
        room = (MOST_BYTES - HEADER_BYTES) // batch(torch.arange(1)).numel()
        kept = min(count, wanted, room)
        if kept < FEWEST:
            return None
        x = batch(torch.arange(count - kept, count))
        return cls((x.clamp(0, 1) * white).round().to(torch.uint8).contiguous(), white)


def references_of(model: object) -> References | None:
    """The held-out images that a model carries; None if it has none (exact energies never have)."""
    content = getattr(model, "attachments", {}).get(REFERENCE)
    return None if content is None else References.decode(content)

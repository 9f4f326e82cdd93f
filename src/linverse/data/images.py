"""A set of images of one size, held as bytes: x = pixels / white ∈ [0, 1].

The set stays uint8 (a quarter of the memory of floats, and it may be mapped from disk); a batch is float32 when it is asked
for. The moments of the data that a Gaussian reference N(m, C·I) needs are

    m = (1/N) Σₙ xₙ  (an image),        C = (1/Nd) Σₙ ‖xₙ − m‖²  (a number),

computed from integer sums, so that no digit is lost however many images there are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

CHUNK = 512  # images summed at a time: their int64 copy stays near 50 MB at 64×64×3


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images [N, C, H, W] as uint8 and, where they are known, labels [N]."""

    name: str
    images: Tensor
    labels: Tensor | None = None
    split: str = "train"
    white: int = 255  # the byte that means 1 (scikit-learn's digits: 16)
    notes: tuple[str, ...] = ()  # where the images came from and what was done to them, for a user to read

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4 or 0 in self.images.shape:
            found = f"{self.images.dtype} of shape {tuple(self.images.shape)}"
            raise ValueError(f"{self.name}: images are uint8 [N, C, H, W], at least one; got {found}")
        if self.labels is not None and self.labels.shape != (len(self),):
            raise ValueError(f"{self.name}: {len(self)} images but labels of shape {tuple(self.labels.shape)}")

    def __len__(self) -> int:
        return self.images.shape[0]

    @property
    def shape(self) -> tuple[int, int, int]:
        """[C, H, W] of one image."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    def batch(self, indices: Sequence[int] | Tensor, flip: torch.Generator | Tensor | None = None) -> Tensor:
        """x = pixels / white, float32 [B, C, H, W].

        `flip` mirrors left and right: a generator tosses a fair coin for each image; a boolean [B] says which ones (so that
        processes which share a batch can key the coins by sample).
        """
        chosen = torch.as_tensor(indices)
        if chosen.dtype == torch.bool or chosen.is_floating_point() or chosen.ndim != 1:
            raise ValueError(f"indices are a list of integers; got {chosen.dtype} of shape {tuple(chosen.shape)}")
        x = self.images[chosen.long()].to(torch.float32) / self.white
        return x if flip is None else mirror(x, flip)

    def subset(self, indices: Sequence[int] | Tensor) -> ImageSet:
        """The set of the chosen images."""
        chosen = torch.as_tensor(indices, dtype=torch.long)
        labels = None if self.labels is None else self.labels[chosen]
        return replace(self, images=self.images[chosen], labels=labels)

    @cached_property
    def digest(self) -> str:
        """A hash of all pixels, in their order; computed at the first call."""
        found = hashlib.sha256(f"{tuple(self.images.shape)} {self.white}\n".encode())
        for chunk in self.images.split(CHUNK):
            found.update(chunk.contiguous().numpy())
        return found.hexdigest()

    def mean_and_variance(self) -> tuple[Tensor, float]:
        """m, float64 [C, H, W], and the scalar C; computed at the first call."""
        return self._moments

    @cached_property
    def _moments(self) -> tuple[Tensor, float]:
        n, total = len(self), torch.zeros(self.shape, dtype=torch.int64)
        squares = torch.zeros_like(total)
        for chunk in self.images.split(CHUNK):
            pixels = chunk.long()
            total += pixels.sum(0)
            squares += pixels.square_().sum(0)
        # N·Σx² − (Σx)² is an exact integer in each pixel (it fits 63 bits up to ten million images)
        spread = (n * squares - total.square()).double().mean()
        return total.double() / (n * self.white), float(spread) / (n * self.white) ** 2


def mirror(x: Tensor, flip: torch.Generator | Tensor) -> Tensor:
    """Mirror the images of a batch that a boolean [B], or a fair coin from a generator, chooses."""
    if isinstance(flip, torch.Generator):
        flip = torch.rand(x.shape[0], generator=flip, device=flip.device) < 0.5
    if flip.dtype != torch.bool or flip.shape != x.shape[:1]:
        raise ValueError(
            f"flip has shape {tuple(flip.shape)}, {flip.dtype}; it takes one boolean for each of {x.shape[0]}"
        )
    return torch.where(flip.to(x.device)[:, None, None, None], x.flip(-1), x)

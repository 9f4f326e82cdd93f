"""The degradation that a picture itself tells of: its noise level and, where asked, the width of a Gaussian blur.

The noise comes first, from the picture as it is: a blurred picture is a smooth picture, and white noise on it stands out all the more.
Then the width of the blur is found with that noise, on a part of the picture in the middle, mirrored beyond its edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from linverse.blind.estimate import checked_raw
from linverse.blind.families import UnknownGaussianBlur
from linverse.blind.noise_level import NoiseSearch, search_noise
from linverse.blind.search import Axis, Search, search
from linverse.data.picture import Picture, centre
from linverse.degradations import Degradation, Denoising, GaussianBlur, ImageLike
from linverse.energy import Energy
from linverse.progress import Progress, silent

BLUR_SIDE = 192  # of the part in the middle
FIRST, NEXT = 13, 9  # points of the grids


@dataclass(frozen=True)
class FoundDegradation:
    """A degradation, and the searches that found its numbers, by their names."""

    degradation: Degradation
    searches: dict[str, Search]

    def record(self) -> dict[str, Any]:
        """Values and 90 % intervals, for a JSON file."""
        out: dict[str, Any] = {}
        for name, found in self.searches.items():
            low, high = found.interval(found.axes[0])
            out[name] = {"value": found.value(found.axes[0]), "low": low, "high": high, "level": 0.9}
            if isinstance(found, NoiseSearch):
                out[name] |= found.record()
        return out

    def describe(self) -> str:
        """`sigma = 0.0512 (90 %: 0.0507 … 0.0518)` for each."""
        parts = []
        for name, found in self.searches.items():
            low, high = found.interval(found.axes[0])
            parts.append(f"{name} = {found.value(found.axes[0]):.4g} (90 %: {low:.4g} … {high:.4g})")
        return ", ".join(parts)


def find_degradation(
    energy: Energy, picture: Picture | ImageLike, *, blur: bool = False, seed: int = 0, progress: Progress = silent
) -> FoundDegradation:
    """White noise of the level that a picture [1, C, H, W] shows; with `blur`, on a Gaussian blur of the width that it shows."""
    noise = search_noise(energy, picture, seed=seed, progress=progress)
    if not blur:
        return FoundDegradation(Denoising(noise.sigma), {"sigma": noise})
    raw = checked_raw(energy, picture.pixels if isinstance(picture, Picture) else picture)
    width = search_blur(energy, raw, noise.sigma, seed=seed, progress=progress)
    degradation = GaussianBlur(width.value(width.axes[0]), noise.sigma, "reflecting")
    return FoundDegradation(degradation, {"sigma": noise, "std": width})


def search_blur(
    energy: Energy, raw: torch.Tensor, sigma: float, *, seed: int = 0, progress: Progress = silent
) -> Search:
    """The posterior of the width of a Gaussian blur under known noise, from the middle of an image [1, C, H, W]."""
    size = raw.shape[2], raw.shape[3]
    seen = centre(raw, (min(size[0], BLUR_SIDE), min(size[1], BLUR_SIDE)))
    axis = Axis("std", 0.3, min(4.0, min(size) / 6), FIRST, unit="pixels")
    family = UnknownGaussianBlur(sigma, boundary="reflecting")
    return search(energy, seen, family, (axis,), count=NEXT, seed=seed, progress=progress)

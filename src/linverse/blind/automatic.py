"""The degradation that a picture itself tells of: its noise level and, where asked, the width of a Gaussian blur.

Of a blur both are unknown: what is left of the finest details is noise, which gives a first level; then the width under that noise
(`slope`), the noise under that width by its evidence, and the width again, on a part of the picture in the middle, mirrored beyond its
edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from linverse.blind.boxes import search_box
from linverse.blind.censored import CensoredImages
from linverse.blind.estimate import checked_raw
from linverse.blind.families import Family, Given, UnknownGaussianBlur, UnknownNoise, UnknownNoiseBox
from linverse.blind.noise_level import NoiseSearch, first_guess, search_noise
from linverse.blind.search import Axis, Search, search
from linverse.blind.slope import CorrectedSearch, search_by_slope
from linverse.data.picture import Picture, centre
from linverse.degradations import Degradation, Denoising, GaussianBlur, ImageLike
from linverse.energy import Energy
from linverse.progress import Progress, silent
from linverse.store.references import references_of

BLUR_SIDE = 192  # of the part in the middle
FIRST, NEXT = 13, 9  # points of the grids, of the width where there is nothing to judge it by, and of the noise


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
            if isinstance(found, NoiseSearch | CorrectedSearch):
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
    if not blur:
        noise = search_noise(energy, picture, seed=seed, progress=progress)
        return FoundDegradation(Denoising(noise.sigma), {"sigma": noise})
    raw = checked_raw(energy, picture.pixels if isinstance(picture, Picture) else picture)
    sigma = first_guess(CensoredImages.of(raw, None))
    std = _value(search_blur(energy, raw, sigma, seed=seed, progress=progress))
    axis = Axis("sigma", sigma / 2, 2 * sigma, NEXT, "log")
    family = Given(UnknownGaussianBlur(0.0, boundary="reflecting"), {"std": std}, ("sigma",))
    level = search(energy, _middle(raw), family, (axis,), count=NEXT, seed=seed, progress=progress)
    width = search_blur(energy, raw, _value(level), seed=seed, progress=progress)
    if width.at_edge():
        raise ValueError(
            f"the width of the blur was not found: the most probable one, {_value(width):.3g} pixels, is at the edge of what was searched, "
            "which this model is no judge of; give it, as by --task gauss:std=1.5"
        )
    degradation = GaussianBlur(_value(width), _value(level), "reflecting")
    return FoundDegradation(degradation, {"sigma": level, "std": width})


def _value(found: Search) -> float:
    return found.value(found.axes[0])


def _middle(raw: torch.Tensor) -> torch.Tensor:
    return centre(raw, (min(raw.shape[2], BLUR_SIDE), min(raw.shape[3], BLUR_SIDE)))


def search_blur(
    energy: Energy, raw: torch.Tensor, sigma: float, *, seed: int = 0, progress: Progress = silent
) -> Search:
    """The posterior of the width of a Gaussian blur under known noise, from the middle of an image [1, C, H, W]."""
    seen = _middle(raw)
    axis = Axis("std", 0.3, min(4.0, min(seen.shape[2:]) / 6), FIRST, unit="pixels")
    return search_width(
        energy, seen, UnknownGaussianBlur(sigma, boundary="reflecting"), axis, seed=seed, progress=progress
    )


def search_width(
    energy: Energy, raw: torch.Tensor, family: UnknownGaussianBlur, axis: Axis, *, seed: int, progress: Progress
) -> Search:
    """By the slope of the evidence, judged by held-out images, where an energy carries any; else by the evidence as it is."""
    if references_of(energy) is None:
        return search(energy, raw, family, (axis,), seed=seed, progress=progress)
    return search_by_slope(energy, raw, family, axis, seed=seed, progress=progress)


def search_family(
    energy: Energy,
    picture: Picture,
    family: Family,
    axes: tuple[Axis, ...],
    *,
    seed: int = 0,
    progress: Progress = silent,
) -> Search:
    """The posterior over a family's parameters: in ways of its own for clipped noise, large pictures, blurs and boxes, else on grids."""
    large = None in energy.shape
    if isinstance(family, UnknownNoise) and family.mask is None and (large or picture.depth is not None):
        return search_noise(energy, picture, seed=seed, progress=progress)
    if isinstance(family, UnknownGaussianBlur) and large:
        return search_blur(energy, picture.pixels, family.sigma, seed=seed, progress=progress)
    if isinstance(family, UnknownGaussianBlur) and family.names == ("std",):
        return search_width(energy, picture.pixels, family, axes[0], seed=seed, progress=progress)
    if isinstance(family, UnknownNoiseBox) and not large and tuple(axis.name for axis in axes) == family.names:
        return search_box(energy, picture.pixels, family, axes, seed=seed, progress=progress)
    return search(energy, picture.pixels, family, axes, seed=seed, progress=progress)

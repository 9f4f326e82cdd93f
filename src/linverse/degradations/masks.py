"""Masks: some pixels are measured and some are missing; Bayer patterns: each pixel is measured in one colour.

**True (or 1, or white) means the pixel was measured; False (0, black) means that it is missing.** A mask with an alpha channel is
read from its alpha (opaque pixels were measured), unless that is the same everywhere: then from its colours.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from linverse.covariance import SpatialCovariance
from linverse.degradations.base import Degradation, ImageLike, Size, as_tensor, blank, checked_sigma, describe, size_of
from linverse.degradations.pillow import is_pillow, planes
from linverse.measurement import Measurement
from linverse.rng import keyed_generator
from linverse.units import check_number, variance_from_sigma

PILLOW_MASKS = ("1", "L", "LA", "RGB", "RGBA")


def centre_box(side: Tensor, height: int, width: int) -> Tensor:
    """[n, 1, 1] sides → [n, H, W] masks, true inside the centred square."""
    top, left = (height - side) // 2, (width - side) // 2
    rows, columns = torch.arange(height)[None, :, None], torch.arange(width)[None, None, :]
    return (rows >= top) & (rows < top + side) & (columns >= left) & (columns < left + side)


class Masking(Degradation):
    """Some pixels are measured and some are missing."""

    @abstractmethod
    def mask_for(self, size: Size) -> Tensor:
        """[1 or B, 1 or C, H, W] boolean, True where measured."""

    def _mask_like(self, x: Tensor) -> Tensor:
        mask = self.mask_for(size_of(x)).to(x.device)
        if mask.shape[0] not in (1, x.shape[0]) or mask.shape[1] not in (1, x.shape[1]):
            raise ValueError(f"mask has shape {tuple(mask.shape)}; it does not fit images of shape {tuple(x.shape)}")
        return mask

    def operator(self, x: Tensor) -> Tensor:
        return x * self._mask_like(x)

    def from_raw(self, data: ImageLike) -> Measurement:
        """Whatever stands at missing pixels (NaN, say) is ignored."""
        raw = as_tensor(data, "measurement")
        if raw.ndim == 4:
            raw = torch.where(self._mask_like(raw), raw, torch.zeros_like(raw))
        return super().from_raw(raw)

    def condition(self, measurement: Measurement) -> Tensor:
        """The pixels, and which of them were measured."""
        mask = self._mask_like(measurement.raw).to(measurement.raw)
        return torch.cat([measurement.raw, mask.expand(len(measurement.raw), -1, -1, -1)], dim=1)

    def condition_channels(self, channels: int) -> int:
        return channels + 1

    def encode(self, raw: Tensor) -> Measurement:
        mask = self._mask_like(raw)
        seen = torch.where(mask, raw, torch.zeros_like(raw))
        return self._levels(blank(SpatialCovariance, raw, size_of(raw)), mask.to(raw.dtype), seen, seen)


def read_mask(given: ImageLike) -> Tensor:
    """Any sensible mask → boolean [B, 1 or C, H, W], True where measured.

    Takes [H, W] or [C, H, W] or [B, C, H, W], or a Pillow picture; boolean, or numbers that are all (nearly) 0 or all (nearly) the
    largest; two or four channels mean that the last one is alpha, which is the mask unless it is the same everywhere.
    """
    if is_pillow(given) and getattr(given, "mode", None) in PILLOW_MASKS:
        given = planes(given)
    if not isinstance(given, Tensor | np.ndarray | list | tuple):
        modes = f"; a Pillow picture of mode {', '.join(PILLOW_MASKS)} will do, too" if is_pillow(given) else ""
        raise TypeError(f"mask is {describe(given)}; give a tensor, a numpy array or nested lists{modes}")
    try:
        mask = torch.as_tensor(given)
    except (TypeError, ValueError) as error:
        raise TypeError(f"mask is not an array of numbers: {error}") from error
    if mask.is_meta or mask.layout != torch.strided or mask.is_complex():
        raise TypeError("mask is a sparse or complex tensor, or one without values; give a dense one of real numbers")
    if mask.numel() == 0:
        raise ValueError(f"mask has shape {tuple(mask.shape)}: there is nothing in it")
    if mask.ndim not in (2, 3, 4):
        raise ValueError(f"mask has shape {tuple(mask.shape)}; it must be [H, W], [C, H, W] or [B, C, H, W]")
    full = mask[(None,) * (4 - mask.ndim)]
    if full.shape[1] in (2, 4):
        alpha, colours = full[:, -1:], full[:, :-1]
        # a painted picture that happens to have an alpha channel is opaque everywhere: then the colours are the mask
        full = colours.amax(dim=1, keepdim=True) if bool((alpha == alpha.flatten()[0]).all()) else alpha
    if full.dtype == torch.bool:
        return full
    if full.is_floating_point() and not bool(torch.isfinite(full).all()):
        raise ValueError("mask has NaN or infinite entries")
    low, high = float(full.min()), float(full.max())
    top = 255.0 if high > 1 else 1.0
    values = full.double() / top
    between = ((values > 0.05) & (values < 0.95)).double().mean()
    if low < 0 or high > top or float(between) > 0.02:
        raise ValueError(
            f"mask has values in [{low:.3g}, {high:.3g}], {100 * float(between):.0f} % of them neither 0 nor the maximum; "
            "it must be black (missing) and white (measured)"
        )
    return values > 0.5


class Inpainting(Masking):
    """Given mask: True (white) = measured. At least one pixel must be."""

    def __init__(self, mask: ImageLike, sigma: float = 0.0) -> None:
        self.mask = read_mask(mask)
        self.sigma = math.sqrt(variance_from_sigma(sigma))
        if not bool(self.mask.flatten(1).any(dim=1).all()):
            raise ValueError("mask is all missing (black): white marks the pixels that were measured. Is it inverted?")

    def __repr__(self) -> str:
        height, width = self.mask.shape[2:]
        share = float(self.mask.double().mean())
        return f"Inpainting({height}×{width} mask, {100 * share:.0f} % measured, sigma={self.sigma:g})"

    def mask_for(self, size: Size) -> Tensor:
        if tuple(self.mask.shape[2:]) != size:
            height, width = self.mask.shape[2:]
            raise ValueError(f"mask has shape ({height}, {width}); the image is {size[0]}×{size[1]}")
        return self.mask


@dataclass(frozen=True)
class Box(Masking):
    """A missing square of the given side in the centre."""

    side: int
    sigma: float = 0.0

    def __post_init__(self) -> None:
        checked_sigma(self.sigma)

    def mask_for(self, size: Size) -> Tensor:
        check_number("side", self.side, whole=True)
        if not 1 <= self.side <= min(size):
            raise ValueError(f"a box of side {self.side} does not fit a {size[0]}×{size[1]} image")
        if self.side == max(size):
            raise ValueError(
                f"a box of side {self.side} hides the whole {size[0]}×{size[1]} image: nothing is measured"
            )
        return ~centre_box(torch.tensor([[[self.side]]]), *size)[:, None]


@dataclass(frozen=True)
class HalfMask(Masking):
    """A missing band at one side of the image: `depth` rows (top, bottom) or columns (left, right); by default one half."""

    where: str = "bottom"
    depth: int | None = None
    sigma: float = 0.0

    def __post_init__(self) -> None:
        checked_sigma(self.sigma)
        if self.where not in ("top", "bottom", "left", "right"):
            raise ValueError(f"where is {self.where!r}; it can be top, bottom, left or right")

    def mask_for(self, size: Size) -> Tensor:
        axis = 0 if self.where in ("top", "bottom") else 1
        length = size[axis]
        depth = length // 2 if self.depth is None else self.depth
        check_number("depth", depth, whole=True)
        if not 1 <= depth < length:
            raise ValueError(f"a band of depth {depth} does not fit the {length} pixels of the image")
        line = torch.ones(length, dtype=torch.bool)
        line[slice(0, depth) if self.where in ("top", "left") else slice(length - depth, length)] = False
        return (line[:, None] if axis == 0 else line[None, :]).expand(size)[None, None]


@dataclass(frozen=True)
class RandomPixels(Masking):
    """A random share of the pixels is missing (`missing`), or exactly `keep` pixels are measured; the same for a seed."""

    missing: float = 0.7
    keep: int | None = None
    sigma: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        checked_sigma(self.sigma)
        check_number("missing", self.missing)
        check_number("keep", 1 if self.keep is None else self.keep, whole=True)
        if self.keep is None and not 0 <= self.missing < 1:
            raise ValueError(f"missing is a share of the pixels in [0, 1); got {self.missing}")

    def mask_for(self, size: Size) -> Tensor:
        pixels = size[0] * size[1]
        keep = max(1, round((1 - self.missing) * pixels)) if self.keep is None else self.keep
        if not 1 <= keep <= pixels:
            raise ValueError(f"cannot keep {keep} of {pixels} pixels")
        mask = torch.zeros(pixels, dtype=torch.bool)
        mask[torch.randperm(pixels, generator=keyed_generator("pixels", self.seed))[:keep]] = True
        return mask.reshape(1, 1, *size)


BAYER_COLOURS = {"R": 0, "G": 1, "B": 2}
BAYER_PATTERNS = ("RGGB", "GRBG", "GBRG", "BGGR")


@dataclass(frozen=True)
class Demosaicing(Degradation):
    """A camera's Bayer pattern: every pixel is measured in one of three colours. Raw data are the mosaic, [B, 1, H, W].

    `pattern` names the colours of the upper left 2×2 pixels in reading order. Q = I, with a mask (and so a λ) per channel.

    >>> import torch, linverse as lv
    >>> lv.Demosaicing("RGGB", sigma=0.01).measure(torch.rand(1, 3, 4, 4)).raw.shape
    torch.Size([1, 1, 4, 4])
    """

    pattern: str = "RGGB"
    sigma: float = 0.0

    def __post_init__(self) -> None:
        checked_sigma(self.sigma)
        if self.pattern not in BAYER_PATTERNS:
            raise ValueError(f"pattern is {self.pattern!r}; it can be {', '.join(BAYER_PATTERNS)}")

    def mask_for(self, size: Size) -> Tensor:
        """[1, 3, H, W] boolean, True where a colour was measured."""
        mask = torch.zeros(1, 3, *size, dtype=torch.bool)
        for position, colour in enumerate(self.pattern):
            mask[:, BAYER_COLOURS[colour], position // 2 :: 2, position % 2 :: 2] = True
        return mask

    def operator(self, x: Tensor) -> Tensor:
        if x.shape[1] != 3:
            raise ValueError(f"a Bayer pattern measures images of 3 channels (RGB); this one has {x.shape[1]}")
        return (x * self.mask_for(size_of(x)).to(x)).sum(dim=1, keepdim=True)

    def encode(self, raw: Tensor) -> Measurement:
        if raw.shape[1] != 1:
            raise ValueError(f"a mosaic has 1 channel, the colour that each pixel saw; this one has {raw.shape[1]}")
        mask = self.mask_for(size_of(raw)).to(raw)
        return self._levels(blank(SpatialCovariance, raw, size_of(raw), channels=3), mask, raw, raw * mask)

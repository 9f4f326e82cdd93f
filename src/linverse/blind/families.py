"""Families of degradations with unknown parameters θ: white noise, a noisy box, one of several masks, blurs.

A family maps parameters, one value per row, to a `Measurement`; all rows are evaluated together, and U is differentiable in them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import torch
from torch import Tensor

from linverse.covariance import identity
from linverse.covariance.fourier import grid_frequencies, mirrored
from linverse.covariance.transfer import gaussian_transfer
from linverse.degradations.masks import centre_box
from linverse.measurement import Measurement

Parameters = Mapping[str, Tensor]  # name → [n] values


class Family(Protocol):
    """A parametric family of degradations."""

    @property
    def names(self) -> tuple[str, ...]:
        """Its parameters."""

    def measurement(self, raw: Tensor, theta: Parameters) -> Measurement:
        """The raw image [1, C, H, W] as a measurement under each of n parameter values: a batch of n."""


@dataclass(frozen=True)
class Given:
    """A family of which some parameters are known (`values`), and those of `names` are not."""

    family: Family
    values: Mapping[str, float]
    names: tuple[str, ...]

    def measurement(self, raw: Tensor, theta: Parameters) -> Measurement:
        like = theta[self.names[0]]
        known = {name: torch.full_like(like, value) for name, value in self.values.items()}
        return self.family.measurement(raw, {**theta, **known})


def _rows(value: Tensor) -> Tensor:
    return value.reshape(-1, 1, 1, 1)


def _pixels(raw: Tensor, log_noise: Tensor) -> Measurement:
    """Raw pixels under noise maps [n, 1, H, W]."""
    template = identity("spatial", raw.shape, raw)
    repeated = raw.expand(len(log_noise), -1, -1, -1)
    return Measurement(repeated, template, repeated, torch.zeros_like(log_noise), log_noise)


@dataclass(frozen=True)
class UnknownNoise:
    """White noise of unknown standard deviation `sigma`, where a `mask` [1, 1, H, W] has pixels measured (None: everywhere)."""

    names: tuple[str, ...] = ("sigma",)
    mask: Tensor | None = field(default=None, compare=False)

    def measurement(self, raw: Tensor, theta: Parameters) -> Measurement:
        seen = _pixels(raw, _rows(2 * theta["sigma"].log()).expand(-1, 1, *raw.shape[2:]))
        if self.mask is None:
            return seen
        return replace(seen, log_gain=torch.where(self.mask.to(raw.device), seen.log_gain, -math.inf))


@dataclass(frozen=True)
class UnknownNoiseBox:
    """Noise `sigma` inside a centred box of side `side` (optionally displaced by `dy`, `dx`) and a known `outside` elsewhere."""

    outside: float
    names: tuple[str, ...] = ("side", "sigma")

    def measurement(self, raw: Tensor, theta: Parameters) -> Measurement:
        sides = theta["side"].round().long().reshape(-1, 1, 1)
        inside = centre_box(sides, *raw.shape[2:])[:, None]
        if "dy" in theta:
            shifts = zip(theta["dy"].long().tolist(), theta["dx"].long().tolist(), strict=True)
            inside = torch.stack([torch.roll(m, shift, dims=(-2, -1)) for m, shift in zip(inside, shifts, strict=True)])
        floor = torch.as_tensor(2 * math.log(max(self.outside, 1e-12)), dtype=raw.dtype)
        return _pixels(raw, torch.where(inside, _rows(2 * theta["sigma"].log()), floor))


@dataclass(frozen=True, eq=False)
class UnknownMask:
    """Which of several masks was it? `index` counts `masks` [K, 1, H, W] (True = measured); missing pixels have noise `missing`."""

    masks: Tensor
    sigma: float
    missing: float
    names: tuple[str, ...] = ("index",)

    def measurement(self, raw: Tensor, theta: Parameters) -> Measurement:
        chosen = self.masks[theta["index"].long()]
        levels = torch.tensor([2 * math.log(self.missing), 2 * math.log(self.sigma)], dtype=raw.dtype)
        return _pixels(raw, levels[chosen.long()])


def _blurred(raw: Tensor, transfer: Tensor, log_noise: Tensor, basis: str = "fourier") -> Measurement:
    """Raw pixels under real transfer functions [n, H, W] in the basis of periodic (Fourier) or mirrored (DCT) pictures."""
    template = identity(basis, raw.shape, raw)
    sign = torch.where(transfer < 0, -1.0, 1.0).to(raw.dtype)[:, None]
    gain = transfer.abs().clamp_min(torch.finfo(raw.dtype).tiny)[:, None]
    repeated = raw.expand(len(transfer), -1, -1, -1)
    return Measurement(repeated, template, template.analysis(raw) * sign, gain.log(), log_noise.expand_as(gain))


@dataclass(frozen=True)
class UnknownGaussianBlur:
    """A Gaussian blur of unknown width `std` (pixels) with noise `sigma`, known or, if in theta, unknown too.

    Beyond its edges a picture goes on periodically or, as photographs rather do, mirrored ("reflecting").
    """

    sigma: float
    names: tuple[str, ...] = ("std",)
    boundary: Literal["periodic", "reflecting"] = "periodic"

    def measurement(self, raw: Tensor, theta: Parameters) -> Measurement:
        transfer = gaussian_transfer(theta["std"], (raw.shape[2], raw.shape[3]), self.boundary)
        sigma = theta["sigma"] if "sigma" in theta else torch.as_tensor(self.sigma, dtype=raw.dtype)
        basis = "fourier" if self.boundary == "periodic" else "dct"
        return _blurred(raw, transfer, _rows(2 * sigma.log()), basis)


def reflecting(family: Family) -> Family:
    """A Gaussian blur of pictures that go on mirrored beyond their edges, as photographs rather do than periodically; all else as it is."""
    return replace(family, boundary="reflecting") if isinstance(family, UnknownGaussianBlur) else family


@dataclass(frozen=True)
class UnknownLineBlur:
    """A straight motion of `length` pixels at `angle` (radians from horizontal): h(f) = sinc(length · f∥), periodic."""

    sigma: float
    names: tuple[str, ...] = ("angle", "length")

    def transfer(self, theta: Parameters, raw: Tensor) -> Tensor:
        """[n, H, W]."""
        vertical, horizontal = grid_frequencies(raw.shape[2], raw.shape[3], raw)
        angle, length = (theta[name].reshape(-1, 1, 1) for name in ("angle", "length"))
        transfer = torch.special.sinc(length * (horizontal * angle.cos() - vertical * angle.sin()))
        return 0.5 * (
            transfer + mirrored(transfer)
        )  # at the Nyquist frequency k and −k are one: an image blurs to an image

    def measurement(self, raw: Tensor, theta: Parameters) -> Measurement:
        return _blurred(
            raw, self.transfer(theta, raw), torch.full((1, 1, 1, 1), 2 * math.log(self.sigma), dtype=raw.dtype)
        )

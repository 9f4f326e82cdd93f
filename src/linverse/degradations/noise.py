"""Noise without a blur or a mask: white, with a level per pixel (a noise map), pink or blue, or of any known covariance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from linverse.covariance import Covariance, FourierCovariance, SpatialCovariance
from linverse.degradations.base import (
    SLACK,
    Degradation,
    ImageLike,
    as_image,
    as_tensor,
    blank,
    checked_sigma,
    rounding_variance,
    size_of,
)
from linverse.measurement import Measurement
from linverse.rng import normal_like


class Denoising(Degradation):
    """y = x + σv; σ is one number, or a noise map [H, W] (or [C, H, W]) with the noise of every pixel.

    >>> import torch, linverse as lv
    >>> lv.Denoising(sigma=0.1)
    Denoising(sigma=0.1)
    >>> lv.Denoising(torch.linspace(0.05, 0.2, 16).reshape(4, 4))
    Denoising(sigma=4×4 map, 0.05 to 0.2)

    `sigma` of a noise map is its largest value; `sigma_map` holds the map itself, [1, 1 or C, H, W].
    """

    def __init__(self, sigma: float | ImageLike) -> None:
        self.sigma_map: Tensor | None = None
        if isinstance(sigma, Tensor | np.ndarray | list | tuple) and (
            not isinstance(sigma, Tensor | np.ndarray) or sigma.ndim
        ):
            self.sigma_map = _noise_map(sigma)
            self.sigma = float(self.sigma_map.max())
        else:
            self.sigma = checked_sigma(float(sigma))  # type: ignore[arg-type]

    def __repr__(self) -> str:
        if self.sigma_map is None:
            return f"Denoising(sigma={self.sigma:g})"
        height, width = size_of(self.sigma_map)
        return f"Denoising(sigma={height}×{width} map, {float(self.sigma_map.min()):g} to {self.sigma:g})"

    def operator(self, x: Tensor) -> Tensor:
        self._check(x)
        return x

    def add_noise(self, clean: Tensor, generator: torch.Generator | None) -> Tensor:
        if self.sigma_map is None:
            return super().add_noise(clean, generator)
        return clean + self.sigma_map.to(clean) * normal_like(clean, generator)

    def encode(self, raw: Tensor) -> Measurement:
        self._check(raw)
        template = blank(SpatialCovariance, raw, size_of(raw))
        if self.sigma_map is None:
            return self._levels(template, raw.new_ones(1, 1, *size_of(raw)), raw, raw)
        variance = self.sigma_map.to(raw).square().clamp_min(rounding_variance(raw))
        return Measurement(raw, template, raw, torch.zeros_like(variance), variance.log())

    def _check(self, x: Tensor) -> None:
        if self.sigma_map is None:
            return
        channels = self.sigma_map.shape[1]
        if size_of(self.sigma_map) != size_of(x) or channels not in (1, x.shape[1]):
            raise ValueError(
                f"the noise map has shape {tuple(self.sigma_map.shape[1:])}; it does not fit images of shape {tuple(x.shape)}"
            )


def _noise_map(values: ImageLike) -> Tensor:
    """[1, 1 or C, H, W] standard deviations."""
    sigma = as_tensor(values, "noise map")
    if sigma.ndim not in (2, 3) or sigma.numel() == 0:
        raise ValueError(f"a noise map has shape {tuple(sigma.shape)}; it must be [H, W] or [C, H, W]")
    if not bool((torch.isfinite(sigma) & (sigma >= 0)).all()):
        raise ValueError("a noise map holds standard deviations: all of its entries must be finite and ≥ 0")
    return sigma[(None,) * (4 - sigma.ndim)]


@dataclass(frozen=True, eq=False, repr=False)
class ColouredNoise(Degradation):
    """y = x + N(0, Σ) for any known Σ: a noise spectrum, a box of noise."""

    cov: Covariance
    sigma: float = 0.0

    def __repr__(self) -> str:
        low, high = (float(value) for value in self.cov.log_variance.mul(0.5).exp().aminmax())
        return f"ColouredNoise({self.cov.basis}, std {low:.3g} to {high:.3g})"

    def operator(self, x: Tensor) -> Tensor:
        self.cov.check_image(x)
        return x

    def add_noise(self, clean: Tensor, generator: torch.Generator | None) -> Tensor:
        return clean + self.cov.colour(normal_like(clean, generator))

    def from_raw(self, data: ImageLike) -> Measurement:
        largest = float(self.cov.log_variance.max().mul(0.5).exp())
        return self.encode(as_image(data, slack=SLACK + 8 * largest, name="measurement"))

    def encode(self, raw: Tensor) -> Measurement:
        self.cov.check_image(raw)
        log_variance = self.cov.log_variance
        return Measurement(raw, self.cov[:1], self.cov.analysis(raw), torch.zeros_like(log_variance), log_variance)


class PowerLawNoise(Degradation):
    """y = x + stationary noise of standard deviation σ whose power falls as 1/fˢ: pink for s = 1, white for 0, blue for −1.

    >>> import torch, linverse as lv
    >>> lv.PowerLawNoise(sigma=0.1, exponent=1.0).measure(torch.rand(1, 1, 8, 8)).template.basis
    'fourier'
    """

    def __init__(self, sigma: float, exponent: float = 1.0) -> None:
        self.sigma, self.exponent = checked_sigma(sigma), float(exponent)

    def __repr__(self) -> str:
        return f"PowerLawNoise(sigma={self.sigma:g}, exponent={self.exponent:g})"

    def operator(self, x: Tensor) -> Tensor:
        return x

    def covariance(self, like: Tensor) -> Covariance:
        """Σ for images [B, C, H, W]; the mean of the image counts as a wave of half a cycle."""
        template = blank(FourierCovariance, like, size_of(like))
        radius = torch.hypot(*template.frequencies())
        radius[0, 0] = 0.5 / max(size_of(like))
        power = radius ** (-self.exponent)
        variance = self.sigma**2 * power / power.mean() + rounding_variance(like)
        return template.with_log_variance(variance.log()[None, None].to(like))

    def add_noise(self, clean: Tensor, generator: torch.Generator | None) -> Tensor:
        cov = self.covariance(clean)
        return clean + cov.expand(len(clean)).colour(normal_like(clean, generator))

    def encode(self, raw: Tensor) -> Measurement:
        cov = self.covariance(raw)
        return Measurement(raw, cov, cov.analysis(raw), torch.zeros_like(cov.log_variance), cov.log_variance)

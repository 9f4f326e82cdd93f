"""Magnetic resonance imaging with one coil: some lines of the Fourier transform of a *real* image (Cartesian undersampling).

The scanner gives F(k) + σ(v₁ + iv₂) for the k it visits, F the orthonormal DFT. A real image has F(−k) = F(k)*, so that the Hartley
coefficients Re F(k) − Im F(k), the library's Fourier basis, are seen through
    both k and −k     F(k) is the mean of y(k) and y(−k)*: real and imaginary part have variance σ²/2 each, a Hartley coefficient σ²
    one of the two    F(k) = y(k) or y(−k)*: variance σ² each, and *both* coefficients ±k are known, with variance 2σ²
    k = −k            F(k) is real; the imaginary part is only noise: variance σ²
    neither           not measured
Coefficients of k and −k are uncorrelated in all cases (real and imaginary part have equal variance): the measurement is exactly diagonal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from linverse.covariance import FourierCovariance
from linverse.covariance.fourier import mirrored
from linverse.degradations.base import Degradation, ImageLike, Size, as_tensor, blank, checked_sigma, rounding_variance
from linverse.measurement import Measurement
from linverse.rng import keyed_generator
from linverse.units import variance_from_sigma


@dataclass(frozen=True)
class MRI(Degradation):
    """One in `acceleration` lines (columns) of k-space: the `centre` share of them around k = 0, the others at random.

    Raw data are [B, C, H, W, 2], real and imaginary parts with k = 0 at index (0, 0), as `torch.fft.fft2(x, norm="ortho")` has it, and 0
    where nothing was measured; `from_raw` takes complex arrays [B, C, H, W] too. `sigma` is the std of each part.

    >>> import torch, linverse as lv
    >>> lv.MRI(acceleration=4, sigma=0.05).measure(torch.rand(1, 1, 32, 32))
    Measurement(1 of 1×32×32 in the fourier basis, 40.6 % measured, noise std 0.05 to 0.0707)
    """

    acceleration: float = 4.0
    sigma: float = 0.05
    centre: float = 0.08
    seed: int = 0

    def __post_init__(self) -> None:
        checked_sigma(self.sigma)
        if not (math.isfinite(self.acceleration) and self.acceleration >= 1 and 0 <= self.centre <= 1):
            raise ValueError(
                f"acceleration is at least 1 and centre a share in [0, 1]; got {self.acceleration} and {self.centre}"
            )

    def lines_for(self, width: int) -> Tensor:
        """Which columns of k-space are measured, [W] boolean."""
        wanted = max(1, round(width / self.acceleration))
        distance = (torch.fft.fftfreq(width) * width).abs()
        near = distance.argsort(stable=True)[: min(wanted, max(1, round(self.centre * width)))]
        chosen = torch.zeros(width, dtype=torch.bool)
        chosen[near] = True
        rest = torch.nonzero(~chosen).flatten()
        order = torch.randperm(len(rest), generator=keyed_generator("lines", self.seed))
        chosen[rest[order[: wanted - len(near)]]] = True
        return chosen

    def mask_for(self, size: Size) -> Tensor:
        """[H, W] boolean, True where k-space is measured."""
        return self.lines_for(size[1]).expand(size)

    def operator(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.fft2(x, norm="ortho")
        return torch.view_as_real(spectrum * self.mask_for((x.shape[2], x.shape[3])).to(x))

    def add_noise(self, clean: Tensor, generator: torch.Generator | None) -> Tensor:
        mask = self.mask_for((clean.shape[2], clean.shape[3])).to(clean)[..., None]
        return super().add_noise(clean, generator) * mask

    def from_raw(self, data: ImageLike) -> Measurement:
        """From k-space; what stands where nothing was measured is ignored."""
        if isinstance(data, np.ndarray) and np.iscomplexobj(data):
            data = torch.from_numpy(data)
        if isinstance(data, Tensor) and data.is_complex():
            data = torch.view_as_real(data)
        raw = as_tensor(data, "k-space")
        if raw.ndim != 5 or raw.shape[-1] != 2 or raw.numel() == 0:
            raise ValueError(
                f"k-space has shape {tuple(raw.shape)}; it must be complex [batch, channels, height, width], or real with a last "
                "axis of 2"
            )
        seen = torch.where(self.mask_for((raw.shape[2], raw.shape[3])).to(raw.device)[..., None], raw, 0.0)
        if not bool(torch.isfinite(seen).all()):
            raise ValueError(f"k-space has {int((~torch.isfinite(seen)).sum())} NaN or infinite entries")
        return self.encode(seen)

    def encode(self, raw: Tensor) -> Measurement:
        size = (raw.shape[2], raw.shape[3])
        mask = self.mask_for(size).to(raw.device)
        both = mask.to(raw.dtype) + mirrored(mask).to(raw.dtype)  # how many of ±k were measured
        spectrum = torch.view_as_complex(raw.contiguous()) * mask
        # y(k) and y(−k)*: their sum over how many there are
        merged = (spectrum + mirrored(spectrum).conj()) / both.clamp_min(1)
        noise = max(variance_from_sigma(self.sigma), rounding_variance(raw))
        twice = torch.where(both == 1, 2.0, 1.0).to(raw)
        template = blank(FourierCovariance, raw[..., 0], size)
        gain = (both > 0).to(raw)[None, None]
        return Measurement(raw, template, merged.real - merged.imag, gain.log(), (noise * twice).log()[None, None])

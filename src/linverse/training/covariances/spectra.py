"""Distributions of noise that varies from frequency to frequency: blurs of every kind, super-resolution, any smooth spectrum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from linverse.covariance import BlockDCTCovariance, Covariance, DCTCovariance, FourierCovariance, VarianceRange
from linverse.covariance.transfer import gaussian_transfer
from linverse.training.covariances.interface import (
    Shape,
    check_choice,
    check_ends,
    check_hidden,
    log_uniform,
    two_levels,
)


@dataclass(frozen=True)
class GaussianBlurs:
    """λ = σ²/|h|² of a Gaussian blur, cut at λ_max; its std (pixels) log-uniform, and σ² too, up to `loudest` (0: λ_max).

    A share `capped` is cut at a log-uniform level instead: what a sampler meets on the clamped path, where the loudest frequencies
    fall first.
    """

    kind: ClassVar[str] = "gaussian-blur"
    narrowest: float = 0.3
    widest: float = 3.0
    boundary: str = "periodic"
    loudest: float = 0.0
    capped: float = 0.0

    def __post_init__(self) -> None:
        check_ends("the share of capped blurs", 0.0, self.capped, most=1.0)
        check_choice("the boundary of a blur", self.boundary, ("periodic", "reflecting"))
        check_ends("the std of a blur", self.narrowest, self.widest, least=0.01)
        check_ends("σ² of a blur", 0.0, self.loudest)

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> Covariance:
        std = self.narrowest * (self.widest / self.narrowest) ** torch.rand(n, generator=generator)
        # float64: σ²/h² < λ_max down to |h| = 1e-6, where a float32 sum of taps has no digits left
        gain = gaussian_transfer(std.double(), shape[1:], self.boundary).abs().clamp_min(1e-30)
        loudest = min(self.loudest or limits.maximum, limits.maximum)
        noise = log_uniform((n, 1, 1), VarianceRange(limits.minimum, loudest), generator)
        cap = torch.full_like(noise, math.log(limits.maximum))
        if self.capped:
            level = torch.maximum(log_uniform((n, 1, 1), limits, generator), noise)
            cap = torch.where(torch.rand(n, 1, 1, generator=generator) < self.capped, level, cap)
        log_variance = torch.minimum(noise - 2 * gain.log().to(noise.dtype), cap)[:, None]
        family = FourierCovariance if self.boundary == "periodic" else DCTCovariance
        return family(log_variance, shape[0])


@dataclass(frozen=True)
class BoxSuperResolution:
    """×factor box-mean super-resolution: one level for the DC coefficient of each block, one for the others."""

    kind: ClassVar[str] = "super-resolution"
    factor: int = 4
    hidden: float = 0.0

    def __post_init__(self) -> None:
        check_ends("the factor of super-resolution", self.factor, math.inf, least=2)
        check_hidden(self.hidden)

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> Covariance:
        channels, height, width = shape
        lost = torch.ones(height, width, dtype=torch.bool)
        lost[:: self.factor, :: self.factor] = False
        log_variance = two_levels(lost.expand(n, height, width), limits, generator, self.hidden)
        return BlockDCTCovariance(log_variance, channels, self.factor)


@dataclass(frozen=True)
class SmoothSpectra:
    """Any smooth even spectrum: log λ = level + slope·log|k| + Σ_j a_j cos 2πp_j·k, in Fourier.

    The p_j are `terms` offsets of up to `reach` pixels, so that the last part is what log|h|² of a small kernel looks like; slopes up to
    `steepest` either way give pink and blue noise. The mean of log λ is log-uniform.
    """

    kind: ClassVar[str] = "smooth-spectra"
    terms: int = 4
    reach: int = 4
    ripple: float = 1.5
    steepest: float = 2.0

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> Covariance:
        rows, columns = (torch.fft.fftfreq(size) for size in shape[1:])
        offsets = torch.randint(-self.reach, self.reach + 1, (2, n, self.terms, 1, 1), generator=generator)
        heights = self.ripple * torch.randn(n, self.terms, 1, 1, generator=generator)
        phase = offsets[0] * rows[:, None] + offsets[1] * columns[None, :]
        ripples = (heights * torch.cos(2 * math.pi * phase)).sum(1)
        radius = (rows[:, None].square() + columns[None, :].square() + 0.25 / max(shape[1:]) ** 2).sqrt().log()
        slope = self.steepest * (2 * torch.rand(n, 1, 1, generator=generator) - 1)
        shaped = ripples + slope * (radius - radius.mean())
        low, high = math.log(limits.minimum), math.log(limits.maximum)
        return FourierCovariance(
            (log_uniform((n, 1, 1), limits, generator) + shaped).clamp(low, high)[:, None], shape[0]
        )


@dataclass(frozen=True)
class DefocusBlurs:
    """λ = σ²/|h|² of a disc of `sharpest`…`softest` pixels radius (log-uniform), periodic; σ² log-uniform up to `loudest`."""

    kind: ClassVar[str] = "defocus-blur"
    sharpest: float = 0.6
    softest: float = 5.0
    loudest: float = 1.0

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> Covariance:
        radius = self.sharpest * (self.softest / self.sharpest) ** torch.rand(n, 1, 1, generator=generator)
        rows, columns = (torch.fft.fftfreq(size) for size in shape[1:])
        phase = 2 * math.pi * radius * torch.hypot(rows[:, None], columns[None, :]).clamp_min(1e-6)
        return blurred(2 * torch.special.bessel_j1(phase) / phase, shape, limits, self.loudest, generator)


@dataclass(frozen=True)
class MotionBlurs:
    """λ = σ²/|h|² of a camera that moved: `points` places along a path of up to `longest` pixels that turns a little, periodic."""

    kind: ClassVar[str] = "motion-blur"
    longest: float = 15.0
    points: int = 24
    turning: float = 0.25
    loudest: float = 1.0

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> Covariance:
        length = 1 + (self.longest - 1) * torch.rand(n, 1, generator=generator)
        bends = self.turning * torch.randn(n, self.points, generator=generator)
        angle = 2 * math.pi * torch.rand(n, 1, generator=generator) + bends.cumsum(1)
        step = length / self.points
        path = torch.stack([(step * angle.sin()).cumsum(1), (step * angle.cos()).cumsum(1)])
        rows, columns = (torch.fft.fftfreq(size) for size in shape[1:])
        gain = torch.zeros(n, *shape[1:], dtype=torch.complex64)
        for k in range(self.points):
            phase = path[0, :, k, None, None] * rows[:, None] + path[1, :, k, None, None] * columns[None, :]
            gain += torch.polar(torch.full_like(phase, 1 / self.points), 2 * math.pi * phase)
        return blurred(gain.abs(), shape, limits, self.loudest, generator)


@dataclass(frozen=True)
class RandomKernels:
    """λ = σ²/|h|² of any small kernel: random weights on 3×3 … `largest`×`largest` pixels, few of them large; deep notches at any place."""

    kind: ClassVar[str] = "random-kernel"
    largest: int = 7
    loudest: float = 1.0

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> Covariance:
        side = min(self.largest, *shape[1:])
        weights = torch.rand(n, side, side, generator=generator).pow(6)
        sizes = 1 + 2 * torch.randint(1, max(2, side // 2 + 1), (n, 1, 1), generator=generator)
        index = torch.arange(side)
        weights = weights * (index[:, None] < sizes) * (index[None, :] < sizes)
        kernel = torch.zeros(n, *shape[1:])
        kernel[:, :side, :side] = weights / weights.sum(dim=(1, 2), keepdim=True)
        return blurred(torch.fft.fft2(kernel).abs(), shape, limits, self.loudest, generator)


def blurred(
    gain: Tensor, shape: Shape, limits: VarianceRange, loudest: float, generator: torch.Generator | None
) -> Covariance:
    """[n, H, W] gains on the DFT grid → Σ with λ = σ²/h², cut at λ_max; σ² log-uniform up to `loudest`."""
    noise = log_uniform((len(gain), 1, 1), VarianceRange(limits.minimum, min(loudest, limits.maximum)), generator)
    log_variance = noise - 2 * gain.abs().clamp_min(1e-12).log()
    return FourierCovariance(log_variance.clamp_max(math.log(limits.maximum))[:, None].contiguous(), shape[0])

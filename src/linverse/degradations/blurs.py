"""Blurs: convolution with a kernel, diagonal in the Fourier basis (periodic boundary) or the DCT's (reflecting boundary).

A kernel is made for the image at hand (`kernel_for`), so that one that cannot fit is refused before memory is asked for.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import lru_cache

import torch
from torch import Tensor

from linverse.covariance import DCTCovariance, FourierCovariance
from linverse.covariance.transfer import gaussian_taps, kernel_transfer, symmetric_transfer
from linverse.degradations.base import Degradation, Size, blank, checked_sigma, size_of
from linverse.measurement import Measurement
from linverse.rng import keyed_generator
from linverse.units import check_number

WALK_CHUNK = 4096  # points of a camera shake that are drawn at a time


class Convolution(Degradation):
    """Hx = kernel ∗ x. Periodic boundaries take every kernel, reflecting ones those of mathematics §1."""

    def __init__(self, sigma: float, boundary: str) -> None:
        if boundary not in ("periodic", "reflecting"):
            raise ValueError(f'boundary is {boundary!r}; it can be "periodic" or "reflecting"')
        self.sigma, self.boundary = checked_sigma(sigma), boundary

    @abstractmethod
    def kernel_for(self, size: Size) -> Tensor:
        """The kernel [h, w] on images of this size."""

    @abstractmethod
    def describe_kernel(self) -> str:
        """A word about the kernel."""

    def __repr__(self) -> str:
        boundary = "" if self.boundary == "periodic" else f", {self.boundary}"
        return f"{type(self).__name__}({self.describe_kernel()}, sigma={self.sigma:g}{boundary})"

    def transfer(self, size: Size, dtype: torch.dtype) -> Tensor:
        """h on the frequency grid: complex (periodic) or real (reflecting)."""
        kernel = self.kernel_for(size).double()
        if self.boundary == "periodic":
            return kernel_transfer(kernel, size).to(torch.complex128 if dtype == torch.float64 else torch.complex64)
        return symmetric_transfer(kernel, size).to(dtype)

    def operator(self, x: Tensor) -> Tensor:
        transfer = self.transfer(size_of(x), x.dtype).to(x.device)
        if self.boundary == "periodic":
            return torch.fft.ifft2(torch.fft.fft2(x) * transfer).real
        basis = blank(DCTCovariance, x, size_of(x))
        return basis.synthesis(basis.analysis(x) * transfer)

    def encode(self, raw: Tensor) -> Measurement:
        size = size_of(raw)
        transfer = self.transfer(size, raw.dtype).to(raw.device)
        gain = transfer.abs().clamp_min(torch.finfo(raw.dtype).tiny)[None, None]
        # where h is exactly 0 the coefficient is pure noise and its phase does not matter
        if self.boundary == "periodic":
            phase = torch.where(transfer.abs() > 0, transfer.conj() / gain[0, 0], torch.ones_like(transfer))
            spectrum = torch.fft.fft2(raw, norm="ortho") * phase
            return self._levels(blank(FourierCovariance, raw, size), gain, raw, spectrum.real - spectrum.imag)
        basis = blank(DCTCovariance, raw, size)
        sign = torch.where(transfer < 0, -1.0, 1.0).to(raw.dtype)
        return self._levels(basis, gain, raw, basis.analysis(raw) * sign)


class Blur(Convolution):
    """Convolution with any kernel [h, w]."""

    def __init__(self, kernel: Tensor, sigma: float = 0.0, boundary: str = "periodic") -> None:
        if not isinstance(kernel, Tensor) or kernel.ndim != 2 or not kernel.is_floating_point() or kernel.is_meta:
            found = f"{kernel.dtype} {tuple(kernel.shape)}" if isinstance(kernel, Tensor) else type(kernel).__name__
            raise ValueError(f"a blur kernel is a floating-point [h, w] tensor; got {found}")
        if not bool(torch.isfinite(kernel).all()) or not bool(kernel.any()):
            raise ValueError("the blur kernel is zero or has NaN or infinite entries")
        self.kernel = kernel
        super().__init__(sigma, boundary)

    def describe_kernel(self) -> str:
        return f"{self.kernel.shape[0]}×{self.kernel.shape[1]} kernel"

    def kernel_for(self, size: Size) -> Tensor:
        return self.kernel


def check_extent(taps: int, size: Size) -> None:
    """Refuse a kernel that is larger than the image, before it is made."""
    if taps > min(size):
        raise ValueError(
            f"the blur kernel is {taps}×{taps}, larger than the {size[0]}×{size[1]} image: "
            "give a smaller kernel or larger images"
        )


class GaussianBlur(Convolution):
    """A Gaussian of the given std (pixels), sampled on `size`×`size` pixels.

    By default the taps are odd in number and reach four std to either side, or as far as the image goes (as they do in training).
    """

    def __init__(self, std: float, sigma: float = 0.0, boundary: str = "periodic", size: int | None = None) -> None:
        check_number("std", std)
        if not (math.isfinite(std) and std > 0):
            raise ValueError(f"the std of a Gaussian blur must be positive; got {std}")
        if size is not None and size < 1:
            raise ValueError(f"a Gaussian blur has at least one tap; got size {size}")
        self.std, self.size = std, size
        super().__init__(sigma, boundary)

    def describe_kernel(self) -> str:
        return f"std={self.std:g}"

    def kernel_for(self, size: Size) -> Tensor:
        if self.size is not None:
            if self.boundary == "periodic":
                check_extent(self.size, size)
            line = _gaussian_line(self.std, self.size)
            return torch.outer(line, line)
        wanted = 2 * math.ceil(4 * self.std) + 1
        # periodic images hold so many taps; mirrored ones hold twice as many
        room = [n if self.boundary == "periodic" else 2 * n for n in size]
        rows, columns = (_gaussian_line(self.std, min(wanted, n - 1 + n % 2)) for n in room)
        return torch.outer(rows, columns)


def _gaussian_line(std: float, taps: int) -> Tensor:
    """A sampled Gaussian of unit sum, centred (between two pixels if `taps` is even)."""
    if taps % 2:
        return gaussian_taps(torch.tensor([std], dtype=torch.float64), taps // 2)[0]
    offsets = torch.arange(taps, dtype=torch.float64) - (taps - 1) / 2
    return torch.softmax(-0.5 * (offsets / std).square(), dim=0)


class Defocus(Convolution):
    """A lens out of focus: every point becomes a disc of the given `radius` (pixels), its edge shared out by area; periodic.

    >>> import linverse as lv
    >>> lv.Defocus(radius=2.5, sigma=0.01)
    Defocus(radius=2.5, sigma=0.01)
    """

    def __init__(self, radius: float, sigma: float = 0.0) -> None:
        check_number("radius", radius)
        if not (math.isfinite(radius) and radius > 0):
            raise ValueError(f"the radius of a disc must be positive; got {radius}")
        self.radius = radius
        super().__init__(sigma, "periodic")

    def describe_kernel(self) -> str:
        return f"radius={self.radius:g}"

    def kernel_for(self, size: Size) -> Tensor:
        check_extent(2 * math.ceil(self.radius - 0.5) + 1, size)
        return disc_kernel(self.radius)


@lru_cache(maxsize=16)
def disc_kernel(radius: float, subdivisions: int = 64) -> Tensor:
    """[n, n], unit sum: the area of each pixel that lies within `radius` of the centre.

    Exact in one direction, the midpoint rule on `subdivisions` lines a pixel in the other.
    """
    reach = math.ceil(radius - 0.5)
    lines = torch.arange((2 * reach + 1) * subdivisions, dtype=torch.float64)
    heights = (lines + 0.5) / subdivisions - (reach + 0.5)
    half_chord = (radius**2 - heights.square()).clamp_min(0).sqrt()[:, None]
    left = torch.arange(-reach, reach + 1, dtype=torch.float64) - 0.5
    covered = (torch.minimum(half_chord, left + 1) - torch.maximum(-half_chord, left)).clamp_min(0)
    kernel = covered.unflatten(0, (2 * reach + 1, subdivisions)).sum(dim=1)
    kernel = kernel + kernel.mT  # the two directions are treated alike
    return kernel / kernel.sum()


class MotionBlur(Convolution):
    """A camera shake: a random walk of given extent (`size`×`size` pixels) and `intensity` (0 straight … 1 erratic); periodic."""

    def __init__(self, size: int = 15, intensity: float = 0.3, sigma: float = 0.0, seed: int = 0) -> None:
        check_number("size", size, whole=True)
        check_number("intensity", intensity)
        if size < 3 or not 0 <= intensity <= 1:
            raise ValueError(f"motion blur needs size ≥ 3 and intensity in [0, 1]; got {size} and {intensity}")
        self.size, self.intensity, self.seed = size, intensity, seed
        super().__init__(sigma, "periodic")

    def describe_kernel(self) -> str:
        return f"size={self.size}, intensity={self.intensity:g}, seed={self.seed}"

    def kernel_for(self, size: Size) -> Tensor:
        check_extent(self.size, size)
        return motion_kernel(self.size, self.intensity, self.seed)


@lru_cache(maxsize=16)
def motion_kernel(size: int, intensity: float, seed: int) -> Tensor:
    """[size, size], unit sum: a walk whose heading diffuses at a rate set by the intensity, centred and drawn with soft edges."""
    generator = keyed_generator("motion", seed)
    steps = 32 * size
    turns = torch.randn(steps, generator=generator, dtype=torch.float64) * intensity * math.pi / math.sqrt(steps) * 4
    heading = 2 * math.pi * torch.rand(1, generator=generator, dtype=torch.float64) + turns.cumsum(0)
    walk = torch.stack([heading.sin(), heading.cos()]).cumsum(1)
    walk = walk - walk.mean(dim=1, keepdim=True)
    walk = walk * (0.5 * (size - 2) / walk.abs().max())
    grid = (torch.arange(size, dtype=torch.float64) - (size - 1) / 2)[:, None]
    kernel = torch.zeros(size, size, dtype=torch.float64)
    for part in walk.split(WALK_CHUNK, dim=1):
        rows, columns = (torch.exp(-0.5 * ((grid - line) / 0.5).square()) for line in part)
        kernel += rows @ columns.mT
    return kernel / kernel.sum()

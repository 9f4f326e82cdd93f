"""Linear degradations y_raw = Hx + σv and their measurements.

Each class knows a basis in which HᵀH is diagonal. `measure(x)` simulates; `from_raw(data)` takes real data; both give a
`Measurement`. Images are [B, C, H, W] in [0, 1]; `sigma` is the standard deviation of the noise.

**Masks: True (or 1, or white) means the pixel was measured; False (0, black) means that it is missing.** A mask with an alpha channel is
read from its alpha (opaque pixels were measured), unless that is the same everywhere: then from its colours.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from linverse.covariance import (
    BlockDCTCovariance,
    Covariance,
    DCTCovariance,
    FourierCovariance,
    SpatialCovariance,
)
from linverse.covariance.random import centre_box
from linverse.covariance.transfer import gaussian_taps, kernel_transfer, symmetric_transfer
from linverse.measurement import Measurement
from linverse.rng import keyed_generator, normal_like
from linverse.units import variance_from_sigma

Size = tuple[int, int]


def check_image(x: Tensor, slack: float = 0.5, name: str = "image") -> None:
    """Refuse what is not an image [B, C, H, W] in about [0, 1]."""
    if x.ndim != 4:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; it must be [batch, channels, height, width]")
    if not x.is_floating_point():
        raise ValueError(
            f"{name} has dtype {x.dtype}; convert it to floating point in [0, 1] (divide 8-bit values by 255)"
        )
    if not bool(torch.isfinite(x).all()):
        raise ValueError(f"{name} has {int((~torch.isfinite(x)).sum())} NaN or infinite pixels")
    low, high = float(x.min()), float(x.max())
    if low < -slack or high > 1 + slack:
        raise ValueError(
            f"{name} has values in [{low:.3g}, {high:.3g}]; pixels live in [0, 1] (divide 8-bit values by 255)"
        )


class Degradation(ABC):
    """y_raw = Hx + σv."""

    sigma: float

    @abstractmethod
    def operator(self, x: Tensor) -> Tensor:
        """Hx: the measurement without noise."""

    @abstractmethod
    def encode(self, raw: Tensor) -> Measurement:
        """The raw data in the basis that diagonalises HᵀH."""

    def measure(self, x: Tensor, generator: torch.Generator | None = None, *, exact_fill: bool = False) -> Measurement:
        """Simulate a measurement of x. With `exact_fill` what is not measured keeps its exact law under λ_max (tests)."""
        check_image(x)
        clean = self.operator(x)
        raw = clean + self.sigma * normal_like(clean, generator)
        measurement = self.encode(raw)
        if not exact_fill:
            return measurement
        hidden = measurement.template.analysis(x)
        return Measurement(**{**vars(measurement), "hidden": hidden})

    def from_raw(self, data: Tensor) -> Measurement:
        """A measurement from real data."""
        check_image(data, slack=0.5 + 8 * self.sigma, name="measurement")
        return self.encode(data)

    def _levels(self, template: Covariance, gain: Tensor, raw: Tensor, coefficients: Tensor) -> Measurement:
        """Assemble a measurement of uniform noise σ² from |h|."""
        # float rounding of the data acts as noise: it keeps σ = 0 meaningful where h is tiny
        variance = max(variance_from_sigma(self.sigma), (4 * torch.finfo(raw.dtype).eps) ** 2)
        log_noise = torch.full_like(gain, math.log(variance))
        return Measurement(raw, template, coefficients, gain.log(), log_noise)


def _blank(cls: type[Covariance], raw: Tensor, size: Size, **options: int) -> Covariance:
    """A covariance that only carries a basis."""
    return cls(raw.new_zeros(1, 1, *size), raw.shape[1], **options)


@dataclass(frozen=True)
class Denoising(Degradation):
    """y = x + σv."""

    sigma: float

    def __post_init__(self) -> None:
        variance_from_sigma(self.sigma)

    def operator(self, x: Tensor) -> Tensor:
        return x

    def encode(self, raw: Tensor) -> Measurement:
        size = (raw.shape[2], raw.shape[3])
        return self._levels(_blank(SpatialCovariance, raw, size), raw.new_ones(1, 1, *size), raw, raw)


@dataclass(frozen=True, eq=False)
class ColouredNoise(Degradation):
    """y = x + N(0, Σ) for any known Σ: a noise map, a box of noise, a noise spectrum."""

    cov: Covariance
    sigma: float = 0.0

    def operator(self, x: Tensor) -> Tensor:
        self.cov.check_image(x)
        return x

    def measure(self, x: Tensor, generator: torch.Generator | None = None, *, exact_fill: bool = False) -> Measurement:
        check_image(x)
        return self.encode(self.operator(x) + self.cov.colour(normal_like(x, generator)))

    def from_raw(self, data: Tensor) -> Measurement:
        largest = float(self.cov.log_variance.max().mul(0.5).exp())
        check_image(data, slack=0.5 + 8 * largest, name="measurement")
        return self.encode(data)

    def encode(self, raw: Tensor) -> Measurement:
        self.cov.check_image(raw)
        log_variance = self.cov.log_variance
        return Measurement(raw, self.cov[:1], self.cov.analysis(raw), torch.zeros_like(log_variance), log_variance)


class Masking(Degradation):
    """Some pixels are measured and some are missing."""

    @abstractmethod
    def mask_for(self, size: Size) -> Tensor:
        """[1 or B, 1 or C, H, W] boolean, True where measured."""

    def _mask_like(self, x: Tensor) -> Tensor:
        mask = self.mask_for((x.shape[2], x.shape[3])).to(x.device)
        if mask.shape[0] not in (1, x.shape[0]) or mask.shape[1] not in (1, x.shape[1]):
            raise ValueError(f"mask has shape {tuple(mask.shape)}; it does not fit images of shape {tuple(x.shape)}")
        return mask

    def operator(self, x: Tensor) -> Tensor:
        return x * self._mask_like(x)

    def measure(self, x: Tensor, generator: torch.Generator | None = None, *, exact_fill: bool = False) -> Measurement:
        return super().measure(x, generator, exact_fill=exact_fill)

    def from_raw(self, data: Tensor) -> Measurement:
        """Whatever stands at missing pixels (NaN, say) is ignored."""
        if data.ndim == 4:
            data = torch.where(self._mask_like(data), data, torch.zeros_like(data))
        return super().from_raw(data)

    def encode(self, raw: Tensor) -> Measurement:
        mask = self._mask_like(raw)
        seen = torch.where(mask, raw, torch.zeros_like(raw))
        template = _blank(SpatialCovariance, raw, (raw.shape[2], raw.shape[3]))
        return self._levels(template, mask.to(raw.dtype), seen, seen)


def read_mask(mask: Tensor) -> Tensor:
    """Any sensible mask → boolean [B, 1 or C, H, W], True where measured.

    Takes [H, W] or [C, H, W] or [B, C, H, W]; boolean, or numbers that are all (nearly) 0 or all (nearly) the largest; two or four
    channels mean that the last one is alpha, which is the mask unless it is the same everywhere.
    """
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

    def __init__(self, mask: Tensor, sigma: float = 0.0) -> None:
        self.mask = read_mask(mask)
        self.sigma = math.sqrt(variance_from_sigma(sigma))
        if not bool(self.mask.flatten(1).any(dim=1).all()):
            raise ValueError("mask is all missing (black): white marks the pixels that were measured. Is it inverted?")

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
        variance_from_sigma(self.sigma)

    def mask_for(self, size: Size) -> Tensor:
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
        variance_from_sigma(self.sigma)
        if self.where not in ("top", "bottom", "left", "right"):
            raise ValueError(f"where is {self.where!r}; it can be top, bottom, left or right")

    def mask_for(self, size: Size) -> Tensor:
        axis = 0 if self.where in ("top", "bottom") else 1
        length = size[axis]
        depth = length // 2 if self.depth is None else self.depth
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
        variance_from_sigma(self.sigma)
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


class Blur(Degradation):
    """Convolution with any kernel [h, w]. Periodic boundaries take every kernel, reflecting ones those of mathematics §1."""

    def __init__(self, kernel: Tensor, sigma: float = 0.0, boundary: str = "periodic") -> None:
        if kernel.ndim != 2 or not kernel.is_floating_point():
            raise ValueError(
                f"a blur kernel is a floating-point [h, w] tensor; got {kernel.dtype} {tuple(kernel.shape)}"
            )
        if not bool(torch.isfinite(kernel).all()) or not bool(kernel.any()):
            raise ValueError("the blur kernel is zero or has NaN or infinite entries")
        if boundary not in ("periodic", "reflecting"):
            raise ValueError(f'boundary is {boundary!r}; it can be "periodic" or "reflecting"')
        self.kernel, self.boundary = kernel, boundary
        self.sigma = math.sqrt(variance_from_sigma(sigma))

    def kernel_for(self, size: Size) -> Tensor:
        """The kernel on images of this size."""
        return self.kernel

    def transfer(self, size: Size, dtype: torch.dtype) -> Tensor:
        """h on the frequency grid: complex (periodic) or real (reflecting)."""
        kernel = self.kernel_for(size).double()
        if self.boundary == "periodic":
            return kernel_transfer(kernel, size).to(torch.complex128 if dtype == torch.float64 else torch.complex64)
        return symmetric_transfer(kernel, size).to(dtype)

    def operator(self, x: Tensor) -> Tensor:
        transfer = self.transfer((x.shape[2], x.shape[3]), x.dtype).to(x.device)
        if self.boundary == "periodic":
            return torch.fft.ifft2(torch.fft.fft2(x) * transfer).real
        basis = _blank(DCTCovariance, x, (x.shape[2], x.shape[3]))
        return basis.synthesis(basis.analysis(x) * transfer)

    def encode(self, raw: Tensor) -> Measurement:
        size = (raw.shape[2], raw.shape[3])
        transfer = self.transfer(size, raw.dtype).to(raw.device)
        gain = transfer.abs().clamp_min(torch.finfo(raw.dtype).tiny)[None, None]
        # where h is exactly 0 the coefficient is pure noise and its phase does not matter
        if self.boundary == "periodic":
            phase = torch.where(transfer.abs() > 0, transfer.conj() / gain[0, 0], torch.ones_like(transfer))
            spectrum = torch.fft.fft2(raw, norm="ortho") * phase
            return self._levels(_blank(FourierCovariance, raw, size), gain, raw, spectrum.real - spectrum.imag)
        basis = _blank(DCTCovariance, raw, size)
        sign = torch.where(transfer < 0, -1.0, 1.0).to(raw.dtype)
        return self._levels(basis, gain, raw, basis.analysis(raw) * sign)


class GaussianBlur(Blur):
    """A Gaussian of the given std (pixels), sampled on `size` taps a side.

    By default the taps are odd in number and reach four std to either side, or as far as the image goes (as they do in training).
    """

    def __init__(self, std: float, sigma: float = 0.0, boundary: str = "periodic", size: int | None = None) -> None:
        if not (math.isfinite(std) and std > 0):
            raise ValueError(f"the std of a Gaussian blur must be positive; got {std}")
        self.std, self.fits_image = std, size is None
        taps = 2 * math.ceil(4 * std) + 1 if size is None else size
        line = _gaussian_line(std, taps)
        super().__init__(torch.outer(line, line), sigma, boundary)

    def kernel_for(self, size: Size) -> Tensor:
        if not self.fits_image:
            return self.kernel
        # periodic images hold so many taps; mirrored ones hold twice as many
        room = [n if self.boundary == "periodic" else 2 * n for n in size]
        taps = [min(len(self.kernel), n - 1 + n % 2) for n in room]
        if min(taps) == len(self.kernel):
            return self.kernel
        rows, columns = (_gaussian_line(self.std, n) for n in taps)
        return torch.outer(rows, columns)


def _gaussian_line(std: float, taps: int) -> Tensor:
    """A sampled Gaussian of unit sum, centred (between two pixels if `taps` is even)."""
    if taps % 2:
        return gaussian_taps(torch.tensor([std], dtype=torch.float64), taps // 2)[0]
    offsets = torch.arange(taps, dtype=torch.float64) - (taps - 1) / 2
    return torch.softmax(-0.5 * (offsets / std).square(), dim=0)


class MotionBlur(Blur):
    """A camera shake: a random walk of given extent (`size`×`size` pixels) and `intensity` (0 straight … 1 erratic)."""

    def __init__(self, size: int = 15, intensity: float = 0.3, sigma: float = 0.0, seed: int = 0) -> None:
        if size < 3 or not 0 <= intensity <= 1:
            raise ValueError(f"motion blur needs size ≥ 3 and intensity in [0, 1]; got {size} and {intensity}")
        super().__init__(motion_kernel(size, intensity, seed), sigma, "periodic")


def motion_kernel(size: int, intensity: float, seed: int) -> Tensor:
    """[size, size], unit sum: a walk whose heading diffuses at a rate set by the intensity, centred and drawn with soft edges."""
    generator = keyed_generator("motion", seed)
    steps = 32 * size
    turns = torch.randn(steps, generator=generator, dtype=torch.float64) * intensity * math.pi / math.sqrt(steps) * 4
    heading = 2 * math.pi * torch.rand(1, generator=generator, dtype=torch.float64) + turns.cumsum(0)
    path = torch.stack([heading.sin(), heading.cos()]).cumsum(1)
    path = path - path.mean(dim=1, keepdim=True)
    path = path * (0.5 * (size - 2) / path.abs().max())
    grid = torch.arange(size, dtype=torch.float64) - (size - 1) / 2
    rows = torch.exp(-0.5 * ((grid[:, None] - path[0]) / 0.5).square())
    columns = torch.exp(-0.5 * ((grid[:, None] - path[1]) / 0.5).square())
    kernel = rows @ columns.mT
    return kernel / kernel.sum()


@dataclass(frozen=True)
class SuperResolution(Degradation):
    """The mean of every factor×factor box: raw data are [B, C, H/factor, W/factor]."""

    factor: int
    sigma: float = 0.0

    def __post_init__(self) -> None:
        variance_from_sigma(self.sigma)
        if self.factor < 2:
            raise ValueError(f"the factor of super-resolution is at least 2; got {self.factor}")

    def operator(self, x: Tensor) -> Tensor:
        if x.shape[2] % self.factor or x.shape[3] % self.factor:
            raise ValueError(f"boxes of {self.factor}×{self.factor} do not tile a {x.shape[2]}×{x.shape[3]} image")
        return torch.nn.functional.avg_pool2d(x, self.factor)

    def encode(self, raw: Tensor) -> Measurement:
        size = (raw.shape[2] * self.factor, raw.shape[3] * self.factor)
        coefficients = raw.new_zeros(raw.shape[0], raw.shape[1], *size)
        coefficients[:, :, :: self.factor, :: self.factor] = raw
        gain = raw.new_zeros(1, 1, *size)
        gain[:, :, :: self.factor, :: self.factor] = 1 / self.factor
        template = _blank(BlockDCTCovariance, raw, size, block=self.factor)
        return self._levels(template, gain, raw, coefficients)

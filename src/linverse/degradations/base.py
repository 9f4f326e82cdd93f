"""What every degradation shares: y_raw = Hx + σv, simulated by `measure(x)` and taken from the world by `from_raw(data)`.

Each degradation knows a basis in which HᵀH is diagonal; both calls give a `Measurement` in it. Images are [B, C, H, W] in [0, 1];
`sigma` is the standard deviation of the noise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.degradations.pillow import batch_from_pillow, from_pillow, is_pillow
from linverse.measurement import Measurement
from linverse.rng import normal_like
from linverse.units import variance_from_sigma

Size = tuple[int, int]


class ArrayLike(Protocol):
    """What turns into an array by itself: a `Picture` of ours or Pillow's."""

    def __array__(self) -> np.ndarray[Any, Any]: ...


ImageLike = (
    Tensor | np.ndarray[Any, Any] | Sequence[Any] | ArrayLike
)  # a tensor, a numpy array, nested lists, a picture (ours or Pillow's), a list of Pillow's
SLACK = 0.5  # how far outside of [0, 1] a clean image may lie


def as_tensor(values: ImageLike, name: str = "image") -> Tensor:
    """Floating-point tensor from a tensor, a numpy array, nested lists, or Pillow's pictures; half precision becomes float32.

    A Pillow picture, or a list of them, becomes [B, C, H, W] in [0, 1]: its mode says what is white (pillow.py). Integers in arrays are
    refused: nobody can tell whether 1 is white or almost black, nor where the channels are.
    """
    if is_pillow(values):
        return from_pillow(values, name)
    if isinstance(values, list | tuple) and values and all(map(is_pillow, values)):
        return batch_from_pillow(values, name)
    if not isinstance(values, Tensor | np.ndarray) and hasattr(values, "__array__"):
        values = np.asarray(values)
    if isinstance(values, Tensor):
        if values.is_meta or values.layout != torch.strided:
            raise TypeError(f"{name} is a sparse tensor or one without values; give a dense one (`to_dense()`)")
        tensor = values
    elif isinstance(values, np.ndarray | list | tuple) and not (
        isinstance(values, np.ndarray) and values.dtype == object
    ):
        try:
            tensor = torch.as_tensor(np.ascontiguousarray(values) if isinstance(values, np.ndarray) else values)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} is not an array of numbers: {error}") from error
    else:
        raise TypeError(
            f"{name} is {describe(values)}; give a tensor, a numpy array, nested lists of numbers or a Pillow picture"
        )
    if not tensor.is_floating_point():
        raise ValueError(
            f"{name} has dtype {str(tensor.dtype).removeprefix('torch.')}; convert it to floating point in [0, 1] "
            "(divide 8-bit values by 255), or give the Pillow picture, which knows its scale"
        )
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def describe(values: object) -> str:
    """What something is, in a word, for messages."""
    return "None" if values is None else f"a {type(values).__name__}"


def as_image(values: ImageLike, slack: float = SLACK, name: str = "image") -> Tensor:
    """An image [B, C, H, W] in about [0, 1] from whatever `as_tensor` takes, or an error that says what is wrong with it."""
    x = as_tensor(values, name)
    if x.ndim != 4:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; it must be [batch, channels, height, width]")
    if x.numel() == 0:
        raise ValueError(f"{name} has shape {tuple(x.shape)}: there is nothing in it")
    if not bool(torch.isfinite(x).all()):
        raise ValueError(f"{name} has {int((~torch.isfinite(x)).sum())} NaN or infinite pixels")
    low, high = float(x.min()), float(x.max())
    if low < -slack or high > 1 + slack:
        raise ValueError(
            f"{name} has values in [{low:.3g}, {high:.3g}]; pixels live in [0, 1] (divide 8-bit values by 255)"
        )
    return x


def checked_sigma(sigma: float) -> float:
    """A standard deviation, or an error that says why it is none."""
    variance_from_sigma(sigma)
    return float(sigma)


class Degradation(ABC):
    """How an image is measured: y_raw = Hx + σv, H linear.

    >>> import torch, linverse as lv
    >>> measurement = lv.Box(side=2, sigma=0.1).measure(torch.rand(1, 1, 4, 4))
    >>> measurement
    Measurement(1 of 1×4×4 in the spatial basis, 75 % measured, noise std 0.1)
    """

    sigma: float

    @abstractmethod
    def operator(self, x: Tensor) -> Tensor:
        """Hx: the measurement without noise."""

    @abstractmethod
    def encode(self, raw: Tensor) -> Measurement:
        """The raw data in the basis that diagonalises HᵀH."""

    def add_noise(self, clean: Tensor, generator: torch.Generator | None) -> Tensor:
        """Hx + σv."""
        return clean + self.sigma * normal_like(clean, generator)

    def measure(
        self, x: ImageLike, generator: torch.Generator | None = None, *, exact_fill: bool = False
    ) -> Measurement:
        """Simulate a measurement of x. With `exact_fill` what is not measured keeps its exact law under λ_max (tests)."""
        image = as_image(x)
        measurement = self.encode(self.add_noise(self.operator(image), generator))
        if not exact_fill:
            return measurement
        return replace(measurement, hidden=measurement.template.analysis(image))

    def from_raw(self, data: ImageLike) -> Measurement:
        """A measurement from real data."""
        return self.encode(as_image(data, slack=SLACK + 8 * self.sigma, name="measurement"))

    def condition(self, measurement: Measurement) -> Tensor:
        """What a network trained for this degradation is shown of a measurement, [B, channels, H, W]: the data, at the image's size."""
        raw = measurement.raw
        return raw if raw.shape[2:] == measurement.template.size else measurement.pseudo_inverse()

    def condition_channels(self, channels: int) -> int:
        """How many channels that has, for images of so many."""
        return channels

    def _levels(self, template: Covariance, gain: Tensor, raw: Tensor, coefficients: Tensor) -> Measurement:
        """Assemble a measurement of uniform noise σ² from |h|."""
        log_noise = torch.full_like(gain, math.log(max(variance_from_sigma(self.sigma), rounding_variance(raw))))
        return Measurement(raw, template, coefficients, gain.log(), log_noise)


def rounding_variance(raw: Tensor) -> float:
    """Float rounding of the data acts as noise: it keeps σ = 0 meaningful where h is tiny."""
    return (4 * torch.finfo(raw.dtype).eps) ** 2


def size_of(x: Tensor) -> Size:
    """Height and width of images."""
    return x.shape[2], x.shape[3]


def blank(cls: type[Covariance], raw: Tensor, size: Size, channels: int | None = None, **options: int) -> Covariance:
    """A covariance that only carries a basis, for images of the data's channels unless said otherwise."""
    return cls(raw.new_zeros(1, 1, *size), raw.shape[1] if channels is None else channels, **options)

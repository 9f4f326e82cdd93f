"""Mean and covariance of a set of images: what a Gaussian base is fitted to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class ImageSource(Protocol):
    """What a data set gives: its size and float images in [0, 1]."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor) -> Tensor: ...


@runtime_checkable
class CropSource(Protocol):
    """A source of crops of any size, as a function of (seed, step), out of so many pictures."""

    def __len__(self) -> int: ...

    def crops(self, seed: int, step: int, count: int, size: int) -> Tensor: ...


Source = ImageSource | CropSource


def spectral_samples(images: Source) -> list[Tensor]:
    """What a spectral base is fitted to: crops of several sizes, or the images themselves where they have one size."""
    if isinstance(images, CropSource):
        return [images.crops(0, -size, 2**16 // size, size) for size in (64, 128, 256)]
    return [images.batch(torch.arange(min(4096, len(images))))]


@dataclass(frozen=True)
class ImageMoments:
    """Mean image [C, H, W] and covariance [d, d], float64."""

    mean: Tensor
    covariance: Tensor

    @property
    def variance(self) -> float:
        """The mean variance of a pixel."""
        return float(self.covariance.diagonal().mean())


def image_moments(images: Source, chunk: int = 4096) -> ImageMoments:
    """Moments of all images; products are summed about the mean of the first chunk, in float64."""
    if not isinstance(images, ImageSource):
        raise TypeError("crops have no mean image: a model for one size is fitted to images of that size")
    total, count = torch.zeros(()), len(images)
    products: Tensor | None = None
    centre = images.batch(torch.arange(min(chunk, count))).double().mean(0)
    for start in range(0, count, chunk):
        rows = (images.batch(torch.arange(start, min(start + chunk, count))).double() - centre).flatten(1)
        total = total + rows.sum(0)
        products = rows.mT @ rows if products is None else products.addmm_(rows.mT, rows)
    if products is None:
        raise ValueError("a Gaussian cannot be fitted to no images")
    shift = total / count
    return ImageMoments(centre + shift.reshape(centre.shape), products / count - torch.outer(shift, shift))


def mean_and_variance(images: Source, chunk: int = 512) -> tuple[Tensor, float]:
    """The mean image [C, H, W] and the mean variance of a pixel, float64: all that a scalar base wants, for images of any size.

    (The covariance of 192×192 colour images would have 98 GB.)
    """
    if not isinstance(images, ImageSource):
        raise TypeError("crops have no mean image: a model for one size is fitted to images of that size")
    count = len(images)
    if count == 0:
        raise ValueError("a Gaussian cannot be fitted to no images")
    centre = images.batch(torch.arange(min(chunk, count))).double().mean(0)
    total, squares = torch.zeros_like(centre), torch.zeros_like(centre)
    for rows in torch.arange(count).split(chunk):
        shifted = images.batch(rows).double() - centre
        total, squares = total + shifted.sum(0), squares + shifted.square().sum(0)
    shift = total / count
    return centre + shift, float((squares / count - shift.square()).mean())

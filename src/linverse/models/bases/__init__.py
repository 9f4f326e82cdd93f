"""Gaussian bases: what is known of images before a network learns anything (mathematics §11)."""

from linverse.models.bases.interface import BaseAnswer, GaussianBase
from linverse.models.bases.low_rank import LowRankBase
from linverse.models.bases.moments import (
    CropSource,
    ImageMoments,
    ImageSource,
    Source,
    image_moments,
    mean_and_variance,
    spectral_samples,
)
from linverse.models.bases.spectral import SpectralBase

__all__ = [
    "BaseAnswer",
    "CropSource",
    "GaussianBase",
    "ImageMoments",
    "ImageSource",
    "LowRankBase",
    "Source",
    "SpectralBase",
    "image_moments",
    "mean_and_variance",
    "spectral_samples",
]

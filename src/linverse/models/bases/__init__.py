"""Gaussian bases: what is known of images before a network learns anything (mathematics §11)."""

from linverse.models.bases.interface import BaseAnswer, GaussianBase
from linverse.models.bases.low_rank import LowRankBase
from linverse.models.bases.moments import ImageMoments, ImageSource, image_moments, spectral_samples
from linverse.models.bases.spectral import SpectralBase

__all__ = [
    "BaseAnswer",
    "GaussianBase",
    "ImageMoments",
    "ImageSource",
    "LowRankBase",
    "SpectralBase",
    "image_moments",
    "spectral_samples",
]

"""Gaussian bases: what is known of images before a network learns anything (mathematics §11)."""

from linverse.models.bases.interface import BaseAnswer, GaussianBase
from linverse.models.bases.low_rank import LowRankBase
from linverse.models.bases.moments import ImageMoments, ImageSource, image_moments

__all__ = ["BaseAnswer", "GaussianBase", "ImageMoments", "ImageSource", "LowRankBase", "image_moments"]

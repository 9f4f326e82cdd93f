"""Noise covariances Σ = Q diag(λ) Qᵀ and training distributions over them."""

from linverse.covariance.base import Covariance, VarianceRange
from linverse.covariance.dct import BlockDCTCovariance, DCTCovariance
from linverse.covariance.fourier import FourierCovariance
from linverse.covariance.identity import identity
from linverse.covariance.spatial import SpatialCovariance

__all__ = [
    "BlockDCTCovariance",
    "Covariance",
    "DCTCovariance",
    "FourierCovariance",
    "SpatialCovariance",
    "VarianceRange",
    "identity",
]

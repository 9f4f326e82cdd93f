"""Fréchet distance of two sets of images: the (squared) Wasserstein-2 distance of the Gaussians with their features' moments,

    d² = ‖μ₁ − μ₂‖² + tr(Σ₁ + Σ₂ − 2 (Σ₁^½ Σ₂ Σ₁^½)^½),

Heusel et al., NeurIPS 2017 (eq. 6). With factors Σ_i = R_iᵀR_i the last trace is the sum of the singular values of R₁R₂ᵀ: no matrix
square root, and exact when Σ_i is singular (fewer images than features). The features are part of the name ("Fréchet-VGG16"); "FID" is
that of the Inception network the user supplies. The estimate is biased upwards, the more the fewer the images: compare sets of
equal numbers only.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from linverse.metrics.features import FeatureDistance, Features

INCEPTION_FEATURES = 2048


class SmallSampleWarning(UserWarning):
    """There are fewer images than the estimate wants."""


def _distance(mean1: Tensor, factor1: Tensor, mean2: Tensor, factor2: Tensor) -> Tensor:
    """d² from means [D] and factors R [r, D]."""
    cross = torch.linalg.svdvals(factor1 @ factor2.mT).sum()
    return (mean1 - mean2).square().sum() + factor1.square().sum() + factor2.square().sum() - 2 * cross


def frechet_from_moments(mean1: Tensor, cov1: Tensor, mean2: Tensor, cov2: Tensor) -> Tensor:
    """d² of N(μ₁, Σ₁) and N(μ₂, Σ₂), a scalar, float64; Σ may be singular."""
    return _distance(mean1.double(), _factor(cov1.double()), mean2.double(), _factor(cov2.double()))


def _factor(cov: Tensor) -> Tensor:
    """R with RᵀR = Σ. Rounding makes null eigenvalues a little negative: those are zero; a really negative one is an error."""
    if not torch.allclose(cov, cov.mT, rtol=1e-6, atol=0):
        raise ValueError("a covariance must be symmetric")
    values, vectors = torch.linalg.eigh(cov)
    if float(values[0]) < -1e-6 * float(values[-1].abs()):
        raise ValueError(f"a covariance must not have negative eigenvalues; the least is {float(values[0]):.3g}")
    return values.clamp_min(0).sqrt()[:, None] * vectors.mT


def frechet_from_features(features1: Tensor, features2: Tensor) -> Tensor:
    """d² of two sets of feature vectors [N, D], a scalar, float64."""
    for vectors in (features1, features2):
        if vectors.ndim != 2 or len(vectors) < 2 or vectors.shape[1] != features1.shape[1]:
            shapes = f"{tuple(features1.shape)} and {tuple(features2.shape)}"
            raise ValueError(f"features have shapes {shapes}; needed are [N₁, D] and [N₂, D] with N ≥ 2")
    return _distance(*_mean_and_factor(features1.double()), *_mean_and_factor(features2.double()))


def _mean_and_factor(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """μ and R with RᵀR the unbiased covariance, by QR of the centred vectors: Σ itself would square their condition number."""
    mean = vectors.mean(0)
    _, upper = torch.linalg.qr(vectors - mean, mode="r")
    return mean, upper / (len(vectors) - 1) ** 0.5


def _result(name: str, vectors1: Tensor, vectors2: Tensor) -> FeatureDistance:
    """The distance with its name and numbers; warns where it says little."""
    value = float(frechet_from_features(vectors1, vectors2))
    counts, dim = (len(vectors1), len(vectors2)), vectors1.shape[1]
    if min(counts) <= dim:
        warnings.warn(
            f"{name} of {counts[0]} and {counts[1]} images with {dim} features: the covariances are singular "
            "and the value is biased upwards. Compare it only with values from as many images, or use more images than features",
            SmallSampleWarning,
            stacklevel=3,
        )
    return FeatureDistance(name, value, counts, dim)


def frechet_distance(x: Tensor, reference: Tensor, features: Features) -> FeatureDistance:
    """Fréchet distance of two sets of images [N, C, H, W] in [0, 1] under given features, e.g. `network_features("vgg16")`.

    The result's name is "Fréchet-" and the features' name, never "FID".
    """
    if features.name.lower().startswith("inception"):
        raise ValueError('the distance on Inception features is "FID": call fid(x, reference, inception)')
    return _result(f"Fréchet-{features.name}", features(x), features(reference))


def fid(x: Tensor, reference: Tensor, inception: Callable[[Tensor], Tensor], batch_size: int = 64) -> FeatureDistance:
    """FID, with the Inception network supplied: a function of images [B, C, H, W] in [0, 1] to its 2048 pooled features.

    With torch-fidelity, whose network takes bytes:
        network = FeatureExtractorInceptionV3("inception", ["2048"])
        fid(x, reference, lambda images: network((255 * images.clamp(0, 1)).round().byte())[0])
    """
    features = Features("Inception", inception, batch_size)
    vectors, vectors_reference = features(x), features(reference)
    if vectors.shape[1] != INCEPTION_FEATURES:
        raise ValueError(
            f"the network gives {vectors.shape[1]} features; FID is defined on Inception's {INCEPTION_FEATURES}. "
            "For other features use frechet_distance, which puts their name into the result"
        )
    return _result("FID", vectors, vectors_reference)

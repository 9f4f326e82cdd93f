"""An exact energy of handwritten digits, for when no trained model is at hand: one Gaussian for each digit, fitted to 8×8 images.

p(x) = Σ_k w_k N(x; m_k, S_k) has U(y, Σ) = −log Σ_k w_k N(y; m_k, S_k + Σ) in closed form for every Σ: all that the library says about a
measurement is then exact, and only the prior is crude. With 150 images of a digit for 64 pixels, each S_k is pulled towards their mean S:
    S_k ← (n_k S_k + a S)/(n_k + a) + q I,   q = (1/16)²/12, the variance of a uniform error within one of the 17 grey levels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from linverse.analytic.mixture import GaussianMixture
from linverse.covariance import VarianceRange

LIMITS = VarianceRange(1e-4, 1e3)
STRENGTH = 20.0  # a, in images: of the values tried the best density of held-out digits
LATTICE = 1 / (12 * 16**2)  # scikit-learn's digits have 17 grey levels


def digit_mixture(images: Tensor, labels: Tensor) -> GaussianMixture:
    """The mixture of images [N, C, H, W] in [0, 1] with labels [N], one Gaussian for each label, fitted in milliseconds."""
    pixels = images.double().flatten(1)
    groups = [pixels[labels == label] for label in labels.unique()]
    counts = torch.tensor([len(group) for group in groups], dtype=torch.float64)
    scatters = torch.stack([scatter(group) for group in groups])
    pooled = scatters.sum(0) / counts.sum()
    covariances = (scatters + STRENGTH * pooled) / (counts + STRENGTH)[:, None, None]
    covariances = covariances + LATTICE * torch.eye(pixels.shape[1], dtype=torch.float64)
    channels, height, width = images.shape[1:]
    means = torch.stack([group.mean(0) for group in groups])
    return GaussianMixture(counts, means, covariances, (channels, height, width), LIMITS)


def scatter(rows: Tensor) -> Tensor:
    """Σ (x − m)(x − m)ᵀ over rows [n, d]."""
    centred = rows - rows.mean(0)
    return centred.mT @ centred

"""An exact energy of handwritten digits, for when no trained model is at hand: one Gaussian a digit, fitted to scikit-learn's 8×8 images.

p(x) = Σ_k w_k N(x; m_k, S_k) has U(y, Σ) = −log Σ_k w_k N(y; m_k, S_k + Σ) in closed form for every Σ: all that the library says about a
measurement is then exact, and only the prior is crude. With 150 images a digit for 64 pixels, each S_k is pulled towards their mean S:
    S_k ← (n_k S_k + a S)/(n_k + a) + q I,   q = (1/16)²/12, the variance of a uniform error within one of the 17 grey levels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from linverse.analytic import GaussianMixture
from linverse.covariance import VarianceRange
from linverse.data.digits import WHITE, load_digits

LIMITS = VarianceRange(1e-4, 1e3)
STRENGTH = 20.0  # a, in images: of the values tried the best density of held-out digits
LATTICE = 1 / (12 * WHITE**2)


def digit_mixture() -> GaussianMixture:
    """The mixture, fitted in milliseconds."""
    digits = load_digits("train")
    assert digits.labels is not None
    pixels = digits.batch(torch.arange(len(digits))).double().flatten(1)
    groups = [pixels[digits.labels == label] for label in range(10)]
    counts = torch.tensor([len(group) for group in groups], dtype=torch.float64)
    scatters = torch.stack([scatter(group) for group in groups])
    pooled = scatters.sum(0) / counts.sum()
    covariances = (scatters + STRENGTH * pooled) / (counts + STRENGTH)[:, None, None]
    covariances = covariances + LATTICE * torch.eye(pixels.shape[1], dtype=torch.float64)
    return GaussianMixture(counts, torch.stack([group.mean(0) for group in groups]), covariances, digits.shape, LIMITS)


def scatter(rows: Tensor) -> Tensor:
    """Σ (x − m)(x − m)ᵀ over rows [n, d]."""
    centred = rows - rows.mean(0)
    return centred.mT @ centred

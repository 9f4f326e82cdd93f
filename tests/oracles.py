"""The truth, written without the library: dense matrices and dense Gaussian mixtures.

Every analytic energy is a mixture x ~ Σ_k w_k N(m_k, S_k); a linear measurement raw = Hx + N(0, N) has
    raw ~ Σ_k w_k N(Hm_k, HS_kHᵀ + N),   x|raw ~ Σ_k w'_k N(m_k + G_k(raw − Hm_k), (I − G_kH)S_k),   G_k = S_kHᵀ(HS_kHᵀ + N)⁻¹.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True)
class Law:
    """A dense mixture: log weights [n or 1, K], means [n or 1, K, d], covariances [K, d, d]."""

    log_weights: Tensor
    means: Tensor
    covariances: Tensor

    def log_density(self, x: Tensor) -> Tensor:
        """[n, ...] → [n]."""
        terms = MultivariateNormal(self.means, self.covariances).log_prob(x.flatten(1)[:, None])
        return torch.logsumexp(self.log_weights + terms, dim=1)

    def through(self, operator: Tensor, noise: Tensor) -> Law:
        """The law of Hx + N(0, noise)."""
        covariances = operator @ self.covariances @ operator.mT + noise
        return Law(self.log_weights, self.means @ operator.mT, 0.5 * (covariances + covariances.mT))

    def posterior(self, raw: Tensor, operator: Tensor, noise: Tensor) -> Law:
        """The law of x given raw = Hx + N(0, noise), one a row of raw."""
        seen = self.through(operator, noise)
        gain = torch.linalg.solve(seen.covariances, operator @ self.covariances).mT
        shift = raw.flatten(1)[:, None] - seen.means
        terms = MultivariateNormal(seen.means, seen.covariances).log_prob(raw.flatten(1)[:, None])
        means = self.means + torch.einsum("kij,nkj->nki", gain, shift)
        covariances = self.covariances - gain @ operator @ self.covariances
        weights = torch.log_softmax(self.log_weights + terms, dim=1)
        return Law(weights, means, 0.5 * (covariances + covariances.mT))

    def coordinates(self, keep: Tensor) -> Law:
        """The marginal law of some coordinates."""
        return Law(self.log_weights, self.means[..., keep], self.covariances[:, keep][:, :, keep])

    @property
    def mean(self) -> Tensor:
        """[n or 1, d]."""
        return (self.log_weights.exp()[..., None] * self.means).sum(1)

    @property
    def covariance(self) -> Tensor:
        """[n or 1, d, d]."""
        shift = self.means - self.mean[:, None]
        spread = self.covariances + shift[..., :, None] * shift[..., None, :]
        return (self.log_weights.exp()[..., None, None] * spread).sum(1)

    def projected_cdf(self, direction: Tensor) -> Callable[[Array], Array]:
        """The distribution function of ⟨direction, x⟩ (first row of the batch)."""
        centres = self.means[0] @ direction
        widths = torch.einsum("i,kij,j->k", direction, self.covariances, direction).sqrt()
        weights = self.log_weights[0].exp()

        def cdf(t: Array) -> Array:
            z = (torch.from_numpy(np.asarray(t))[..., None] - centres) / widths
            return (weights * torch.special.ndtr(z)).sum(-1).numpy()

        return cdf


def matrix_of(linear: Callable[[Tensor], Tensor], shape: tuple[int, int, int]) -> Tensor:
    """The dense matrix of a linear map on images, column by column."""
    dim = shape[0] * shape[1] * shape[2]
    return linear(torch.eye(dim, dtype=torch.float64).reshape(dim, *shape)).flatten(1).mT


def random_spd(generator: torch.Generator, count: int, dim: int, scale: float) -> Tensor:
    """[count, dim, dim] well-conditioned covariances, not diagonal in any basis of the library."""
    factor = torch.randn(count, dim, dim, generator=generator, dtype=torch.float64) / dim**0.5
    return scale * (factor @ factor.mT + 0.3 * torch.eye(dim, dtype=torch.float64))


def z_threshold(comparisons: int, alarm: float = 1e-6) -> float:
    """|z| that `comparisons` standard normal statistics all stay under, but for a false alarm of the given probability."""
    return NormalDist().inv_cdf(1 - alarm / (2 * comparisons))


def convolve(image: Tensor, kernel: Tensor, mode: str) -> Tensor:
    """Direct convolution of [B, C, H, W] with an [h, w] kernel centred at (h//2, w//2); `mode` is numpy's padding mode."""
    (h, w), (height, width) = kernel.shape, image.shape[2:]
    pad = ((0, 0), (0, 0), (h, h), (w, w))
    padded = np.pad(image.numpy(), pad, mode=mode)  # type: ignore[call-overload]
    out = np.zeros(image.shape)
    for i in range(h):
        for j in range(w):
            top, left = h - (i - h // 2), w - (j - w // 2)
            out += float(kernel[i, j]) * padded[:, :, top : top + height, left : left + width]
    return torch.from_numpy(out)

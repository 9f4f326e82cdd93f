"""x ~ Σ_k w_k N(0, s_k I): the paper's d = 1000 example, for any basis and any dimension (log-sum-exp over k)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from linverse.analytic.gaussian import EVERYWHERE
from linverse.covariance import Covariance, VarianceRange
from linverse.rng import normal_like


class GaussianScaleMixture:
    """A mixture of centred isotropic Gaussians of variances s_k."""

    def __init__(
        self, weights: Tensor, variances: Tensor, shape: tuple[int, int, int], limits: VarianceRange = EVERYWHERE
    ) -> None:
        if weights.shape != variances.shape or bool((variances <= 0).any()):
            raise ValueError("weights and variances have one positive entry a component")
        self.log_weights = (weights / weights.sum()).double().log()
        self.variances = variances.double()
        self.shape, self.range = shape, limits

    def log_terms(self, y: Tensor, cov: Covariance) -> Tensor:
        """log w_k + log N(y; 0, s_k I + Σ), [B, K]."""
        totals = [cov + float(s) for s in self.variances]
        constant = cov.dim * math.log(2 * math.pi)
        z = cov.analysis(y)
        energies = [0.5 * (total.mahalanobis_coefficients(z) + total.logdet() + constant) for total in totals]
        return self.log_weights - torch.stack(energies, dim=1)

    def __call__(self, y: Tensor, cov: Covariance) -> Tensor:
        return -torch.logsumexp(self.log_terms(y, cov), dim=1)

    def gaussian(self, cov: Covariance) -> tuple[Tensor, Tensor]:
        total = float((self.log_weights.exp() * self.variances).sum())
        zeros = cov.log_variance.new_zeros(1, 1, 1, 1)
        return zeros, zeros + total

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """n images from the prior, float64."""
        choice = torch.multinomial(self.log_weights.exp(), n, replacement=True, generator=generator)
        noise = normal_like(torch.empty(n, *self.shape, dtype=torch.float64), generator)
        return noise * self.variances[choice].sqrt().reshape(-1, 1, 1, 1)

    def sample_posterior(self, y: Tensor, cov: Covariance, generator: torch.Generator | None = None) -> Tensor:
        """One exact posterior sample for each y: a component, then its Wiener filter."""
        weights = torch.softmax(self.log_terms(y, cov), dim=1)
        choice = torch.multinomial(weights, 1, generator=generator).flatten()
        scale = self.variances[choice].to(y.dtype).reshape(-1, 1, 1, 1)
        shrink = scale / (scale + cov.variance)
        noise = normal_like(y, generator) * (shrink * cov.variance).sqrt()
        return cov.synthesis(cov.analysis(y) * shrink + noise)

"""x ~ N(m, S) with S diagonal in the basis of Σ: y ~ N(m, S + Σ), and the posterior is a Wiener filter per coefficient."""

from __future__ import annotations

import torch
from torch import Tensor

from linverse.covariance import Covariance, VarianceRange
from linverse.rng import normal_like

EVERYWHERE = VarianceRange(1e-12, 1e12)


class DiagonalGaussian:
    """A Gaussian prior in any dimension, for noise that shares its eigenbasis."""

    def __init__(self, prior: Covariance, mean: Tensor | None = None, limits: VarianceRange = EVERYWHERE) -> None:
        """`prior` is S, one for all images (batch 1); `mean` is an image [C, H, W] (default 0)."""
        if prior.batch != 1:
            raise ValueError(f"the prior is one covariance; got a batch of {prior.batch}")
        self.prior = prior
        self.shape = (prior.channels, *prior.size)
        self.mean = prior.log_variance.new_zeros(self.shape) if mean is None else mean
        self.range = VarianceRange(limits.minimum, limits.maximum, (prior.basis,))

    def __call__(self, y: Tensor, cov: Covariance) -> Tensor:
        total = cov + self.prior
        return -total.log_normal(y - self.mean)

    def gaussian(self, cov: Covariance) -> tuple[Tensor, Tensor]:
        return cov.analysis(self.mean[None]), self.prior.variance

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """n images from the prior."""
        return self.mean + self.prior.sample_noise(generator, batch=n)

    def posterior(self, y: Tensor, cov: Covariance) -> tuple[Tensor, Covariance]:
        """Mean image and covariance of x given y."""
        total = cov + self.prior
        mean = self.mean + cov.synthesis(
            cov.analysis(y - self.mean) * (self.prior.log_variance - total.log_variance).exp()
        )
        return mean, cov.with_log_variance(cov.log_variance + self.prior.log_variance - total.log_variance)

    def sample_posterior(self, y: Tensor, cov: Covariance, generator: torch.Generator | None = None) -> Tensor:
        """One exact posterior sample for each y."""
        mean, spread = self.posterior(y, cov)
        return mean + spread.colour(normal_like(mean, generator))

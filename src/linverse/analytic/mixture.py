"""x ~ Σ_k w_k N(m_k, S_k) with dense S_k, for any Σ; small d. y ~ Σ_k w_k N(m_k, S_k + Σ), and x|y is a mixture again."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from linverse.analytic.gaussian import EVERYWHERE
from linverse.covariance import Covariance, VarianceRange


def log_normal(x: Tensor, mean: Tensor, cov: Tensor) -> Tensor:
    """log N(x; mean, cov) over the last axis, for batched dense covariances."""
    factor = torch.linalg.cholesky(cov)
    white = torch.linalg.solve_triangular(factor, (x - mean)[..., None], upper=False)[..., 0]
    logdet = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return -0.5 * (white.square().sum(-1) + logdet + x.shape[-1] * math.log(2 * math.pi))


@dataclass(frozen=True)
class MixturePosterior:
    """x|y for each of B measurements: log weights [B, K], means [B, K, d], covariances [B, K, d, d] (pixels, float64)."""

    log_weights: Tensor
    means: Tensor
    covariances: Tensor
    shape: tuple[int, int, int]

    @property
    def mean(self) -> Tensor:
        """[B, C, H, W]."""
        return (self.log_weights.exp()[..., None] * self.means).sum(1).reshape(-1, *self.shape)

    @property
    def covariance(self) -> Tensor:
        """[B, d, d]."""
        weights = self.log_weights.exp()[..., None, None]
        centre = self.mean.flatten(1)[:, None]
        shift = self.means - centre
        return (weights * (self.covariances + shift[..., :, None] * shift[..., None, :])).sum(1)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """[B, n, C, H, W] exact samples."""
        batch, _, dim = self.means.shape
        choice = torch.multinomial(self.log_weights.exp(), n, replacement=True, generator=generator)  # [B, n]
        noise = torch.randn(batch, n, dim, generator=generator, dtype=self.means.dtype)
        rows = torch.arange(batch)[:, None]
        factors = _sqrt_psd(self.covariances)[rows, choice]
        return (self.means[rows, choice] + (factors @ noise[..., None])[..., 0]).reshape(batch, n, *self.shape)

    def log_prob(self, x: Tensor) -> Tensor:
        """log p(x|y), [B], for nonsingular posteriors."""
        terms = log_normal(x.double().flatten(1)[:, None], self.means, self.covariances)
        return torch.logsumexp(self.log_weights + terms, dim=1)


def _sqrt_psd(matrix: Tensor) -> Tensor:
    """A square root of symmetric matrices that may be singular."""
    values, vectors = torch.linalg.eigh(matrix)
    return vectors * values.clamp_min(0).sqrt()[..., None, :]


class GaussianMixture:
    """A mixture with dense components, for noise of any basis."""

    def __init__(
        self,
        weights: Tensor,
        means: Tensor,
        covariances: Tensor,
        shape: tuple[int, int, int],
        limits: VarianceRange = EVERYWHERE,
    ) -> None:
        """`weights` [K], `means` [K, d], `covariances` [K, d, d], d = C·H·W of `shape`."""
        dim = math.prod(shape)
        if means.shape != (len(weights), dim) or covariances.shape != (len(weights), dim, dim):
            raise ValueError(
                f"means {tuple(means.shape)} and covariances {tuple(covariances.shape)} do not fit d = {dim}"
            )
        self.log_weights = (weights / weights.sum()).double().log()
        self.means, self.covariances = means.double(), covariances.double()
        self.shape, self.range = shape, limits

    def _terms(self, y: Tensor, cov: Covariance) -> Tensor:
        """log w_k + log N(y; m_k, S_k + Σ), [B, K]."""
        total = self.covariances + cov.to(torch.float64).dense()[:, None]
        return self.log_weights + log_normal(y.double().flatten(1)[:, None], self.means, total)

    def __call__(self, y: Tensor, cov: Covariance) -> Tensor:
        return -torch.logsumexp(self._terms(y, cov), dim=1)

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean [d] and covariance [d, d] of x."""
        weights = self.log_weights.exp()
        mean = weights @ self.means
        shift = self.means - mean
        spread = self.covariances + shift[:, :, None] * shift[:, None, :]
        return mean, (weights[:, None, None] * spread).sum(0)

    def gaussian(self, cov: Covariance) -> tuple[Tensor, Tensor]:
        mean, spread = self.moments()
        images = spread.reshape(-1, *self.shape)
        half = cov.analysis(images).flatten(1).mT.reshape(-1, *self.shape)
        diagonal = cov.analysis(half).flatten(1).diagonal()
        dtype = cov.log_variance.dtype
        return cov.analysis(mean.reshape(1, *self.shape)).to(dtype), diagonal.reshape(1, *self.shape).to(dtype)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """n images from the prior, float64."""
        prior = MixturePosterior(self.log_weights[None], self.means[None], self.covariances[None], self.shape)
        return prior.sample(n, generator)[0]

    def posterior(self, y: Tensor, cov: Covariance) -> MixturePosterior:
        """The exact posterior of x given y."""
        noise = cov.to(torch.float64).dense()[:, None]
        gain = torch.linalg.solve(self.covariances + noise, self.covariances.expand(len(y), -1, -1, -1)).mT
        shift = (y.double().flatten(1)[:, None] - self.means)[..., None]
        means = self.means + (gain @ shift)[..., 0]
        return MixturePosterior(torch.log_softmax(self._terms(y, cov), dim=1), means, gain @ noise, self.shape)


class DenseGaussian(GaussianMixture):
    """x ~ N(m, S) with a dense S: one component."""

    def __init__(
        self, mean: Tensor, covariance: Tensor, shape: tuple[int, int, int], limits: VarianceRange = EVERYWHERE
    ) -> None:
        super().__init__(torch.ones(1), mean[None], covariance[None], shape, limits)

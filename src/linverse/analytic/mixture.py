"""x ~ Σ_k w_k N(m_k, S_k) with dense S_k, for any Σ; small d. y ~ Σ_k w_k N(m_k, S_k + Σ), and x|y is a mixture again."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from linverse.analytic.gaussian import EVERYWHERE
from linverse.covariance import Covariance, VarianceRange
from linverse.energy import Evaluation, autograd_evaluate, group_mean


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


@dataclass(frozen=True)
class _Components:
    """log w_k N(y; m_k, S_k + Σ) as [b, K, n], and the factors [b, K, d, d] and whitened shifts [b, K, d, n] behind it."""

    log_terms: Tensor
    factor: Tensor
    white: Tensor
    noise: Tensor

    @property
    def energy(self) -> Tensor:
        return -torch.logsumexp(self.log_terms, dim=1).flatten()

    @property
    def share(self) -> Tensor:
        """Posterior weights of the components, [b, K, n]."""
        return torch.softmax(self.log_terms, dim=1)


def _distinct(cov: Covariance) -> Covariance:
    """One Σ if a batch repeats it as a view (`Covariance.expand`): thousands of chains then share one factorisation."""
    repeated = cov.log_variance.stride(0) == 0 and not cov.log_variance.requires_grad
    return cov[:1] if repeated else cov


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

    def __call__(self, y: Tensor, cov: Covariance) -> Tensor:
        return self._solve(y, cov).energy

    def _solve(self, y: Tensor, cov: Covariance) -> _Components:
        """Cholesky factors of S_k + Σ once for each distinct Σ, and every y through its own."""
        distinct = _distinct(cov)
        noise = distinct.to(torch.float64).dense()[:, None]  # [b, 1, d, d]
        rows = y.double().flatten(1).expand(max(len(y), cov.batch), -1)
        columns = rows.unflatten(0, (distinct.batch, -1)).mT[:, None]  # [b, 1, d, n], b·n = B
        factor = torch.linalg.cholesky(self.covariances + noise)
        white = torch.linalg.solve_triangular(factor, columns - self.means[..., None], upper=False)
        logdet = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        constant = self.log_weights - 0.5 * (logdet + self.means.shape[1] * math.log(2 * math.pi))
        return _Components(constant[..., None] - 0.5 * white.square().sum(-2), factor, white, noise)

    def evaluate_in_basis(self, z: Tensor, cov: Covariance, *, create_graph: bool = False) -> Evaluation:
        """The exact posterior moments, without the cancellation that differences of U have at large λ."""
        if create_graph:
            return autograd_evaluate(self, z, cov, create_graph=True)
        with torch.no_grad():
            parts = self._solve(cov.synthesis(z.detach()), cov.detach())
            precise = torch.linalg.solve_triangular(parts.factor.mT, parts.white, upper=True)  # (S_k + Σ)⁻¹(y − m_k)
            means = self.means[..., None] + self.covariances @ precise  # [b, K, d, n]
            share = parts.share[:, :, None]
            mean, score = ((share * t).sum(1) for t in (means, precise))
            spread = self._spread(parts, means, self._images(mean), cov)
            scores, centres = (cov.analysis(self._images(t)) for t in (score, mean))
            return self._evaluation(parts.energy, scores, centres, spread, z, cov.detach())

    def _images(self, columns: Tensor) -> Tensor:
        """[b, d, n] → [b·n, C, H, W]."""
        return columns.mT.reshape(-1, *self.shape)

    def _spread(self, parts: _Components, means: Tensor, mean: Tensor, cov: Covariance) -> Tensor:
        """Var[x_i|y] in the eigenbasis, [B, C, H, W]: within the components and between them."""
        within = self.covariances @ torch.cholesky_solve(parts.noise, parts.factor)  # S_k(S_k + Σ)⁻¹Σ
        total, shares = torch.zeros_like(mean), parts.share
        for k in range(len(self.means)):
            share = shares[:, k].reshape(-1, 1, 1, 1)
            shift = cov.analysis(self._images(means[:, k]) - mean)
            total = total + share * (self._diagonal(within[:, k], cov, len(mean)) + shift.square())
        return total

    def _diagonal(self, matrices: Tensor, cov: Covariance, batch: int) -> Tensor:
        """The diagonal of QᵀVQ for b matrices V, each for batch/b samples: [B, C, H, W]."""
        count, dim = matrices.shape[:2]
        half = cov.analysis(matrices.reshape(-1, *self.shape)).reshape(count, dim, dim).mT
        both = cov.analysis(half.reshape(-1, *self.shape)).reshape(count, dim, dim)
        return both.diagonal(dim1=1, dim2=2).repeat_interleave(batch // count, dim=0).reshape(-1, *self.shape)

    def _evaluation(
        self, energy: Tensor, score: Tensor, mean: Tensor, spread: Tensor, z: Tensor, cov: Covariance
    ) -> Evaluation:
        """κ = ½(1 − (Var + (y−x̂)²)/λ), and everything in z's precision."""
        error = (z.double() - mean).square()
        kappa = 0.5 * (1 - group_mean(spread + error, cov) * torch.exp(-cov.log_variance.double()))
        variance = group_mean(spread, cov).clamp_min(0)
        return Evaluation(cov, energy, *(t.to(z.dtype) for t in (score, kappa, mean, variance)))

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
        gain = torch.linalg.solve(self.covariances + noise, self.covariances.expand(cov.batch, -1, -1, -1)).mT
        shift = (y.double().flatten(1)[:, None] - self.means)[..., None]
        means = self.means + (gain @ shift)[..., 0]
        log_weights = torch.log_softmax(self._solve(y, cov).log_terms, dim=1).mT.flatten(0, 1)
        return MixturePosterior(log_weights, means, (gain @ noise).expand(len(y), -1, -1, -1), self.shape)


class DenseGaussian(GaussianMixture):
    """x ~ N(m, S) with a dense S: one component."""

    def __init__(
        self, mean: Tensor, covariance: Tensor, shape: tuple[int, int, int], limits: VarianceRange = EVERYWHERE
    ) -> None:
        super().__init__(torch.ones(1), mean[None], covariance[None], shape, limits)

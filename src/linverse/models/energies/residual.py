"""The `residual` energy: U = U_G + R_θ, the best Gaussian for the images plus what a network learns (mathematics §11).

The base N(m, C) gives u = (C+Σ)⁻¹(y−m), x̂_G, V_G and U_G in closed form; R_θ(w, x̂_G; Σ) is that of `network_residual`.
With g = ∂R/∂x̂_G, h = ∂R/∂w, r = ∂R/∂log λ at fixed x̂_G and w, and c = V_G g + √C̄(1−φ)h, without cancellation at any λ,
    E[x|y] = x̂_G − c              ∇U = u + V_G g/λ + φh/√C̄
    κ      = ½(1 − V_G/λ − λu²) − u·V_G g − (1−φ)hw + r
    Var[x] = V_G − c² − 2λr + 2λ(1−φ)h(w − √C̄u)
"""

from __future__ import annotations

import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.energy import Evaluation, differentiable, group_mean
from linverse.models.bases import BaseAnswer, LowRankBase
from linverse.models.energies.network_residual import PLAIN, NetworkResidual, Views
from linverse.models.energies.scores import Pair, Scores
from linverse.models.networks.unet import UNetConfig

LEAST_WIDTH = 0.05  # cycles per pixel, of the embedding's bands: each holds about a dozen of 28×28 coefficients


class Derivatives:
    """Where R was differentiated and what came out: coefficients in Σ's eigenbasis; r is summed over channels that share λ."""

    def __init__(
        self, residual: Tensor, w: Tensor, h: Tensor, g: Tensor, r: Tensor, log_pixel_variance: Tensor
    ) -> None:
        self.residual, self.w, self.h, self.g, self.r = residual, w, h, g, r
        self.log_pixel_variance = log_pixel_variance


class Residual(NetworkResidual):
    """U_G + R_θ for images of `channels` colours; `log_prior` = log C̄ and the base are fitted to the data before training."""

    def __init__(self, backbone: UNetConfig, base: LowRankBase, channels: int, views: Views = PLAIN) -> None:
        super().__init__(backbone, channels, max(LEAST_WIDTH, 1 / min(base.mean.shape[1:])), views)
        self.base = base
        self.register_buffer("log_prior", torch.zeros(()))

    # --- coordinates -----------------------------------------------------------------------------------------------------

    def whiten(self, z: Tensor, cov: Covariance) -> Tensor:
        """w = √C̄(z−m)/(C̄+λ), coefficients."""
        gain = torch.exp(0.5 * self.log_prior - torch.logaddexp(self.log_prior, cov.log_variance))
        return (z - self._mean_coefficients(cov)) * gain

    def _mean_coefficients(self, cov: Covariance) -> Tensor:
        return cov.analysis(self.base.mean[None])

    def residual(self, estimates: list[tuple[Tensor, Tensor, Covariance]], *, twice: bool) -> tuple[Tensor, Tensor]:
        """R and the pixels' log-variance for coefficients of (w, x̂_G) and Σ, of possibly several bases."""
        parts = []
        for w, linear, cov in estimates:
            damping, centre = self.damping(cov, self.base.marginal(cov)[1]), self._mean_coefficients(cov)
            damped = torch.cat([w * damping, (linear - centre) * damping])
            white, shift = cov.synthesis(damped).chunk(2)
            everything = white.new_ones(1)
            parts.append(self.inputs(white, self.base.mean + shift, self.base.mean, cov, everything))
        return self.run(parts, twice=twice)

    def band_prior(self) -> Tensor:
        """log C̄ for all bands."""
        return self.log_prior

    def gaussian_energy(self, z: Tensor, cov: Covariance) -> Tensor:
        """U_G, [B], float64."""
        return self.base.solve(z, cov).energy()

    # --- what the energy is asked for ------------------------------------------------------------------------------------

    def energies(self, pairs: list[Pair]) -> Tensor:
        """U, [B], float64, before the constant."""
        answers = [self.base.solve(z, cov) for z, cov in pairs]
        estimates = [(self.whiten(z, cov), a.mean, cov) for (z, cov), a in zip(pairs, answers, strict=True)]
        return torch.cat([a.energy() for a in answers]) + self.residual(estimates, twice=False)[0]

    def derivatives(self, pairs: list[Pair], answers: list[BaseAnswer], create_graph: bool) -> list[Derivatives]:
        """R and its derivatives for each basis."""
        with torch.enable_grad():
            ws = [differentiable(self.whiten(z, cov)) for z, cov in pairs]
            means = [differentiable(answer.mean) for answer in answers]
            logs = [differentiable(cov.log_variance) for _, cov in pairs]
            covs = [cov.with_log_variance(log) for (_, cov), log in zip(pairs, logs, strict=True)]
            residual, log_variance = self.residual(list(zip(ws, means, covs, strict=True)), twice=create_graph)
            grads = torch.autograd.grad(residual.sum(), [*ws, *means, *logs], create_graph=create_graph)
        n, sizes = len(pairs), [len(w) for w in ws]
        columns = (residual.split(sizes), ws, grads[:n], grads[n : 2 * n], grads[2 * n :], log_variance.split(sizes))
        return [Derivatives(*each) for each in zip(*columns, strict=True)]

    def scores(self, pairs: list[Pair], create_graph: bool = True) -> list[Scores]:
        """e and κ for each basis: what dual score matching compares with the noise."""
        answers = [self.base.solve(z, cov) for z, cov in pairs]
        rows = zip(pairs, answers, self.derivatives(pairs, answers, create_graph), strict=True)
        return [self._scores(cov, answer, d) for (_, cov), answer, d in rows]

    def _scores(self, cov: Covariance, answer: BaseAnswer, d: Derivatives) -> Scores:
        moved = answer.spread(d.g)
        e = self._score(cov, answer, d, moved) * torch.exp(0.5 * cov.log_variance)
        return Scores(e, self._kappa(cov, answer, d, moved), answer.variance, d.log_pixel_variance)

    def _score(self, cov: Covariance, answer: BaseAnswer, d: Derivatives, moved: Tensor) -> Tensor:
        log_phi, _ = self.log_shrinkage(cov.log_variance)
        return answer.u + moved * torch.exp(-cov.log_variance) + d.h * torch.exp(log_phi - 0.5 * self.log_prior)

    def _kappa(self, cov: Covariance, answer: BaseAnswer, d: Derivatives, moved: Tensor) -> Tensor:
        _, log_rest = self.log_shrinkage(cov.log_variance)
        linear = 0.5 * (1 - answer.variance * torch.exp(-cov.log_variance) - answer.u.square() * cov.variance)
        return group_mean(linear - answer.u * moved - log_rest.exp() * d.h * d.w, cov) + d.r / cov.multiplicity

    def evaluation(self, z: Tensor, cov: Covariance, create_graph: bool) -> Evaluation:
        """Everything in the stable forms above."""
        answer = self.base.solve(z, cov)
        (d,) = self.derivatives([(z, cov)], [answer], create_graph)
        moved, root = answer.spread(d.g), torch.exp(0.5 * self.log_prior)
        rest = self.log_shrinkage(cov.log_variance)[1].exp()
        correction = moved + root * rest * d.h
        mixed = 2 * cov.variance * rest * d.h * (d.w - root * answer.u)
        variance = group_mean(answer.variance - correction.square() + mixed, cov)
        variance = (variance - 2 * cov.variance * d.r / cov.multiplicity).clamp_min(0)
        result = Evaluation(
            cov,
            answer.energy() + d.residual,
            self._score(cov, answer, d, moved),
            self._kappa(cov, answer, d, moved),
            answer.mean - correction,
            variance,
            d.log_pixel_variance.exp(),
        )
        return result if create_graph else result.detach()

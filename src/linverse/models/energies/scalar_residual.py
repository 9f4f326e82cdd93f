"""The `gaussian-residual` energy: U = U_G + R_θ, a Gaussian that is exact at large Σ plus what a network learns.

With the data's mean m and (scalar) variance C, φ = C/(C+λ) and w = √C(y−m)/(C+λ) in Σ's eigenbasis,
    U_G = ½ Σ_i [log 2π(C+λ_i) + w_i²/φ_i]
    R_θ = ½ Σ_j ⟨f_j, s_j⟩ + ⟨φ, a⟩ + ⟨½φ log(1−φ), b⟩,   (s, a, b) = network(f; log λ)
where f₀ = w, and the other f_j magnify the distance to the darkest and to the brightest value and the local contrast by the noise that
Wiener filtering leaves: a network that sees w at unit scale is blind to noise of small amplitude. Every f_j is a function of w and
φ that is bounded and vanishes as λ → ∞, so U is right there by construction.

With g = ∂R/∂w and r = ∂R/∂log λ at fixed w, and without cancellation at any λ,
    E[x|y] = m + √C(w − (1−φ)g)
    ∇U     = (w + φg)/√C
    κ      = (1−φ)(½ − ½w²/φ − gw) + r
    Var[x] = C(1−φ)(1 − 2r/φ − (1−φ)g²).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from linverse.covariance import Covariance
from linverse.energy import Evaluation, differentiable, group_mean
from linverse.models.embeddings.space_frequency import SpaceFrequencyEmbedding
from linverse.models.energies.scores import Pair, Scores
from linverse.models.networks.backbone import build_backbone
from linverse.models.networks.unet import UNetConfig

MAGNIFIED = 3  # darkest value, brightest value, local contrast
SATURATION = 6.0  # of the magnified features, in standard deviations


class GaussianResidual(nn.Module):
    """U_G + R_θ for images of shape [C, H, W]; `mean` and `log_prior` = log C are fitted to the data before training."""

    mean: Tensor
    log_prior: Tensor

    def __init__(self, backbone: UNetConfig, shape: tuple[int, int, int]) -> None:
        super().__init__()
        channels = shape[0]
        self.network = build_backbone(backbone, channels * (1 + MAGNIFIED), channels * (1 + MAGNIFIED + 2))
        self.embedding = SpaceFrequencyEmbedding(backbone)
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("log_prior", torch.zeros(()))

    # --- coordinates -----------------------------------------------------------------------------------------------------

    def whiten(self, z: Tensor, cov: Covariance) -> Tensor:
        """w = √C(z−m)/(C+λ), coefficients."""
        gain = torch.exp(0.5 * self.log_prior - torch.logaddexp(self.log_prior, cov.log_variance))
        return (z - cov.analysis(self.mean[None])) * gain

    def log_shrinkage(self, log_variance: Tensor) -> tuple[Tensor, Tensor]:
        """log φ and log(1−φ)."""
        ratio = log_variance - self.log_prior
        return -F.softplus(ratio), -F.softplus(-ratio)

    def gaussian_energy(self, z: Tensor, cov: Covariance) -> Tensor:
        """U_G, [B], float64."""
        total = cov.with_log_variance(torch.logaddexp(self.log_prior, cov.log_variance))
        return -total.log_normal_coefficients(z - cov.analysis(self.mean[None]))

    # --- the network -----------------------------------------------------------------------------------------------------

    def _inputs(self, w: Tensor, cov: Covariance) -> tuple[Tensor, Tensor, Tensor]:
        """Features f [B, 4C, H, W], gates [B, 2C, H, W] and embedding maps, in pixels."""
        log_phi, log_rest = self.log_shrinkage(cov.log_variance)
        phi = log_phi.exp()
        gate = cov.pool(phi)
        log_gate = cov.pool(0.5 * phi * log_rest)
        precision = cov.pool(torch.exp(cov.log_variance + log_phi)).rsqrt()
        white = cov.synthesis(w)
        wiener = self.mean + torch.exp(0.5 * self.log_prior) * white
        raw = torch.cat([wiener, wiener - 1.0, contrast(wiener)], dim=1)
        copies = raw.shape[1] // precision.shape[1]
        magnified = SATURATION * torch.tanh(raw * precision.repeat(1, copies, 1, 1) / SATURATION)
        features = torch.cat([white, magnified * gate.repeat(1, copies, 1, 1)], dim=1)
        gates = torch.cat([cov.full(gate), cov.full(log_gate)], dim=1)
        return features, gates, self.embedding.maps(cov, self.log_prior)

    def residual(self, whitened: list[tuple[Tensor, Covariance]]) -> Tensor:
        """R for a batch in (w, Σ), possibly of several bases: the backbone runs once. [B], float64."""
        parts = [self._inputs(w, cov) for w, cov in whitened]
        features, gates, maps = (torch.cat(group) for group in zip(*parts, strict=True))
        features, maps = (t.contiguous(memory_format=torch.channels_last) for t in (features, maps))
        out = self.network(features, self.embedding(maps))
        factors = torch.cat([0.5 * features, gates], dim=1)
        return (factors * out).flatten(1).sum(dim=1, dtype=torch.float64)

    # --- what the energy is asked for ------------------------------------------------------------------------------------

    def energies(self, pairs: list[Pair]) -> Tensor:
        """U, [B], float64, before the constant."""
        gaussian = torch.cat([self.gaussian_energy(z, cov) for z, cov in pairs])
        return gaussian + self.residual([(self.whiten(z, cov), cov) for z, cov in pairs])

    def derivatives(self, pairs: list[Pair], create_graph: bool) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """(R, w, g, r) for each basis; r is summed over the channels that share an entry of log λ."""
        with torch.enable_grad():
            ws = [differentiable(self.whiten(z, cov)) for z, cov in pairs]
            logs = [differentiable(cov.log_variance) for _, cov in pairs]
            covs = [cov.with_log_variance(log) for (_, cov), log in zip(pairs, logs, strict=True)]
            residual = self.residual(list(zip(ws, covs, strict=True)))
            grads = torch.autograd.grad(residual.sum(), [*ws, *logs], create_graph=create_graph)
        parts = residual.split([len(w) for w in ws])
        return list(zip(parts, ws, grads[: len(ws)], grads[len(ws) :], strict=True))

    def scores(self, pairs: list[Pair], create_graph: bool = True) -> list[Scores]:
        """e and κ for each basis: what dual score matching compares with the noise."""
        out = []
        for (_, cov), (_, w, g, r) in zip(pairs, self.derivatives(pairs, create_graph), strict=True):
            log_phi, log_rest = self.log_shrinkage(cov.log_variance)
            e = (w + log_phi.exp() * g) * torch.exp(0.5 * (log_rest - log_phi))
            out.append(Scores(e, self._kappa(w, g, r, cov), torch.exp(cov.log_variance + log_phi)))
        return out

    def _kappa(self, w: Tensor, g: Tensor, r: Tensor, cov: Covariance) -> Tensor:
        log_phi, log_rest = self.log_shrinkage(cov.log_variance)
        products = group_mean(0.5 * w.square() * torch.exp(-log_phi) + g * w, cov)
        return log_rest.exp() * (0.5 - products) + r / cov.multiplicity

    def evaluation(self, z: Tensor, cov: Covariance, create_graph: bool) -> Evaluation:
        """Everything in the stable forms above."""
        ((residual, w, g, r),) = self.derivatives([(z, cov)], create_graph)
        log_phi, log_rest = self.log_shrinkage(cov.log_variance)
        phi, rest, root = log_phi.exp(), log_rest.exp(), torch.exp(0.5 * self.log_prior)
        energy = self.gaussian_energy(z, cov) + residual
        mean = cov.analysis(self.mean[None]) + root * (w - rest * g)
        score = (w + phi * g) / root
        spread = 1 - 2 * r / (cov.multiplicity * phi) - rest * group_mean(g.square(), cov)
        variance = (root.square() * rest * spread).clamp_min(0)
        result = Evaluation(cov, energy, score, self._kappa(w, g, r, cov), mean, variance)
        return result if create_graph else result.detach()


def contrast(x: Tensor) -> Tensor:
    """A pixel less the mean of its four neighbours (edges repeated)."""
    padded = F.pad(x, (1, 1, 1, 1), mode="replicate")
    around = padded[..., :-2, 1:-1] + padded[..., 2:, 1:-1] + padded[..., 1:-1, :-2] + padded[..., 1:-1, 2:]
    return x - 0.25 * around

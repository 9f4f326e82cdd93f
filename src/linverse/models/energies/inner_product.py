"""The `inner-product` energy of the paper: U = ½⟨y, s_θ(y, Σ)⟩, with s_θ(y, Σ) = A·network(Ay; log λ), A = (C + Σ)^{-1/2}.

The scaling A keeps the network's input at unit size over twelve decades of noise; it is part of s_θ. The form makes U(0, Σ) = 0 for
all Σ, which a normalised energy does not satisfy: the price of its simplicity.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from linverse.covariance import Covariance
from linverse.energy import Evaluation, differentiable, from_derivatives
from linverse.models.energies.scores import Pair, Scores


class InnerProduct(nn.Module):
    """½⟨y, s_θ⟩ for images [C, H, W]; `mean` and `log_prior` = log C are fitted to the data before training."""

    mean: Tensor
    log_prior: Tensor

    def __init__(self, network: nn.Module, embedding: nn.Module, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.network, self.embedding = network, embedding
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("log_prior", torch.zeros(()))

    def _scaled(self, z: Tensor, cov: Covariance) -> tuple[Tensor, Tensor]:
        scale = torch.exp(-0.5 * torch.logaddexp(self.log_prior, cov.log_variance))
        return cov.synthesis(z * scale), self.embedding.maps(cov, self.log_prior)  # type: ignore[operator]

    def energies(self, pairs: list[Pair]) -> Tensor:
        """U, [B], float64, before the constant."""
        parts = [self._scaled(z, cov) for z, cov in pairs]
        scaled, maps = (
            torch.cat(group).contiguous(memory_format=torch.channels_last) for group in zip(*parts, strict=True)
        )
        out = self.network(scaled, self.embedding(maps))
        return 0.5 * (scaled * out).flatten(1).sum(dim=1, dtype=torch.float64)

    def _derivatives(self, pairs: list[Pair], create_graph: bool) -> list[tuple[Tensor, Tensor, Tensor]]:
        """(U, Qᵀ∇_yU, κ) for each basis, by coefficients."""
        with torch.enable_grad():
            zs = [differentiable(z) for z, _ in pairs]
            logs = [differentiable(cov.log_variance) for _, cov in pairs]
            covs = [cov.with_log_variance(log) for (_, cov), log in zip(pairs, logs, strict=True)]
            energy = self.energies(list(zip(zs, covs, strict=True)))
            grads = torch.autograd.grad(energy.sum(), [*zs, *logs], create_graph=create_graph)
        kappas = [g / cov.multiplicity for g, cov in zip(grads[len(zs) :], covs, strict=True)]
        return list(zip(energy.split([len(z) for z in zs]), grads[: len(zs)], kappas, strict=True))

    def scores(self, pairs: list[Pair], create_graph: bool = True) -> list[Scores]:
        """e and κ for each basis."""
        out = []
        for (_, cov), (_, score, kappa) in zip(pairs, self._derivatives(pairs, create_graph), strict=True):
            wiener = torch.exp(cov.log_variance - F.softplus(cov.log_variance - self.log_prior))
            out.append(Scores(score * torch.exp(0.5 * cov.log_variance), kappa, wiener))
        return out

    def evaluation(self, z: Tensor, cov: Covariance, create_graph: bool) -> Evaluation:
        """Energy, scores, mean and variance in their plain forms."""
        ((energy, score, kappa),) = self._derivatives([(z, cov)], create_graph)
        result = from_derivatives(energy, score, kappa, z, cov)
        return result if create_graph else result.detach()

"""A Gaussian of principal components, for image sets of one size: C = V diag(s) Vᵀ + c·I (mathematics §11).

Exact for any Σ of any basis. In Σ's eigenbasis, with D = λ + c, T = (s^{1/2}Vᵀ) and M = I + T D⁻¹ Tᵀ = LLᵀ, W = L⁻¹ T D⁻¹:
    (C+Σ)⁻¹ = D⁻¹ − WᵀW           log det(C+Σ) = Σ log D + 2 Σ log L_kk
    u = D⁻¹δ − WᵀWδ,   x̂_G = m + (c/D)δ + λWᵀWδ,   V_G = diag(λc/D) + (λWᵀ)(Wλ),   δ = y − m
x̂_G is neither m + Cu nor y − Σu: in float32 the first errs by half a standard deviation of the noise at λ = 10⁻⁶, the second by the
rounding of y at λ = 10³. D ≥ c keeps M well conditioned (s/c), so float32 serves all but the r×r factor. Rank 0 is one variance for all.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from linverse.covariance import Covariance
from linverse.models.bases.interface import BaseAnswer


class LowRankBase(nn.Module):
    """N(m, V diag(s) Vᵀ + c·I) for images [C, H, W], with `rank` principal components."""

    mean: Tensor
    components: Tensor
    log_rest: Tensor

    def __init__(self, shape: tuple[int, int, int], rank: int) -> None:
        super().__init__()
        if not 0 <= rank < math.prod(shape):
            raise ValueError(
                f"the rank of a base for {math.prod(shape)} pixels is 0 … {math.prod(shape) - 1}; got {rank}"
            )
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("components", torch.zeros(rank, *shape))  # s^{1/2}V, one image each
        self.register_buffer("log_rest", torch.zeros(()))
        self._seen: dict[tuple[object, ...], Tensor] = {}

    @torch.no_grad()
    def fit(self, mean: Tensor, covariance: Tensor) -> None:
        """Take over the mean [C, H, W] and the covariance [d, d] of the training images."""
        rank = len(self.components)
        values, vectors = torch.linalg.eigh(covariance.double())
        values, vectors = values.flip(0), vectors.flip(1)
        rest = values[rank:].mean().clamp_min(torch.finfo(torch.float32).tiny)
        scales = (values[:rank] - rest).clamp_min(0).sqrt()
        self.mean.copy_(mean)
        self.components.copy_((vectors[:, :rank] * scales).mT.reshape(self.components.shape))
        self.log_rest.copy_(rest.log())

    def _transformed(self, cov: Covariance) -> Tensor:
        """T = s^{1/2}Vᵀ in Σ's eigenbasis, [r, d]; kept, because it depends on the basis alone."""
        source = self.components
        key = (cov.basis, source.data_ptr(), source._version, source.dtype, source.device)
        seen = self._seen.get(key)  # once: another thread may clear it
        if seen is None:
            seen = cov.analysis(source).flatten(1) if len(source) else source.flatten(1)
            if len(self._seen) >= 16:
                self._seen.clear()
            self._seen[key] = seen
        return seen

    def marginal(self, cov: Covariance) -> tuple[Tensor, Tensor]:
        """m and diag C in Σ's eigenbasis."""
        variance = self._transformed(cov).square().sum(0) + self.log_rest.exp()
        return cov.analysis(self.mean[None]), variance.reshape(1, *self.mean.shape)

    def solve(self, z: Tensor, cov: Covariance) -> BaseAnswer:
        """Where all images share one Σ, as those of a sampler do, it is factorised once."""
        log_variance = cov.full(cov.log_variance[:1] if _shared(cov.log_variance) else cov.log_variance).flatten(1)
        variance, rest = log_variance.exp(), self.log_rest.exp()
        total = variance + rest
        centre = cov.analysis(self.mean[None])
        shift = (z - centre).flatten(1)
        factor, half = self._factors(self._transformed(cov), total)
        shared = _outer(half, shift)
        u = shift / total - shared
        mean = centre + (rest / total * shift + variance * shared).reshape(z.shape)
        diagonal = variance * (rest / total + variance * half.square().sum(1))

        def spread(g: Tensor) -> Tensor:
            flat = g.flatten(1)
            return (variance * (rest / total * flat + _outer(half, variance * flat))).reshape(g.shape)

        def energy() -> Tensor:
            logdet = total.double().log().sum(1) + 2 * factor.diagonal(dim1=1, dim2=2).log().sum(1)
            quadratic = (shift.double() * u.double()).sum(1)
            return 0.5 * (quadratic + logdet + cov.dim * math.log(2 * math.pi))

        return BaseAnswer(u.reshape(z.shape), mean, diagonal.expand_as(shift).reshape(z.shape), spread, energy)

    @staticmethod
    def _factors(spanned: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        """L of M = I + T D⁻¹ Tᵀ, [B, r, r], float64, and W = L⁻¹ T D⁻¹, [B, r, d]."""
        weighted = spanned / total[:, None]
        identity = torch.eye(len(spanned), dtype=torch.float64, device=total.device)
        factor = torch.linalg.cholesky((weighted @ spanned.mT).double() + identity)
        inverse = torch.linalg.solve_triangular(factor, identity.expand_as(factor), upper=False)
        return factor, inverse.to(total.dtype) @ weighted


def _shared(log_variance: Tensor) -> bool:
    """Whether all rows are the same; not where each is to be told its own derivative."""
    return not log_variance.requires_grad and torch.equal(log_variance[:1].expand_as(log_variance), log_variance)


def _outer(half: Tensor, x: Tensor) -> Tensor:
    """WᵀWx for [B or 1, r, d] and [B, d]."""
    if len(half) == 1:
        return (x @ half[0].mT) @ half[0]
    return torch.einsum("brd,br->bd", half, torch.einsum("brd,bd->br", half, x))

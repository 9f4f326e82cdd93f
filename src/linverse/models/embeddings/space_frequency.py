"""Σ → embedding maps, one a level of the backbone. All of them start from log λ: λ runs over many decades.

`SpaceFrequencyEmbedding` (ours) serves every basis with one branch: the map f_k(p) is the mean of log λ in frequency band k around
pixel p. A spatial Σ shows log λ(p) in every band, a Fourier or DCT one is constant in p, a block DCT one is constant in a block; an
isotropic Σ gives the same map in every basis, so the energy agrees across bases there by construction.

What the network is told of λ ends where φ = C/(C+λ) falls below `FAINTEST`. The one-shot variance is C(1 − 2r/φ − …) with r = ∂R/∂log λ: a
network that goes on changing with log λ where φ is 10⁻⁴ sees its errors magnified by 1/φ (standard deviations of 6 for pixels in
[0, 1]). Each coefficient's own λ ends there, before the mean over a band that may hold well measured ones too. Where *all* is noisy the
network must know how noisy, so log φ̄/(1−φ̄), φ̄ the mean of φ over all coefficients, is shown to every pixel; φ̄ hardly feels a single λ
that is large among small ones.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from linverse.covariance import Covariance
from linverse.models.networks.twice import silu
from linverse.models.networks.unet import UNetConfig, conv

RADII = (0.08, 0.2, 0.4)
ANGLES = (0.0, 0.25 * math.pi, 0.5 * math.pi)
CORNER = (0.5, 0.5, 0.12)  # centre and width, cycles a pixel
BANDS = 2 + len(RADII) * len(ANGLES)
FAINTEST = 0.03


def band_weights(frequencies: Tensor, dc_width: float = 0.01) -> Tensor:
    """[2, bh, bw] frequencies → [K, bh, bw] weights of unit sum over a block: DC, 3 radii × 3 orientations, the finest checks.

    A softmax of the distance to the band's centre, so that every band is defined in every block, down to a single pixel. A band needs a
    width that holds many coefficients: the only one of a band would be given the derivative of the whole picture's energy (κ of
    hundreds, and gradients of the loss that drown all others).
    """
    size = frequencies.abs()
    centres = [
        (0.0, 0.0, dc_width),
        *((r * math.sin(a), r * math.cos(a), max(0.4 * r, dc_width)) for r in RADII for a in ANGLES),
        CORNER,
    ]
    logits = torch.stack(
        [-((size[0] - y).square() + (size[1] - x).square()) / (2 * width * width) for y, x, width in centres]
    )
    return torch.softmax(logits.flatten(1), dim=1).reshape(logits.shape)


def fine_maps() -> Tensor:
    """[1, 2(K+1), 1, 1]: 1 for the maps of bands that hold many coefficients of a large picture, 0 for the mean and the coarsest radius."""
    fine = torch.ones(2, BANDS + 1)
    fine[:, : 1 + len(ANGLES)] = 0
    return fine.reshape(1, -1, 1, 1)


class SpaceFrequencyEmbedding(nn.Module):
    """Maps of log(λ/C) in each band and of the whole → embeddings at every level of the backbone."""

    features = 2 * (BANDS + 1)

    def __init__(self, config: UNetConfig, dc_width: float = 0.01) -> None:
        super().__init__()
        self.dc_width = dc_width
        self.levels = len(config.multipliers)
        self.first = conv(self.features, config.embedding, config.stem, stride=config.stem, padding=0)
        self.second = conv(config.embedding, config.embedding, 1)

    def maps(self, cov: Covariance, log_prior_variance: Tensor, log_total_variance: Tensor | None = None) -> Tensor:
        """[B, 2(K+1), H, W]: −log φ and −log(1−φ) of each of the `ratios`, where φ = C/(C+λ)."""
        return self.shares(self.ratios(cov, log_prior_variance, log_total_variance))

    def shares(self, ratios: Tensor) -> Tensor:
        """log λ/C → −log φ and −log(1−φ), scaled."""
        return torch.cat([F.softplus(ratios), F.softplus(-ratios)], dim=1) / 5.0

    def ratios(self, cov: Covariance, log_prior_variance: Tensor, log_total_variance: Tensor | None = None) -> Tensor:
        """[B, K+1, H, W]: each band's mean log λ/C, averaged over channels, then that of φ̄.

        In a band each λ is felt up to about C/`FAINTEST`. C is one number, or one for each band beside C̄ for φ̄.
        """
        total = log_prior_variance if log_total_variance is None else log_total_variance
        ratio = self._bands(cov, log_prior_variance)
        log_shares = (F.logsigmoid(total - cov.log_variance), F.logsigmoid(cov.log_variance - total))
        phi, rest = (torch.logsumexp(share.flatten(1), dim=1)[:, None, None, None] for share in log_shares)
        return torch.cat([ratio, (rest - phi).expand(-1, -1, *cov.size)], dim=1)

    def _bands(self, cov: Covariance, log_prior_variance: Tensor) -> Tensor:
        """[B, K, H, W]: the mean of log λ/C in each band, felt up to `FAINTEST`, averaged over channels."""
        faintest = cov.log_variance.new_tensor(math.log(FAINTEST))
        weights = band_weights(cov.frequencies(), self.dc_width)
        if log_prior_variance.ndim == 0:
            felt = -torch.logaddexp(log_prior_variance - cov.log_variance, faintest)
            ratio = cov.pool_bands(felt, weights)
        else:
            felt = -torch.logaddexp(log_prior_variance[:, None, None] - cov.log_variance[:, :, None], faintest)
            ratio = cov.pool_each(felt, weights)
        channels = cov.log_variance.shape[1]
        return ratio.unflatten(1, (channels, BANDS)).mean(dim=1) if channels > 1 else ratio

    def forward(self, maps: Tensor) -> list[Tensor]:
        out = [silu(self.second(silu(self.first(maps))))]
        for _ in range(self.levels - 1):
            out.append(F.avg_pool2d(out[-1], 2))
        return out

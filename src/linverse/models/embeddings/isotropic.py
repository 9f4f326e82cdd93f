"""One number for the noise: the embedding of an isotropic network, to be compared with those that see all of Σ.

The mean of log λ, as Fourier features, gives one vector for all levels and pixels (Karras et al. 2022).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from linverse.covariance import Covariance
from linverse.models.networks.unet import conv


class IsotropicEmbedding(nn.Module):
    """The mean of log λ → one vector [B, width, 1, 1] for each of the `levels`."""

    bank: Tensor

    def __init__(self, width: int, levels: int, features: int = 256) -> None:
        super().__init__()
        self.levels = levels
        self.register_buffer("bank", torch.logspace(-2, 3, features // 2, base=2.0), persistent=False)
        self.first, self.second = conv(features, width, 1), conv(width, width, 1)

    def maps(self, cov: Covariance, log_prior: Tensor) -> Tensor:
        """What of Σ it looks at, [B, 1, 1, 1]."""
        return (cov.log_variance - log_prior).mean(dim=(1, 2, 3), keepdim=True) / 10

    def forward(self, maps: Tensor) -> list[Tensor]:
        phase = math.pi * maps * self.bank.reshape(1, -1, 1, 1)
        hidden = F.silu(self.first(torch.cat([phase.cos(), phase.sin()], dim=1)))
        return [F.silu(self.second(hidden))] * self.levels

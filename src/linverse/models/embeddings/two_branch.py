"""The paper's embedding of Σ (appendix "Noise Embedding Modulation"): one branch for noise maps, one for spectra.

    e_spatial  = f_spatial(log λ)  ∈ ℝ^{c×H×W},    e_spectral = f_spectral(log λ, k) ∈ ℝ^{c×1×1}
Both are residual networks of 3×3 convolutions with GroupNorm and SiLU on Fourier features of log λ (of log λ, not of λ: features of
the raw variance cannot tell 1e-9 from 1e-3). The spectral branch also sees the frequency of each coefficient, so that it knows where
in the plane a value sits, and is averaged over the plane at the end.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from linverse.covariance import Covariance
from linverse.models.networks.unet import UNetConfig, conv, normalisation


class ResidualStack(nn.Module):
    """1×1 in, `blocks` residual blocks, 1×1 out."""

    def __init__(self, inputs: int, width: int, outputs: int, blocks: int) -> None:
        super().__init__()
        self.enter, self.exit = conv(inputs, width, 1), conv(width, outputs, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(normalisation("group", width), nn.SiLU(), conv(width, width, 3)) for _ in range(blocks)
        )

    def forward(self, x: Tensor) -> Tensor:
        h = self.enter(x)
        for block in self.blocks:
            h = h + block(h)
        return self.exit(F.silu(h))


class TwoBranchEmbedding(nn.Module):
    """Noise maps and spectra → embeddings at every level of the backbone."""

    bank: Tensor

    def __init__(self, config: UNetConfig, minimum: float, maximum: float) -> None:
        """As wide as the backbone (the paper's: 128, with 256 features): at full resolution a wider one would cost more than it."""
        super().__init__()
        self.config, width, features = config, config.channels, 2 * config.channels
        self.centre = 0.5 * math.log(minimum * maximum)
        self.half_range = 0.5 * math.log(maximum / minimum)
        self.register_buffer("bank", torch.logspace(-2, 3, features // 2, base=2.0), persistent=False)
        self.spatial = ResidualStack(features, width, config.embedding, blocks=4)
        self.spectral = ResidualStack(features + 2, width, config.embedding, blocks=4)

    def maps(self, cov: Covariance, log_prior: Tensor) -> Tensor:
        """[B, 4, H, W]: scaled log λ (mean over channels), vertical and horizontal frequency, and 1 where Σ is spatial."""
        log_variance = cov.log_variance.mean(dim=1, keepdim=True)
        scaled = (log_variance - self.centre) / self.half_range
        frequencies = cov.frequencies()
        tiles = (cov.size[0] // frequencies.shape[1], cov.size[1] // frequencies.shape[2])
        place = frequencies.repeat(1, *tiles).expand(cov.batch, -1, -1, -1)
        return torch.cat([scaled, 2 * place, torch.full_like(scaled, float(cov.basis == "spatial"))], dim=1)

    def forward(self, maps: Tensor) -> list[Tensor]:
        phase = math.pi * maps[:, :1] * self.bank.to(maps.dtype).reshape(1, -1, 1, 1)
        features = torch.cat([phase.cos(), phase.sin()], dim=1)
        is_spatial = maps[:, 3, 0, 0] > 0.5
        rows, others = is_spatial.nonzero().flatten(), (~is_spatial).nonzero().flatten()
        inside = self.spatial(features[rows])
        spectrum = torch.cat([features[others], maps[others, 1:3]], dim=1)
        vector = self.spectral(spectrum).mean(dim=(2, 3), keepdim=True).expand(-1, -1, *maps.shape[2:])
        order = torch.argsort(torch.cat([rows, others]))
        return self._levels(torch.cat([inside, vector])[order])

    def _levels(self, embedding: Tensor) -> list[Tensor]:
        height, width = (n // self.config.stem for n in embedding.shape[2:])
        out = []
        for _ in self.config.multipliers:
            out.append(F.adaptive_avg_pool2d(embedding, (height, width)))
            height, width = height // 2, width // 2
        return out

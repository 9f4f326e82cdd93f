"""First-order companions of the same backbone: an isotropic score network and a conditional (Palette-style) one.

Both predict the clean image from y = x + √λ v, x̂ = m + √C(w − (1−φ)·network(w; log λ)) with w and φ as in `residual`; they have no
energy. The conditional one sees the measurement too, stacked to its input, as Palette does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from linverse.covariance import Covariance, SpatialCovariance, VarianceRange
from linverse.files.saving import HubModel
from linverse.models.bases import Source, mean_and_variance
from linverse.models.config import MOST_CHANNELS, ModelConfig, check_shape
from linverse.models.embeddings.space_frequency import SpaceFrequencyEmbedding
from linverse.models.losses import DenoiserLoss, LossConfig
from linverse.models.networks.backbone import build_backbone
from linverse.models.networks.unet import UNetConfig


@dataclass(frozen=True)
class DenoiserConfig(ModelConfig):
    """An isotropic denoiser; `condition_channels` > 0 stacks a measurement of so many channels to its input."""

    kind: ClassVar[str] = "denoiser"
    shape: tuple[int, int, int]
    minimum: float = 1e-6
    maximum: float = 1e3
    condition_channels: int = 0
    backbone: UNetConfig = field(default_factory=UNetConfig)

    def __post_init__(self) -> None:
        check_shape(self.shape)
        VarianceRange(self.minimum, self.maximum)  # or it says what is wrong with them
        divisor, (_, height, width) = self.backbone.divisor, self.shape
        if height % divisor or width % divisor:
            raise ValueError(f"this backbone takes images whose sides are multiples of {divisor}; got {height}×{width}")
        if not 0 <= self.condition_channels <= MOST_CHANNELS:
            raise ValueError(f"condition_channels are 0 to {MOST_CHANNELS}; got {self.condition_channels}")

    @property
    def bases(self) -> tuple[str, ...]:
        """The bases that it knows: white noise is white in pixels."""
        return ("spatial",)

    def build(self) -> Denoiser:
        """The model, with random weights."""
        return Denoiser(self)


class Denoiser(nn.Module, HubModel):
    """E[x | y] for y = x + √λ v, optionally given a measurement."""

    config_type = DenoiserConfig
    mean: Tensor
    log_prior: Tensor

    def __init__(self, config: DenoiserConfig) -> None:
        super().__init__()
        self.config = config
        channels = config.shape[0]
        self.network = build_backbone(config.backbone, channels + config.condition_channels, channels)
        self.embedding = SpaceFrequencyEmbedding(config.backbone)
        self.register_buffer("mean", torch.zeros(config.shape))
        self.register_buffer("log_prior", torch.zeros(()))
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @property
    def range(self) -> VarianceRange:
        return VarianceRange(self.config.minimum, self.config.maximum, self.config.bases)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.config.shape

    @property
    def backbone(self) -> nn.Module:
        """The network proper: what may run in lower precision."""
        return self.network

    def loss(self, config: LossConfig) -> DenoiserLoss:
        """What trains it: the A-DSM of a first-order network."""
        return DenoiserLoss(self, config)

    def fit(self, images: Source) -> None:
        """Take over mean and variance of the training images, before training."""
        self.fit_gaussian(*mean_and_variance(images))

    def fit_gaussian(self, mean: Tensor, variance: float) -> None:
        """Set the data's mean image [C, H, W] and scalar variance, before training."""
        self.mean.copy_(mean)
        self.log_prior.fill_(variance).log_()

    def forward(self, y: Tensor, variance: Tensor | float, condition: Tensor | None = None) -> Tensor:
        """x̂, [B, C, H, W]; `variance` is a number or one a sample."""
        value = torch.as_tensor(variance, dtype=y.dtype, device=y.device).reshape(-1, 1, 1, 1)
        log_variance = value.log().expand(y.shape[0], 1, *y.shape[2:]).contiguous()
        return self._denoise(y, SpatialCovariance(log_variance, y.shape[1]), condition)

    def _denoise(self, y: Tensor, cov: Covariance, condition: Tensor | None) -> Tensor:
        if (condition is None) != (self.config.condition_channels == 0):
            raise ValueError(f"this network takes a condition of {self.config.condition_channels} channels")
        log_total = torch.logaddexp(self.log_prior, cov.log_variance)
        root = torch.exp(0.5 * self.log_prior)
        w = (y - self.mean) * torch.exp(0.5 * self.log_prior - log_total)
        stacked = w if condition is None else torch.cat([w, condition], dim=1)
        maps = self.embedding.maps(cov, self.log_prior).contiguous(memory_format=torch.channels_last)
        g = self.network(stacked.contiguous(memory_format=torch.channels_last), self.embedding(maps))
        return self.mean + root * (w - torch.exp(cov.log_variance - log_total) * g)

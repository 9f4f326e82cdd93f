"""A learned energy U_θ(y, Σ): a configuration, a parameterisation, a constant, and the limits within which it was trained.

All of these travel with the weights: safetensors and a JSON configuration in one folder, by the conventions of the Hugging Face hub.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from linverse.covariance import Covariance, VarianceRange
from linverse.energy import Evaluation, Shape, autograd_evaluate
from linverse.files.saving import HubModel
from linverse.models.bases import LowRankBase, Source, image_moments, mean_and_variance, spectral_samples
from linverse.models.config import ModelConfig, check_shape
from linverse.models.embeddings.space_frequency import SpaceFrequencyEmbedding
from linverse.models.embeddings.two_branch import TwoBranchEmbedding
from linverse.models.energies.bound import lowest_energy
from linverse.models.energies.inner_product import InnerProduct
from linverse.models.energies.network_residual import Views
from linverse.models.energies.residual import Residual
from linverse.models.energies.scalar_residual import GaussianResidual
from linverse.models.energies.scores import Pair, Scores
from linverse.models.energies.spectral_residual import SpectralResidual
from linverse.models.losses import DualLoss, LossConfig
from linverse.models.networks.backbone import build_backbone
from linverse.models.networks.unet import UNetConfig


@dataclass(frozen=True)
class EnergyConfig(ModelConfig):
    """What a learned energy is: everything but its weights."""

    kind: ClassVar[str] = "energy"
    shape: Shape
    """[C, H, W]; height and width are null where pictures of any size are taken ("spectral" energies)"""
    minimum: float = 1e-6
    maximum: float = 1e3
    bases: tuple[str, ...] = ()
    parameterisation: Literal["residual", "spectral", "gaussian-residual", "inner-product"] = "gaussian-residual"
    rank: int = 0
    """principal components of the Gaussian base of a "residual" energy"""
    embedding: Literal["space-frequency", "two-branch"] = "space-frequency"
    backbone: UNetConfig = field(default_factory=UNetConfig)
    linear_views: bool = False
    """whether what a network sees magnified is linear up to four standard deviations ("residual" and "spectral" energies)"""
    level: bool = False
    """whether there is a term of Σ alone, fitted when training ends, for the mean of the covariance score (the same energies)"""

    gain: bool = False
    """whether what the network says has a gain by Σ, fitted when training ends, for means that go neither too far nor too little"""

    def __post_init__(self) -> None:
        check_shape(self.shape)
        VarianceRange(self.minimum, self.maximum)  # or it says what is wrong with them
        _, height, width = self.shape
        divisor = self.backbone.divisor
        if height is None or width is None:
            if self.parameterisation != "spectral" or height != width:
                raise ValueError(f"only spectral energies take pictures of any height and width; got {self.shape}")
            return
        if height % divisor or width % divisor:
            raise ValueError(f"this backbone takes images whose sides are multiples of {divisor}; got {height}×{width}")

    @property
    def fixed_shape(self) -> tuple[int, int, int]:
        """[C, H, W] of a model that takes one size."""
        channels, height, width = self.shape
        if height is None or width is None:
            raise ValueError("this model takes pictures of any size")
        return channels, height, width

    def build(self) -> LearnedEnergy:
        """The model, with random weights."""
        return LearnedEnergy(self)


class LearnedEnergy(nn.Module, HubModel):
    """U_θ(y, Σ) with the constant that normalises it."""

    config_type = EnergyConfig
    constant: Tensor

    def __init__(self, config: EnergyConfig) -> None:
        super().__init__()
        self.config = config
        self.form = build_form(config)
        self.register_buffer("constant", torch.zeros((), dtype=torch.float64))
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @property
    def range(self) -> VarianceRange:
        return VarianceRange(self.config.minimum, self.config.maximum, self.config.bases)

    @property
    def shape(self) -> Shape:
        return self.config.shape

    @property
    def bounded(self) -> bool:
        """Whether the energy is kept above its lower bound; that of an inner product is known up to a constant until training ends."""
        return not isinstance(self.form, InnerProduct)

    @property
    def backbone(self) -> nn.Module:
        """The network proper: what may run in lower precision."""
        return self.form.network

    def loss(self, config: LossConfig) -> DualLoss:
        """What trains it: dual score matching."""
        return DualLoss(self, config)

    def fit(self, images: Source) -> None:
        """Take over what the Gaussian base knows of the training images, before training."""
        if isinstance(self.form, SpectralResidual):
            self.form.base.fit(spectral_samples(images))
            return
        if isinstance(self.form, Residual):
            moments = image_moments(images)
            self.form.base.fit(moments.mean, moments.covariance)
            self.form.log_prior.fill_(moments.variance).log_()
        else:
            self.fit_gaussian(*mean_and_variance(images))

    def fit_gaussian(self, mean: Tensor, variance: float) -> None:
        """Set the data's mean image [C, H, W] and scalar variance, before training."""
        if isinstance(self.form, SpectralResidual):
            raise TypeError("a spectral energy is fitted to pictures, not to a mean image: use `fit`")
        if isinstance(self.form, Residual):
            self.form.base.fit(mean, variance * torch.eye(mean.numel(), dtype=torch.float64))
        else:
            self.form.mean.copy_(mean)
        self.form.log_prior.fill_(variance).log_()

    def gaussian(self, cov: Covariance) -> tuple[Tensor, Tensor]:
        if isinstance(self.form, Residual | SpectralResidual):
            return self.form.base.marginal(cov)
        return cov.analysis(self.form.mean[None]), self.form.log_prior.exp().reshape(1, 1, 1, 1)

    def forward(self, y: Tensor, cov: Covariance) -> Tensor:
        """U, [B], nats, float64; nowhere below what images in [0, 1] allow."""
        if y.dtype != self.form.log_prior.dtype:
            raise TypeError(
                f"y is {y.dtype} and the model {self.form.log_prior.dtype}: convert one, as model.double() or y.float() do"
            )
        energy = self.form.energies([(cov.analysis(y), cov)]) + self.constant
        return torch.maximum(energy, lowest_energy(y, cov)) if self.bounded else energy

    def scores(self, pairs: list[Pair], create_graph: bool = True) -> list[Scores]:
        """Energy and both scores for a batch of several bases, by coefficients; the backbone runs once."""
        return self.form.scores(pairs, create_graph)

    def evaluate_in_basis(self, z: Tensor, cov: Covariance, *, create_graph: bool = False) -> Evaluation:
        """U and its derivatives at y = Qz; where U would fall below its bound, those of the bound."""
        result = self.form.evaluation(z, cov, create_graph)
        result = replace(result, energy=result.energy + self.constant)
        if not self.bounded:
            return result
        below = result.energy < lowest_energy(cov.synthesis(z), cov)
        if not bool(below.any()):
            return result
        return self._bound(z, cov, result, create_graph).where(below, replace(result, unknown=torch.zeros_like(below)))

    @staticmethod
    def _bound(z: Tensor, cov: Covariance, result: Evaluation, create_graph: bool) -> Evaluation:
        """The bound with its derivatives: all that is known of these rows."""
        bound = autograd_evaluate(lowest_energy, z, cov, create_graph=create_graph)
        unknown = torch.ones(len(z), dtype=torch.bool, device=z.device)
        return replace(bound, pixel_variance=result.pixel_variance, unknown=unknown)


def build_form(config: EnergyConfig) -> Residual | SpectralResidual | GaussianResidual | InnerProduct:
    """The parameterisation that a configuration names."""
    views = Views(config.linear_views, config.level, config.gain)
    if config.parameterisation == "spectral":
        return SpectralResidual(config.backbone, config.shape[0], views)
    if config.parameterisation == "residual":
        return Residual(config.backbone, LowRankBase(config.fixed_shape, config.rank), config.shape[0], views)
    if config.parameterisation == "gaussian-residual":
        if config.embedding != "space-frequency":
            raise ValueError("the gaussian-residual energy is conditioned by the space-frequency embedding")
        return GaussianResidual(config.backbone, config.fixed_shape)
    if config.parameterisation != "inner-product":
        raise ValueError(f"unknown parameterisation {config.parameterisation!r}")
    channels = config.shape[0]
    network = build_backbone(config.backbone, channels, channels)
    embedding: nn.Module = (
        SpaceFrequencyEmbedding(config.backbone)
        if config.embedding == "space-frequency"
        else TwoBranchEmbedding(config.backbone, config.minimum, config.maximum)
    )
    return InnerProduct(network, embedding, config.fixed_shape)

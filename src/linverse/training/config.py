"""What a training run is: data, model, distribution over Σ, loss, optimiser. One preset a model; the command line overrides it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal, Self

import tyro

from linverse.memory import check_memory
from linverse.models.config import LARGEST_SIDE
from linverse.models.denoiser import DenoiserConfig
from linverse.models.energies.learned import EnergyConfig
from linverse.models.losses import LossConfig
from linverse.training.covariances import Mixture

MODELS: dict[str, type[EnergyConfig] | type[DenoiserConfig]] = {cls.kind: cls for cls in (EnergyConfig, DenoiserConfig)}


MOST = 10**12  # of anything that is counted


def check_between(name: str, value: float, least: float, most: float) -> None:
    """Refuse a number that makes no sense, NaN included."""
    if not least <= value <= most:
        bound = f"at least {least:g}" if most in (MOST, math.inf) else f"from {least:g} to {most:g}"
        raise ValueError(f"{name.replace('_', '-')} is {bound}; got {value}")


@dataclass(frozen=True)
class OptimiserConfig:
    """AdamW, or Muon for the convolutions beside it, with warm-up, a constant rate, and a decay.

    `decay`: "linear" falls to zero over the last `decay_share` of the steps; "inverse-sqrt" divides the rate by √(step/`decay_steps`)
    after `decay_steps`; "none" keeps it. `ema` is the decay of the exponential moving average of the weights.
    """

    kind: Literal["adamw", "muon"] = "adamw"
    rate: float = 1e-3
    muon_rate: float = 0.02
    muon_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0
    warmup: int = 200
    decay: Literal["linear", "inverse-sqrt", "none"] = "linear"
    decay_share: float = 0.3
    decay_steps: int = 100_000
    clip: float = 20.0
    ema: float = 0.999

    def __post_init__(self) -> None:
        for name, least, most in (
            ("rate", 0.0, 1e3),
            ("muon_rate", 0.0, 1e3),
            ("weight_decay", 0.0, 1e3),
            ("warmup", 0, MOST),
            ("decay_share", 0.0, 1.0),
            ("decay_steps", 1, MOST),
            ("clip", 1e-12, math.inf),
            ("ema", 0.0, 1.0),
        ):
            check_between(name, getattr(self, name), least, most)
        for beta in self.betas:
            check_between("each of betas", beta, 0.0, 1.0)

    def share_at(self, step: int, steps: int) -> float:
        """The learning rate of a step (0-based) as a share of its peak."""
        share = min(1.0, (step + 1) / max(1, self.warmup))
        if self.decay == "linear":
            return share * min(1.0, (steps - step) / max(1.0, self.decay_share * steps))
        if self.decay == "inverse-sqrt":
            return share / max(1.0, (step + 1) / self.decay_steps) ** 0.5
        return share


@dataclass(frozen=True)
class TrainConfig:
    """A training run. Rerun the same command to resume it."""

    data: str
    """mnist, fashion-mnist, digits, photographs, folder:PATH or npz:PATH"""
    model: Annotated[EnergyConfig | DenoiserConfig, tyro.conf.AvoidSubcommands]
    covariances: Annotated[Mixture, tyro.conf.Fixed]
    loss: LossConfig = field(default_factory=LossConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    batch: int = 64
    """over all processes"""
    crops: tuple[int, ...] = (64,)
    """sides of the crops for a model of any size, one after the other in equal shares of the run; batches shrink as they grow"""
    steps: int = 10_000
    isotropic_first: int = 0
    """steps at the beginning that see isotropic noise alone: quick to learn, and a good start for all else"""
    start_from: Annotated[str, tyro.conf.arg(name="from")] = ""
    """weights to start from: a bundled model, a folder of a model, or a run; what does not fit starts afresh"""
    refit_base: bool = False
    """with --from: fit the Gaussian base to this data instead of keeping that of the weights"""
    seed: int = 0
    flips: bool = False
    """mirror images at random"""
    condition: Literal["none", "inpainting", "deblurring"] = "none"
    """the measurement that a conditional denoiser sees (Palette)"""
    precision: Literal["no", "bf16"] = "no"
    double: bool = False
    """train in float64 (tests)"""
    checkpoint_seconds: float = 120.0
    evaluate_every: int = 500
    evaluation_images: int = 256
    preview_every: int = 2000
    """steps between pictures of what the model can do and its self-tests on a few images; 0: never"""
    keep_every: int = 0
    """steps between copies of the averaged model that are kept in the run's folder; 0: none"""
    self_test_images: int = 1024
    reference_images: int = 128
    """held-out images kept beside the weights, so that unusual pictures can be told; 0 keeps none"""

    def __post_init__(self) -> None:
        for name, least in (
            ("batch", 1),
            ("steps", 0),
            ("isotropic_first", 0),
            ("checkpoint_seconds", 0.0),
            ("evaluate_every", 1),
            ("evaluation_images", 0),
            ("preview_every", 0),
            ("keep_every", 0),
            ("self_test_images", 2),
            ("reference_images", 0),
        ):
            check_between(name, getattr(self, name), least, MOST)
        if not self.crops:
            raise ValueError("crops are one side or several; got none")
        for side in self.crops:
            check_between("each of crops", side, 1, LARGEST_SIDE)
        pixels = math.prod(self.sample_shape) * self.batch
        check_memory(8 * 4 * pixels, f"a batch of {self.batch} images", "make the batch smaller")

    def crop_at(self, step: int) -> int:
        """The side of the crops of a step."""
        return self.crops[min(len(self.crops) - 1, step * len(self.crops) // max(1, self.steps))]

    def batch_at(self, step: int) -> int:
        """The images of a step: as many pixels as at the beginning, in multiples of four."""
        share = (self.crops[0] / self.crop_at(step)) ** 2
        return self.batch if share == 1 else max(4, 4 * round(self.batch * share / 4))

    @property
    def sample_shape(self) -> tuple[int, int, int]:
        """[C, H, W] of a training image, at the beginning."""
        channels, height, width = self.model.shape
        return channels, height or self.crops[0], width or self.crops[0]

    def to_dict(self) -> dict[str, Any]:
        data = asdict(self)
        data["model"] = self.model.to_dict()
        data["covariances"] = self.covariances.to_config()
        return data

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `to_json`."""
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`, also of its JSON."""
        kind = data["model"]["kind"]
        if kind not in MODELS:
            raise ValueError(f"there is no model of the kind {kind!r}; there are {', '.join(MODELS)}")
        optimiser = {**data["optimiser"], "betas": tuple(data["optimiser"]["betas"])}
        parts = {
            "crops": tuple(data.get("crops", (64,))),
            "model": MODELS[kind].from_dict(data["model"]),
            "covariances": Mixture.from_config(data["covariances"]),
            "loss": LossConfig(**data["loss"]),
            "optimiser": OptimiserConfig(**optimiser),
        }
        return cls(**{**data, **parts})

"""Networks of a few hundred weights, and images to go with them, for the tests of the learning part."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
from torch import Tensor, nn

from conftest import random_covariance
from linverse.covariance import Covariance
from linverse.models.energies.learned import EnergyConfig, LearnedEnergy
from linverse.models.networks.unet import UNetConfig
from linverse.rng import keyed_generator
from linverse.training.config import OptimiserConfig, TrainConfig
from linverse.training.covariances import BoxSuperResolution, Component, GaussianBlurs, Isotropic, Mixture, Patches
from linverse.training.presets import PRESETS

Shape = tuple[int, int, int]

FAMILIES = ("spatial", "fourier", "dct", "block-dct")
COLOURS = {"grey": (1, False), "rgb-shared": (3, True), "rgb-own": (3, False)}  # channels, log λ shared by them
FORMS = (
    ("residual", "space-frequency"),
    ("inner-product", "space-frequency"),
    ("inner-product", "two-branch"),
    ("gaussian-residual", "space-frequency"),
)
RANK = 5

# every basis and colour for our own form, less for the others: they share the code below it
CASES = [
    *((family, colour, FORMS[0]) for family in FAMILIES for colour in COLOURS),
    *((family, "rgb-shared", FORMS[1]) for family in FAMILIES),
    *((family, colour, FORMS[2]) for family, colour in (("spatial", "rgb-own"), ("fourier", "rgb-shared"))),
    *((family, "rgb-shared", FORMS[3]) for family in FAMILIES),
]
CASE_NAMES = [f"{family}, {colour}, {' + '.join(form)}" for family, colour, form in CASES]

BACKBONE = UNetConfig(
    channels=4,
    multipliers=(1, 2),
    blocks=1,
    attention_levels=(1,),
    embedding=4,
    dropout=0.0,
    filter=(1, 3, 3, 1),
    stem=1,
    stem_channels=4,
    norm="group",
)


def awaken(module: nn.Module, seed: int = 0, size: float = 0.2) -> None:
    """Move every parameter: layers that start at zero would hide whatever lies behind them."""
    generator = keyed_generator("awaken", seed)
    for parameter in module.parameters():
        parameter.data += size * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)


def tiny_energy(
    shape: Shape, form: tuple[str, str] = FORMS[0], backbone: UNetConfig = BACKBONE, size: float = 0.2, **changes: Any
) -> LearnedEnergy:
    """A learned energy in float64, away from its silent start, with all that its form may have."""
    config = EnergyConfig(shape, 1e-6, 1e3, (), form[0], RANK, form[1], backbone, level=True, gain=True)  # type: ignore[arg-type]
    energy = LearnedEnergy(replace(config, **changes)).double()
    awaken(energy, size=size)
    energy.fit(Pictures(shape=shape))
    return energy.eval()


def noisy_pair(family: str, shape: Shape, shared: bool, batch: int = 2, seed: int = 0) -> tuple[Tensor, Covariance]:
    """(y, Σ), float64."""
    cov = random_covariance(family, shape, batch=batch, shared=shared, seed=seed)
    generator = keyed_generator("pair", seed)
    x = torch.rand(batch, *shape, generator=generator, dtype=torch.float64)
    return x + cov.sample_noise(generator), cov


@dataclass(frozen=True)
class Pictures:
    """What training asks of a data set, on smooth random images."""

    count: int = 40
    shape: Shape = (1, 8, 8)
    seed: int = 0

    def __len__(self) -> int:
        return self.count

    def batch(self, indices: Tensor) -> Tensor:
        generator = keyed_generator("pictures", self.seed)
        coarse = torch.rand(self.count, self.shape[0], 2, 2, generator=generator)
        images = nn.functional.interpolate(coarse, self.shape[1:], mode="bilinear")
        grain = torch.rand(images.shape, generator=generator)  # no direction without any variance
        return (0.95 * images + 0.05 * grain)[indices]


COVARIANCES = Mixture(
    (
        Component(0.3, Isotropic()),
        Component(0.3, Patches((1, 2, 4))),
        Component(0.2, GaussianBlurs()),
        Component(0.2, BoxSuperResolution(4)),
    )
)


def tiny_config(**changes: Any) -> TrainConfig:
    """A run of a few steps on `Pictures`."""
    config = TrainConfig(
        data="pictures",
        model=EnergyConfig((1, 8, 8), 1e-4, 1e2, ("spatial", "fourier", "block-dct-4"), backbone=BACKBONE),
        covariances=COVARIANCES,
        optimiser=OptimiserConfig(warmup=4),
        batch=6,
        steps=10,
        evaluation_images=8,
        self_test_images=16,
        checkpoint_seconds=1e9,
    )
    return replace(config, **changes)


class FolderHub:
    """A hub that is a folder: `push_to_hub` ends in `place`, where the class is put in place of huggingface's."""

    place: Path

    def __init__(self, token: str | None = None) -> None: ...

    def create_repo(self, repo_id: str, **_: object) -> SimpleNamespace:
        return SimpleNamespace(repo_id=repo_id)

    def upload_folder(self, folder_path: Path, **_: object) -> str:
        shutil.copytree(folder_path, self.place)
        return "url"


def pretend_hub(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """What is pushed from now on arrives in `place`."""
    monkeypatch.setattr(FolderHub, "place", place, raising=False)
    monkeypatch.setattr(huggingface_hub, "HfApi", FolderHub)


# the digits preset with a network of these sizes, as options of the command line and as a configuration
_DIGITS_SIZES = {"channels": 4, "embedding": 4, "blocks": 1, "stem_channels": 4}
_DIGITS_MODEL = [f"--model.backbone.{name.replace('_', '-')}={value}" for name, value in _DIGITS_SIZES.items()]
DIGITS_FLAGS = [
    *_DIGITS_MODEL,
    "--batch=8",
    "--evaluation-images=8",
    "--self-test-images=16",
    "--evaluate-every=1000000",
    "--optimiser.decay=none",
    "--optimiser.warmup=4",
]


def digits_config(steps: int, **changes: Any) -> TrainConfig:
    """What `linverse train digits` makes of `DIGITS_FLAGS`."""
    preset = PRESETS["digits"][1]
    backbone = replace(preset.model.backbone, **_DIGITS_SIZES)  # type: ignore[arg-type]
    config = replace(
        preset,
        model=replace(preset.model, backbone=backbone),
        optimiser=replace(preset.optimiser, decay="none", warmup=4),
        batch=8,
        evaluation_images=8,
        self_test_images=16,
        evaluate_every=1_000_000,
        steps=steps,
    )
    return replace(config, **changes)


def any_size_energy() -> LearnedEnergy:
    """The Gaussian base of colour pictures of any size: its network is silent."""
    backbone = UNetConfig(
        channels=4, multipliers=(1, 2), blocks=1, embedding=4, stem=2, stem_channels=4, style="compact", middle=1
    )
    bases = ("spatial", "fourier", "dct", "block-dct-2", "block-dct-4")
    energy = LearnedEnergy(EnergyConfig((3, None, None), bases=bases, parameterisation="spectral", backbone=backbone))
    energy.fit(Pictures(64, (3, 16, 16)))
    return energy

"""Are the trained energies what they claim to be? The self-tests of `training.normalise` on held-out images, against their limits.

    entropy      E[U − U_G] at large Σ in every basis                     0: probability sums to one
    agreement    U at isotropic Σ in every basis                          the same number
    bias, slope  E[κ] = 0; regressing ½(1−ε²) on κ gives 1                the covariance score is right on average, and in size
    ratio        log E_{p(y|Σ_A)} exp(U(y,Σ_A) − U(y,Σ_B))                0: neighbouring Σ are normalised alike
    heat         Σκ − ½ tr[Σ(∇²U − ∇U∇Uᵀ)]                                0: all Σ belong to one image density
    floor        E[U] at λ_min less the bound of the model's own denoiser  0: densities are right down to the smallest noise
    log Z        at λ_min, by the model's own samples, in two ways          0
    bands        mean and slope of κ by kind of noise and band of λ/C       0 and 1, seen and unseen apart
The figure shows each as a share of what is allowed, and the mean of ½(1−ε²) over images of like κ against κ itself.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linverse.energy import Energy, fixed_shape
from linverse.evaluation.models import chunks, held_out, load_energy
from linverse.experiments.framework import ExperimentResult
from linverse.files.saving import hash_weights
from linverse.models.energies.learned import LearnedEnergy
from linverse.models.losses import NoisyBatch
from linverse.progress import Progress
from linverse.rng import keyed_generator
from linverse.training.bands import BandTest, band_tests, worst
from linverse.training.batches import draw_parts
from linverse.training.finish import merge_parts
from linverse.training.floor import FloorTest, floor_test
from linverse.training.normalise import SelfTest, self_test
from linverse.training.partition import PartitionTest, partition_test
from linverse.training.presets import PRESETS
from linverse.typicality import covariance_score_pairs

LIMITS = {
    "normalisation_error": 0.01,
    "agreement": 0.01,
    "bias_largest": 0.01,
    "slope_error": 0.1,
    "ratio_largest": 0.5,
    "floor_gap_size": 0.02,
    "band_mean_largest": 0.02,
    "band_slope_error": 0.1,
    "unseen_band_slope_error": 0.3,
}

PAPER: dict[str, Any] = {
    "source": "sections 3.2 and 3.3: dual score matching and normalisation",
    "claims": ["dual score matching learns energies that are normalised for all covariances, up to one constant"],
    "figures": {},
    "targets": {
        "normalisation_error": "at most 0.01 nats per dimension at large Σ, in every basis",
        "agreement": "at most 0.01 nats per dimension",
        "bias": "|E[κ]| at most 0.01",
        "slope": "between 0.9 and 1.1",
        "ratio": "|log mean| at most 0.5 nats",
        "floor_gap": "at most 0.02 nats per dimension either way",
        "bands": "|E[κ]| at most 0.02 and slopes between 0.9 and 1.1 in every band that can be tested; unseen kinds of noise 0.7 to 1.3",
    },
}


@dataclass(frozen=True)
class SelfTestOptions:
    """Models to test."""

    model: str | None = "fashion-mnist"
    """the all-round energy: a bundled name or a folder (None: leave it out)"""
    mnist_model: str | None = "mnist"
    """the any-order energy of digits (None: leave it out)"""


@dataclass(frozen=True)
class SelfTestSetting:
    """How many held-out images."""

    images: int = 1024
    band_images: int = 512
    floor_images: int = 256
    generated: int = 64
    steps: int = 300
    bins: int = 24
    seed: int = 0


FULL = SelfTestSetting()
QUICK = SelfTestSetting(images=192, band_images=32, floor_images=32, generated=4, steps=40, bins=12)


@dataclass(frozen=True)
class Verdict:
    """The self-tests of one model, and for each basis the mean target against κ, [bins, 2]."""

    result: SelfTest
    floor: FloorTest
    partition: PartitionTest
    bands: list[BandTest]
    reliability: dict[str, Tensor]


def examine(energy: LearnedEnergy, preset: str, setting: SelfTestSetting) -> Verdict:
    """Test an energy on held-out images under the covariances of its preset, within its own limits."""
    config = replace(PRESETS[preset][1], model=energy.config)
    x = held_out(config.data, setting.images, fixed_shape(energy)).x
    batches = [
        draw_parts(config, x[rows], keyed_generator(setting.seed, "self-test", rows.start)) for rows in chunks(len(x))
    ]
    parts = merge_parts(batches)
    result = self_test(energy, x, parts, config.covariances.bases(fixed_shape(energy)), setting.seed)
    kinds = tuple(component.distribution.kind for component in config.covariances.components)
    return Verdict(
        result,
        floor_test(energy, x[: setting.floor_images]),
        partition_test(energy, setting.generated, setting.steps),
        band_tests(energy, x[: setting.band_images], kinds),
        {part.cov.basis: reliability(energy, part, setting.bins) for part in parts},
    )


def reliability(energy: Energy, part: NoisyBatch, bins: int) -> Tensor:
    """Mean κ and mean ½(1−ε²) in bins of as many coefficients each, sorted by κ, [bins, 2]."""
    found = [
        covariance_score_pairs(energy, part.x[rows], part.cov[rows], part.noise[rows]) for rows in chunks(len(part.x))
    ]
    kappa, target = (torch.cat([values.flatten() for values in column]) for column in zip(*found, strict=True))
    order = kappa.argsort()
    pairs = torch.stack([kappa[order], target[order]], dim=1)
    return torch.stack([group.mean(dim=0) for group in pairs.tensor_split(bins)])


def metrics_of(verdict: Verdict) -> dict[str, float]:
    """All tests, and the worst of each."""
    result = verdict.result
    out = {"normalisation_error": result.normalisation_error, "agreement": result.agreement}
    for name in ("entropy", "bias", "slope", "ratio", "heat"):
        out |= {f"{name}_{key.replace(' ', '_')}": value for key, value in getattr(result, name).items()}
    out["bias_largest"] = max(map(abs, result.bias.values()))
    out["slope_error"] = max(abs(value - 1) for value in result.slope.values())
    out["ratio_largest"] = max(map(abs, result.ratio.values()))
    out["heat_largest"] = max(map(abs, result.heat.values()))
    out |= {f"floor_{key}": value for key, value in verdict.floor.to_dict().items()}
    out["floor_gap_size"] = abs(verdict.floor.gap)
    out |= {f"log_z_{key}": value for key, value in verdict.partition.to_dict().items()}
    for test in verdict.bands:
        group = f"{test.family}, {'measured' if test.measured else 'hidden'}, {test.band}"
        out |= {f"{group}: mean": test.mean, f"{group}: mean_error": test.mean_error}
        if test.testable:
            out |= {f"{group}: slope": test.slope, f"{group}: slope_error": test.slope_error}
    seen, unseen = worst(verdict.bands), worst(verdict.bands, seen=False)
    out["band_mean_largest"] = seen["mean"]
    out["band_slope_error"] = max(1 - seen["lowest slope"], seen["highest slope"] - 1)
    if unseen["lowest slope"] == unseen["lowest slope"]:  # some of it could be tested
        out["unseen_band_slope_error"] = max(1 - unseen["lowest slope"], unseen["highest slope"] - 1)
    out["within_limits"] = float(all(out[name] <= limit for name, limit in LIMITS.items() if name in out))
    return out


def run(out: Path, quick: bool, progress: Progress, options: SelfTestOptions) -> ExperimentResult:
    """Test both models."""
    setting = QUICK if quick else FULL
    names = {"fashion-mnist": (options.model, "--model"), "mnist": (options.mnist_model, "--mnist-model")}
    chosen = {preset: (name, option) for preset, (name, option) in names.items() if name is not None}
    if not chosen:
        raise ValueError("there is no model to test: give --model or --mnist-model")
    verdicts: dict[str, Verdict] = {}
    metrics: dict[str, float] = {}
    weights: dict[str, str] = {}
    for done, (preset, (name, option)) in enumerate(chosen.items()):
        energy = load_energy(str(name), option)
        verdicts[preset] = examine(energy, preset, setting)
        found = metrics_of(verdicts[preset])
        metrics |= {f"{preset.replace('-', '_')}_{key}": value for key, value in found.items()}
        weights[preset] = hash_weights(energy)
        progress("self-test", done + 1, len(chosen))
    return ExperimentResult(metrics, PAPER, verdicts, asdict(setting), weights, {"seed": setting.seed})

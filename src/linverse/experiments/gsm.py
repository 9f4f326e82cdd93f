"""Is the learned energy normalised? The paper's test where the truth is known: a scale mixture in 1000 dimensions.

Two models start alike and see the same samples (`gsm_training`). "Single" matches the score ∇_yU: U is then free to move by a function
of Σ, and by a number on each shell that noise does not connect. "Dual" matches ∂U/∂log t as well, so that the constant
    c = log E_{y~G} exp(U_G − U_θ)   at Σ = t_max·I,  G = N(0, (C + t_max)I)
(exact for any U_θ, unlike E[U_G − U_θ], which is too high by KL(p‖G) ≈ 1 nat here) holds at every Σ. The error is
    root-mean-square over y ~ p(y|Σ) of (U_θ + c − U)/d,   in nats per dimension;
at Σ = t_min·I that is the data's support: thin shells of radius √(d(σ_k² + t_min)) of relative width 1/√(2d),
each with probability ½.
Everything here is evaluated on full d-dimensional vectors in float64 through the library's exact `GaussianScaleMixture`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linverse.analytic import GaussianScaleMixture
from linverse.covariance import Covariance, SpatialCovariance, VarianceRange
from linverse.energy import Energy, evaluate
from linverse.experiments.claims import Claim, Condition, interval_metrics, interval_of
from linverse.experiments.framework import ExperimentResult
from linverse.experiments.gsm_training import (
    Objective,
    QuadraticsNetwork,
    ScaleMixtureConfig,
    component_energies,
    train,
)
from linverse.experiments.tables import ResultTable
from linverse.files.saving import hash_weights
from linverse.metrics import bootstrap_statistic
from linverse.progress import Progress
from linverse.rng import keyed_generator

FULL, QUICK = ScaleMixtureConfig(), ScaleMixtureConfig(steps=1200)
OBJECTIVES: tuple[Objective, ...] = ("dual", "single")
CHUNK = 1024  # vectors of 1000 float64 at once

PAPER: dict[str, Any] = {
    "source": "appendix, Validation of the normalization constant in synthetic experiment; figure norm_constant",
    "claims": [
        "dual score matching captures the true energy",
        "single score matching fails to, even after global normalization",
        "single score matching learns the score within the data's support but not outside of it",
    ],
    "figures": {},  # the paper prints none
    "recipe": {"samples": 100_000, "steps": 50_000, "batch": 512, "rate": 1e-4},
}


CLAIMS = (
    Claim(
        "dual score matching captures the true energy (within 0.01 nats per dimension)",
        (Condition("error of dual in nats per dimension", "below", 0.01),),
    ),
    Claim(
        "single score matching fails, even after global normalisation (off by more than 0.05)",
        (Condition("error of single in nats per dimension", "above", 0.05),),
    ),
    Claim(
        "single learns the score within the data's support (to a twentieth) but not outside of it",
        (
            Condition("score error of single on the support", "below", 0.05),
            Condition("score error of single anywhere", "above", 0.05),
        ),
    ),
)


@dataclass(frozen=True)
class GsmOptions:
    """How long to train."""

    steps: int = 10_000
    """of either objective; the paper has 50 000"""


def departures(config: ScaleMixtureConfig) -> list[str]:
    """Where we leave the paper's recipe."""
    return [
        "fresh samples at every step instead of 100 000 fixed ones, drawn as radii and inner products (the same law)",
        f"{config.steps:,} steps at rate {config.rate:g} falling to zero (paper: 50 000 from 0.0001)",
        f"the {config.levels * config.samples_per_level} samples of a step share {config.levels} pairs of noise levels",
        "a and b are predicted relative to the total variance t + C, b per dimension",
    ]


# --- the energies ------------------------------------------------------------------------------------------------------------
# A half is a pixel of n "channels" that share one λ: shape (n, 1, 2), log λ [B, 1, 1, 2].


def true_energy(config: ScaleMixtureConfig) -> GaussianScaleMixture:
    """The exact energy, with the two halves as two pixels of n channels."""
    variances = torch.tensor(config.sigmas, dtype=torch.float64).square()
    limits = VarianceRange(config.t_min, config.t_max)
    return GaussianScaleMixture(torch.full_like(variances, 0.5), variances, (config.half, 1, 2), limits)


def covariance(config: ScaleMixtureConfig, t: Tensor) -> SpatialCovariance:
    """Σ for rows (t_A, t_B), [B, 2]."""
    return SpatialCovariance(t.double().log()[:, None, None], config.half)


class LearnedMixture:
    """A trained mixture of quadratics as an `Energy`: U_θ + c, float64."""

    def __init__(self, network: QuadraticsNetwork, config: ScaleMixtureConfig, constant: float = 0.0) -> None:
        self.network, self.config, self.constant = network.double(), config, constant
        self.shape = (config.half, 1, 2)
        self.range = VarianceRange(config.t_min, config.t_max, ("spatial",))

    def __call__(self, y: Tensor, cov: Covariance) -> Tensor:
        t = cov.variance[:, 0, 0].double()
        radius = y.double().square().mean(dim=(1, 2))
        u = component_energies(self.network(t), radius[:, None], t, self.config)[:, 0]
        return self.constant - torch.logsumexp(-self.config.dim * u, dim=-1)

    def gaussian(self, cov: Covariance) -> tuple[Tensor, Tensor]:
        zeros = cov.log_variance.new_zeros(1, 1, 1, 1)
        return zeros, zeros + self.config.data_variance


@torch.no_grad()
def normalising_constant(energy: LearnedMixture, draws: int, generator: torch.Generator) -> tuple[float, float]:
    """c = log E_{y~G} exp(U_G − U_θ) at t_max, and the effective share of the draws."""
    config = energy.config
    cov = covariance(config, torch.full((1, 2), config.t_max))
    total, gaps = cov + config.data_variance, []
    for start in range(0, draws, CHUNK):
        y = total.sample_noise(generator, batch=min(CHUNK, draws - start))
        gaps.append(-total.log_normal(y) - energy(y, cov.expand(len(y))))
    gap = torch.cat(gaps)
    effective = torch.exp(2 * torch.logsumexp(gap, 0) - torch.logsumexp(2 * gap, 0)) / draws
    return energy.constant + float(torch.logsumexp(gap, 0) - math.log(draws)), float(effective)


# --- measuring ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Points:
    """Fixed held-out (y, Σ), with the true energy there."""

    y: Tensor
    cov: Covariance
    energy: Tensor


@torch.no_grad()
def held_out(config: ScaleMixtureConfig, t: Tensor, name: str) -> Points:
    """One y ~ p(y|Σ) for each row of t, [B, 2]."""
    truth, generator = true_energy(config), keyed_generator(config.seed, "gsm held out", name)
    cov = covariance(config, t)
    y = truth.sample(len(t), generator) + cov.sample_noise(generator)
    return Points(y, cov, in_chunks(truth, y, cov))


def in_chunks(energy: Energy, y: Tensor, cov: Covariance) -> Tensor:
    """U of many points with little memory."""
    rows = range(0, len(y), CHUNK)
    return torch.cat([energy(y[i : i + CHUNK], cov[i : i + CHUNK]) for i in rows])


def held_out_sets(config: ScaleMixtureConfig) -> dict[str, Points]:
    """The data's support at t_min, the other end, one half clean and the other drowned, and all levels as trained."""
    count, low, high = config.evaluation_samples, config.t_min, config.t_max
    pairs = {"support": (low, low), "t_max": (high, high), "off_diagonal": (low, high)}
    sets = {name: torch.tensor([pair], dtype=torch.float64).expand(count, 2) for name, pair in pairs.items()}
    sets["all_levels"] = config.draw_levels(count, keyed_generator(config.seed, "gsm levels"), torch.float64)
    return {name: held_out(config, t, name) for name, t in sets.items()}


def rms(values: Tensor) -> float:
    """Root mean square."""
    return float(values.square().mean().sqrt())


@torch.no_grad()
def energy_metrics(energy: LearnedMixture, sets: dict[str, Points]) -> dict[str, float]:
    """Errors of U in nats per dimension."""
    dim = energy.config.dim
    errors = {name: (in_chunks(energy, p.y, p.cov) - p.energy) / dim for name, p in sets.items()}
    support = errors["support"]
    metrics = {
        "nats_per_dim": rms(support),
        "largest_nats_per_dim": float(support.abs().max()),
        "best_constant_nats_per_dim": rms(support - support.mean()),  # even with the truth's own constant at t_min
    }
    outer = sets["support"].y.square().mean(dim=(1, 2, 3)) > energy.config.data_variance
    metrics["inner_shell_nats_per_dim"] = float(support[~outer].mean())
    metrics["outer_shell_nats_per_dim"] = float(support[outer].mean())
    return metrics | {f"{name}_nats_per_dim": rms(e) for name, e in errors.items() if name != "support"}


def radial_score(energy: Energy, config: ScaleMixtureConfig, radii: Tensor) -> tuple[Tensor, Tensor]:
    """U/d and (dU/dr)/√d at t_min, at ‖y‖ = √d·radius, in the direction (1, …, 1)."""
    y = radii.double()[:, None, None, None].expand(-1, config.half, 1, 2)
    cov = covariance(config, torch.full((1, 2), config.t_min)).expand(len(radii))
    result = evaluate(energy, y, cov)
    # dU/dr = ⟨∇U, y/‖y‖⟩, and y/‖y‖ is 1/√d in every coordinate
    return result.energy / config.dim, result.score.sum(dim=(1, 2, 3)) / config.dim


def score_metrics(energy: LearnedMixture, support: Points, radii: Tensor) -> dict[str, float]:
    """Errors of the radial score at t_min, relative to its root mean square: on the support, and at radii anywhere."""
    config, truth = energy.config, true_energy(energy.config)
    inside = support.y.square().mean(dim=(1, 2, 3)).sqrt()[:CHUNK]
    out = {}
    for name, points in (("support", inside), ("anywhere", radii)):
        exact, learned = (radial_score(model, config, points)[1] for model in (truth, energy))
        out[f"{name}_score_error"] = rms(learned - exact) / rms(exact)
    return out


# --- the experiment ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curves:
    """What the figure shows: (U/d, score) of each model along the radius, and the support's radii."""

    radii: Tensor
    truth: tuple[Tensor, Tensor]
    models: dict[str, tuple[Tensor, Tensor]]
    support: Tensor
    errors: dict[str, float]
    t_min: float


def run(out: Path, quick: bool, progress: Progress, options: GsmOptions) -> ExperimentResult:
    """Train both, normalise both alike, compare with the truth."""
    return validate(QUICK if quick else replace(FULL, steps=options.steps), progress)


def rms_interval(name: str, values: Tensor) -> dict[str, float]:
    """The root mean square with its interval."""
    found = bootstrap_statistic(values.double(), lambda v: v.square().mean().sqrt(), resamples=400)
    return interval_metrics(name, found)


def intervals_of(objective: str, energy: LearnedMixture, sets: dict[str, Points], radii: Tensor) -> dict[str, float]:
    """What the claims are judged by."""
    config, truth, support = energy.config, true_energy(energy.config), sets["support"]
    with torch.no_grad():
        errors = (in_chunks(energy, support.y, support.cov) - support.energy) / config.dim
    out = rms_interval(f"error of {objective} in nats per dimension", errors)
    inside = support.y.square().mean(dim=(1, 2, 3)).sqrt()[:CHUNK]
    for name, points in (("on the support", inside), ("anywhere", radii)):
        exact, learned = (radial_score(model, config, points)[1] for model in (truth, energy))
        out |= rms_interval(f"score error of {objective} {name}", (learned - exact) / rms(exact))
    return out


def table_of(metrics: dict[str, float]) -> ResultTable:
    """Both objectives."""
    columns = (
        "objective",
        "error of U (nats per dimension)",
        "relative error of the score, on the support",
        "anywhere",
    )
    names = ("error of {} in nats per dimension", "score error of {} on the support", "score error of {} anywhere")
    rows = tuple((each, *(interval_of(metrics, name.format(each)) for name in names)) for each in OBJECTIVES)
    return ResultTable("Against the truth", columns, rows)


def validate(config: ScaleMixtureConfig, progress: Progress) -> ExperimentResult:
    """The experiment for any setting."""
    sets = held_out_sets(config)
    radii = torch.linspace(0.0, 1.4 * max(config.sigmas), 561, dtype=torch.float64)
    metrics: dict[str, float] = {}
    models: dict[str, tuple[Tensor, Tensor]] = {}
    weights: dict[str, str] = {}
    for objective in OBJECTIVES:
        network = train(config, objective, progress)
        weights[objective] = hash_weights(network)
        energy = LearnedMixture(network, config)
        generator = keyed_generator(config.seed, "gsm constant")
        energy.constant, effective = normalising_constant(energy, 4 * config.evaluation_samples, generator)
        found = energy_metrics(energy, sets) | score_metrics(energy, sets["support"], radii)
        found |= {"constant": energy.constant, "constant_effective_share": effective}
        metrics.update({f"{objective}_{name}": value for name, value in found.items()})
        metrics |= intervals_of(objective, energy, sets, radii)
        models[objective] = radial_score(energy, config, radii)
    metrics["single_over_dual"] = metrics["single_nats_per_dim"] / metrics["dual_nats_per_dim"]
    support = sets["support"].y.square().mean(dim=(1, 2, 3)).sqrt()
    errors: dict[str, float] = {name: metrics[f"{name}_nats_per_dim"] for name in OBJECTIVES}
    curves = Curves(radii, radial_score(true_energy(config), config, radii), models, support, errors, config.t_min)
    paper = PAPER | {"departures": departures(config)}
    tables = (table_of(metrics),)
    return ExperimentResult(metrics, paper, curves, asdict(config), weights, {"seed": config.seed}, CLAIMS, tables)

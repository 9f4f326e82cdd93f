"""Paths that the energy guides, on large boxes and on digits: what they gain, and what they keep of the posterior (paper §4.2.1).

Several samples of each measurement are drawn along every path with the same number of evaluations. Two questions:
    quality     LPIPS (boxes) and PSNR of a sample against the truth
    variance    mean over hidden pixels of the samples' variance, divided by that of a reference (the clamped path in many steps):
                1 for an exact sampler; a rule that rushes to the mean keeps less, and looks better for it in PSNR and by a classifier
The measurement has noise of its own (σ = 0.03), so that the geometric path (all arrive together) and the clamped one (what is
measured waits) differ. The paper finds that guidance loses on large boxes.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linverse.degradations import Box, Degradation, RandomPixels
from linverse.energy import fixed_shape
from linverse.evaluation.models import held_out, load_energy
from linverse.experiments.cache import Cache
from linverse.experiments.claims import Claim, Condition, interval_metrics, interval_of, mean_interval
from linverse.experiments.framework import ExperimentResult
from linverse.experiments.tables import ResultTable
from linverse.files.saving import hash_weights
from linverse.metrics import METRICS, Interval, available_metrics, bootstrap_statistic, psnr
from linverse.models.energies.learned import LearnedEnergy
from linverse.posterior import Posterior
from linverse.progress import Progress
from linverse.rng import keyed_generator
from linverse.sampling import (
    MagnitudeStep,
    MirrorStep,
    Rule,
    VarianceStep,
    clamped,
    geometric,
    sample,
)
from linverse.sampling import (
    Path as CovariancePath,
)

SIGMA = 0.03
RULES = ("mirror", "magnitude", "variance")
PATHS = ("geometric", "clamped", *RULES)
PROBLEMS = ("boxes", "digits")

CLAIMS = tuple(
    Claim(
        f"on large boxes guidance loses: LPIPS of the {rule} rule is above that of the geometric path",
        (Condition(f"boxes: LPIPS of {rule} less geometric", "above"),),
    )
    for rule in ("mirror", "magnitude")
)


@dataclass(frozen=True)
class GuidedBoxesOptions:
    """Models, and the parameters of the rules."""

    model: str = "fashion-mnist"
    """of the boxes"""
    data: str = "fashion-mnist"
    digits_model: str = "mnist"
    """of the digits"""
    digits_data: str = "mnist"
    gamma: float = 2.0
    """step size of the mirror and magnitude rules"""
    tolerance: float = 16.0
    """of the variance rule"""
    fastest: float = 8.0
    """largest −Δlog λ of a guided step"""


@dataclass(frozen=True)
class GuidedBoxesSetting:
    """Images, samples of each, evaluations of a sample, and those of the reference; `missing` of the digits' pixels."""

    images: int = 48
    samples: int = 8
    evaluations: int = 50
    reference: int = 200
    missing: float = 0.9
    shown: int = 6
    seed: int = 0


FULL = GuidedBoxesSetting()
QUICK = replace(FULL, images=3, samples=2, evaluations=10, reference=12, shown=3)


@dataclass(frozen=True)
class PathSamples:
    """Samples [K, N, C, H, W] along a path, and the evaluations of one."""

    samples: Tensor
    evaluations: int


def problem(name: str, side: int, seed: int, missing: float) -> Degradation:
    """The paper's box, or a few random pixels."""
    if name == "boxes":
        return Box(round(45 / 64 * side), SIGMA)
    return RandomPixels(missing, sigma=SIGMA, seed=seed)


def path_of(
    name: str, energy: LearnedEnergy, cov: Any, options: GuidedBoxesOptions, evaluations: int
) -> CovariancePath | Rule:
    """A path of so many evaluations, or a rule that takes no more."""
    floor = energy.range.minimum
    if name in ("geometric", "clamped"):
        return (geometric if name == "geometric" else clamped)(cov, floor, evaluations - 1)
    slowest = math.log(energy.range.maximum / floor) / (evaluations - 1.5)
    fastest = max(options.fastest, slowest)
    if name == "variance":
        return VarianceStep(slowest, fastest, options.tolerance)
    return (MirrorStep if name == "mirror" else MagnitudeStep)(slowest, fastest, options.gamma)


def draw(
    energy: LearnedEnergy,
    posterior: Posterior,
    name: str,
    samples: int,
    evaluations: int,
    options: GuidedBoxesOptions,
    seed: int,
) -> PathSamples:
    """K samples of each measurement; fills and noise are the same for every path."""
    found, used = [], 0
    for number in range(samples):
        lifted = posterior.lift(keyed_generator(seed, "guided-boxes", "fill", number))
        path = path_of(name, energy, lifted.cov, options, evaluations)
        generator = keyed_generator(seed, "guided-boxes", "noise", number)
        result = sample(energy, lifted.y, lifted.cov, path, generator=generator)
        found.append(result.samples)
        used = max(used, result.evaluations)
    return PathSamples(torch.stack(found), used)


def hidden_variance(samples: Tensor, hidden: Tensor) -> Tensor:
    """Mean over hidden pixels of the unbiased variance of [K, N, …], [N]."""
    return (samples.double().var(dim=0) * hidden).sum(dim=(1, 2, 3)) / hidden.expand_as(samples[0]).sum(dim=(1, 2, 3))


def ratio_interval(above: Tensor, below: Tensor) -> Interval:
    """mean(above)/mean(below) of paired images."""
    pairs = torch.stack([above, below], dim=1)
    if len(pairs) < 2:
        value = float(above.mean() / below.mean())
        return Interval(value, value, value)
    return bootstrap_statistic(pairs, lambda rows: rows[:, 0].mean() / rows[:, 1].mean(), resamples=400)


def metrics_of(
    name: str, drawn: dict[str, PathSamples], reference: PathSamples, x: Tensor, hidden: Tensor
) -> dict[str, float]:
    """Quality and variance of every path, and its quality against the geometric one."""
    perceptual = METRICS["LPIPS-Alex"].function if "LPIPS-Alex" in available_metrics() else None
    exact = hidden_variance(reference.samples, hidden)
    out: dict[str, float] = {}
    values: dict[str, dict[str, Tensor]] = {}
    for path, found in drawn.items():
        pictures = found.samples[:2].clamp(0, 1).flatten(0, 1)  # two of the samples say how good a sample is
        truth = x.repeat(len(found.samples[:2]), 1, 1, 1)
        values[path] = {"PSNR": psnr(pictures, truth).unflatten(0, (-1, len(x))).mean(dim=0)}
        if perceptual is not None:
            values[path]["LPIPS"] = perceptual(pictures, truth).unflatten(0, (-1, len(x))).mean(dim=0)
        for metric, each in values[path].items():
            out |= interval_metrics(f"{name}: {metric} of {path}", mean_interval(each))
            if path != "geometric":
                difference = each - values["geometric"][metric]
                out |= interval_metrics(f"{name}: {metric} of {path} less geometric", mean_interval(difference))
        kept = ratio_interval(hidden_variance(found.samples, hidden), exact)
        out |= interval_metrics(f"{name}: variance kept by {path}", kept)
        out[f"{name}: evaluations of {path}"] = found.evaluations
    return out


def run(out: Path, quick: bool, progress: Progress, options: GuidedBoxesOptions) -> ExperimentResult:
    """Both problems along every path."""
    setting = QUICK if quick else FULL
    metrics: dict[str, float] = {}
    shown: dict[str, dict[str, Tensor]] = {}
    weights: dict[str, str] = {}
    cache = Cache.of("guided-boxes", out, PathSamples)
    for number, name in enumerate(PROBLEMS):
        model, data = (options.model, options.data) if name == "boxes" else (options.digits_model, options.digits_data)
        energy = load_energy(model)
        x = held_out(data, setting.images, fixed_shape(energy)).x
        degradation = problem(name, x.shape[-1], setting.seed, setting.missing)
        posterior = Posterior(
            energy, degradation.measure(x, keyed_generator(setting.seed, "guided-boxes", name)), check=False
        )
        weights[name] = hash_weights(energy)
        made_from = weights | asdict(options) | asdict(setting)

        keep = partial(_drawn, cache, name, made_from, energy, posterior, options, setting)
        found = {path: keep(path, setting.evaluations) for path in PATHS}
        reference = keep("clamped", setting.reference)
        hidden = (posterior.covariance.variance > 1).expand(len(x), -1, -1, -1)
        metrics |= metrics_of(name, found, reference, x, hidden)
        rows = {path: f.samples[0, : setting.shown] for path, f in found.items()}
        shown[name] = {"truth": x[: setting.shown], **rows}
        progress("problems", number + 1, len(PROBLEMS))
    paper = {
        "source": "section 4.2.1, last paragraph",
        "claims": [claim.text for claim in CLAIMS],
        "figures": {},
        "departures": [f"{options.data} and {options.digits_data}; every path has {setting.evaluations} evaluations"],
    }
    tables = tuple(table_of(name, metrics) for name in PROBLEMS)
    return ExperimentResult(metrics, paper, shown, asdict(setting), weights, {"seed": setting.seed}, CLAIMS, tables)


def _drawn(
    cache: Cache,
    name: str,
    made_from: dict[str, Any],
    energy: LearnedEnergy,
    posterior: Posterior,
    options: GuidedBoxesOptions,
    setting: GuidedBoxesSetting,
    path: str,
    evaluations: int,
) -> PathSamples:
    make = partial(draw, energy, posterior, path, setting.samples, evaluations, options, setting.seed)
    return cache.get(f"{name}-{path}-{evaluations}", made_from, make)


def table_of(name: str, metrics: dict[str, float]) -> ResultTable:
    """Quality and variance, path by path."""
    columns = ("path", "LPIPS", "PSNR", "share of the posterior variance", "evaluations")
    rows = []
    for path in PATHS:
        quantities = [f"{name}: LPIPS of {path}", f"{name}: PSNR of {path}", f"{name}: variance kept by {path}"]
        cells = [interval_of(metrics, q) if q in metrics else None for q in quantities]
        rows.append((path, *cells, metrics[f"{name}: evaluations of {path}"]))
    return ResultTable(name, columns, tuple(rows))

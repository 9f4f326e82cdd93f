"""How probable are posterior samples, before and after the measurement? (paper §4.1 and appendix D.3)

DPS, RED-Diff and ours restore a missing box: many times from *one* y, and once each from many y. Our energy gives log p(x̂) and log p(x̂|y)
of all of them and of the truth, at the floor, with the same little noise added to each (`evaluation.audit`). For exact samples
    log p(x̂) − log p(x) and log p(x̂|y) − log p(x|y)
have mean zero over many y: the truth is one more sample of the posterior. Claims are judged on these differences, image by image.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linverse.baselines import METHODS
from linverse.degradations import Degradation
from linverse.degradations.tasks import parse_task
from linverse.energy import Energy, fixed_shape
from linverse.evaluation.audit import POSTERIOR, PRIOR, densities
from linverse.evaluation.models import chunks, held_out
from linverse.evaluation.networks import Models
from linverse.evaluation.plan import FLOOR_FACTOR
from linverse.experiments.cache import Cache
from linverse.experiments.claims import Claim, Condition, correlation, interval_metrics, interval_of, mean_interval
from linverse.experiments.companions import load_with_companions
from linverse.experiments.framework import ExperimentResult
from linverse.experiments.gumbel import total_variation
from linverse.experiments.tables import Cell, ResultTable
from linverse.metrics import bootstrap_statistic
from linverse.progress import Progress
from linverse.rng import keyed_generator, normal_like

SOLVERS = ("dps", "red-diff", "ours")
BATCH = 32

CLAIMS = (
    Claim("samples of DPS are less probable than the truth under the prior", (Condition("prior gap of dps", "below"),)),
    Claim("those of RED-Diff are more probable", (Condition("prior gap of red-diff", "above"),)),
    Claim(
        "the prior probabilities of our samples lie nearest to the truth's",
        (
            Condition("absolute prior gap of ours less dps", "below"),
            Condition("absolute prior gap of ours less red-diff", "below"),
        ),
    ),
    Claim(
        "samples of DPS and RED-Diff have a lower posterior probability than ours",
        (
            Condition("posterior gap of ours less dps", "above"),
            Condition("posterior gap of ours less red-diff", "above"),
        ),
    ),
    Claim(
        "the posterior probability of our samples is slightly lower than the truth's (by at most 0.1 nats per hidden pixel)",
        (
            Condition("posterior gap of ours per hidden pixel", "below"),
            Condition("posterior gap of ours per hidden pixel", "above", -0.1),
        ),
    ),
    Claim("smooth images have a higher probability", (Condition("correlation with total variation", "below"),)),
)


@dataclass(frozen=True)
class PosteriorSamplesOptions:
    """Models and task."""

    model: str = "fashion-mnist"
    """the energy: a bundled name or a folder"""
    companions: str = ""
    """the bundled model whose score and Palette networks the other methods use (default: the same)"""
    data: str = "fashion-mnist"
    """whose test images"""
    task: str = "box"


@dataclass(frozen=True)
class PosteriorSamplesSetting:
    """Samples of one y by each solver, images with one sample each; `steps` of every solver (None: its own)."""

    samples: int = 128
    images: int = 128
    steps: int | None = None
    shown: int = 10
    seed: int = 0


FULL = PosteriorSamplesSetting()
QUICK = replace(FULL, samples=4, images=4, steps=8, shown=2)


@dataclass(frozen=True)
class SampleDensities:
    """Restorations [N, C, H, W] and both log-densities of each, [N], nats."""

    images: Tensor
    prior: Tensor
    posterior: Tensor


@dataclass(frozen=True)
class SampleSet:
    """The truth and the measurement, [n or 1, C, H, W]; what was not measured; the truth's densities; each solver's answers."""

    truth: SampleDensities
    raw: Tensor
    missing: Tensor
    solved: dict[str, SampleDensities]


def audited(degradation_text: str, size: tuple[int, int], energy: Energy) -> Degradation:
    """The task, with as much noise as the audit wants: the same for solvers and densities."""
    plain = parse_task(degradation_text, size)
    return parse_task(degradation_text, size, sigma=max(plain.sigma, (FLOOR_FACTOR * energy.range.minimum) ** 0.5))


def sample_densities(
    energy: Energy, x: Tensor, degradation: Degradation, raw: Tensor, key: tuple[int | str, ...]
) -> SampleDensities:
    """Densities of images under measurements, one each."""
    parts = []
    for rows in chunks(len(x), BATCH):
        noise = normal_like(x[rows], keyed_generator(*key, rows.start))
        found = densities(energy, x[rows], noise, degradation, raw[rows])
        parts.append((found[PRIOR], found[POSTERIOR]))
    prior, posterior = (torch.cat(part) for part in zip(*parts, strict=True))
    return SampleDensities(x, prior.double(), posterior.double())


def solve(
    models: Models, name: str, degradation: Degradation, raw: Tensor, setting: PosteriorSamplesSetting, label: str
) -> SampleDensities:
    """A solver's answer to each measurement, judged."""
    model = models.energy if METHODS[name].needs == "energy" else models.denoiser
    settings: dict[str, Any] = {} if setting.steps is None else {"steps": setting.steps}
    parts = []
    for rows in chunks(len(raw), BATCH):
        generator = keyed_generator(setting.seed, "posterior-samples", label, rows.start)
        parts.append(METHODS[name].solve(model, degradation, raw[rows], generator, **settings).samples)
    return sample_densities(
        models.energy, torch.cat(parts), degradation, raw, (setting.seed, "posterior-samples", "floor")
    )


def collect(
    models: Models,
    x: Tensor,
    repeats: int,
    degradation: Degradation,
    setting: PosteriorSamplesSetting,
    label: str,
    keep: Any,
) -> SampleSet:
    """All solvers on the measurements of x [n, …], `repeats` times each."""
    raw = degradation.measure(x, keyed_generator(setting.seed, "posterior-samples", "noise")).raw
    many = raw.repeat_interleave(repeats, dim=0)
    solved = {
        name: keep(f"{label}-{name}", partial(solve, models, name, degradation, many, setting, label))
        for name in SOLVERS
    }
    truth = sample_densities(models.energy, x, degradation, raw, (setting.seed, "posterior-samples", "floor"))
    seen = degradation.operator(torch.ones_like(x[:1]))
    return SampleSet(truth, raw, seen.mean(dim=1, keepdim=True) < 0.5, solved)


def metrics_of(one: SampleSet, many: SampleSet) -> dict[str, float]:
    """Gaps to the truth over many y, and the spread of the samples of one."""
    out: dict[str, float] = {}
    hidden = int(many.missing.sum()) * many.truth.images.shape[1]
    gaps = {name: (j.prior - many.truth.prior, j.posterior - many.truth.posterior) for name, j in many.solved.items()}
    for name, (prior, posterior) in gaps.items():
        out |= interval_metrics(f"prior gap of {name}", mean_interval(prior))
        out |= interval_metrics(f"posterior gap of {name}", mean_interval(posterior))
        if name != "ours":
            difference = gaps["ours"][0].abs() - prior.abs()
            out |= interval_metrics(f"absolute prior gap of ours less {name}", mean_interval(difference))
            out |= interval_metrics(f"posterior gap of ours less {name}", mean_interval(gaps["ours"][1] - posterior))
        single = one.solved[name]
        out |= interval_metrics(f"one y: prior gap of {name}", mean_interval(single.prior - one.truth.prior))
        out |= interval_metrics(
            f"one y: posterior gap of {name}", mean_interval(single.posterior - one.truth.posterior)
        )
    out |= interval_metrics("posterior gap of ours per hidden pixel", mean_interval(gaps["ours"][1] / max(hidden, 1)))
    everything = [many.truth, *many.solved.values()]
    pairs = torch.stack(
        [torch.cat([j.prior for j in everything]), torch.cat([total_variation(j.images).double() for j in everything])],
        1,
    )
    return out | interval_metrics(
        "correlation with total variation", bootstrap_statistic(pairs, correlation, resamples=200)
    )


def run(out: Path, quick: bool, progress: Progress, options: PosteriorSamplesOptions) -> ExperimentResult:
    """One y many times, and many y once."""
    setting = QUICK if quick else FULL
    models = load_with_companions(options.model, options.companions)
    shape = fixed_shape(models.energy)
    x = held_out(options.data, setting.images, shape).x
    degradation = audited(options.task, shape[1:], models.energy)
    weights = models.weights()
    cache = Cache.of("posterior-samples", out, SampleDensities)
    keep = cache.keeper(weights | asdict(options) | asdict(setting))
    one = collect(models, x[:1], setting.samples, degradation, setting, "one", keep)
    progress("measurements", 1, 2)
    many = collect(models, x, 1, degradation, setting, "many", keep)
    progress("measurements", 2, 2)
    metrics = metrics_of(one, many)
    paper = {
        "source": "section 4.1 and appendix, Analysis of the posterior distribution",
        "claims": [claim.text for claim in CLAIMS],
        "figures": {},
        "departures": [f"{options.data}; densities at the floor λ = {models.energy.range.minimum:g}"],
    }
    names = ("prior gap", "posterior gap", "one y: prior gap", "one y: posterior gap")
    columns = ("solver", "log p(x̂) − log p(x)", "log p(x̂|y) − log p(x|y)", "the same of one y: prior", "posterior")
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (name, *(interval_of(metrics, f"{what} of {name}") for what in names)) for name in SOLVERS
    )
    tables = (ResultTable("Nats above the truth", columns, rows),)
    found = one, many, setting.shown
    return ExperimentResult(metrics, paper, found, asdict(setting), weights, {"seed": setting.seed}, CLAIMS, tables)

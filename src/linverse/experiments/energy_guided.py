"""Digits from a few pixels: does it pay to let the energy choose the path? (paper §4.2.1, figure classification_mnist)

k random pixels are measured at the floor λ_min, the others are filled at λ_max. A posterior sample is drawn along the geometric path
δΣ ∝ Σ, or along a path that the energy guides (`sampling.guided`): pixels of which it is sure arrive early, the doubtful ones late.
All methods see the same pixels, fills and injected noise, and none spends more than the given evaluations. A classifier that
never saw a restoration names the digit; its errors are compared pairwise (McNemar). The one-shot posterior mean stands beside.

An exact sampler errs as often as a random posterior sample does, on every path. A variance rule with a large tolerance sets
pixels of which it is fairly sure close to their mean: it trades spread of the samples for fewer wrong digits. Chosen on 384 training
images with earlier weights (errors for 50 and 100 pixels): ancestral steps with tolerance 16 and fastest 8 (24.0 %, 9.4 %; two-step
26.3 %, 10.2 %; with tolerance 4 and fastest 4: 29.2 %, 8.9 %), where the geometric path has 31.5 % and 12.2 %, and the one-shot mean
23.4 % and 8.1 %.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from linverse.degradations import Inpainting
from linverse.energy import Energy, fixed_shape
from linverse.evaluation.models import HeldOut, chunks, evaluate_many, held_out, load_classifier, load_energy
from linverse.experiments.cache import Cache
from linverse.experiments.claims import Claim, Condition, interval_metrics, interval_of, mean_interval, share_interval
from linverse.experiments.framework import ExperimentResult
from linverse.experiments.tables import ResultTable
from linverse.files.saving import hash_weights
from linverse.measurement import Lifted
from linverse.metrics.paired import error_rate, mcnemar
from linverse.models.classifier import DigitClassifier
from linverse.progress import Progress
from linverse.rng import keyed_generator
from linverse.sampling import (
    Ancestral,
    Euler,
    MagnitudeStep,
    Matched,
    MirrorStep,
    Predictor,
    Rule,
    SampleResult,
    TwoStepAncestral,
    VarianceStep,
    sample,
)

PREDICTORS: dict[str, Predictor] = {
    "two-step": TwoStepAncestral(),
    "euler": Euler(),
    "ancestral": Ancestral(),
    "matched": Matched(),
}
RULES = ("mirror", "magnitude", "variance")
METHODS = ("mean", "geometric", *RULES)


def few_pixels(rule: str, words: str) -> Claim:
    """The paper's claim, for one of the rules."""
    claim = f"with 50, 100 and 150 pixels {words} errs less than the geometric path"
    return Claim(
        claim, tuple(Condition(f"error of {rule} less geometric, {keep} pixels", "below") for keep in (50, 100, 150))
    )


CLAIMS = (
    few_pixels("mirror", "the paper's equation (mirror)"),
    few_pixels("magnitude", "what the authors' runs use (magnitude)"),
    few_pixels("variance", "our variance rule"),
    Claim(
        "with 300 pixels both reach the error of clean images (within one in a hundred)",
        (
            Condition("error of mirror less clean, 300 pixels", "below", 0.01),
            Condition("error of geometric less clean, 300 pixels", "below", 0.01),
        ),
    ),
)

PAPER: dict[str, Any] = {
    "source": "section 4.2.1; figure classification_mnist. Numbers: the authors' own runs, 1000 images",
    "claims": [
        "with few measurements the energy-guided path gives lower classification errors than the geometric path"
    ],
    "figures": {
        "measurements": [50, 100, 150, 300],
        "guided_error": [0.345, 0.076, 0.019, 0.012],
        "geometric_error": [0.461, 0.098, 0.041, 0.010],
        "clean_error": 0.0082,
    },
    "targets": {
        "guided_error": "below geometric_error for 50, 100 and 150 pixels (paired test)",
        "guided_error_300": "within one standard error of clean_error",
    },
    "departures": [
        "every method has the same number of evaluations; the noise of measured pixels is the model's floor"
    ],
}


@dataclass(frozen=True)
class EnergyGuidedOptions:
    """Models, budget and rules of the energy-guided experiment."""

    model: str = "mnist"
    """the energy: a bundled name or a folder"""
    classifier: str = "mnist-classifier"
    """the classifier that names the digits"""
    data: str = "mnist"
    split: Literal["test", "train"] = "test"
    """choose rules and their parameters on training images"""
    evaluations: int = 50
    """of the energy, at most, for each sample"""
    predictor: Literal["two-step", "euler", "ancestral", "matched"] = "ancestral"
    """of all methods; euler is the paper's, two-step the library's default"""
    guided: Literal["mirror", "magnitude", "variance"] = "variance"
    """the rule that is reported as `guided`, chosen on training images; mirror is the paper's equation, magnitude the authors' code"""
    gamma: float = 2.0
    """step size of the mirror and magnitude rules"""
    tolerance: float = 16.0
    """of the variance rule"""
    fastest: float = 8.0
    """largest −Δlog λ of a guided step"""


@dataclass(frozen=True)
class EnergyGuidedSetting:
    """How many pixels are measured, of how many images; and which are shown."""

    keeps: tuple[int, ...] = (50, 100, 150, 300)
    images: int = 1000
    shown: int = 6
    seed: int = 0


FULL = EnergyGuidedSetting()
QUICK = replace(FULL, images=48)
QUICK_EVALUATIONS = 16


@dataclass(frozen=True)
class Gallery:
    """Images of the first few digits by what they are, and how long the guided path let each pixel wait, [n, H, W]; NaN: none."""

    keep: int
    images: dict[str, Tensor]
    order: Tensor


@dataclass(frozen=True)
class GuidedFindings:
    """All that the figure shows: the numbers, pictures for each number of pixels, and which rule is called guided."""

    metrics: dict[str, float]
    galleries: list[Gallery]
    guided: str


# --- measurements and paths ----------------------------------------------------------------------------------------------------


def random_masks(count: int, keep: int, size: tuple[int, int], seed: int) -> Tensor:
    """[count, 1, H, W], each with `keep` pixels of its own, True = measured."""
    noise = torch.rand(count, size[0] * size[1], generator=keyed_generator(seed, "masks", keep))
    return (noise.argsort(dim=1).argsort(dim=1) < keep).reshape(count, 1, *size)


def lifted_measurement(energy: Energy, x: Tensor, keep: int, seed: int) -> Lifted:
    """k pixels of each image at the floor, the rest filled at random: the same for every method."""
    masks = random_masks(len(x), keep, (x.shape[2], x.shape[3]), seed)
    degradation = Inpainting(masks, math.sqrt(energy.range.minimum))
    measurement = degradation.measure(x, keyed_generator(seed, "pixels", keep))
    return measurement.lift(energy.range, energy.gaussian(measurement.template), keyed_generator(seed, "fill", keep))


def schedule_of(method: str, energy: Energy, options: EnergyGuidedOptions, evaluations: int) -> int | Rule:
    """A number of geometric steps, or a rule that is nowhere slower and so never needs more."""
    if evaluations < 2:
        raise ValueError(f"a path takes at least two evaluations; got {evaluations}")
    if method == "geometric":
        return evaluations - 1  # the default path: what is measured is at the floor, and all else falls geometrically
    # half an evaluation of room, for rounding
    slowest = math.log(energy.range.maximum / energy.range.minimum) / (evaluations - 1.5)
    fastest = max(options.fastest, slowest)
    if method == "variance":
        return VarianceStep(slowest, fastest, options.tolerance)
    kind = MirrorStep if method == "mirror" else MagnitudeStep
    return kind(slowest, fastest, options.gamma)


def arrival_order(result: SampleResult, rows: slice) -> Tensor:
    """How long each pixel waits: the mean over the path of its remaining depth in log λ, from 0 (at once) to 1, [n, H, W].

    Measured pixels, which have nothing to wait for, are NaN.
    """
    levels = result.path[rows].log_variance[:, :, 0].double()
    depth = levels[0] - levels[-1]
    waiting = (levels - levels[-1]).mean(dim=0)
    return torch.where(depth > 0, waiting / depth, math.nan)


# --- restoring -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Restored:
    """Restorations [N, C, H, W] of one method, the evaluations it used, and the order of arrival of the first few, [n, H, W]."""

    images: Tensor
    evaluations: int
    order: Tensor


def restore(
    energy: Energy, y: Lifted, schedule: int | Rule, predictor: Predictor, key: tuple[int | str, ...], shown: int
) -> Restored:
    """One posterior sample of each; chunk by chunk with noise of its own key, so that all methods are given the same."""
    results = []
    for rows in chunks(len(y.y)):
        generator = keyed_generator(*key, rows.start)
        results.append(sample(energy, y.y[rows], y.cov[rows], schedule, predictor, generator=generator))
    order = arrival_order(results[0], slice(0, shown))
    return Restored(torch.cat([r.samples for r in results]), max(r.evaluations for r in results), order)


@dataclass(frozen=True)
class Verdicts:
    """Wrong verdicts, boolean [N], by method, and the evaluations that each used."""

    wrong: dict[str, Tensor]
    evaluations: dict[str, int]


def classify_restorations(
    energy: Energy,
    classifier: DigitClassifier,
    images: HeldOut,
    keep: int,
    options: EnergyGuidedOptions,
    setting: EnergyGuidedSetting,
) -> tuple[Verdicts, Gallery]:
    """All methods for one number of measured pixels."""
    assert images.labels is not None
    x = images.x
    y = lifted_measurement(energy, x, keep, setting.seed)
    restored = {"mean": evaluate_many(energy, y.y, y.cov).mean}
    evaluations, order = {"mean": 1}, torch.empty(0)
    for method in ("geometric", *RULES):
        schedule = schedule_of(method, energy, options, options.evaluations)
        key = (setting.seed, "energy-guided", keep)
        found = restore(energy, y, schedule, PREDICTORS[options.predictor], key, setting.shown)
        restored[method], evaluations[method] = found.images, found.evaluations
        order = found.order if method == options.guided else order
    wrong = {name: classifier.predict(r.clamp(0, 1)) != images.labels for name, r in restored.items()}
    seen = torch.where(y.cov.variance < 1, x, torch.full_like(x, math.nan))
    pictures = {"truth": x, "measured": seen} | {name: restored[name] for name in ("mean", "geometric", options.guided)}
    first = {name: picture[: setting.shown] for name, picture in pictures.items()}
    return Verdicts(wrong, evaluations), Gallery(keep, first, order)


# --- the experiment ----------------------------------------------------------------------------------------------------------------


def metrics_of(keep: int, found: Verdicts, guided: str) -> dict[str, float]:
    """Error of each method with its standard error, and each rule against the geometric path."""
    wrong = found.wrong | {"guided": found.wrong[guided]}
    evaluations = found.evaluations | {"guided": found.evaluations[guided]}
    out: dict[str, float] = {}
    for name, verdicts in wrong.items():
        rate = error_rate(verdicts)
        out |= {f"{name}_error_{keep}": rate.value, f"{name}_error_standard_error_{keep}": rate.standard_error}
        out[f"{name}_evaluations_{keep}"] = evaluations[name]
        if name != "geometric":
            comparison = mcnemar(verdicts, wrong["geometric"])
            out[f"{name}_minus_geometric_{keep}"] = comparison.difference
            out[f"{name}_versus_geometric_p_{keep}"] = comparison.p_value
    return out


def intervals_of(keep: int, found: Verdicts, clean: Tensor) -> dict[str, float]:
    """Errors with their intervals, and against the geometric path and clean images, image by image."""
    out: dict[str, float] = {}
    for name in METHODS:
        wrong = found.wrong[name]
        out |= interval_metrics(f"error of {name}, {keep} pixels", share_interval(wrong))
        for other, verdicts in (("geometric", found.wrong["geometric"]), ("clean", clean)):
            if name != other:
                difference = wrong.double() - verdicts.double()
                out |= interval_metrics(f"error of {name} less {other}, {keep} pixels", mean_interval(difference))
    return out


def table_of(metrics: dict[str, float], keeps: tuple[int, ...]) -> ResultTable:
    """The authors' errors beside ours."""
    theirs = PAPER["figures"]
    rows = []
    for number, keep in enumerate(keeps):
        ours = [interval_of(metrics, f"error of {name}, {keep} pixels") for name in METHODS]
        paper = [
            theirs[f"{name}_error"][number] if keep in theirs["measurements"] else None
            for name in ("geometric", "guided")
        ]
        rows.append((keep, *ours, *paper))
    columns = ("pixels", "one-shot mean", "geometric", *RULES, "paper: geometric", "paper: guided")
    return ResultTable("Wrong digits", columns, tuple(rows))


def run(out: Path, quick: bool, progress: Progress, options: EnergyGuidedOptions) -> ExperimentResult:
    """All methods for every number of measured pixels."""
    setting = QUICK if quick else FULL
    if quick:
        options = replace(options, evaluations=min(options.evaluations, QUICK_EVALUATIONS))
    energy, classifier = load_energy(options.model), load_classifier(options.classifier)
    images = held_out(options.data, setting.images, fixed_shape(energy), options.split)
    if images.labels is None:
        raise ValueError(f"{options.data} has no labels: there is nothing to be right or wrong about")
    clean_wrong = classifier.predict(images.x) != images.labels
    clean = error_rate(clean_wrong)
    metrics = {"clean_error": clean.value, "clean_error_standard_error": clean.standard_error}
    weights = {"model": hash_weights(energy), "classifier": hash_weights(classifier)}
    cache = Cache.of("energy-guided", out, Verdicts, Gallery)
    made_from = weights | {"options": asdict(options), "setting": asdict(setting)}
    galleries = []
    for done, keep in enumerate(setting.keeps):
        make = partial(classify_restorations, energy, classifier, images, keep, options, setting)
        found, gallery = cache.get(str(keep), made_from, make)
        metrics |= metrics_of(keep, found, options.guided) | intervals_of(keep, found, clean_wrong)
        galleries.append(gallery)
        progress("measured pixels", done + 1, len(setting.keeps))
    configuration = asdict(setting) | {"evaluations": options.evaluations}
    found_all, tables = GuidedFindings(metrics, galleries, options.guided), (table_of(metrics, setting.keeps),)
    return ExperimentResult(metrics, PAPER, found_all, configuration, weights, {"seed": setting.seed}, CLAIMS, tables)

"""What to measure next: digits named from k chosen pixels against k random ones (paper §5, left to the future).

Starting with nothing, each round measures the pixels of which the model is least sure: the largest one-shot posterior variance, hence the
largest gain ½ log(1 + Var/σ²) in nats (`linverse.information`), some pixels apart. The mean E[x|y] of what was measured goes to a
classifier. Chosen and random pixels of an image have the same noise, and errors are compared image by image.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linverse.covariance import identity
from linverse.degradations import Inpainting
from linverse.energy import fixed_shape
from linverse.evaluation.models import HeldOut, chunks, held_out, load_classifier, load_energy
from linverse.experiments.cache import Cache
from linverse.experiments.claims import Claim, Condition, interval_metrics, interval_of, mean_interval, share_interval
from linverse.experiments.energy_guided import random_masks
from linverse.experiments.framework import ExperimentResult
from linverse.experiments.tables import Cell, ResultTable
from linverse.files.saving import hash_weights
from linverse.information import most_informative
from linverse.models.classifier import DigitClassifier
from linverse.models.energies.learned import LearnedEnergy
from linverse.posterior import Posterior
from linverse.progress import Progress
from linverse.rng import keyed_generator, normal_like

WAYS = ("chosen", "random")


@dataclass(frozen=True)
class MeasurementDesignOptions:
    """Models and data."""

    model: str = "mnist"
    """the energy: a bundled name or a folder"""
    classifier: str = "mnist-classifier"
    """the classifier that names the digits"""
    data: str = "mnist"


@dataclass(frozen=True)
class MeasurementDesignSetting:
    """Numbers of pixels at which digits are named, pixels measured per round and how far apart, noise, images."""

    counts: tuple[int, ...] = (10, 20, 30, 50, 75, 100)
    each: int = 5
    spacing: int = 3
    sigma: float = 0.02
    images: int = 500
    shown: int = 6
    seed: int = 0


FULL = MeasurementDesignSetting()
QUICK = replace(FULL, counts=(10, 20), images=8, each=10, shown=3)

CLAIMS = tuple(
    Claim(
        f"digits are named from {count} chosen pixels with fewer errors than from {count} random ones",
        (Condition(f"error of chosen less random, {count} pixels", "below"),),
    )
    for count in (20, 50)
)


@dataclass(frozen=True)
class Measured:
    """By number of pixels: masks [N, 1, H, W] (True: measured) and means [N, C, H, W]."""

    masks: dict[int, Tensor]
    means: dict[int, Tensor]


def posterior_of(energy: LearnedEnergy, raw: Tensor, masks: Tensor, sigma: float) -> Posterior:
    """What the pixels that were measured tell."""
    return Posterior(energy, Inpainting(masks, sigma).from_raw(raw), check=False)


def choose(energy: LearnedEnergy, raw: Tensor, setting: MeasurementDesignSetting, progress: Progress) -> Measured:
    """Round by round where the model is least sure."""
    masks = torch.zeros_like(raw[:, :1], dtype=torch.bool)
    rows = torch.arange(len(raw))[:, None]
    kept, means, measured = {}, {}, 0
    for count in setting.counts:
        while measured < count:
            more = min(setting.each, count - measured)
            variance = variances(energy, raw, masks, setting.sigma).masked_fill(masks, 0.0)
            places = most_informative(variance, setting.sigma, more, setting.spacing)
            masks = masks.clone()
            masks[rows, 0, places[..., 0], places[..., 1]] = True
            measured += more
            progress("chosen pixels", measured, setting.counts[-1])
        kept[count], means[count] = masks, in_chunks(energy, raw, masks, setting.sigma, "mean")
    return Measured(kept, means)


def variances(energy: LearnedEnergy, raw: Tensor, masks: Tensor, sigma: float) -> Tensor:
    """Posterior variances of every pixel; before anything was measured, those of the images themselves.

    (Of equal ones, as an energy with a scalar base has, those nearest to the centre first.)
    """
    if bool(masks.any()):
        return in_chunks(energy, raw, masks, sigma, "std").square()
    prior = energy.gaussian(identity("spatial", raw.shape[1:], raw))[1].expand_as(raw)
    down, across = (torch.linspace(-1, 1, side, dtype=raw.dtype) for side in raw.shape[2:])
    return prior * (1 - 1e-3 * (down[:, None].square() + across.square()))


def at_random(energy: LearnedEnergy, raw: Tensor, setting: MeasurementDesignSetting) -> Measured:
    """As many pixels anywhere; more pixels hold the fewer."""
    size = (raw.shape[2], raw.shape[3])
    masks = {count: random_masks(len(raw), count, size, setting.seed) for count in setting.counts}
    means = {count: in_chunks(energy, raw, mask, setting.sigma, "mean") for count, mask in masks.items()}
    return Measured(masks, means)


def in_chunks(energy: LearnedEnergy, raw: Tensor, masks: Tensor, sigma: float, what: str) -> Tensor:
    """`mean` or `std` of many posteriors."""
    parts = [getattr(posterior_of(energy, raw[r], masks[r], sigma), what)() for r in chunks(len(raw))]
    return torch.cat(parts)


def metrics_of(
    classifier: DigitClassifier, images: HeldOut, found: dict[str, Measured], counts: tuple[int, ...]
) -> dict[str, float]:
    """Errors of both ways, and their differences."""
    assert images.labels is not None
    out: dict[str, float] = {}
    for count in counts:
        wrong = {way: classifier.predict(m.means[count].clamp(0, 1)) != images.labels for way, m in found.items()}
        for way, verdicts in wrong.items():
            out |= interval_metrics(f"error of {way}, {count} pixels", share_interval(verdicts))
        difference = wrong["chosen"].double() - wrong["random"].double()
        out |= interval_metrics(f"error of chosen less random, {count} pixels", mean_interval(difference))
    return out


def run(out: Path, quick: bool, progress: Progress, options: MeasurementDesignOptions) -> ExperimentResult:
    """Choose, measure, name."""
    setting = QUICK if quick else FULL
    energy, classifier = load_energy(options.model), load_classifier(options.classifier)
    images = held_out(options.data, setting.images, fixed_shape(energy))
    if images.labels is None:
        raise ValueError(f"{options.data} has no labels: there is nothing to be right or wrong about")
    raw = images.x + setting.sigma * normal_like(images.x, keyed_generator(setting.seed, "measurement-design"))
    weights = {"model": hash_weights(energy), "classifier": hash_weights(classifier)}
    cache = Cache.of("measurement-design", out, Measured)
    made_from: dict[str, Any] = weights | asdict(options) | asdict(setting)
    found = {
        "chosen": cache.get("chosen", made_from, partial(choose, energy, raw, setting, progress)),
        "random": cache.get("random", made_from, partial(at_random, energy, raw, setting)),
    }
    metrics = metrics_of(classifier, images, found, setting.counts)
    metrics |= interval_metrics("error of clean images", share_interval(classifier.predict(images.x) != images.labels))
    paper = {
        "source": "section 5, measurement design",
        "claims": [],
        "figures": {},
        "departures": ["the paper proposes this and shows no experiment; the claims are ours"],
    }
    columns = ("pixels", "errors from chosen pixels", "errors from random pixels", "difference")
    names = ("error of chosen, {} pixels", "error of random, {} pixels", "error of chosen less random, {} pixels")
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (count, *(interval_of(metrics, n.format(count)) for n in names)) for count in setting.counts
    )
    tables = (ResultTable("Wrong digits", columns, rows),)
    picture = found, images.x, metrics, setting
    return ExperimentResult(metrics, paper, picture, asdict(setting), weights, {"seed": setting.seed}, CLAIMS, tables)

"""Any-order generation: a digit patch by patch, in three orders, from the same noise (paper §4.2.1, figure autoregressive_generation).

Σ starts at λ_max·I. A patch goes from λ_max to the floor in geometric steps while the others wait as they are: quadrants in reading order,
quadrants in reverse, and sixteen patches from the centre out. All three take the same number of steps and are given the same noise at
the start and at every step. Besides the images: log p of what was generated against that of test digits, how sure a classifier is,
and how far apart the three digits are that one noise gave.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.energy import Energy, evaluate, fixed_shape, log_prob
from linverse.evaluation.models import held_out, load_classifier, load_energy
from linverse.experiments.claims import Claim, Condition, interval_metrics, interval_of, mean_interval, share_interval
from linverse.experiments.framework import ExperimentResult
from linverse.experiments.tables import ResultTable
from linverse.files.saving import hash_weights
from linverse.models.classifier import DigitClassifier
from linverse.progress import Progress
from linverse.rng import keyed_generator, normal_like
from linverse.sampling import prior_start
from linverse.sampling.generation import generate_patches
from linverse.units import bits_per_dim

PAPER: dict[str, Any] = {
    "source": "section 4.2.1, Any-order generation; figure autoregressive_generation",
    "claims": [
        "image patches can be generated in any order",
        "each order gives a different solution even with identical initial and injected noise",
    ],
    "figures": {},
}


@dataclass(frozen=True)
class AnyOrderOptions:
    """Models of the any-order experiment."""

    model: str = "mnist"
    """the energy: a bundled name or a folder"""
    classifier: str | None = "mnist-classifier"
    """the classifier that says how sure it is of a digit (None: leave it out)"""
    data: str = "mnist"
    """whose test images are compared with what is generated"""


@dataclass(frozen=True)
class Order:
    """Patches of side H/`split`, `split`² of them, in a named order (`sampling.paths.patch_order`)."""

    title: str
    split: int
    order: str


ORDERS = {
    "reading": Order("quadrants,\nreading order", 2, "reading"),
    "reversed": Order("quadrants,\nreversed", 2, "reversed"),
    "centre_out": Order("16 patches,\ncentre out", 4, "centre-out"),
}
SAME = 0.02  # root mean square between pictures that look alike

CLAIMS = (
    Claim(
        "digits can be generated in any order: a classifier is sure of at least half of them, in every order",
        tuple(Condition(f"{name}: share of digits that a classifier is sure of", "above", 0.5) for name in ORDERS),
    ),
    Claim(
        "each order gives a different digit from the same noise",
        tuple(Condition(f"distance of {a} and {b}", "above", SAME) for a, b in combinations(ORDERS, 2)),
    ),
)
FRAMES = 4  # equal parts of the path; each ends where a patch is done


@dataclass(frozen=True)
class AnyOrderSetting:
    """Digits, and steps of the whole path (a multiple of 16: whole patches in every order)."""

    digits: int = 64
    steps: int = 320
    shown: int = 3
    seed: int = 0


FULL = AnyOrderSetting()
QUICK = replace(FULL, digits=4, steps=160)


@dataclass(frozen=True)
class Generated:
    """Digits at the floor, [N, C, H, W]; the first few along the path as `frames` [FRAMES + 1, n, …] and E[x|x_t] there, `means`."""

    digits: Tensor
    frames: Tensor
    means: Tensor


def start(energy: Energy, count: int, seed: int) -> tuple[Tensor, Covariance]:
    """Where all orders begin."""
    return prior_start(energy, count, keyed_generator(seed, "any-order", "start"))


def generate(energy: Energy, order: Order, setting: AnyOrderSetting) -> Generated:
    """Digits in one order, and what is there and what is expected on the way."""
    stages = generate_patches(
        energy,
        start(energy, setting.digits, setting.seed),
        order.order,
        patch=fixed_shape(energy)[1] // order.split,
        levels=setting.steps // order.split**2,
        stops=FRAMES,
        generator=keyed_generator(setting.seed, "any-order", "steps"),
    )
    seen = [(stage.x[: setting.shown], stage.cov) for stage in stages]
    frames = [display(x, cov) for x, cov in seen]
    means = [expected(energy, x, cov) for x, cov in seen]
    return Generated(stages[-1].x, torch.stack(frames), torch.stack(means))


def expected(energy: Energy, y: Tensor, cov: Covariance) -> Tensor:
    """E[x|x_t]: what the model expects of patches that wait, given those that are done."""
    return evaluate(energy, y, cov.expand(len(y))).mean


def display(y: Tensor, cov: Covariance) -> Tensor:
    """Noise of any size as grey noise; pixels at the floor as they are."""
    grey = 0.5 + 0.18 * y * torch.exp(-0.5 * cov.log_variance)
    return torch.where(cov.variance < 1, y, grey)


@torch.no_grad()
def confidence(classifier: DigitClassifier, x: Tensor) -> Tensor:
    """The largest class probability, [N]."""
    return classifier(x.clamp(0, 1)).softmax(dim=1).amax(dim=1)


def metrics_of(
    energy: Energy, classifier: DigitClassifier | None, found: dict[str, Generated], real: Tensor
) -> dict[str, float]:
    """Densities and confidences of generated and of test digits, and distances between orders."""
    sets = {name: generated.digits for name, generated in found.items()} | {"test": real}
    out: dict[str, float] = {}
    for name, x in sets.items():
        bits = bits_per_dim(log_prob(energy, x), x[0].numel())
        out |= {f"{name}_bits_per_dim": float(bits.mean()), f"{name}_bits_per_dim_spread": float(bits.std())}
        if classifier is not None:
            out[f"{name}_confident_share"] = float((confidence(classifier, x) > 0.9).double().mean())
    for a, b in combinations(found, 2):
        difference = (found[a].digits - found[b].digits).double().square().mean(dim=(1, 2, 3)).sqrt()
        out[f"{a}_{b}_distance"] = float(difference.mean())
    pairs = real.roll(1, dims=0) - real
    out["test_test_distance"] = float(pairs.double().square().mean(dim=(1, 2, 3)).sqrt().mean())
    return out


def intervals_of(
    classifier: DigitClassifier | None, found: dict[str, Generated], real: Tensor
) -> tuple[dict[str, float], ResultTable]:
    """What the claims are judged by, and the table."""
    out: dict[str, float] = {}
    for name, x in {**{name: g.digits for name, g in found.items()}, "test": real}.items():
        if classifier is not None:
            sure = share_interval(confidence(classifier, x) > 0.9)
            out |= interval_metrics(f"{name}: share of digits that a classifier is sure of", sure)
    for a, b in combinations(found, 2):
        apart = (found[a].digits - found[b].digits).double().square().mean(dim=(1, 2, 3)).sqrt()
        out |= interval_metrics(f"distance of {a} and {b}", mean_interval(apart))
    rows = tuple((name, interval_of(out, name)) for name in out if f"{name}_low" in out)
    return out, ResultTable("Three orders, one noise", ("quantity", "ours"), rows)


def run(out: Path, quick: bool, progress: Progress, options: AnyOrderOptions) -> ExperimentResult:
    """Three orders, one noise."""
    setting = QUICK if quick else FULL
    energy = load_energy(options.model)
    classifier = None if options.classifier is None else load_classifier(options.classifier)
    found: dict[str, Generated] = {}
    for done, (name, order) in enumerate(ORDERS.items()):
        found[name] = generate(energy, order, setting)
        progress("orders", done + 1, len(ORDERS))
    x = held_out(options.data, max(setting.digits, 2), fixed_shape(energy)).x
    noise = normal_like(x, keyed_generator(setting.seed, "any-order", "floor"))
    metrics = metrics_of(energy, classifier, found, x + math.sqrt(energy.range.minimum) * noise)
    intervals, table = intervals_of(classifier, found, x)
    metrics |= intervals
    metrics["floor_variance"] = energy.range.minimum  # densities of 8-bit data mean nothing without it
    weights = {"model": hash_weights(energy)}
    if classifier is not None:
        weights["classifier"] = hash_weights(classifier)
    return ExperimentResult(metrics, PAPER, found, asdict(setting), weights, {"seed": setting.seed}, CLAIMS, (table,))

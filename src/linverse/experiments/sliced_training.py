"""Training without a double backward: sliced score matching by forward-mode products (paper §5, left to the future; Song et al. 2020).

A-DSM + w·A-CSM is a mean of squares ‖e − ε‖² + w‖κ − τ‖² of both scores. With independent random signs v, s, one directional derivative
    D = ∂U along (dz, d log λ) = (λ^{1/2}v, √w' s),   E_{v,s} (D − ⟨v, ε⟩ − √w'⟨s, τ⟩)² = ‖e − ε‖² + w'‖κ − τ‖²,
is an unbiased estimate of both at once. D comes from one forward-mode product, and its gradient in θ from one backward: no gradient of a
gradient. The estimate is noisier. On 8×8 digits both train the same network, from the same start, on the same batches and with the
same optimiser, for as many processor seconds; held-out losses are the exact ones. Bytes are those that a step keeps for its backward.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from linverse.covariance import Covariance
from linverse.data.digits import load_digits
from linverse.experiments.cache import Cache
from linverse.experiments.claims import Claim, Condition, interval_metrics, interval_of, mean_interval
from linverse.experiments.framework import ExperimentResult
from linverse.experiments.tables import Cell, ResultTable
from linverse.models.energies.learned import LearnedEnergy
from linverse.models.losses import DualLoss, LossConfig, NoisyBatch
from linverse.progress import Progress
from linverse.rng import keyed_generator
from linverse.training.batches import draw_parts
from linverse.training.config import OptimiserConfig
from linverse.training.loop import build_model, build_optimiser
from linverse.training.presets import PRESETS

WAYS = ("double backward", "sliced")
LOSS = LossConfig(cov_weight=1.0)
OPTIMISER = OptimiserConfig(rate=1e-3, warmup=20, decay="none")

CLAIMS = (
    Claim(
        "a sliced step takes less time than a double backward",
        (Condition("seconds of sliced over double", "below", 1.0),),
    ),
    Claim("it keeps less memory for its backward", (Condition("bytes of sliced over double", "below", 1.0),)),
    Claim("at equal time it reaches a lower loss", (Condition("loss of sliced less double", "below"),)),
)


@dataclass(frozen=True)
class SlicedTrainingSetting:
    """Processor seconds of each run, repetitions with other seeds, images of a step, held-out images, times at which they are asked."""

    seconds: float = 90.0
    seeds: int = 4
    batch: int = 64
    held_out: int = 256
    readings: int = 6


FULL = SlicedTrainingSetting()
QUICK = replace(FULL, seconds=1.0, seeds=2, batch=8, held_out=16, readings=2)


@dataclass(frozen=True)
class TrainingRun:
    """Held-out A-DSM and A-CSM [readings + 1] at processor seconds, steps made, seconds of a step, bytes kept for its backward."""

    seconds: Tensor
    dsm: Tensor
    csm: Tensor
    steps: int
    step_seconds: float
    kept_bytes: int


def sliced_loss(energy: LearnedEnergy, parts: list[NoisyBatch], weight: float, generator: torch.Generator) -> Tensor:
    """An unbiased estimate of A-DSM + weight·A-CSM by one directional derivative per image; the backbone runs once."""
    pairs, wanted, dim = [], [], parts[0].cov.dim
    for part in parts:
        cov, log_variance = part.cov, part.cov.log_variance
        z = part.noisy_coefficients()
        v, s = (_signs(like, generator) for like in (z, log_variance))
        # means per coefficient and per group: ‖e−ε‖²/d + w·‖κ/|g| − τ‖²/G, with κ/|g| the derivative over the channels' number
        scale = math.sqrt(weight * dim / log_variance[0].numel()) / cov.multiplicity
        pairs.append((cov, (z, v * torch.exp(0.5 * log_variance)), (log_variance, scale * s)))
        target = 0.5 * (1 - part.noise.square())
        grouped = target.sum(dim=1, keepdim=True) if cov.multiplicity > 1 else target
        wanted.append(_total(v * part.noise) + scale * _total(s * grouped))
    return (slopes_along(energy, pairs) - torch.cat(wanted)).square().mean() / dim


Moving = tuple[Tensor, Tensor]  # where, and along which direction


def slopes_along(energy: LearnedEnergy, pairs: list[tuple[Covariance, Moving, Moving]]) -> Tensor:
    """The derivative of U along directions of z and log λ for every image of several bases, one after the other, by forward mode."""
    with forward_ad.dual_level():
        moved = [
            (forward_ad.make_dual(*z), cov.with_log_variance(forward_ad.make_dual(*log_variance)))
            for cov, z, log_variance in pairs
        ]
        slopes = forward_ad.unpack_dual(energy.form.energies(moved)).tangent
    assert slopes is not None
    return slopes


def _signs(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randint(0, 2, like.shape, generator=generator).to(like) * 2 - 1


def _total(values: Tensor) -> Tensor:
    return values.sum(dim=(1, 2, 3))


def kept_bytes(work: Callable[[], Any]) -> int:
    """Bytes of the tensors that are saved for a backward while `work` is done, each storage counted once."""
    seen: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if not tensor._is_zerotensor():  # a derivative that is zero everywhere takes no memory
            storage = tensor.untyped_storage()
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        work()
    return sum(seen.values())


def train(way: str, seed: int, setting: SlicedTrainingSetting) -> TrainingRun:
    """Train for so many processor seconds; readings do not count."""
    images, test = load_digits("train"), load_digits("test")
    config = replace(PRESETS["digits"][1], seed=seed, batch=setting.batch)
    energy = build_model(config, images)
    assert isinstance(energy, LearnedEnergy)
    optimiser, loss = build_optimiser(energy, OPTIMISER), DualLoss(energy, LOSS)
    held = draw_parts(config, test.batch(torch.arange(setting.held_out)), keyed_generator("sliced", "held-out"))

    def batch_loss(step: int) -> Tensor:
        generator = keyed_generator(seed, "sliced", step)
        x = images.batch(torch.randint(len(images), (setting.batch,), generator=generator))
        parts = draw_parts(config, x, generator)
        return loss(parts)[0] if way == "double backward" else sliced_loss(energy, parts, 1.0, generator)

    memory = kept_bytes(partial(batch_loss, 0))
    found, spent, step, due = [reading(loss, held, 0.0)], 0.0, 0, setting.seconds / setting.readings
    while spent < setting.seconds:
        begun = time.process_time()
        for group in optimiser.param_groups:
            group["lr"] = group["initial_lr"] * OPTIMISER.share_at(step, 10**9)
        optimiser.zero_grad()
        value = batch_loss(step)
        value.backward()
        torch.nn.utils.clip_grad_norm_(energy.parameters(), 5.0)
        optimiser.step()
        spent, step = spent + time.process_time() - begun, step + 1
        if spent >= due * len(found):
            found.append(reading(loss, held, spent))
    seconds, dsm, csm = (torch.tensor(column, dtype=torch.float64) for column in zip(*found, strict=True))
    return TrainingRun(seconds, dsm, csm, step, spent / step, memory)


def reading(loss: DualLoss, held: list[NoisyBatch], spent: float) -> tuple[float, float, float]:
    """Seconds, and the exact held-out losses."""
    _, terms = loss(held, create_graph=False)
    return spent, float(terms["dsm"]), float(terms["csm"])


def run(out: Path, quick: bool, progress: Progress) -> ExperimentResult:
    """Both ways, seed by seed in turn."""
    setting = QUICK if quick else FULL
    cache = Cache.of("sliced-training", out, TrainingRun)
    found: dict[str, list[TrainingRun]] = {way: [] for way in WAYS}
    for seed in range(setting.seeds):
        for way in WAYS:
            make = partial(train, way, seed, setting)
            found[way].append(cache.get(f"{way.replace(' ', '-')}-{seed}", asdict(setting), make))
        progress("seeds", seed + 1, setting.seeds)
    metrics = metrics_of(found)
    paper = {
        "source": "section 5, limitations",
        "claims": [claim.text for claim in CLAIMS],
        "figures": {},
        "departures": ["8×8 digits; a plain loss (A-DSM + A-CSM, AdamW) for both"],
    }
    columns = ("training", "steps", "seconds of a step", "megabytes kept", "held-out A-DSM", "held-out A-CSM", "sum")
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            way,
            *(
                interval_of(metrics, f"{what} of {way}")
                for what in ("steps", "seconds", "megabytes", "A-DSM", "A-CSM", "loss")
            ),
        )
        for way in WAYS
    )
    tables = (ResultTable(f"After {setting.seconds:g} processor seconds each", columns, rows),)
    return ExperimentResult(metrics, paper, found, asdict(setting), {}, {"seeds": setting.seeds}, CLAIMS, tables)


def metrics_of(found: dict[str, list[TrainingRun]]) -> dict[str, float]:
    """Means over seeds, and sliced against double, seed by seed."""
    columns: dict[str, dict[str, Tensor]] = {}
    for way, runs in found.items():
        values = {
            "steps": [float(r.steps) for r in runs],
            "seconds": [r.step_seconds for r in runs],
            "megabytes": [r.kept_bytes / 1e6 for r in runs],
            "A-DSM": [float(r.dsm[-1]) for r in runs],
            "A-CSM": [float(r.csm[-1]) for r in runs],
            "loss": [float(r.dsm[-1] + r.csm[-1]) for r in runs],
        }
        columns[way] = {name: torch.tensor(each, dtype=torch.float64) for name, each in values.items()}
    out: dict[str, float] = {}
    for way, each in columns.items():
        for name, column in each.items():
            out |= interval_metrics(f"{name} of {way}", mean_interval(column))
    double, sliced = columns["double backward"], columns["sliced"]
    out |= interval_metrics("seconds of sliced over double", mean_interval(sliced["seconds"] / double["seconds"]))
    out |= interval_metrics("bytes of sliced over double", mean_interval(sliced["megabytes"] / double["megabytes"]))
    return out | interval_metrics("loss of sliced less double", mean_interval(sliced["loss"] - double["loss"]))

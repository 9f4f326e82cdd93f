"""Large pictures: boxes of 30 and 50 pixels in 192×192, and a blind box (paper, appendix D.1.3: AFHQ).

A model of photographs of any size restores the centre of held-out crops of 192×192; DPS and RED-Diff run on the same energy at isotropic
noise. LPIPS and DISTS of the whole picture, as in the paper; PSNR of the whole picture too. Then noise σ₁ = 1 inside of a box of 30 and
10⁻³ outside of it (the model's floor; the paper's is 10⁻⁴): which s and which σ₁ make the picture most probable?
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linverse.baselines import METHODS, EnergyDenoiser
from linverse.covariance import Covariance, identity
from linverse.data import load_crops
from linverse.degradations import Box
from linverse.energy import Evaluation
from linverse.evaluation.models import load_energy
from linverse.experiments.cache import Cache
from linverse.experiments.claims import (
    Claim,
    Condition,
    interval_metrics,
    interval_of,
    mean_interval,
    median_interval,
    share_interval,
)
from linverse.experiments.framework import ExperimentResult
from linverse.experiments.noise_boxes import evidence_curves, noisy_box
from linverse.experiments.tables import ResultTable
from linverse.files.saving import hash_weights
from linverse.metrics import METRICS as METRIC_FUNCTIONS
from linverse.metrics import available_metrics
from linverse.models.energies.learned import LearnedEnergy
from linverse.progress import Progress
from linverse.rng import keyed_generator

SOLVERS = ("ours", "dps", "red-diff")
METRICS = ("PSNR", "LPIPS-Alex", "DISTS")
THEIRS = {  # PSNR, LPIPS, FID, DISTS
    30: {"ours": (33.78, 0.005, 3.04, 0.0095), "dps": (31.91, 0.007, 3.59, 0.0113), "red-diff": (37.58, 0.008, 4.81, 0.0128)},
    50: {"ours": (26.45, 0.021, 9.43, 0.029), "dps": (25.21, 0.023, 10.71, 0.031), "red-diff": (28.22, 0.028, 13.28, 0.037)},
}  # fmt: skip


def table_claims(side: int) -> tuple[Claim, ...]:
    """Of the paper's tables inv_afhq and inv_afhq2."""
    rivals = ("dps", "red-diff")
    return tuple(
        Claim(
            f"box {side}: ours has the lowest {metric}",
            tuple(Condition(f"box {side}: {metric} of ours less {rival}", "below") for rival in rivals),
        )
        for metric in ("LPIPS", "DISTS")
    ) + (
        Claim(
            f"box {side}: RED-Diff has a higher PSNR than ours",
            (Condition(f"box {side}: PSNR of ours less red-diff", "below"),),
        ),
    )


CLAIMS = (
    *table_claims(30),
    *table_claims(50),
    Claim(
        "the side of the box is found, in at least seven of ten pictures",
        (Condition("share of exact sides", "above", 0.7),),
    ),
    Claim(
        "σ₁ is found within a tenth (the paper's estimate is 0.2 where it was 1)",
        (Condition("estimated σ₁", "above", 0.9), Condition("estimated σ₁", "below", 1.1)),
    ),
)


@dataclass(frozen=True)
class LargeImagesOptions:
    """The model and its pictures."""

    model: str = "photographs"
    """an energy of colour pictures of any size"""
    data: str = "photographs"
    """whose held-out pictures are cut: photographs, or folder:PATH"""


@dataclass(frozen=True)
class LargeImagesSetting:
    """Pictures of a side, boxes, steps of every solver; pictures of the blind question, their box and σ₁."""

    side: int = 192
    boxes: tuple[int, ...] = (30, 50)
    images: int = 24
    steps: int = 50
    blind_images: int = 12
    blind_box: int = 30
    blind_sigma: float = 1.0
    shown: int = 4
    seed: int = 0


FULL = LargeImagesSetting()
QUICK = replace(FULL, side=48, boxes=(8, 12), images=2, steps=3, blind_images=2, blind_box=8, shown=2)


class OneSize:
    """An energy of pictures of any size, for those of one: what solvers that must know the shape are given."""

    def __init__(self, energy: LearnedEnergy, side: int) -> None:
        self.energy, self.range, self.shape = energy, energy.range, (energy.shape[0], side, side)

    def __call__(self, y: Tensor, cov: Covariance) -> Tensor:
        return self.energy(y, cov)

    def gaussian(self, cov: Covariance) -> tuple[Tensor, Tensor]:
        return self.energy.gaussian(cov)

    def evaluate_in_basis(self, z: Tensor, cov: Covariance, *, create_graph: bool = False) -> Evaluation:
        """The energy's own way of evaluating itself."""
        return self.energy.evaluate_in_basis(z, cov, create_graph=create_graph)


def solve(energy: LearnedEnergy, name: str, x: Tensor, box: int, setting: LargeImagesSetting) -> Tensor:
    """A restoration of each picture, one at a time: large pictures want memory."""
    degradation = Box(box, energy.range.minimum**0.5)
    sized: Any = OneSize(energy, setting.side)
    model = energy if name == "ours" else EnergyDenoiser(sized, identity("spatial", sized.shape))
    out = []
    for number in range(len(x)):
        key = keyed_generator(setting.seed, "large-images", box, number)
        raw = degradation.measure(x[number : number + 1], key).raw
        generator = keyed_generator(setting.seed, "large-images", "solver", box, number)
        out.append(METHODS[name].solve(model, degradation, raw, generator, steps=setting.steps).samples)
    return torch.cat(out)


def solver_metrics(restored: dict[str, Tensor], x: Tensor, label: str) -> dict[str, float]:
    """Every metric of every solver, and ours less each of the others."""
    out: dict[str, float] = {}
    for metric in (name for name in METRICS if name in available_metrics()):
        short = metric.partition("-")[0]
        values = {}
        for name, pictures in restored.items():
            rows = [
                METRIC_FUNCTIONS[metric].function(p[None].clamp(0, 1), t[None])
                for p, t in zip(pictures, x, strict=True)
            ]
            values[name] = torch.cat(rows)
            out |= interval_metrics(f"{label}: {short} of {name}", mean_interval(values[name]))
        for name in restored:
            if name != "ours":
                out |= interval_metrics(
                    f"{label}: {short} of ours less {name}", mean_interval(values["ours"] - values[name])
                )
    return out


def blind(
    energy: LearnedEnergy, x: Tensor, setting: LargeImagesSetting, progress: Progress
) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Estimated sides and σ₁ of every picture, each with the other known, and the curves of the first."""
    box, sigma, outside = setting.blind_box, setting.blind_sigma, energy.range.minimum**0.5
    sides: list[float] = []
    sigmas: list[float] = []
    curves: dict[str, Any] = {}
    for number in range(len(x)):
        generator = keyed_generator(setting.seed, "joint", box, f"{sigma:g}", number)
        raw = noisy_box(x[number : number + 1], box, sigma, outside, generator)
        found = evidence_curves(energy, raw, box, sigma, outside, setting.seed)
        for best, (axis, values) in ((sides, found["by_side"]), (sigmas, found["by_sigma"])):
            best.append(float(axis[values.argmax()]))
        curves = curves or found
        progress("blind", number + 1, len(x))
    return torch.tensor(sides, dtype=torch.float64), torch.tensor(sigmas, dtype=torch.float64), curves


def run(out: Path, quick: bool, progress: Progress, options: LargeImagesOptions) -> ExperimentResult:
    """Both boxes, then the blind one."""
    setting = QUICK if quick else FULL
    energy = load_energy(options.model)
    x = load_crops(options.data, "test", channels=energy.shape[0]).held_out(setting.side, setting.images)
    weights = {"model": hash_weights(energy)}
    cache = Cache.of("large-images", out)
    made_from = weights | asdict(options) | asdict(setting)
    metrics: dict[str, float] = {}
    shown: dict[int, dict[str, Tensor]] = {}
    for number, box in enumerate(setting.boxes):
        restored = {
            name: cache.get(f"box-{box}-{name}", made_from, partial(solve, energy, name, x, box, setting))
            for name in SOLVERS
        }
        metrics |= solver_metrics(restored, x, f"box {box}")
        seen = Box(box).operator(x[: setting.shown])
        shown[box] = {"truth": x[: setting.shown], "measured": seen} | {
            n: r[: setting.shown] for n, r in restored.items()
        }
        progress("boxes", number + 1, len(setting.boxes))
    sides, sigmas, curves = cache.get(
        "blind", made_from, partial(blind, energy, x[: setting.blind_images], setting, progress)
    )
    metrics |= interval_metrics("share of exact sides", share_interval(sides == setting.blind_box))
    metrics |= interval_metrics("estimated σ₁", median_interval(sigmas))
    paper = {
        "source": "appendix, Large-scale experiments",
        "claims": [claim.text for claim in CLAIMS],
        "figures": {"estimated σ₁ where it was 1": 0.2},
        "departures": [f"crops of {options.data} instead of AFHQ cats; one model of any size, not trained at this one"],
    }
    tables = tuple(table_of(box, metrics) for box in setting.boxes)
    found = shown, curves, setting
    return ExperimentResult(metrics, paper, found, asdict(setting), weights, {"seed": setting.seed}, CLAIMS, tables)


def table_of(box: int, metrics: dict[str, float]) -> ResultTable:
    """The paper's table beside ours."""
    names = ("PSNR", "LPIPS", "DISTS")
    rows = []
    for solver in SOLVERS:
        keys = [f"box {box}: {name} of {solver}" for name in names]
        cells = [interval_of(metrics, key) if key in metrics else None for key in keys]
        theirs = THEIRS.get(box, {}).get(solver, (None,) * 4)
        rows.append((solver, *cells, *theirs))
    columns = ("method", *names, "paper's PSNR", "paper's LPIPS", "paper's FID", "paper's DISTS")
    return ResultTable(f"Box of {box}×{box}", columns, tuple(rows))

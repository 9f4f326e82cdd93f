"""Which degradation made this image? The paper's blind figure (§4.3, appendix D.2), and how well it can be done at all.

Four questions, each answered by the largest evidence log p(y_raw|θ) over a grid that holds the truth among much else:
    isotropic   σ² of white noise: bias and spread of log σ̂², the latter against the Cramér–Rao bound √(2/d) for a known image and
                against (E[(Σκ)²])^{-1/2}, the bound when the image is unknown too
    box         the side s of a noisy square, σ₁ inside and σ₂ outside known
    joint       s by its evidence and σ₁ by slopes (`blind.boxes`), at the paper's (14, 0.1), (20, 2), (5, 2) with its σ₂ = 1e-4, which
                the energy's floor hides, and at (20, 0.05), where the 90 % intervals of σ₁ are counted
    blur        the width of a Gaussian blur, by the slope of its evidence from means, judged by held-out images (`blind.slope`), with
                its 90 % intervals; by the full likelihood U + Σ log h̃ as the energy has it; and by U alone (which runs to the edge)
The same for an energy trained without the covariance score ("single"), whose Σ-dependence nothing determines; of blurs and
of σ₁ it is asked for its evidence alone, because slopes from means would not show that.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linverse.blind import (
    Axis,
    Search,
    SlopeCalibration,
    UnknownGaussianBlur,
    calibrate_slopes,
    noise_bound,
    search,
    search_by_slope,
    search_noise_levels,
)
from linverse.degradations import GaussianBlur
from linverse.energy import Energy, fixed_shape
from linverse.evaluation.models import PairOptions, held_out, load_companion, load_energy
from linverse.experiments.cache import Cache, Keep
from linverse.experiments.framework import ExperimentResult
from linverse.experiments.noise_boxes import (
    BOX_CLAIMS,
    PAPERS_CASES,
    Case,
    Guess,
    box_guesses,
    box_table,
    case_intervals,
    case_metrics,
    paper_case,
    share,
)
from linverse.files.saving import hash_weights
from linverse.progress import Progress, named
from linverse.rng import keyed_generator, normal_like

PAPER: dict[str, Any] = {
    "source": "section 4.3 and appendix D.2; figures blind_example, blind_comparison, blind_example_afhq",
    "claims": [
        "dual score matching estimates both the box size s and the noise level σ₁ accurately",
        "an energy model trained without the covariance score matching objective fails at this task",
    ],
    "figures": {
        "CelebA: σ₁ read off the figure where it was 2": 1.70,
        "AFHQ: σ₁ estimated where it was 1": 0.2,
        "CelebA: box sides found by dual, at (s, σ₁) = (5, 2), (14, 0.1), (20, 2)": [5, 14, 20],
    },
    "targets": {
        "isotropic_bias": "at most 0.03",
        "isotropic_spread_over_cramer_rao": "at most 1.25",
        "box_exact_share": "at least 0.95",
        "joint_sigma_error": "at most 0.05",
        "blur_relative_error": "at most 0.02",
        "blur_coverage_90": "between 0.85 and 0.95 for every width",
        "joint_20_0.05_sigma_coverage_90": "between 0.85 and 0.95",
    },
}


@dataclass(frozen=True)
class BlindExperimentOptions(PairOptions):
    """Models of the blind experiment."""


@dataclass(frozen=True)
class BlindSetting:
    """What is asked, of how many images."""

    variances: tuple[float, ...] = (1e-3, 1e-2, 1e-1, 1.0)
    isotropic_images: int = 200
    box_sides: tuple[int, int] = (4, 24)
    box_sigmas: tuple[float, float] = (0.5, 0.01)
    box_images: int = 200
    cases: tuple[tuple[int, float], ...] = PAPERS_CASES
    outside: float = 1e-4
    joint_images: int = 50
    counted_case: tuple[int, float] = (20, 0.05)
    counted_images: int = 200
    widths: tuple[float, ...] = (0.6, 0.8, 1.2, 1.8)
    blur_sigma: float = 0.01
    blur_images: int = 200
    calibration_images: int = 64
    seed: int = 0

    @property
    def images(self) -> int:
        counts = (self.isotropic_images, self.box_images, self.joint_images, self.counted_images, self.blur_images)
        return max(counts)


FULL = BlindSetting()
QUICK = replace(
    FULL, isotropic_images=48, box_images=24, joint_images=4, counted_images=4, blur_images=4, calibration_images=4
)


@dataclass(frozen=True)
class BlurFinding:
    """Estimates of a blur's width, [N]: by slopes, by the full likelihood, and by the energy alone.

    `covered` and `likelihood_covered`: whether the 90 % intervals of the first two hold the truth.
    """

    width: float
    full: Tensor
    covered: Tensor
    likelihood: Tensor
    likelihood_covered: Tensor
    alone: Tensor


@dataclass(frozen=True)
class Findings:
    """All that one energy answered; `isotropic` maps σ² to log σ̂² − log σ², `bounds` to the energy's own bound for its spread."""

    isotropic: dict[float, Tensor]
    bounds: dict[float, float]
    boxes: Guess
    cases: list[Case]
    counted: Case
    blurs: list[BlurFinding]
    dim: int


# --- isotropic noise -----------------------------------------------------------------------------------------------------------


def isotropic_errors(energy: Energy, x: Tensor, variance: float, seed: int) -> Tensor:
    """log σ̂² − log σ² for each image: a grid over all that the energy knows, then a fine one where the answers are, [N]."""
    noise = normal_like(x, keyed_generator(seed, "blind experiment", "isotropic", f"{variance:g}"))
    y = x + math.sqrt(variance) * noise
    found = search_noise_levels(energy, y, seed=seed)
    return 2 * (found.double().log() - 0.5 * math.log(variance))


def fisher_bound(energy: Energy, x: Tensor, variance: float, seed: int) -> float:
    """The least sd of log σ̂² when the image is unknown: (E[(Σκ)²])^{-1/2}, by the energy's own covariance score."""
    y = x + math.sqrt(variance) * normal_like(x, keyed_generator(seed, "blind experiment", "fisher", f"{variance:g}"))
    return noise_bound(energy, y, variance)


# --- blurs ---------------------------------------------------------------------------------------------------------------------


def blur_calibration(energy: Energy, setting: BlindSetting, progress: Progress) -> SlopeCalibration | None:
    """What the energy is known to be wrong by, all along the axis; None where it carries no held-out images."""
    places = torch.tensor([0.4, 0.5, 0.65, 0.8, 1.0, 1.3, 1.7, 2.2], dtype=torch.float64).log()
    family = UnknownGaussianBlur(setting.blur_sigma)
    count = setting.calibration_images
    return calibrate_slopes(energy, family, "std", places, images=count, seed=setting.seed, progress=progress)


def blur_widths(
    energy: Energy,
    x: Tensor,
    width: float,
    setting: BlindSetting,
    calibration: SlopeCalibration | None,
    progress: Progress,
) -> BlurFinding:
    """The width of a blur by slopes, by the full likelihood, and by the energy alone."""
    taps = 2 * ((min(x.shape[2:]) - 1) // 2) + 1  # all that fit: the family's own kernel
    blur = GaussianBlur(width, setting.blur_sigma, size=taps)
    family, grid = UnknownGaussianBlur(setting.blur_sigma), Axis("std", 0.3, 3.0, 55)
    gain: Tensor | None = None
    found: list[tuple[float, bool, float, bool, float]] = []
    for i in range(len(x)):
        raw = blur.measure(x[i : i + 1], keyed_generator(setting.seed, "blur", f"{width:g}", i)).raw
        plain = search(energy, raw, family, (grid,), seed=setting.seed)
        judged = plain
        if calibration is not None:
            judged = search_by_slope(energy, raw, family, grid, calibration, seed=setting.seed)
        gain = log_gain(energy, raw, family, grid.values().to(raw)) if gain is None else gain
        alone = float(grid.values()[(plain.coarse.log_evidence + gain).argmax()])
        found.append((*_value_and_hit(judged, width), *_value_and_hit(plain, width), alone))
        progress(f"blur of {width:g}", i + 1, len(x))
    full, covered, likelihood, held, energy_alone = (torch.tensor(column) for column in zip(*found, strict=True))
    return BlurFinding(width, full.double(), covered, likelihood.double(), held, energy_alone.double())


def _value_and_hit(found: Search, truth: float) -> tuple[float, bool]:
    """The estimate, and whether its 90 % interval holds the truth."""
    low, high = found.interval(found.axes[0])
    return found.value(found.axes[0]), low <= truth <= high


def log_gain(energy: Energy, raw: Tensor, family: UnknownGaussianBlur, axis: Tensor) -> Tensor:
    """Σ log h̃ for each width: what the evidence has beyond −U."""
    measurement = family.measurement(raw, {"std": axis})
    gaussian = energy.gaussian(measurement.template)
    lifted = measurement.lift(energy.range, gaussian, noise=torch.zeros_like(raw), random_fill=False, add_floor=True)
    return lifted.log_gain


# --- the experiment ------------------------------------------------------------------------------------------------------------


def investigate(
    energy: Energy, x: Tensor, setting: BlindSetting, progress: Progress, keep: Keep, *, judged: bool
) -> Findings:
    """All four questions to one energy; widths and levels in boxes by slopes, judged by held-out images, or by its evidence alone."""
    isotropic, bounds = {}, {}
    for done, variance in enumerate(setting.variances):
        question = energy, x[: setting.isotropic_images], variance, setting.seed
        isotropic[variance] = keep(f"isotropic-{variance:g}", partial(isotropic_errors, *question))
        bounds[variance] = keep(f"bound-{variance:g}", partial(fisher_bound, *question))
        progress("isotropic", done + 1, len(setting.variances))
    asked = setting.box_sides, setting.box_sigmas, setting.seed, progress
    boxes = keep("box", partial(box_guesses, energy, x[: setting.box_images], *asked))
    joint, blurred = x[: setting.joint_images], x[: setting.blur_images]
    case = partial(paper_case, energy, outside=setting.outside, seed=setting.seed, progress=progress, judged=judged)
    cases = [keep(f"joint-{side}-{sigma:g}", partial(case, joint, side, sigma)) for side, sigma in setting.cases]
    side, sigma = setting.counted_case
    counted = keep("joint-counted", partial(case, x[: setting.counted_images], side, sigma))
    widths = setting.widths if not energy.range.bases or "fourier" in energy.range.bases else ()
    known = (
        keep("blur-calibration", partial(blur_calibration, energy, setting, progress)) if judged and widths else None
    )
    blurs = [
        keep(f"blur-{width:g}", partial(blur_widths, energy, blurred, width, setting, known, progress))
        for width in widths
    ]
    return Findings(isotropic, bounds, boxes, cases, counted, blurs, x[0].numel())


def metrics_of(found: Findings) -> dict[str, float]:
    """The numbers to be read off."""
    bound = math.sqrt(2 / found.dim)
    out: dict[str, float] = {}
    for variance, errors in found.isotropic.items():
        name, spread = f"{variance:.0e}", float(errors.std())
        out[f"isotropic_bias_{name}"] = float(errors.mean())
        out[f"isotropic_bias_standard_error_{name}"] = spread / math.sqrt(len(errors))
        out[f"isotropic_spread_over_cramer_rao_{name}"] = spread / bound
        out[f"isotropic_spread_over_own_bound_{name}"] = spread / found.bounds[variance]
    off = (found.boxes.found - found.boxes.truth).abs()
    out |= {"box_exact_share": share(off == 0), "box_within_one_share": share(off <= 1)}
    for case in (*found.cases, found.counted):
        out |= case_metrics(case)
    return out | blur_metrics(found.blurs)


def blur_metrics(blurs: list[BlurFinding]) -> dict[str, float]:
    """Relative errors of the width: typical (median) ones, over all and for each width."""
    if not blurs:
        return {}
    errors = {b.width: (b.full / b.width - 1).abs() for b in blurs}
    alone = torch.cat([(b.alone / b.width - 1).abs() for b in blurs])
    likelihood = torch.cat([(b.likelihood / b.width - 1).abs() for b in blurs])
    every = torch.cat(list(errors.values()))
    out = {
        "blur_relative_error": float(every.quantile(0.5)),
        "blur_within_5_percent_share": share(every <= 0.05),
        "blur_likelihood_relative_error": float(likelihood.quantile(0.5)),
        "blur_energy_alone_relative_error": float(alone.quantile(0.5)),
    }
    for blur in blurs:
        out[f"blur_relative_error_{blur.width:g}"] = float(errors[blur.width].quantile(0.5))
        out[f"blur_bias_{blur.width:g}"] = float((blur.full / blur.width).log().mean())
        out[f"blur_coverage_90_{blur.width:g}"] = share(blur.covered)
        out[f"blur_likelihood_bias_{blur.width:g}"] = float((blur.likelihood / blur.width).log().mean())
        out[f"blur_likelihood_coverage_90_{blur.width:g}"] = share(blur.likelihood_covered)
    return out


def run(out: Path, quick: bool, progress: Progress, options: BlindExperimentOptions) -> ExperimentResult:
    """Ask both energies."""
    setting = QUICK if quick else FULL
    energies = {"dual": load_energy(options.model), "single": load_companion(options.single_model)}
    models = {name: energy for name, energy in energies.items() if energy is not None}
    x = held_out(options.data, setting.images, fixed_shape(models["dual"])).x
    weights = {name: hash_weights(energy) for name, energy in models.items()}
    cache = Cache.of("blind", out, Guess, Case, BlurFinding, SlopeCalibration)
    found = {}
    for name, energy in models.items():
        made_from = asdict(setting) | {"model": weights[name], "data": options.data, "levels": "by slopes"}
        keep = cache.keeper(made_from, f"{name}-")
        found[name] = investigate(energy, x, setting, named(progress, name), keep, judged=name == "dual")
    metrics = metrics_of(found["dual"])
    if "single" in found:
        metrics |= {f"single_{name}": value for name, value in metrics_of(found["single"]).items()}
    for name, findings in found.items():
        for case in findings.cases:
            metrics |= case_intervals(name, case)
    tables = (box_table({name: findings.cases for name, findings in found.items()}, metrics),)
    seeds = {"seed": setting.seed}
    return ExperimentResult(metrics, PAPER, found, asdict(setting), weights, seeds, BOX_CLAIMS, tables)

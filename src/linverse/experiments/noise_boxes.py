"""A square of unknown side s under noise of unknown level σ₁: how well are both found by the evidence?

The paper's blind question (§4.3), which the experiments `blind` (garments) and `large-images` (photographs) ask: σ₁ inside of a centred
square and a known σ₂ around it, the side with σ₁ known, and both together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from linverse.blind import Axis, BlindEstimate, Calibrations, Search, UnknownNoiseBox, estimate, search, search_box
from linverse.blind.search import log_spaced, sigma_limits
from linverse.energy import Energy
from linverse.experiments.claims import (
    Claim,
    Condition,
    interval_metrics,
    interval_of,
    median_interval,
    share_interval,
)
from linverse.experiments.tables import ResultTable
from linverse.progress import Progress
from linverse.rng import keyed_generator, normal_like

PAPERS_CASES = ((14, 0.1), (20, 2.0), (5, 2.0))  # s, σ₁


def case_name(model: str, side: int, sigma: float) -> str:
    """How the record speaks of a box."""
    return f"{model}, s = {side}, σ₁ = {sigma:g}"


BOX_CLAIMS = (
    *(
        Claim(
            f"s = {side}, σ₁ = {sigma:g}: the side is found, in at least nine of ten images",
            (Condition(f"{case_name('dual', side, sigma)}: share of exact sides", "above", 0.9),),
        )
        for side, sigma in PAPERS_CASES
    ),
    *(
        Claim(
            f"s = {side}, σ₁ = {sigma:g}: the noise is found, within a tenth",
            (
                Condition(f"{case_name('dual', side, sigma)}: estimated over true σ₁", "above", 0.9),
                Condition(f"{case_name('dual', side, sigma)}: estimated over true σ₁", "below", 1.1),
            ),
        )
        for side, sigma in PAPERS_CASES
    ),
    Claim(
        "an energy without the covariance score fails: it finds fewer than half of the sides",
        tuple(
            Condition(f"{case_name('single', side, sigma)}: share of exact sides", "below", 0.5)
            for side, sigma in PAPERS_CASES
        ),
    ),
)


@dataclass(frozen=True)
class Guess:
    """True and estimated values, [N] each."""

    truth: Tensor
    found: Tensor


@dataclass(frozen=True)
class Case:
    """A box of side s with noise σ₁: estimates of many images, [N], which 90 % intervals hold σ₁, and one image's curves (axis, log p)."""

    side: int
    sigma: float
    known_sides: Tensor
    sides: Tensor
    sigmas: Tensor
    covered: Tensor
    observation: Tensor
    by_side: tuple[Tensor, Tensor]
    by_sigma: tuple[Tensor, Tensor]


def noisy_box(x: Tensor, side: int, inside: float, outside: float, generator: torch.Generator) -> Tensor:
    """x [1, C, H, W] with noise σ₁ in a centred square and σ₂ around it."""
    theta = {"side": torch.tensor([float(side)]), "sigma": torch.tensor([inside])}
    spread = (0.5 * UnknownNoiseBox(outside).measurement(x, theta).log_noise).exp()
    return x + spread * normal_like(x, generator)


def all_sides(x: Tensor) -> Tensor:
    """1 … the shorter side of the image."""
    return torch.arange(1, min(x.shape[2:]) + 1, dtype=x.dtype)


def box_side(energy: Energy, raw: Tensor, inside: float, outside: float, seed: int) -> BlindEstimate:
    """The posterior over the side, both noises known."""
    axes = {"side": all_sides(raw), "sigma": raw.new_tensor([inside])}
    return estimate(energy, raw, UnknownNoiseBox(outside), axes, seed=seed)


def box_guesses(
    energy: Energy, x: Tensor, limits: tuple[int, int], sigmas: tuple[float, float], seed: int, progress: Progress
) -> Guess:
    """True and estimated sides over all boxes; `limits` of the sides, `sigmas` inside and outside."""
    low, high = limits
    generator = keyed_generator(seed, "blind experiment", "sides")
    sides = torch.randint(low, high + 1, (len(x),), generator=generator)
    found = []
    for i, side in enumerate(sides.tolist()):
        raw = noisy_box(x[i : i + 1], side, *sigmas, keyed_generator(seed, "box", i))
        found.append(box_side(energy, raw, *sigmas, seed).best["side"])
        progress("box", i + 1, len(x))
    return Guess(sides.double(), torch.tensor(found, dtype=torch.float64))


def joint_search(energy: Energy, raw: Tensor, outside: float, seed: int, calibrations: Calibrations | None) -> Search:
    """The side by its evidence, σ₁ by slopes, judged by held-out images; without calibrations both by their evidence."""
    low, high = sigma_limits(energy.range)
    sides = Axis("side", 1, min(raw.shape[2:]), 3, "whole")
    sigmas = Axis("sigma", max(low, 0.02), min(high, 8.0), 13, "log")
    family, axes = UnknownNoiseBox(outside), (sides, sigmas)
    if calibrations is None:
        return search(energy, raw, family, axes, seed=seed)
    return search_box(energy, raw, family, axes, calibrations, seed=seed)


def paper_case(
    energy: Energy,
    x: Tensor,
    side: int,
    sigma: float,
    outside: float,
    seed: int,
    progress: Progress,
    *,
    judged: bool = False,
) -> Case:
    """One of the paper's (s, σ₁): s with σ₁ known, and both together, over many images; `judged`: σ₁ by slopes, see `joint_search`."""
    known, sides, sigmas, covered, curves = [], [], [], [], None
    calibrations: Calibrations | None = {} if judged else None
    for i in range(len(x)):
        raw = noisy_box(x[i : i + 1], side, sigma, outside, keyed_generator(seed, "joint", side, f"{sigma:g}", i))
        curves = curves or evidence_curves(energy, raw, side, sigma, outside, seed)
        known.append(box_side(energy, raw, sigma, outside, seed).best["side"])
        found = joint_search(energy, raw, outside, seed, calibrations)
        low, high = found.interval(found.axes[1])
        sides.append(found.value(found.axes[0]))
        sigmas.append(found.value(found.axes[1]))
        covered.append(low <= sigma <= high)
        progress(f"box {side}, σ₁ = {sigma:g}", i + 1, len(x))
    assert curves is not None
    known_sides, joint_sides, joint_sigmas = (torch.tensor(v, dtype=torch.float64) for v in (known, sides, sigmas))
    return Case(side, sigma, known_sides, joint_sides, joint_sigmas, torch.tensor(covered), **curves)


def evidence_curves(energy: Energy, raw: Tensor, side: int, sigma: float, outside: float, seed: int) -> dict[str, Any]:
    """log p against the side at the true σ₁, and against σ₁ at the true side, for one image."""
    by_side = box_side(energy, raw, sigma, outside, seed)
    axis = log_spaced(sigma / 8, sigma * 8, 0.08).to(raw.dtype)
    axes = {"side": raw.new_tensor([float(side)]), "sigma": axis}
    by_sigma = estimate(energy, raw, UnknownNoiseBox(outside), axes, seed=seed)
    return {
        "observation": raw[0],
        "by_side": (by_side.axes["side"].double(), by_side.log_evidence[:, 0]),
        "by_sigma": (axis.double(), by_sigma.log_evidence[0]),
    }


# --- the numbers ---------------------------------------------------------------------------------------------------------------


def case_metrics(case: Case) -> dict[str, float]:
    """One of the paper's settings."""
    ratio = (case.sigmas / case.sigma).log()
    bound = math.sqrt(0.5) / case.side  # of log σ̂₁, from s² pixels
    found = {
        "side_exact_share_sigma_known": share(case.known_sides == case.side),
        "side_exact_share": share(case.sides == case.side),
        "sigma_median": float(case.sigmas.quantile(0.5)),
        "sigma_error": abs(math.expm1(float(ratio.quantile(0.5)))),
        "sigma_typical_error": float(ratio.abs().quantile(0.5)),
        "sigma_spread_over_cramer_rao": float(ratio.std()) / bound,
        "sigma_coverage_90": share(case.covered),
    }
    return {f"joint_{case.side}_{case.sigma:g}_{name}": value for name, value in found.items()}


def case_intervals(model: str, case: Case) -> dict[str, float]:
    """What the claims are judged by: sides with σ₁ known, as in the paper, and σ₁ with nothing known."""
    name = case_name(model, case.side, case.sigma)
    out = interval_metrics(f"{name}: share of exact sides", share_interval(case.known_sides == case.side))
    return out | interval_metrics(f"{name}: estimated over true σ₁", median_interval(case.sigmas / case.sigma))


def box_table(found: dict[str, list[Case]], metrics: dict[str, float]) -> ResultTable:
    """The paper's boxes, by both energies."""
    columns = (
        "s",
        "σ₁",
        "energy",
        "share of exact sides (σ₁ known)",
        "median of estimated over true σ₁ (nothing known)",
        "paper",
    )
    theirs = {(5, 2.0): "s = 5", (14, 0.1): "s = 14", (20, 2.0): "s = 20, σ₁ = 1.7 (read off)"}
    rows = []
    for model, cases in found.items():
        for case in cases:
            name = case_name(model, case.side, case.sigma)
            cells = [
                interval_of(metrics, f"{name}: {what}") for what in ("share of exact sides", "estimated over true σ₁")
            ]
            rows.append(
                (
                    case.side,
                    case.sigma,
                    model,
                    *cells,
                    theirs.get((case.side, case.sigma)) if model == "dual" else "fails",
                )
            )
    return ResultTable("Boxes of unknown size and noise", columns, tuple(rows))


def share(condition: Tensor) -> float:
    """The share of images for which something holds."""
    return float(condition.double().mean())

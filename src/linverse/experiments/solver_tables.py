"""The paper's tables of solvers: our tasks and methods for each of them, its numbers, and its claims with the rules that judge them.

Differences are ours less another method, image by image (`quantity`); a claim that ours leads holds if it does against every rival.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from linverse.experiments.claims import Claim, Condition

OURS = "ours"
KID = "KID"

Row = tuple[float | None, ...]


@dataclass(frozen=True)
class SolverTable:
    """A table of the paper: our tasks and methods, how many images, and its numbers by task and method (columns as `columns`)."""

    tasks: dict[str, str]
    """task → what the paper calls it"""
    methods: tuple[str, ...]
    images: int
    columns: tuple[str, ...]
    paper: dict[str, dict[str, Row]]
    rivals: tuple[str, ...]
    """the paper's own baselines, with which ours is compared"""
    claims: tuple[Claim, ...]
    departures: tuple[str, ...] = ()


def quantity(task: str, metric: str, method: str = "") -> str:
    """A difference (ours less `method`), or ours itself, as the record names it."""
    return f"{task}: {metric} of ours less {method}" if method else f"{task}: {metric} of ours"


def leads(task: str, metric: str, rivals: tuple[str, ...], words: str, better: Literal["above", "below"]) -> Claim:
    """Ours is better than every rival."""
    return Claim(words, tuple(Condition(quantity(task, metric, rival), better) for rival in rivals))


MAIN_RIVALS, RIVALS = ("dps", "red-diff", "daps", "palette"), ("dps", "red-diff")
ALL = (
    "pseudo-inverse",
    "posterior-mean",
    "dps",
    "pigdm",
    "red-diff",
    "daps",
    "diffpir",
    "ddrm",
    "mmps",
    "palette",
    OURS,
)
PAPER_METHODS = ("posterior-mean", "dps", "red-diff", "daps", OURS)


def main_claims() -> tuple[Claim, ...]:
    """Of table 1, CelebA."""
    claims = []
    for task, words in (("box", "inpainting"), ("gauss", "deblurring")):
        claims += [
            leads(task, "LPIPS", MAIN_RIVALS, f"{words}: ours has the lowest LPIPS", "below"),
            leads(task, "DISTS", MAIN_RIVALS, f"{words}: ours has the lowest DISTS", "below"),
            leads(task, KID, MAIN_RIVALS, f"{words}: ours is nearest to the images as a set (the paper: FID)", "below"),
            Claim(
                f"{words}: RED-Diff has a higher PSNR than ours",
                (Condition(quantity(task, "PSNR", "red-diff"), "below"),),
            ),
        ]
    return tuple(claims)


TABLES: dict[str, SolverTable] = {
    "main": SolverTable(
        {"box": "inpainting", "gauss": "deblurring"},
        ALL,
        400,
        ("PSNR", "LPIPS", "FID", "DISTS"),
        {
            "box": {
                "dps": (16.10, 0.110, 36.76, 0.19),
                "red-diff": (17.96, 0.100, 47.82, 0.17),
                "daps": (17.25, 0.098, 45.76, 0.16),
                "palette": (15.23, 0.154, 75.22, 0.2),
                OURS: (17.70, 0.093, 34.57, 0.14),
            },
            "gauss": {
                "dps": (32.98, 0.004, 43.01, 0.08),
                "red-diff": (34.53, 0.006, 44.33, 0.08),
                "daps": (30.86, 0.005, 65.41, 0.10),
                "palette": (17.28, 0.348, 148.04, 0.44),
                OURS: (32.27, 0.002, 41.87, 0.04),
            },
        },
        MAIN_RIVALS,
        main_claims(),
        (
            "the box has 45/64 of the side, as in the paper; it is measured with σ = 0.001, the model's floor (paper: 0.0001)",
        ),
    ),
    "more": SolverTable(
        {"superres": "super-resolution ×4", "half": "half mask"},
        PAPER_METHODS,
        64,
        ("PSNR", "LPIPS", "FID"),
        {
            "superres": {"dps": (15.38, 0.09, 74.31), "red-diff": (15.22, 0.08, 64.75), OURS: (22.41, 0.01, 93.72)},
            "half": {"dps": (13.99, 0.11, 29.22), "red-diff": (15.65, 0.10, 34.84), OURS: (14.00, 0.10, 28.15)},
        },
        RIVALS,
        (
            leads("superres", "PSNR", RIVALS, "×4: ours has a higher PSNR than DPS and RED-Diff", "above"),
            leads("superres", "LPIPS", RIVALS, "×4: ours has a lower LPIPS than DPS and RED-Diff", "below"),
            leads("half", KID, RIVALS, "half mask: ours is nearest to the images as a set (the paper: FID)", "below"),
        ),
        ("×4 is measured by means of 4×4 pixels and solved in the block DCT, not by a Gaussian and a Fourier basis",),
    ),
    "unseen": SolverTable(
        {"random-pixels": "random inpainting, 70 %", "right-half": "vertical half mask", "motion": "motion deblurring"},
        (*PAPER_METHODS, "ours-surrogate"),
        64,
        ("PSNR", "LPIPS", "FID", "DISTS"),
        {
            "random-pixels": {
                "dps": (29.58, 0.01, 21.83, None),
                "red-diff": (30.25, 0.01, 22.20, None),
                OURS: (28.90, 0.01, 23.54, None),
            },
            "right-half": {
                "dps": (14.21, 0.085, 31.54, None),
                "red-diff": (15.80, 0.083, 38.78, None),
                OURS: (13.26, 0.090, 32.22, None),
            },
            "motion": {
                "dps": (28.63, 0.02, 45.65, 0.094),
                "red-diff": (31.00, 0.02, 44.33, 0.085),
                "ours-surrogate": (29.42, 0.007, 50.6, 0.083),
            },
        },
        RIVALS,
        (
            Claim(
                "random pixels: ours performs like DPS (LPIPS within 0.01)",
                (
                    Condition(quantity("random-pixels", "LPIPS", "dps"), "below", 0.01),
                    Condition(quantity("random-pixels", "LPIPS", "dps"), "above", -0.01),
                ),
            ),
            Claim(
                "vertical half: ours performs like DPS (LPIPS within 0.01)",
                (
                    Condition(quantity("right-half", "LPIPS", "dps"), "below", 0.01),
                    Condition(quantity("right-half", "LPIPS", "dps"), "above", -0.01),
                ),
            ),
            leads("motion", "LPIPS", RIVALS, "motion: ours has the lowest LPIPS", "below"),
            leads("motion", "DISTS", RIVALS, "motion: ours has the lowest DISTS", "below"),
        ),
        (
            "our garments' energy has seen random pixels in training; the vertical half and motion blur it has not",
            "ours knows the exact Σ of the motion blur; `ours-surrogate` is told that of a Gaussian of std 0.8, as in the paper",
        ),
    ),
}

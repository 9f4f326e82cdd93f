"""Other people's solvers, and ours, behind one interface: `solve(model, degradation, y_raw, generator, **settings) → Solution`.

`METHODS` names them and says which model each one needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from linverse.baselines import daps, ddrm, diffpir, dps, mmps, ours, palette, pigdm, reddiff, trivial
from linverse.baselines.denoisers import Counter, EnergyDenoiser
from linverse.baselines.interface import ConditionalDenoiser, IsotropicDenoiser, NotApplicable, Solution, Solver

Needs = Literal["energy", "score", "palette", "nothing"]


@dataclass(frozen=True)
class Method:
    """A solver, the model that it needs, and a line about it."""

    solve: Callable[..., Solution]
    needs: Needs
    description: str


METHODS: dict[str, Method] = {
    "ours": Method(ours.solve, "energy", "predictor(–corrector) along a path of covariances"),
    "ours-surrogate": Method(ours.surrogate, "energy", "the same with the paper's Gaussian stand-in for a blur's Σ"),
    "ours-paper": Method(
        ours.paper_sampler, "energy", "the paper's sampler: 600 geometric levels, Euler, Langevin steps"
    ),
    "posterior-mean": Method(trivial.posterior_mean, "energy", "E[x|y] in one evaluation"),
    "pseudo-inverse": Method(trivial.pseudo_inverse, "nothing", "H⁺y"),
    "dps": Method(dps.solve, "score", "DPS: the likelihood of the denoised image, by gradients"),
    "pigdm": Method(pigdm.solve, "score", "ΠGDM: pseudo-inverse guidance"),
    "red-diff": Method(reddiff.solve, "score", "RED-Diff: stochastic optimisation to a mode"),
    "daps": Method(daps.solve, "score", "DAPS: decoupled annealing"),
    "diffpir": Method(diffpir.solve, "score", "DiffPIR: plug-and-play with proximal steps"),
    "ddrm": Method(ddrm.solve, "score", "DDRM: known and unknown coefficients by turns"),
    "mmps": Method(mmps.solve, "score", "MMPS: moment matching with the denoiser's own covariance"),
    "palette": Method(palette.solve, "palette", "Palette: a conditional diffusion model"),
}

__all__ = [
    "METHODS",
    "ConditionalDenoiser",
    "Counter",
    "EnergyDenoiser",
    "IsotropicDenoiser",
    "Method",
    "Needs",
    "NotApplicable",
    "Solution",
    "Solver",
]

"""What every solver should beat: the pseudo-inverse H⁺y, and the posterior mean in one shot.

The pseudo-inverse is exact on what was measured, 0 elsewhere, and blows up noise where H is small (`cutoff` leaves those out). The one-shot
mean E[x|y] = y − Σ∇U(y, Σ) of an energy has the least squared error of all, and the blur of an average.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

from linverse.baselines.interface import Solution, in_a_basis
from linverse.degradations import Degradation
from linverse.energy import Energy
from linverse.posterior import Posterior


def pseudo_inverse(
    model: object,
    degradation: Degradation,
    y_raw: Tensor,
    generator: torch.Generator | None,
    *,
    cutoff: float = 0.0,
) -> Solution:
    """H⁺y; no model. Gains below `cutoff` times the largest are not inverted."""
    begun = time.perf_counter()
    samples = degradation.from_raw(y_raw).pseudo_inverse(cutoff)
    return Solution(samples, 0, 0, time.perf_counter() - begun)


def posterior_mean(
    model: Energy, degradation: Degradation, y_raw: Tensor, generator: torch.Generator | None
) -> Solution:
    """E[x|y] of an energy: one evaluation and one gradient."""
    begun = time.perf_counter()
    with torch.no_grad():
        seen = in_a_basis(degradation.from_raw(y_raw), "the mean in one evaluation")
        samples = Posterior(model, seen, generator, check=False).mean()
    return Solution(samples, 1, 1, time.perf_counter() - begun)

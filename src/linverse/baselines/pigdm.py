"""ΠGDM: pseudo-inverse guidance (Song et al., ICLR 2023).

What is left of x at level t is taken for a Gaussian, p(x|x_t) ≈ N(x̂, r_t²I), so that y is Gaussian too and
    ∇log p(y|x_t) ≈ g = (∂x̂/∂x_t)ᵀ Hᵀ(r_t²HHᵀ + σ²I)⁻¹(y − Hx̂),
a gradient through the network; r_t² = λ_tC/(λ_t + C) as in the original, C the variance of the data (`prior_variance`; by default what the
model knows, else 1, the original's). The walk goes on with a mean that is pulled to the data,
    score     x̂ + λ_t g: E[x|x_t, y] by Tweedie's formula, exact for an isotropic Gaussian prior;
    adaptive  x̂ + r_t² g: the original's, and the default. It is smaller than the residual whatever the prior.
Images are far from isotropic: their coarse structure has a variance S ≫ C, where λ_t g overshoots by up to S/C, and diverges.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from linverse.baselines.denoisers import Counter, moments
from linverse.baselines.interface import IsotropicDenoiser, Solution
from linverse.baselines.schedule import SIGMA_MAX, geometric_levels, start, walk
from linverse.degradations import Degradation
from linverse.measurement import Measurement

Weighting = Literal["adaptive", "score"]


def solve(
    model: IsotropicDenoiser,
    degradation: Degradation,
    y_raw: Tensor,
    generator: torch.Generator | None,
    *,
    steps: int = 100,
    weighting: Weighting = "adaptive",
    prior_variance: float | None = None,
    sigma_max: float = SIGMA_MAX,
) -> Solution:
    """One sample per row; `steps` + 1 evaluations and as many gradients through the network."""
    if weighting not in ("adaptive", "score"):
        raise ValueError(f'weighting is {weighting!r}; it can be "adaptive" or "score"')
    seen, network = degradation.from_raw(y_raw), Counter(model)
    if prior_variance is None:
        known = moments(model)
        prior_variance = known[1] if known is not None else 1.0
    levels = geometric_levels(model.range, steps, sigma_max)
    x = start(model, seen.blank(), levels[0], generator)
    samples = walk(lambda x, now: guided_mean(network, seen, x, now, prior_variance, weighting), x, levels, generator)
    return network.solution(samples)


def guided_mean(
    network: Counter, seen: Measurement, x: Tensor, variance: float, prior_variance: float, weighting: Weighting
) -> Tensor:
    """x̂ pulled to the data, under N(x̂, r_t²I)."""
    mean, pull = network.mean_and_pull(x, variance)
    left = variance * prior_variance / (variance + prior_variance)
    return mean + (left if weighting == "adaptive" else variance) * pull(seen.guidance(mean, left))

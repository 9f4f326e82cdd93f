"""MMPS: moment matching posterior sampling (Rozet et al., NeurIPS 2024, algorithm 3).

What is left of x at level t is taken for the Gaussian of the denoiser's own moments, p(x|x_t) ≈ N(x̂, V), V = λ_t ∂x̂/∂x_t, so that
    E[x|x_t, y] ≈ x̂ + V Hᵀ(σ²I + H V Hᵀ)⁻¹(y − Hx̂),
exact for Gaussian priors. Products with V are gradients through the network; the system is solved by a few conjugate gradients
(`iterations`: the authors' library makes one by default; the fewer, the less the data pull). It asks H and Hᵀ only, so that any linear
operator will do.
"""

from __future__ import annotations

import torch
from torch import Tensor

from linverse.baselines.denoisers import Counter
from linverse.baselines.interface import IsotropicDenoiser, Solution
from linverse.baselines.schedule import SIGMA_MAX, geometric_levels, start, walk
from linverse.conjugate_gradients import conjugate_gradients
from linverse.degradations import Degradation
from linverse.measurement import Measurement


def solve(
    model: IsotropicDenoiser,
    degradation: Degradation,
    y_raw: Tensor,
    generator: torch.Generator | None,
    *,
    steps: int = 100,
    iterations: int = 3,
    tolerance: float = 1e-3,
    sigma_max: float = SIGMA_MAX,
) -> Solution:
    """One sample per row; `steps` + 1 evaluations and up to `iterations` + 1 gradients through the network for each."""
    if iterations < 1:
        raise ValueError(f"conjugate gradients take at least one iteration; got {iterations}")
    seen, network = degradation.from_raw(y_raw), Counter(model)
    levels = geometric_levels(model.range, steps, sigma_max)
    x = start(model, seen.blank(), levels[0], generator)
    samples = walk(lambda x, now: guided_mean(network, seen, x, now, iterations, tolerance), x, levels, generator)
    return network.solution(samples)


def guided_mean(
    network: Counter, seen: Measurement, x: Tensor, variance: float, iterations: int, tolerance: float = 1e-3
) -> Tensor:
    """x̂ pulled to the data, under N(x̂, V)."""
    mean, pull = network.mean_and_pull(x, variance)

    def matrix(w: Tensor) -> Tensor:
        return seen.noise * w + variance * seen.forward(pull(seen.adjoint(w)))

    solved = conjugate_gradients(matrix, seen.residual(mean), tolerance=tolerance, most=iterations)
    return mean + variance * pull(seen.adjoint(solved.solution))

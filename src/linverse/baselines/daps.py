"""DAPS: decoupled annealing posterior sampling (Zhang et al., CVPR 2025, algorithm 1).

At every noise level, from high to low:
    1. x̂ from x_t by a few steps of the probability-flow ODE dx/dσ = (x − E[x|x_σ])/σ down to σ = 0    (`ode_steps`, the paper: 5)
    2. x⁰ from N(x; x̂, r_t²I)·N(y; Hx, σ²I) by Langevin steps x ← x + η∇log + √(2η)v, begun at x̂     (`langevin_steps`, the paper: 100)
    3. x_{t−1} = x⁰ + √λ_{t−1} v: fresh noise, so that errors of earlier levels can be undone.
r_t² = λ_t, as the authors have it, is too wide at high noise; with `prior_variance` C it is λ_tC/(λ_t + C), what is left of a Gaussian
of variance C, and with one ODE step and exact draws (`langevin_steps` = 0: our H are diagonal, so that x⁰ is Gaussian coefficient by
coefficient) all is exact for that prior.

The paper's `eta` = 2·10⁻⁶ is barely stable for σ = 10⁻³ (η < 2σ²) and idle for larger σ. By default the steps of a level run for four
relaxation times of the best measured coefficient, η = 4/`langevin_steps`/(1/σ² + 1/r_t²), and no longer: all that while, coefficients
that were not measured only gather noise, √8 σ by then, that the network did not give them (twelve times longer costs 1.7 dB of ×4
super-resolution of garments and a fifth more variance of an exact Gaussian). Levels end at `sigma_min` = 0.01 (the original's 0.1 on
[−1, 1] leaves visible noise).
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor

from linverse.baselines.denoisers import Counter
from linverse.baselines.interface import IsotropicDenoiser, Solution, in_a_basis
from linverse.baselines.schedule import SIGMA_MAX, geometric_levels, start
from linverse.degradations import Degradation
from linverse.measurement import Measurement
from linverse.rng import normal_like

RELAXATIONS = 4.0  # e⁻⁴: 2 % of x̂'s misfit is left
ODE_POWER = 7.0  # levels of the ODE are equidistant in σ^{1/7} (Karras et al. 2022)


def solve(
    model: IsotropicDenoiser,
    degradation: Degradation,
    y_raw: Tensor,
    generator: torch.Generator | None,
    *,
    steps: int = 50,
    ode_steps: int = 5,
    langevin_steps: int = 100,
    eta: float | None = None,
    prior_variance: float | None = None,
    sigma_max: float = SIGMA_MAX,
    sigma_min: float = 0.01,
) -> Solution:
    """One sample per row; `steps`·`ode_steps` evaluations (the paper: 250·5 for inpainting, 200·5 for deblurring)."""
    if ode_steps < 1 or langevin_steps < 0:
        raise ValueError(f"ode_steps ≥ 1 and langevin_steps ≥ 0 are needed; got {ode_steps} and {langevin_steps}")
    seen, network = in_a_basis(degradation.from_raw(y_raw), "DAPS"), Counter(model)
    levels = geometric_levels(model.range, steps, sigma_max, sigma_min)
    x = start(model, seen.blank(), levels[0], generator)
    clean = x
    for now, after in pairwise(levels):
        denoised = flow(network, x, now, ode_steps)
        width = now if prior_variance is None else now * prior_variance / (now + prior_variance)
        clean = consistent(seen, denoised, width, langevin_steps, eta, generator)
        x = clean + math.sqrt(after) * normal_like(x, generator)
    return network.solution(clean)


def flow(network: Counter, x: Tensor, variance: float, steps: int) -> Tensor:
    """Euler steps of the ODE from σ = √variance to 0; the last, or only, one goes to E[x|x_t] itself."""
    top, bottom = math.sqrt(variance), math.sqrt(network.model.range.minimum)
    ends = [s ** (1 / ODE_POWER) for s in (top, min(top, bottom))]
    levels = [(ends[0] + (ends[1] - ends[0]) * k / steps) ** ODE_POWER for k in range(steps)] + [0.0]
    for now, after in pairwise(levels):
        mean = network.mean(x, max(now**2, bottom**2))
        x = mean + (after / now) * (x - mean)
    return x


def consistent(
    seen: Measurement,
    centre: Tensor,
    variance: float,
    steps: int,
    eta: float | None,
    generator: torch.Generator | None,
) -> Tensor:
    """x⁰ ~ N(x; centre, `variance`·I)·N(y; Hx, ν), about so by Langevin steps or exactly (no steps)."""
    if steps == 0:
        noise = normal_like(centre, generator)
        return seen.proximal(centre, variance) + seen.template.synthesis(
            noise * seen.proximal_variance(variance).sqrt()
        )
    if eta is None:
        precision = float((seen.gain.square() / seen.noise).max()) + 1 / variance
        eta = min(0.5, RELAXATIONS / steps) / precision
    # in the measurement's basis a step is a product: no transform of the image in the loop
    basis, weight = seen.template, seen.gain / seen.noise
    u = basis.analysis(centre)
    decay = eta * (weight * seen.gain + 1 / variance)
    pulled = eta * (weight * seen.coefficients + u / variance)
    z = u
    for _ in range(steps):
        z = z - decay * z + pulled + math.sqrt(2 * eta) * normal_like(z, generator)
    return basis.synthesis(z)

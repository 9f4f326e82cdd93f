"""DDRM: denoising diffusion restoration models (Kawar et al., NeurIPS 2022, equations 7 and 8).

In the basis of HᵀH, coefficient by coefficient, with ȳ = z/h the data, of noise σ_y/h, and x̂ the denoised x_t:
    not measured (h = 0)     x_{t−1} = x̂ + √(1−η²) σ_{t−1}(x_t − x̂)/σ_t + ησ_{t−1} v
    noisier than the level   x_{t−1} = x̂ + √(1−η²) σ_{t−1}(ȳ − x̂)/(σ_y/h) + ησ_{t−1} v            σ_{t−1} < σ_y/h
    less noisy               x_{t−1} = (1−η_b)x̂ + η_bȳ + √(σ²_{t−1} − η_b²σ_y²/h²) v               σ_{t−1} ≥ σ_y/h
and x̂ at the end. No gradient through the network. The original's η = 0.85 and η_b = 1 are the defaults; its 20 steps are uniform in the
time of a variance-preserving network, ours geometric in σ, as everybody's here.
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


def solve(
    model: IsotropicDenoiser,
    degradation: Degradation,
    y_raw: Tensor,
    generator: torch.Generator | None,
    *,
    steps: int = 100,
    eta: float = 0.85,
    eta_data: float = 1.0,
    sigma_max: float = SIGMA_MAX,
) -> Solution:
    """One sample per row; `steps` + 1 evaluations."""
    if not (0 <= eta <= 1 and 0 <= eta_data <= 1):
        raise ValueError(f"eta and eta_data are shares of fresh noise, between 0 and 1; got {eta} and {eta_data}")
    seen, network = in_a_basis(degradation.from_raw(y_raw), "DDRM"), Counter(model)
    levels = geometric_levels(model.range, steps, sigma_max)
    basis = seen.template
    z = basis.analysis(start(model, seen.blank(), levels[0], generator))
    data, width = known(seen)
    # where the data are better than the first level they begin it
    white = normal_like(z, generator)
    z = torch.where(width <= levels[0], data + (levels[0] - width).clamp_min(0).sqrt() * white, z)
    for now, after in pairwise(levels):
        mean = basis.analysis(network.mean(basis.synthesis(z), now))
        z = step(z, mean, data, width, now, after, eta, eta_data, normal_like(z, generator))
    return network.solution(network.mean(basis.synthesis(z), levels[-1]))


def known(seen: Measurement) -> tuple[Tensor, Tensor]:
    """ȳ and its variance σ_y²/h²; 0 and infinity where nothing was measured."""
    gain = torch.where(seen.measured, seen.gain, 1.0)
    width = torch.where(seen.measured, seen.noise / gain.square(), math.inf)
    return torch.where(seen.measured, seen.coefficients / gain, 0.0), width.expand_as(seen.coefficients)


def step(
    z: Tensor,
    mean: Tensor,
    data: Tensor,
    width: Tensor,
    now: float,
    after: float,
    eta: float,
    eta_data: float,
    noise: Tensor,
) -> Tensor:
    """x_{t−1} of each coefficient; `width` are the data's variances, `now` and `after` λ_t and λ_{t−1}."""
    drift = math.sqrt((1 - eta**2) * after)
    hidden = mean + drift * (z - mean) / math.sqrt(now) + eta * math.sqrt(after) * noise
    finite = torch.where(width.isinf(), 1.0, width)
    noisy = mean + drift * (data - mean) / finite.sqrt() + eta * math.sqrt(after) * noise
    left = (after - eta_data**2 * finite).clamp_min(0).sqrt()
    clear = (1 - eta_data) * mean + eta_data * data + left * noise
    return torch.where(width.isinf(), hidden, torch.where(width > after, noisy, clear))

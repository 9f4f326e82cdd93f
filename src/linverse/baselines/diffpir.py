"""DiffPIR: a denoiser in a plug-and-play loop (Zhu et al., CVPR workshops 2023, algorithm 1).

At every level the denoised image is pulled to the data by a proximal step, exact because HᵀH is diagonal, and noise is put back:
    x⁰ = argmin ‖y − Hx‖²/2σ² + λ‖x − x̂(x_t)‖²/2λ_t
    x_{t−1} = x⁰ + √λ_{t−1}(√(1−ζ) ε̂ + √ζ ε),     ε̂ = (x_t − x⁰)/√λ_t.
No gradient through the network. The original recommends λ (`weight`) of 1 to 25 and ζ (`renoise`) of 0.1 to 1; on a mixture fitted to
8×8 digits λ = 1 and ζ = 1 are best (box: 20 dB, as exact samples have; 16 dB at ζ = 0.3). The paper has no DiffPIR.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor

from linverse.baselines.denoisers import Counter
from linverse.baselines.interface import IsotropicDenoiser, Solution
from linverse.baselines.schedule import SIGMA_MAX, geometric_levels, start
from linverse.degradations import Degradation
from linverse.rng import normal_like


def solve(
    model: IsotropicDenoiser,
    degradation: Degradation,
    y_raw: Tensor,
    generator: torch.Generator | None,
    *,
    steps: int = 100,
    weight: float = 1.0,
    renoise: float = 1.0,
    sigma_max: float = SIGMA_MAX,
) -> Solution:
    """One restoration per row; `steps` + 1 evaluations."""
    if not 0 <= renoise <= 1:
        raise ValueError(f"renoise is the share of fresh noise, between 0 and 1; got {renoise}")
    seen, network = degradation.from_raw(y_raw), Counter(model)
    levels = geometric_levels(model.range, steps, sigma_max)
    x = start(model, seen.blank(), levels[0], generator)
    for now, after in pairwise(levels):
        clean = seen.proximal(network.mean(x, now), now / weight)
        direction = (x - clean) / math.sqrt(now)
        noise = math.sqrt(1 - renoise) * direction + math.sqrt(renoise) * normal_like(x, generator)
        x = clean + math.sqrt(after) * noise
    last = levels[-1]
    return network.solution(seen.proximal(network.mean(x, last), last / weight))

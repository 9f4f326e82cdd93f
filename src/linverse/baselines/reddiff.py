"""RED-Diff: restoration as stochastic optimisation (Mardani et al., ICLR 2024; paper, appendix "Details of baselines").

A Gaussian of vanishing width is fitted to the posterior: its centre μ descends, by Adam, one step a noise level from high to low,
    ½‖y − Hμ‖² + w_t⟨ε̂(x_t) − ε, μ⟩,    x_t = μ + √λ_t ε,   ε̂ − ε = (μ − x̂(x_t))/√λ_t, not differentiated.
With the original's weights w_t = λ√λ_t (its "inverse SNR"; `weight` = λ) the gradient lives in the signal's domain and has no scale:
    Hᵀ(Hμ − y) + λ(μ − x̂(x_t)).
It finds a mode, not samples: their spread is far too small, and σ does not enter.

The paper: λ = 0.25 (inpainting) and 2 (deblurring), learning rate 0.1 on [−1, 1], which is `rate` = 0.05 in our pixels. On a mixture
fitted to 8×8 digits 0.25 is right everywhere; 2 costs 6 dB at σ = 0.01 (20 dB where exact samples have 26 dB).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from linverse.baselines.denoisers import Counter
from linverse.baselines.interface import IsotropicDenoiser, Solution
from linverse.baselines.schedule import SIGMA_MAX, geometric_levels
from linverse.degradations import Degradation
from linverse.rng import normal_like

START_CUTOFF = 0.1  # of the gains that are inverted for the start: a full inverse of a blur would start from noise


def solve(
    model: IsotropicDenoiser,
    degradation: Degradation,
    y_raw: Tensor,
    generator: torch.Generator | None,
    *,
    steps: int = 100,
    weight: float = 0.25,
    rate: float = 0.05,
    sigma_max: float = SIGMA_MAX,
) -> Solution:
    """One restoration per row, from the pseudo-inverse; `steps` evaluations."""
    seen, network = degradation.from_raw(y_raw), Counter(model)
    centre = seen.pseudo_inverse(START_CUTOFF).requires_grad_()
    optimiser = torch.optim.Adam([centre], lr=rate, betas=(0.9, 0.99))
    for variance in geometric_levels(model.range, steps, sigma_max)[1:]:
        mu = centre.detach()
        mean = network.mean(mu + math.sqrt(variance) * normal_like(mu, generator), variance)
        centre.grad = weight * (mu - mean) - seen.adjoint(seen.residual(mu))
        optimiser.step()
    return network.solution(centre.detach())

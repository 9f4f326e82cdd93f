"""Any solver judged by our density: how probable are its restorations, before and after the measurement? (paper §4.1)

    prior      log p(x̂) = −U(x̂ + n, λ_min I)
    posterior  log p(x̂|y) of `Posterior.log_prob`, for a measurement of noise σ² ≥ 10λ_min
with the same n ~ N(0, λ_min I) added to every method's x̂ and to the truth: densities are known at the floor, where a clean mean and a
noisy truth would differ by up to ½ nat a pixel (mathematics §3). A measurement of less noise gets the rest added, the same for all.
A solver that ignores the data, or fits their noise, loses posterior density; one that averages gains prior density.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from linverse.degradations import Degradation
from linverse.energy import Energy, log_prob
from linverse.posterior import Posterior

PRIOR, POSTERIOR = "log p(x̂)", "log p(x̂|y)"


@torch.no_grad()
def densities(energy: Energy, x: Tensor, noise: Tensor, degradation: Degradation, raw: Tensor) -> dict[str, Tensor]:
    """Both log-densities of images x [B, C, H, W], [B] each, nats. `noise` is standard normal, of x's shape."""
    floored = x + math.sqrt(energy.range.minimum) * noise
    posterior = Posterior(energy, degradation.from_raw(raw), check=False)
    return {PRIOR: log_prob(energy, floored), POSTERIOR: posterior.log_prob(floored)}


def extrapolation(energy: Energy, degradation: Degradation, raw: Tensor) -> str | None:
    """What of the measurement's Σ the energy does not know, in words."""
    return energy.range.excess(Posterior(energy, degradation.from_raw(raw), check=False).covariance)

"""Where generation begins: at Σ = λ_max·I noisy images are Gaussian to within nothing, so y ~ N(m, C + λ_max) is a draw of p(y|Σ)."""

from __future__ import annotations

import torch
from torch import Tensor

from linverse.covariance import Covariance, identity
from linverse.energy import Energy, sized
from linverse.rng import normal_like


def prior_start(
    energy: Energy, count: int, generator: torch.Generator | None = None, *, size: tuple[int, int] | None = None
) -> tuple[Tensor, Covariance]:
    """(y [n, C, H, W], λ_max·I): sampling from there gives samples of the prior; `size` for an energy that takes any."""
    shape = sized(energy, size)
    like, _ = energy.gaussian(identity("spatial", shape))  # the energy's precision and device
    top = identity("spatial", shape, like).isotropic(energy.range.maximum)
    mean, prior = energy.gaussian(top)
    noise = normal_like(like.new_empty(count, *shape), generator)
    return mean + (prior + top.variance).sqrt() * noise, top

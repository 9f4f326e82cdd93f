"""The noise schedule that the diffusion baselines share, and the walk along it.

Variance exploding: x_t = x + √λ_t v with λ_t geometric from σ_max² (the paper: 25²) to the model's floor. It starts where it should,
    x_T ~ m + N(0, (σ_max² + C) I),      m, C the mean and variance of the data,
and goes down by the ancestral step x_{t−1} = a·x_t + (1−a)·x̂ + N(0, λ_{t−1}(1−a)), a = λ_{t−1}/λ_t, with x̂ extrapolated from the step
before (`sampling.predictors.TwoStepAncestral`: second order for one evaluation per step). x̂ is E[x|x_t] or, guided, E[x|x_t, y].
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor

from linverse.baselines.denoisers import moments
from linverse.baselines.interface import ConditionalDenoiser, IsotropicDenoiser, Mean
from linverse.covariance import VarianceRange
from linverse.rng import normal_like

SIGMA_MAX = 25.0  # the paper's σ_begin


def geometric_levels(
    limits: VarianceRange, steps: int, sigma_max: float = SIGMA_MAX, sigma_min: float = 0.0
) -> list[float]:
    """λ_T > … > λ_0, `steps` + 1 of them, from σ_max² to σ_min² as far as the model's limits allow."""
    if steps < 1:
        raise ValueError(f"a schedule needs at least one step; got {steps}")
    high, low = min(sigma_max**2, limits.maximum), max(sigma_min**2, limits.minimum)
    if not high > low:  # written so that NaN is refused too
        raise ValueError(
            f"the noise falls from sigma_max = {sigma_max:g} to sigma_min = {sigma_min:g}, within the model's variances "
            f"[{limits.minimum:g}, {limits.maximum:g}]: sigma_max must be the larger one"
        )
    rate = math.log(low / high)
    return [high, *(high * math.exp(rate * k / steps) for k in range(1, steps)), low]


def start(
    model: IsotropicDenoiser | ConditionalDenoiser, like: Tensor, variance: float, generator: torch.Generator | None
) -> Tensor:
    """x_T of `like`'s shape. A model that does not know its data's moments gets m = ½, C = ¼: the widest that fits [0, 1]."""
    known = moments(model)
    mean, prior = known if known is not None else (like.new_full((1,), 0.5), 0.25)
    return mean.to(like) + math.sqrt(variance + prior) * normal_like(like, generator)


def ancestral(x: Tensor, mean: Tensor, now: float, after: float, generator: torch.Generator | None) -> Tensor:
    """From λ_t = `now` to λ_{t−1} = `after`, as if x were `mean`."""
    ratio = after / now
    noise = normal_like(x, generator)
    return ratio * x + (1 - ratio) * mean + math.sqrt(after * (1 - ratio)) * noise


def walk(mean_at: Mean, x: Tensor, levels: list[float], generator: torch.Generator | None) -> Tensor:
    """From x at levels[0] to the mean at levels[-1]: as many evaluations as levels."""
    before: Tensor | None = None
    for now, after in pairwise(levels):
        mean = mean_at(x, now)
        ahead = mean if before is None else mean + 0.5 * (mean - before)
        x, before = ancestral(x, ahead, now, after, generator), mean
    return mean_at(x, levels[-1])

"""Palette: a conditional diffusion model (Saharia et al., SIGGRAPH 2022).

The network is trained on pairs for one degradation and sees the measurement stacked to its noisy input: x̂ = E[x|x_t, y] directly, no
likelihood and no operator. Sampling is the walk of `schedule` with that mean. What it sees (`Degradation.condition`) is what training
showed it: masked pixels and the mask; otherwise the raw data, enlarged by the pseudo-inverse where they are smaller than the image.
"""

from __future__ import annotations

import time
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from linverse.baselines.interface import ConditionalDenoiser, NotApplicable, Solution, in_a_basis
from linverse.baselines.schedule import SIGMA_MAX, geometric_levels, start, walk
from linverse.degradations import Degradation


@runtime_checkable
class ConditionChannels(Protocol):
    """The configuration of a network that says how many channels it wants to see."""

    condition_channels: int


def solve(
    model: ConditionalDenoiser,
    degradation: Degradation,
    y_raw: Tensor,
    generator: torch.Generator | None,
    *,
    steps: int = 100,
    sigma_max: float = SIGMA_MAX,
) -> Solution:
    """One sample per row; `steps` + 1 evaluations."""
    begun = time.perf_counter()
    seen = in_a_basis(degradation.from_raw(y_raw), "Palette")
    condition = degradation.condition(seen)
    _check_channels(model, condition)
    levels = geometric_levels(model.range, steps, sigma_max)
    with torch.no_grad():
        x = start(model, seen.blank(), levels[0], generator)
        samples = walk(lambda x, now: model(x, now, condition), x, levels, generator)
    return Solution(samples, len(levels), 0, time.perf_counter() - begun)


def _check_channels(model: ConditionalDenoiser, condition: Tensor) -> None:
    config = getattr(model, "config", None)
    if isinstance(config, ConditionChannels) and config.condition_channels != condition.shape[1]:
        raise NotApplicable(
            f"this network was trained to see {config.condition_channels} channels of a measurement; this one has "
            f"{condition.shape[1]}: train one for this degradation"
        )

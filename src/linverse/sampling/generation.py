"""Any-order generation: images drawn patch by patch, in any order, by one model and one sampler.

Nothing is measured: Σ = λ_max·I. A path lowers the noise of one patch after the other to the floor; each patch is drawn given those before
it (the chain rule of probability, in whatever order). Stops on the way show what is there already.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.energy import Energy
from linverse.progress import Progress, shifted, silent
from linverse.sampling.paths import Path, autoregressive
from linverse.sampling.sampler import sample


@dataclass(frozen=True)
class GenerationStage:
    """Images x [N, C, H, W] on the way, and the noise Σ that is still on them (one for all)."""

    x: Tensor
    cov: Covariance

    def waiting(self, floor: float) -> Tensor:
        """Pixels [C or 1, H, W] that are not drawn yet."""
        return self.cov.variance[0] > floor * (1 + 1e-3)


def generate_patches(
    energy: Energy,
    start: tuple[Tensor, Covariance],
    order: str,
    *,
    patch: int,
    levels: int,
    stops: int,
    generator: torch.Generator,
    progress: Progress = silent,
) -> tuple[GenerationStage, ...]:
    """Images in one order of patches of side `patch`, `levels` steps for each, seen at the start and at `stops` stops, the last when whole.

    `start` is that of `prior_start`. Stops are where patches end, so that pausing there changes nothing; the same start and generator
    give the same noise in every order.
    """
    x, top = start
    path = autoregressive(top, energy.range.minimum, patch, order, levels)
    bounds = [round(path.steps * stop / stops / levels) * levels for stop in range(stops + 1)]
    stages = [GenerationStage(x, path.covariance(0))]
    for first, last in pairwise(bounds):
        part = Path(path.template, path.log_variance[first : last + 1])
        watch, here = shifted(progress, first, path.steps), stages[-1].x
        result = sample(
            energy, here, part.covariance(0), part, finish="floor", generator=generator, chunk=len(x), progress=watch
        )
        if not result.completed:
            raise KeyboardInterrupt
        stages.append(GenerationStage(result.samples, path.covariance(last)))
    return tuple(stages)

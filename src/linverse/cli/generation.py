"""Any-order generation: images drawn patch by patch, in any order, by one model and one sampler.

Nothing is measured: Σ = λ_max·I. A path lowers the noise of one patch after the other to the floor; each patch is drawn given those before
it (the chain rule of probability, in whatever order). Stops on the way show what is there already.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from linverse.energy import Energy
from linverse.rng import keyed_generator
from linverse.sampling import Path, autoregressive, prior_start, sample

Report = Callable[[int, int], None]


@dataclass(frozen=True)
class Growth:
    """`stages`: images [n, C, H, W] on the way and at the end, and the pixels [1, H, W] that were not drawn yet."""

    order: str
    stages: tuple[tuple[Tensor, Tensor], ...]

    @property
    def images(self) -> Tensor:
        return self.stages[-1][0]


def grow(
    energy: Energy, count: int, order: str, *, patch: int, levels: int, stops: int, seed: int, progress: Report
) -> Growth:
    """`count` images in one order of patches, looked at `stops` times, the last time when they are whole.

    The same seed gives the same noise in every order.
    """
    generator = keyed_generator(seed, "grow")
    x, top = prior_start(energy, count, generator)
    path = autoregressive(top, energy.range.minimum, patch, order, levels)
    bounds = [round(path.steps * stop / stops / levels) * levels for stop in range(stops + 1)]
    stages = []
    for first, last in pairwise(bounds):
        part = Path(path.template, path.log_variance[first : last + 1])
        report = _after(progress, first, path.steps)
        result = sample(
            energy,
            x,
            part.covariance(0),
            part,
            finish="floor",
            generator=generator,
            progress=lambda task, done, total, report=report: report(done, total),
        )
        if not result.completed:
            raise KeyboardInterrupt
        x = result.samples
        waiting = path.log_variance[last, 0] > path.log_variance[-1, 0] + 1e-3
        stages.append((x, waiting))
    return Growth(order, tuple(stages))


def _after(report: Report, first: int, total: int) -> Report:
    return lambda done, _: report(first + done, total)

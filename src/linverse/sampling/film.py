"""One sample on its way: x_t, the Tweedie mean E[x|x_t] and log λ_t at every level of a path, for looking at what a sampler does.

The steps are those of `sample`, bit for bit: a film is the same run, watched.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.energy import Energy
from linverse.progress import Progress, silent
from linverse.sampling.guided import Rule
from linverse.sampling.paths import Path
from linverse.sampling.predictors import TwoStepAncestral
from linverse.sampling.run import Run
from linverse.sampling.sampler import schedule_of


@dataclass(frozen=True, repr=False)
class Film:
    """Pictures x_t and means [T+1, C, H, W], first the measurement, last the sample at the floor; `path` holds log λ_t."""

    images: Tensor
    means: Tensor
    path: Path
    completed: bool = True

    def __repr__(self) -> str:
        return f"Film({len(self.images)} levels of {'×'.join(map(str, self.images.shape[1:]))})"


@torch.no_grad()
def film_in_basis(
    energy: Energy,
    z: Tensor,
    cov: Covariance,
    path: Path | Rule | int = 50,
    *,
    generator: torch.Generator | None = None,
    progress: Progress = silent,
) -> Film:
    """The film of one sample from coefficients z = Qᵀy [1, C, H, W]; an interruption ends it early."""
    if len(z) != 1:
        raise ValueError(f"a film is of one sample; got {len(z)}")
    cov = cov.detach().to(z.dtype)
    run = Run(energy, z, cov, schedule_of(energy, z, cov, path, None), TwoStepAncestral(), None, 1.0, generator)
    images, means = [cov.synthesis(z)], [cov.synthesis(z)]

    def watch(step: int, total: int) -> None:
        assert run.iterate is not None
        images.append(cov.synthesis(run.iterate.z))
        means.append(cov.synthesis(run.iterate.mean))
        progress("sampling", step, total)

    try:
        run.go(watch)
    except KeyboardInterrupt:
        if len(images) < 2:
            raise
    return Film(torch.cat(images), torch.cat(means), run.taken(), run.arrived)

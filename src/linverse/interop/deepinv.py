"""Our models in deepinv, and deepinv's operators for our models.

to_denoiser(model)            deepinv's Denoiser, D(x, σ), σ a number, one per image or a map: DPS, DiffPIR, DDRM, plug-and-play
to_reconstructor(energy)      deepinv's Reconstructor, R(y, physics): the posterior mean or samples, also inside `deepinv.test`
from_physics(physics)         its operators as our degradations: `Posterior(energy, from_physics(physics).from_raw(y))`
to_physics(degradation, shape)  and ours as its
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from linverse.energy import Energy
from linverse.interop.noise_levels import Prior, denoise
from linverse.interop.physics import DegradationPhysics, dinv, from_physics, to_physics
from linverse.operator_posterior import OperatorPosterior
from linverse.posterior import Posterior

__all__ = [
    "DeepinvDenoiser",
    "DeepinvReconstructor",
    "DegradationPhysics",
    "from_physics",
    "to_denoiser",
    "to_physics",
    "to_reconstructor",
]

Answer = Literal["mean", "samples"]


class DeepinvDenoiser(dinv.models.Denoiser):
    """E[x|y] of an energy or a score network at any noise level, as deepinv asks for it."""

    def __init__(self, model: Prior) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, sigma: float | Tensor, **_: Any) -> Tensor:
        return denoise(self.model, x, sigma)[0]


class DeepinvReconstructor(dinv.models.Reconstructor):
    """Restorations of an energy: E[x|y] in one evaluation, or the average of posterior samples."""

    def __init__(self, energy: Energy, answer: Answer, samples: int, steps: int, seed: int) -> None:
        super().__init__()
        self.energy, self.answer, self.samples, self.steps, self.seed = energy, answer, samples, steps, seed

    def forward(self, y: Tensor, physics: Any, **_: Any) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        shape = self.energy.shape if None not in self.energy.shape else physics.A_adjoint(y[:1]).shape[1:]
        degradation = from_physics(physics, tuple(shape))
        posterior = Posterior(self.energy, degradation.from_raw(y), generator, check=False)
        if self.answer == "mean":
            return posterior.mean().to(y)
        if isinstance(posterior, OperatorPosterior):
            return posterior.sample(self.samples, generator=generator).mean(dim=0).to(y)
        return posterior.mean(self.samples, self.steps, generator=generator).to(y)


def to_denoiser(model: Prior) -> DeepinvDenoiser:
    """Our energy or score network as deepinv's denoiser.

    >>> import torch, linverse as lv
    >>> denoiser = to_denoiser(lv.load("mnist"))
    >>> denoiser(torch.rand(2, 1, 28, 28), 0.1).shape
    torch.Size([2, 1, 28, 28])
    """
    return DeepinvDenoiser(model)


def to_reconstructor(
    energy: Energy, answer: Answer = "mean", *, samples: int = 8, steps: int = 50, seed: int = 0
) -> DeepinvReconstructor:
    """Our energy as deepinv's reconstructor: R(y, physics) is E[x|y] in one evaluation, or the average of `samples` of the posterior.

    Operators that no basis of ours diagonalises (tomography) are always answered by samples: `samples` chains of split Gibbs per image,
    with `steps` levels of their start, each averaged over the second half of its sweeps.
    """
    if answer not in ("mean", "samples"):
        raise ValueError(f'answer is {answer!r}; it can be "mean" or "samples"')
    return DeepinvReconstructor(energy, answer, samples, steps, seed)

"""Isotropic denoisers for the baselines: any energy as one, the moments of the data behind one, and a count of what it is asked.

By Tweedie's formula an energy at Σ = λI is a denoiser, x̂ = y − λ∇U(y, λI), so that every baseline also runs on analytic priors and
on the very network that our own sampler uses. Each such evaluation costs one gradient through the energy's network.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from linverse.baselines.interface import IsotropicDenoiser, Solution
from linverse.covariance import Covariance, VarianceRange, identity
from linverse.energy import Energy, evaluate, fixed_shape


class EnergyDenoiser:
    """E[x|y] of an energy at isotropic Σ. `template` carries the basis in which it is asked (default: pixels)."""

    def __init__(self, energy: Energy, template: Covariance | None = None) -> None:
        self.energy = energy
        self.template = template or identity("spatial", fixed_shape(energy))

    @property
    def range(self) -> VarianceRange:
        return self.energy.range

    @property
    def shape(self) -> tuple[int, int, int]:
        return fixed_shape(self.energy)

    @property
    def mean(self) -> Tensor:
        """m, the data's mean image."""
        return self.template.synthesis(self.energy.gaussian(self.template)[0])[0]

    @property
    def log_prior(self) -> Tensor:
        """log C, the data's mean variance."""
        return self.energy.gaussian(self.template)[1].mean().log()

    def __call__(self, y: Tensor, variance: float) -> Tensor:
        cov = self.template.to(y.dtype).to(y.device).isotropic(variance).expand(len(y))
        if not (torch.is_grad_enabled() and y.requires_grad):
            return evaluate(self.energy, y, cov).mean
        (score,) = torch.autograd.grad(self.energy(y, cov).sum(), y, create_graph=True)
        return y - variance * score


@runtime_checkable
class KnowsMoments(Protocol):
    """A denoiser that carries its data's mean image and log-variance."""

    @property
    def mean(self) -> Tensor: ...

    @property
    def log_prior(self) -> Tensor: ...


def moments(model: object) -> tuple[Tensor, float] | None:
    """The data's mean image m [C, H, W] and variance C, where the model knows them."""
    if not isinstance(model, KnowsMoments):
        return None
    return model.mean.detach(), float(model.log_prior.detach().exp())


@dataclass
class Counter:
    """A denoiser that counts evaluations and gradients, and the time since it was made."""

    model: IsotropicDenoiser
    evaluations: int = field(default=0, init=False)
    gradients: int = field(default=0, init=False)
    begun: float = field(default_factory=time.perf_counter, init=False)

    def mean(self, x: Tensor, variance: float) -> Tensor:
        """x̂ without a graph."""
        self._count()
        with torch.no_grad():
            return self.model(x, variance)

    def mean_and_pull(self, x: Tensor, variance: float) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """x̂, and the function v → (∂x̂/∂x)ᵀv, which can be asked again and again."""
        self._count()
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            out = self.model(leaf, variance)

        def pull(v: Tensor) -> Tensor:
            self.gradients += 1
            return torch.autograd.grad(out, leaf, v, retain_graph=True)[0]

        return out.detach(), pull

    def _count(self) -> None:
        self.evaluations += 1
        self.gradients += isinstance(self.model, EnergyDenoiser)

    def solution(self, samples: Tensor) -> Solution:
        """What was found, and what it cost."""
        return Solution(samples, self.evaluations, self.gradients, time.perf_counter() - self.begun)

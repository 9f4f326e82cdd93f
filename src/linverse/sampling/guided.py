"""Energy-guided schedules: Σ_{t−1} chosen at every step from what the energy says at (x_t, Σ_t) (paper §4.2.1).

    MirrorStep      λ' = λ/(1 + γ·max(κ, 0))      the paper's, in the geometry of −log det; its signed form lets λ grow
    MagnitudeStep   λ' = λ/(1 + γ|κ|)             what the authors' runs use
    VarianceStep    λ' = λ/(1 + tol·λ/Var[x|x_t])  large steps where the model is sure

E[κ] = 0 under the model, so that κ alone does not drive Σ to the floor: each rule lowers log λ by at least `slowest` and at
most `fastest` a step, never raises it, and hence ends. Each sample takes a path of its own. With a predictor alone the result is
exact as the steps get small; a corrector on a schedule that adapts to the state is biased: `freeze` the path of a pilot run for it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from linverse.sampling.evaluator import Iterate
from linverse.sampling.paths import Path


@dataclass(frozen=True)
class Rule(ABC):
    """Lowers log λ by a rate that the energy decides, between `slowest` and `fastest`, down to the floor."""

    slowest: float = 0.05
    fastest: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.slowest <= self.fastest:
            raise ValueError(
                f"the rates of a guided path need 0 < slowest ≤ fastest; got {self.slowest} and {self.fastest}"
            )

    @abstractmethod
    def rate(self, here: Iterate) -> Tensor:
        """−Δlog λ that the energy suggests, ≥ 0, of log λ's shape."""

    def next_level(self, here: Iterate, log_floor: Tensor) -> Tensor:
        """log λ of the next level, [B, 1|C, H, W]."""
        rate = self.rate(here).clamp(self.slowest, self.fastest)
        # a coefficient that starts below the floor stays
        return torch.minimum(torch.maximum(here.log_variance - rate, log_floor), here.log_variance)

    def most_steps(self, log_start: Tensor, log_floor: Tensor) -> int:
        """After so many steps every coefficient is at the floor."""
        depth = float((log_start - log_floor).max())
        return max(1, math.ceil(depth / self.slowest * (1 + 1e-6)))


@dataclass(frozen=True)
class MirrorStep(Rule):
    """log(1 + γ·max(κ, 0)): the paper's equation, where it lowers λ."""

    gamma: float = 0.5

    def rate(self, here: Iterate) -> Tensor:
        return torch.log1p(self.gamma * here.cov_score.clamp_min(0))


@dataclass(frozen=True)
class MagnitudeStep(Rule):
    """log(1 + γ|κ|): the authors' code."""

    gamma: float = 0.5

    def rate(self, here: Iterate) -> Tensor:
        return torch.log1p(self.gamma * here.cov_score.abs())


@dataclass(frozen=True)
class VarianceStep(Rule):
    """log(1 + tol·λ/Var): as fast as the model is sure."""

    tolerance: float = 0.1

    def rate(self, here: Iterate) -> Tensor:
        return torch.log1p(self.tolerance * here.log_variance.exp() / here.variance)


def freeze(path: Path, group: int | None = None) -> Path:
    """The mean of log λ over the samples of a pilot run (or over each `group` of consecutive ones): a path fit for correctors."""
    levels = path.log_variance
    size = path.batch if group is None else group
    if path.batch % size:
        raise ValueError(f"a path for {path.batch} samples cannot be averaged in groups of {size}")
    mean = levels.unflatten(1, (-1, size)).mean(dim=2)
    starts_apart = float((levels[0].unflatten(0, (-1, size)) - mean[0][:, None]).abs().max())
    if starts_apart > 1e-4:
        raise ValueError("the samples to average start at different Σ: freeze one measurement at a time (`group`)")
    return Path(path.template, torch.cummin(mean, dim=0).values)


def stack_levels(levels: list[Tensor]) -> Tensor:
    """Levels [1|B, …] that a run took → [T+1, B, …]."""
    batch = max(level.shape[0] for level in levels)
    return torch.stack([level.expand(batch, -1, -1, -1) for level in levels])


def join_paths(parts: list[Path]) -> Path:
    """Paths of parts of a batch side by side; those that arrived early wait at the floor."""
    steps = max(part.steps for part in parts)
    padded = [torch.cat([p.log_variance, p.log_variance[-1:].expand(steps - p.steps, -1, -1, -1, -1)]) for p in parts]
    return Path(parts[0].template, torch.cat(padded, dim=1))

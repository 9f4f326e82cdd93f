"""One chunk of samples on its way along a path: predictor, evaluation, corrector, level after level, in Σ's eigenbasis throughout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.energy import Energy
from linverse.rng import normal_like
from linverse.sampling.evaluator import Evaluator, Iterate
from linverse.sampling.guided import Rule, stack_levels
from linverse.sampling.langevin import KernelInfo
from linverse.sampling.paths import Path
from linverse.sampling.predictors import Predictor, PreviousStep
from linverse.sampling.targets import PathTarget

Report = Callable[[int, int], None]  # (steps done, steps in all)
Correct = Callable[[int, PathTarget, Iterate], tuple[Iterate, list[KernelInfo]]]  # step, π_t, where we are


@dataclass(frozen=True)
class GuidedSchedule:
    """A rule with the floor that it goes down to: a schedule that is not known in advance."""

    rule: Rule
    end: Covariance

    def __getitem__(self, rows: slice) -> GuidedSchedule:
        return GuidedSchedule(self.rule, self.end[rows])


@dataclass
class Run:
    """The samples of one chunk on their way, from coefficients z; `iterate` is where they are, so that an interruption keeps it."""

    energy: Energy
    z: Tensor
    cov: Covariance
    schedule: Path | GuidedSchedule
    predictor: Predictor
    correct: Correct | None
    temperature: float
    generator: torch.Generator | None
    iterate: Iterate | None = field(default=None, init=False)
    levels: list[Tensor] = field(default_factory=list, init=False)
    infos: list[KernelInfo] = field(default_factory=list, init=False)
    evaluations: int = field(default=0, init=False)
    arrived: bool = field(default=False, init=False)

    def go(self, report: Report) -> None:
        """From Σ_T to the floor."""
        evaluator = Evaluator(self.energy, self.cov)
        log_start = self.first_level()
        total, previous = self.steps(log_start), None
        self.levels.append(log_start)
        evaluator.label = f"the start of {total} steps"
        self.iterate = evaluator(self.z, log_start)
        while (log_next := self.next_level(self.iterate)) is not None:
            step = len(self.levels)
            evaluator.label = f"step {step} of {total}"
            before, self.iterate = self.iterate, self._predict(evaluator, log_next, previous)
            previous = PreviousStep(self.iterate.mean - before.mean, before.log_variance - log_next)
            self.levels.append(log_next)
            if self.correct is not None:
                target = PathTarget(evaluator, self.z, log_start, log_next, self.temperature)
                self.iterate, infos = self.correct(step - 1, target, self.iterate)
                self.infos.extend(infos)
            self.evaluations = evaluator.evaluations
            report(step, total)
        self.arrived = True

    def _predict(self, evaluator: Evaluator, log_next: Tensor, previous: PreviousStep | None) -> Iterate:
        """The predictor's step, and an evaluation at its end."""
        assert self.iterate is not None
        z = self.iterate.z
        noise = normal_like(z, self.generator) if self.predictor.noisy else z.new_zeros(())
        return evaluator(self.predictor.step(self.iterate, log_next, previous, noise, evaluator), log_next)

    def first_level(self) -> Tensor:
        """log λ_T: of the path where there is one, so that what it holds still is pinned exactly."""
        return self.schedule.log_variance[0] if isinstance(self.schedule, Path) else self.cov.log_variance

    def steps(self, log_start: Tensor) -> int:
        if isinstance(self.schedule, Path):
            return self.schedule.steps
        return self.schedule.rule.most_steps(log_start, self.schedule.end.log_variance)

    def next_level(self, iterate: Iterate) -> Tensor | None:
        """log λ of the next level; None at the end."""
        if isinstance(self.schedule, Path):
            return None if len(self.levels) > self.schedule.steps else self.schedule.log_variance[len(self.levels)]
        log_floor = self.schedule.end.log_variance
        if bool((iterate.log_variance <= log_floor).all()):
            return None
        return self.schedule.rule.next_level(iterate, log_floor)

    def taken(self) -> Path:
        """The path as far as it was taken (a single level twice, if no step was made)."""
        levels = self.levels if len(self.levels) > 1 else self.levels * 2
        return Path(self.cov, stack_levels(levels))

    def energies(self) -> Tensor:
        """U of the last iterate, [B]."""
        assert self.iterate is not None
        return self.iterate.energy

    def images(self, finish: str) -> Tensor:
        """The samples in pixels: the only synthesis outside of an evaluation."""
        assert self.iterate is not None
        iterate = self.iterate
        if finish == "floor":
            return self.cov.synthesis(iterate.z)
        noise = iterate.variance.sqrt() * normal_like(iterate.z, self.generator) if finish == "sample" else 0.0
        return self.cov.synthesis(iterate.mean + noise)

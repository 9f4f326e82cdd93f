"""One chunk of samples on its way along a path: predictor, evaluation, corrector, level after level, in Σ's eigenbasis throughout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.energy import Energy
from linverse.rng import normal_like
from linverse.sampling.evaluator import Evaluator, Iterate
from linverse.sampling.guided import Rule, stack_levels
from linverse.sampling.langevin import KernelInfo
from linverse.sampling.paths import Path
from linverse.sampling.predictors import Predictor, StepSizes, step_sizes
from linverse.sampling.targets import PathTarget

Finish = Literal["mean", "sample", "floor"]
NextStep = Callable[[Iterate], StepSizes | None]
Report = Callable[[int, int], None]  # (steps done, steps in all)
Correct = Callable[[int, PathTarget, Iterate], tuple[Iterate, list[KernelInfo]]]  # step, π_t, where we are
BLOCK_ENTRIES = 2**19  # of each of five arrays: 2 MB


@dataclass(frozen=True)
class GuidedSchedule:
    """A rule with the floor that it goes down to: a schedule that is not known in advance."""

    rule: Rule
    end: Covariance

    def __getitem__(self, rows: slice) -> GuidedSchedule:
        return GuidedSchedule(self.rule, self.end[rows])


def planned_steps(path: Path) -> Iterator[StepSizes]:
    """The steps of a path, worked out for as many at a time as fit a small block of memory: small images are not held up by small sums."""
    levels = path.log_variance
    block, h_before = max(1, BLOCK_ENTRIES // levels[0].numel()), torch.zeros_like(levels[:1])
    for first in range(0, path.steps, block):
        part = levels[first : first + block + 1]
        h = part[:-1] - part[1:]
        yield from step_sizes(part[:-1], part[1:], torch.cat([h_before, h[:-1]])).unstacked()
        h_before = h[-1:]


def guided_steps(schedule: GuidedSchedule) -> NextStep:
    """Steps that the state decides; None when all are at the floor."""
    log_floor, before = schedule.end.log_variance, torch.zeros_like(schedule.end.log_variance)

    def next_step(iterate: Iterate) -> StepSizes | None:
        nonlocal before
        if bool((iterate.log_variance <= log_floor).all()):
            return None
        size = step_sizes(iterate.log_variance, schedule.rule.next_level(iterate, log_floor), before)
        before = size.h
        return size

    return next_step


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
    mean_level: Tensor | None = None  # [B]: see `mean`
    mean: Tensor | None = field(default=None, init=False)
    iterate: Iterate | None = field(default=None, init=False)
    levels: list[Tensor] = field(default_factory=list, init=False)
    infos: list[KernelInfo] = field(default_factory=list, init=False)
    evaluations: int = field(default=0, init=False)
    arrived: bool = field(default=False, init=False)

    def go(self, report: Report) -> None:
        """From Σ_T to the floor."""
        evaluator = Evaluator(self.energy, self.cov)
        log_start, next_step = self.begin()
        total = self.steps(log_start)
        self.levels.append(log_start)
        evaluator.label = f"the start of {total} steps"
        self.iterate, change = evaluator(self.z, log_start), None
        self._keep_mean(self.iterate, None)
        while (size := next_step(self.iterate)) is not None:
            step = len(self.levels)
            evaluator.label = f"step {step} of {total}"
            mean, self.iterate = self.iterate.mean, self._predict(evaluator, size, change)
            change = self.iterate.mean - mean
            self.levels.append(size.log_next)
            if self.correct is not None:
                target = PathTarget(evaluator, self.z, log_start, size.log_next, self.temperature)
                self.iterate, infos = self.correct(step - 1, target, self.iterate)
                self.infos.extend(infos)
            self._keep_mean(self.iterate, self.levels[-2])
            self.evaluations = evaluator.evaluations
            report(step, total)
        self.arrived = True

    def _predict(self, evaluator: Evaluator, size: StepSizes, change: Tensor | None) -> Iterate:
        """The predictor's step, and an evaluation at its end."""
        assert self.iterate is not None
        z = self.iterate.z
        noise = normal_like(z, self.generator) if self.predictor.noisy else z.new_zeros(())
        return evaluator(self.predictor.step(self.iterate, size, change, noise, evaluator), size.log_next)

    def _keep_mean(self, iterate: Iterate, log_before: Tensor | None) -> None:
        """`mean` holds E[x|x_t] at the first level t no louder than `mean_level`, for each row.

        Averaged over samples it is E[x|y], whatever t; early means leave to the network what it cannot see under so much noise, late ones
        are samples, with all their spread.
        """
        if self.mean_level is None:
            return
        if self.mean is None or log_before is None:
            self.mean = iterate.mean
            return
        waiting = log_before.amax(dim=(1, 2, 3)) > self.mean_level.log()
        self.mean = torch.where(waiting.reshape(-1, 1, 1, 1), iterate.mean, self.mean)

    def begin(self) -> tuple[Tensor, NextStep]:
        """log λ_T (of the path where there is one, so that what it holds still is pinned exactly), and what comes after."""
        if isinstance(self.schedule, Path):
            planned = planned_steps(self.schedule)
            return self.schedule.log_variance[0], lambda iterate: next(planned, None)
        return self.cov.log_variance, guided_steps(self.schedule)

    def steps(self, log_start: Tensor) -> int:
        if isinstance(self.schedule, Path):
            return self.schedule.steps
        return self.schedule.rule.most_steps(log_start, self.schedule.end.log_variance)

    def taken(self) -> Path:
        """The path as far as it was taken (a single level twice, if no step was made)."""
        levels = self.levels if len(self.levels) > 1 else self.levels * 2
        return Path(self.cov, stack_levels(levels))

    def energies(self) -> Tensor:
        """U of the last iterate, [B]."""
        assert self.iterate is not None
        return self.iterate.energy

    def average(self) -> Tensor | None:
        """The means that were kept, in pixels."""
        return None if self.mean is None else self.cov.synthesis(self.mean)

    def images(self, finish: Finish) -> Tensor:
        """The samples in pixels: the only synthesis outside of an evaluation."""
        assert self.iterate is not None
        iterate = self.iterate
        z = iterate.z if finish == "floor" else iterate.mean
        if finish == "sample":
            z = z + iterate.variance.sqrt() * normal_like(z, self.generator)
        if not bool(torch.isfinite(z).all()):
            raise FloatingPointError("the samples are NaN or infinite at the end of the path, though the energy is not")
        return self.cov.synthesis(z)

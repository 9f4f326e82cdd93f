"""Predictor–corrector sampling of p(x | y) along a path (paper, algorithm 2), for any energy and any Σ.

Started at x_T = y, each step lowers Σ_t by a predictor and then, if asked, moves by a corrector that leaves p(x_t | y) invariant. The
last step is the Tweedie mean at the floor: a path of T steps costs T + 1 evaluations of the energy, and n more a level for n corrector
steps (the corrector's last evaluation is the predictor's first).

What was not measured must be drawn afresh in y for every sample (`Measurement.lift`); here each row of y is one sample.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.energy import Energy, check_pair, check_shapes
from linverse.rng import normal_like
from linverse.sampling.guided import Rule, join_paths, stack_levels
from linverse.sampling.langevin import MALA, Info, Kernel, start, warm_up
from linverse.sampling.paths import Path, default_path
from linverse.sampling.points import Eye, Point
from linverse.sampling.predictors import Past, Predictor, TwoStepAncestral
from linverse.sampling.targets import PathTarget

Report = Callable[[int, int], None]  # (steps done, steps in all)
Correct = Callable[[int, PathTarget, Point], tuple[Point, list[Info]]]  # step, π_t, where we are
FINISHES = ("mean", "sample", "floor")
CHUNK_PIXELS = 2**17  # of one chunk by default: some 170 images of 28×28


@dataclass(frozen=True)
class SampleResult:
    """`samples` [N, C, H, W]; `path` as it was taken; `energy` U(x, Σ_0) of the last iterate, [N].

    `info` stacks what the corrector reported, [steps, N]; `evaluations` counts those of the energy for one sample. After Ctrl-C
    `completed` is False and `samples` are the Tweedie means of what had been begun, of which the first `finished` came to the end.
    """

    samples: Tensor
    path: Path
    energy: Tensor
    info: Info | None
    evaluations: int
    completed: bool
    finished: int


def sample(
    energy: Energy,
    y: Tensor,
    cov: Covariance,
    path: Path | Rule | int = 50,
    predictor: Predictor | None = None,
    *,
    corrector: Kernel | Sequence[Kernel] | None = None,
    corrector_steps: int = 1,
    temperature: float = 1.0,
    floor: float | None = None,
    finish: str = "mean",
    generator: torch.Generator | None = None,
    progress: Report | bool = False,
    chunk: int | None = None,
    check_range: bool = True,
) -> SampleResult:
    """One sample of p(x | y) for each row of y [N, C, H, W], Σ = `cov` (one for all, or one a row).

    `path`: a number of steps (the clamped path to `floor`, by default the energy's λ_min), a `Path`, or a guided `Rule`.
    `corrector`: a kernel for all levels, or one a level (see `tune`). `finish`: "mean" (Tweedie), "sample" (plus the variance that is
    left, at Σ = 0), or "floor" (x at Σ_0, whose density the energy knows). `chunk` rows are held in memory at a time.
    `check_range`: warn if the path leaves what the energy knows.
    """
    check_shapes(energy, y, cov)
    cov = _prepare(y, cov, finish)
    schedule = _schedule(energy, y, cov, path, floor)
    if check_range:
        _warn_outside(energy, cov, schedule)
    correct = _corrector(corrector, corrector_steps, schedule, temperature, generator)
    predictor = predictor or TwoStepAncestral()
    size = chunk_size(chunk, cov)
    starts = range(0, y.shape[0], size)
    runs: list[Run] = []
    completed = True
    with reporter(progress) as report, torch.no_grad():
        try:
            for number, first in enumerate(starts):
                rows = slice(first, first + size)
                runs.append(Run(energy, y[rows], cov[rows], schedule[rows], predictor, correct, temperature, generator))
                runs[-1].go(_share(report, number, len(starts)))
        except KeyboardInterrupt:
            completed = False
        return _gather(runs, schedule, finish if completed else "mean", completed)


def chunk_size(chunk: int | None, cov: Covariance) -> int:
    """How many images to evaluate at a time: as asked for, or as many as have `CHUNK_PIXELS`."""
    if chunk is None:
        return max(1, CHUNK_PIXELS // cov.dim)
    if chunk < 1:
        raise ValueError(f"chunk is a number of images, at least 1; got {chunk}")
    return chunk


def _warn_outside(energy: Energy, cov: Covariance, schedule: Path | Guide) -> None:
    """Name what both ends of the path have beyond the energy's range; what lies between them is no further out."""
    end = schedule.end if isinstance(schedule, Guide) else schedule.covariance(-1)
    for excess in dict.fromkeys(energy.range.excess(sigma) for sigma in (cov, end)):
        if excess:
            warnings.warn(f"Σ has {excess}: the answer is an extrapolation", stacklevel=3)


def tune(
    energy: Energy,
    y: Tensor,
    cov: Covariance,
    path: Path,
    corrector: MALA | None = None,
    *,
    steps: int = 30,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
    progress: Report | bool = False,
) -> tuple[MALA, ...]:
    """A corrector for each level, its step size adapted on pilot chains from y (a few rows will do) and frozen."""
    kernels: list[MALA] = [corrector or MALA()]

    def adapt(step: int, target: PathTarget, point: Point) -> tuple[Point, list[Info]]:
        state, frozen = warm_up(kernels[-1], start(point, target), target, steps, generator)
        kernels.append(frozen)
        return state.point, []

    check_pair(energy, y, cov)
    cov = _prepare(y, cov, "mean")
    schedule = _schedule(energy, y, cov, path, None)
    with reporter(progress) as report, torch.no_grad():
        Run(energy, y, cov, schedule, TwoStepAncestral(), adapt, temperature, generator).go(report)
    return tuple(kernels[1:])


# --- one chunk -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Guide:
    """A rule with the floor that it goes down to: a schedule that is not known in advance."""

    rule: Rule
    end: Covariance

    def __getitem__(self, rows: slice) -> Guide:
        return Guide(self.rule, self.end[rows])


@dataclass
class Run:
    """The samples of one chunk on their way; `point` is where they are, so that an interrupted run has something to show."""

    energy: Energy
    y: Tensor
    cov: Covariance
    schedule: Path | Guide
    predictor: Predictor
    correct: Correct | None
    temperature: float
    generator: torch.Generator | None
    point: Point | None = field(default=None, init=False)
    levels: list[Tensor] = field(default_factory=list, init=False)
    infos: list[Info] = field(default_factory=list, init=False)
    evaluations: int = field(default=0, init=False)
    arrived: bool = field(default=False, init=False)

    def go(self, report: Report) -> None:
        """From Σ_T to the floor."""
        eye = Eye(self.energy, self.cov)
        start_z, log_start = self.cov.analysis(self.y.detach()), self.first_level()
        total, past = self.steps(log_start), None
        self.levels.append(log_start)
        eye.label = f"the start of {total} steps"
        self.point = eye(start_z, log_start)
        while (log_next := self.next_level(self.point)) is not None:
            step = len(self.levels)
            eye.label = f"step {step} of {total}"
            before, self.point = self.point, self._predict(eye, log_next, past)
            past = Past(self.point.mean - before.mean, before.log_variance - log_next)
            self.levels.append(log_next)
            if self.correct is not None:
                target = PathTarget(eye, start_z, log_start, log_next, self.temperature)
                self.point, infos = self.correct(step - 1, target, self.point)
                self.infos.extend(infos)
            self.evaluations = eye.evaluations
            report(step, total)
        self.arrived = True

    def _predict(self, eye: Eye, log_next: Tensor, past: Past | None) -> Point:
        """The predictor's step, and a look around at its end."""
        assert self.point is not None
        z = self.point.z
        noise = normal_like(z, self.generator) if self.predictor.noisy else z.new_zeros(())
        return eye(self.predictor.step(self.point, log_next, past, noise, eye), log_next)

    def first_level(self) -> Tensor:
        """log λ_T: of the path where there is one, so that what it holds still is pinned exactly."""
        return self.schedule.log_variance[0] if isinstance(self.schedule, Path) else self.cov.log_variance

    def steps(self, log_start: Tensor) -> int:
        if isinstance(self.schedule, Path):
            return self.schedule.steps
        return self.schedule.rule.most_steps(log_start, self.schedule.end.log_variance)

    def next_level(self, point: Point) -> Tensor | None:
        """log λ of the next level; None at the end."""
        if isinstance(self.schedule, Path):
            return None if len(self.levels) > self.schedule.steps else self.schedule.log_variance[len(self.levels)]
        log_floor = self.schedule.end.log_variance
        if bool((point.log_variance <= log_floor).all()):
            return None
        return self.schedule.rule.next_level(point, log_floor)

    def taken(self) -> Path:
        """The path as far as it was taken (a single level twice, if no step was made)."""
        levels = self.levels if len(self.levels) > 1 else self.levels * 2
        return Path(self.cov, stack_levels(levels))

    def finished(self, finish: str) -> Tensor:
        """Images."""
        assert self.point is not None
        point = self.point
        if finish == "floor":
            return self.cov.synthesis(point.z)
        noise = point.variance.sqrt() * normal_like(point.z, self.generator) if finish == "sample" else 0.0
        return self.cov.synthesis(point.mean + noise)


def _gather(runs: list[Run], schedule: Path | Guide, finish: str, completed: bool) -> SampleResult:
    """The chunks side by side."""
    begun = [(run, run.point) for run in runs if run.point is not None]
    if not begun:
        raise KeyboardInterrupt("interrupted before the first evaluation: there is nothing to return")
    samples = torch.cat([run.finished(finish) for run, _ in begun])
    energies = torch.cat([point.energy for _, point in begun])
    path = schedule if isinstance(schedule, Path) else join_paths([run.taken() for run, _ in begun])
    evaluations = max(run.evaluations for run, _ in begun)
    infos = _stack_infos([run.infos for run, _ in begun])
    finished = sum(len(run.y) for run in runs if run.arrived)
    return SampleResult(samples, path, energies, infos, evaluations, completed, finished)


def _stack_infos(chunks: list[list[Info]]) -> Info | None:
    """[steps, N] of each field, over the steps that every chunk made."""
    steps = min(len(infos) for infos in chunks)
    if steps == 0:
        return None

    def stack(name: str) -> Tensor:
        return torch.cat([torch.stack([getattr(info, name) for info in infos[:steps]]) for infos in chunks], dim=1)

    return Info(stack("acceptance"), stack("accepted"), stack("step_size"), stack("energy"))


# --- what was asked for ----------------------------------------------------------------------------------------------------------


def _prepare(y: Tensor, cov: Covariance, finish: str) -> Covariance:
    """Check the question; Σ for every row, in y's precision."""
    if finish not in FINISHES:
        raise ValueError(f"finish is {finish!r}; it can be {', '.join(FINISHES)}")
    cov = cov.detach().to(y.dtype).to(y.device)
    if cov.batch not in (1, y.shape[0]):
        raise ValueError(f"there are {cov.batch} covariances for {y.shape[0]} images; give one, or one an image")
    if len(y) == 0:
        raise ValueError("there are no images to sample from: y has no rows")
    if not bool(torch.isfinite(y).all()):
        raise ValueError(f"the measurement has {int((~torch.isfinite(y)).sum())} NaN or infinite entries")
    return cov.expand(y.shape[0])


def _schedule(energy: Energy, y: Tensor, cov: Covariance, path: Path | Rule | int, floor: float | None) -> Path | Guide:
    bottom = energy.range.minimum if floor is None else floor
    if isinstance(path, Rule):
        return Guide(path, cov.clamp(maximum=bottom))
    if isinstance(path, int):
        return default_path(cov, bottom, path)
    if not isinstance(path, Path):
        raise ValueError(f"path is {path!r}; it can be a number of steps, a Path or a guided Rule")
    if floor is not None:
        raise ValueError("a path ends where it ends: give a floor with a number of steps or a rule, not with a path")
    if path.batch not in (1, y.shape[0]):
        raise ValueError(f"the path is for a batch of {path.batch}; there are {y.shape[0]} images")
    path.check_start(cov)
    return Path(cov, path.log_variance.to(y.dtype).to(y.device))


def _corrector(
    corrector: Kernel | Sequence[Kernel] | None,
    steps: int,
    schedule: Path | Guide,
    temperature: float,
    generator: torch.Generator | None,
) -> Correct | None:
    """Apply `steps` moves of a level's kernel."""
    if corrector is None:
        if temperature != 1.0:
            raise ValueError(f"a predictor samples at temperature 1 only; for {temperature} give a corrector")
        return None
    if isinstance(schedule, Guide):
        raise ValueError(
            "a corrector on a schedule that adapts to the state is biased: run the rule alone as a pilot, freeze its path "
            "(linverse.sampling.freeze) and pass that"
        )
    kernels = list(corrector) if isinstance(corrector, Sequence) else [corrector] * schedule.steps
    if len(kernels) != schedule.steps:
        raise ValueError(
            f"there are {len(kernels)} correctors for a path of {schedule.steps} steps; give one, or one a step"
        )

    def correct(step: int, target: PathTarget, point: Point) -> tuple[Point, list[Info]]:
        state, infos = start(point, target), []
        for _ in range(steps):
            state, info = kernels[step].step(state, target, generator)
            infos.append(info)
        return state.point, infos

    return correct


# --- progress ----------------------------------------------------------------------------------------------------------------------


@contextmanager
def reporter(progress: Report | bool) -> Iterator[Report]:
    """Nothing, a bar (True), or the caller's own function of (done, total)."""
    if callable(progress):
        yield progress
    elif progress:
        from rich.progress import Progress

        with Progress(transient=True) as bar:
            task = bar.add_task("sampling", total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        yield lambda done, total: None


def _share(report: Report, number: int, count: int) -> Report:
    """One chunk's progress as a part of all."""
    return lambda done, total: report(number * total + done, count * total)

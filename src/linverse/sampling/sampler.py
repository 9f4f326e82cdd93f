"""Predictor–corrector sampling of p(x | y) along a path (paper, algorithm 2), for any energy and any Σ.

Started at x_T = y, each step lowers Σ_t by a predictor and then, if asked, moves by a corrector that leaves p(x_t | y) invariant. The
last step is the Tweedie mean at the floor: a path of T steps costs T + 1 evaluations of the energy, and n more per level for n corrector
steps (the corrector's last evaluation is the predictor's first).

What was not measured must be drawn afresh in y for every sample (`Measurement.lift`); here each row of y is one sample.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.energy import Energy, check_pair, check_shapes
from linverse.progress import Progress, silent
from linverse.sampling.evaluator import Iterate
from linverse.sampling.guided import Rule, join_paths
from linverse.sampling.langevin import MALA, Kernel, KernelInfo, begin_chain, warm_up
from linverse.sampling.paths import Path, default_path
from linverse.sampling.predictors import Predictor, TwoStepAncestral
from linverse.sampling.run import Correct, Finish, GuidedSchedule, Report, Run
from linverse.sampling.targets import PathTarget

FINISHES = ("mean", "sample", "floor")
NOTHING = "interrupted before the first evaluation: there is nothing to return"
CHUNK_PIXELS = 2**17  # of one chunk by default: some 170 images of 28×28


@dataclass(frozen=True)
class SamplerOptions:
    """How to sample; what each of them means stands at `sample`."""

    path: Path | Rule | int = 50
    predictor: Predictor | None = None
    corrector: Kernel | Sequence[Kernel] | None = None
    corrector_steps: int = 1
    temperature: float = 1.0
    floor: float | None = None
    finish: Finish = "mean"
    chunk: int | None = None
    mean_level: Tensor | None = None


@dataclass(frozen=True, repr=False)
class SampleResult:
    """Samples [N, C, H, W] that came to the end of their path, and how they got there.

    `path` as it was taken; `energy` U(x, Σ_0) of each sample's last iterate, [N]; `info` what the corrector reported, [steps, N];
    `evaluations` of the energy for one sample. `average`, where it was asked for, is E[x|x_t] of each half-way
    (`Posterior.mean`): its mean is a better E[x|y] than that of the samples. After Ctrl-C `completed` is False, and `samples` are those
    that were finished; `unfinished` are the Tweedie means of those that had been begun: too smooth to be samples.
    """

    samples: Tensor
    path: Path
    energy: Tensor
    info: KernelInfo | None
    evaluations: int
    completed: bool
    unfinished: Tensor
    average: Tensor | None = None

    def __repr__(self) -> str:
        state = "" if self.completed else f", interrupted with {len(self.unfinished)} unfinished"
        shape = "×".join(map(str, self.samples.shape[1:]))
        return (
            f"SampleResult({len(self.samples)} of {shape}, {self.path.steps} steps, "
            f"{self.evaluations} evaluations each{state})"
        )


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
    finish: Finish = "mean",
    generator: torch.Generator | None = None,
    progress: Progress = silent,
    chunk: int | None = None,
    check_range: bool = True,
) -> SampleResult:
    """One sample of p(x | y) for each row of y [N, C, H, W], Σ = `cov` (one for all, or one per row).

    `path`: a number of steps (the clamped path to `floor`, by default the energy's λ_min), a `Path`, or a guided `Rule`.
    `corrector`: a kernel for all levels, or one per level (see `tune`). `finish`: "mean" (Tweedie), "sample" (plus the variance that is
    left, at Σ = 0), or "floor" (x at Σ_0, whose density the energy knows). `chunk` rows are held in memory at a time.
    `progress` is told of the steps as they are made. `check_range`: warn if the path leaves what the energy knows.
    """
    check_shapes(energy, y, cov)
    options = SamplerOptions(path, predictor, corrector, corrector_steps, temperature, floor, finish, chunk)
    z = cov.analysis(y)
    return sample_in_basis(energy, z, cov, options, generator=generator, progress=progress, check_range=check_range)


def sample_in_basis(
    energy: Energy,
    z: Tensor,
    cov: Covariance,
    options: SamplerOptions,
    *,
    generator: torch.Generator | None = None,
    progress: Progress = silent,
    check_range: bool = True,
) -> SampleResult:
    """The same from the coefficients z = Qᵀy: nothing changes basis but the evaluations, and the samples once in the end."""
    cov = _prepare(z, cov, options.finish)
    schedule = schedule_of(energy, z, cov, options.path, options.floor)
    if check_range:
        _warn_outside(energy, cov, schedule)
    correct = _corrector(options, schedule, generator)
    predictor = options.predictor or TwoStepAncestral()
    size = chunk_size(options.chunk, cov)
    starts = range(0, z.shape[0], size)
    runs: list[Run] = []
    completed = True
    with torch.no_grad():
        try:
            for number, first in enumerate(starts):
                rows = slice(first, first + size)
                part = (z[rows], cov[rows], schedule[rows])
                level = None if options.mean_level is None else options.mean_level[rows]
                runs.append(Run(energy, *part, predictor, correct, options.temperature, generator, level))
                runs[-1].go(part_of(progress, number, len(starts)))
        except KeyboardInterrupt:
            completed = False
        return _gather(runs, schedule, options.finish, completed)


def chunk_size(chunk: int | None, cov: Covariance) -> int:
    """How many images to evaluate at a time: as asked for, or as many as have `CHUNK_PIXELS`."""
    if chunk is None:
        return max(1, CHUNK_PIXELS // cov.dim)
    if chunk < 1:
        raise ValueError(f"chunk is a number of images, at least 1; got {chunk}")
    return chunk


def _warn_outside(energy: Energy, cov: Covariance, schedule: Path | GuidedSchedule) -> None:
    """Name what both ends of the path have beyond the energy's range; what lies between them is no further out."""
    end = schedule.end if isinstance(schedule, GuidedSchedule) else schedule.covariance(-1)
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
    progress: Progress = silent,
) -> tuple[MALA, ...]:
    """A corrector for each level, its step size adapted on pilot chains from y (a few rows will do) and frozen."""
    kernels: list[MALA] = [corrector or MALA()]

    def adapt(step: int, target: PathTarget, iterate: Iterate) -> tuple[Iterate, list[KernelInfo]]:
        state, frozen = warm_up(kernels[-1], begin_chain(iterate, target), target, steps, generator)
        kernels.append(frozen)
        return state.iterate, []

    check_pair(energy, y, cov)
    z = cov.analysis(y)
    cov = _prepare(z, cov, "mean")
    schedule = schedule_of(energy, z, cov, path, None)
    with torch.no_grad():
        Run(energy, z, cov, schedule, TwoStepAncestral(), adapt, temperature, generator).go(part_of(progress, 0, 1))
    return tuple(kernels[1:])


# --- the chunks side by side -----------------------------------------------------------------------------------------------------


def _gather(runs: list[Run], schedule: Path | GuidedSchedule, finish: Finish, completed: bool) -> SampleResult:
    """What came to the end, and what an interruption left on the way."""
    done, begun = ([run for run in runs if run.iterate is not None and run.arrived == end] for end in (True, False))
    if not done and not begun:
        raise KeyboardInterrupt(NOTHING)
    empty = runs[0].z[:0]
    path = schedule if isinstance(schedule, Path) else join_paths([run.taken() for run in done or begun])
    means = [mean for run in done if (mean := run.average()) is not None]
    return SampleResult(
        samples=torch.cat([empty, *(run.images(finish) for run in done)]),
        path=path,
        energy=torch.cat([empty.new_empty(0, dtype=torch.float64), *(run.energies() for run in done)]),
        info=_stack_infos([run.infos for run in done]),
        evaluations=max(run.evaluations for run in done or begun),
        completed=completed,
        unfinished=torch.cat([empty, *(run.images("mean") for run in begun)]),
        average=torch.cat(means) if means else None,
    )


def _stack_infos(chunks: list[list[KernelInfo]]) -> KernelInfo | None:
    """[steps, N] of each field, over the steps that every chunk made."""
    steps = min((len(infos) for infos in chunks), default=0)
    if steps == 0:
        return None

    def stack(name: str) -> Tensor:
        return torch.cat([torch.stack([getattr(info, name) for info in infos[:steps]]) for infos in chunks], dim=1)

    return KernelInfo(stack("acceptance"), stack("accepted"), stack("step_size"), stack("energy"))


# --- what was asked for ----------------------------------------------------------------------------------------------------------


def _prepare(z: Tensor, cov: Covariance, finish: str) -> Covariance:
    """Check the question; Σ for every row, in y's precision."""
    if finish not in FINISHES:
        raise ValueError(f"finish is {finish!r}; it can be {', '.join(FINISHES)}")
    cov = cov.detach().to(z.dtype).to(z.device)
    if cov.batch not in (1, z.shape[0]):
        raise ValueError(f"there are {cov.batch} covariances for {z.shape[0]} images; give one, or one per image")
    if len(z) == 0:
        raise ValueError("there are no images to sample from: y has no rows")
    if not bool(torch.isfinite(z).all()):
        raise ValueError(f"the measurement has {int((~torch.isfinite(z)).sum())} NaN or infinite entries")
    return cov.expand(z.shape[0])


def schedule_of(
    energy: Energy, z: Tensor, cov: Covariance, path: Path | Rule | int, floor: float | None
) -> Path | GuidedSchedule:
    """The levels that a number of steps, a path or a rule means for these rows and this Σ."""
    bottom = energy.range.minimum if floor is None else floor
    if isinstance(path, Rule):
        return GuidedSchedule(path, cov.clamp(maximum=bottom))
    if isinstance(path, int):
        return default_path(cov, bottom, path)
    if not isinstance(path, Path):
        raise ValueError(f"path is {path!r}; it can be a number of steps, a Path or a guided Rule")
    if floor is not None:
        raise ValueError("a path ends where it ends: give a floor with a number of steps or a rule, not with a path")
    if path.batch not in (1, z.shape[0]):
        raise ValueError(f"the path is for a batch of {path.batch}; there are {z.shape[0]} images")
    path.check_start(cov)
    return Path(cov, path.log_variance.to(z.dtype).to(z.device))


def _corrector(
    options: SamplerOptions, schedule: Path | GuidedSchedule, generator: torch.Generator | None
) -> Correct | None:
    """Apply so many moves of a level's kernel."""
    corrector = options.corrector
    if corrector is None:
        if options.temperature != 1.0:
            raise ValueError(f"a predictor samples at temperature 1 only; for {options.temperature} give a corrector")
        return None
    if isinstance(schedule, GuidedSchedule):
        raise ValueError(
            "a corrector on a schedule that adapts to the state is biased: run the rule alone as a pilot, freeze its path "
            "(linverse.sampling.freeze) and pass that"
        )
    kernels = list(corrector) if isinstance(corrector, Sequence) else [corrector] * schedule.steps
    if len(kernels) != schedule.steps:
        raise ValueError(
            f"there are {len(kernels)} correctors for a path of {schedule.steps} steps; give one, or one per step"
        )

    def correct(step: int, target: PathTarget, iterate: Iterate) -> tuple[Iterate, list[KernelInfo]]:
        state, infos = begin_chain(iterate, target), []
        for _ in range(options.corrector_steps):
            state, info = kernels[step].step(state, target, generator)
            infos.append(info)
        return state.iterate, infos

    return correct


def part_of(progress: Progress, number: int, count: int, task: str = "sampling") -> Report:
    """One chunk's progress as a part of all."""
    return lambda done, total: progress(task, number * total + done, count * total)

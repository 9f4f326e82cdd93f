"""Samples of p(x | y_raw = Hx + σv) for any linear H: split Gibbs (mathematics §14; Vono et al. 2019).

A second image z = x + ρv is put between x and the data, and both are drawn in turn. x|z is what this library does for isotropic noise: a
path from ρ²I to the floor, whatever the prior. z|x is Gaussian, whatever H.
    exact     z = x + Σ_z^{½}v with a Σ_z as loud as H allows (`coupling`): the law of x is the posterior itself, and
                  z|x = N(x + Σ_zHᵀ(y − Hx)/σ², Σ_z^{½}(I − A)Σ_z^{½}),   √(I − A) by Chebyshev polynomials of A.
              A sweep moves what y does not determine by Σ_z: directions of posterior variance V mix in about V/λ_z sweeps.
    start     A path from the surrogate of the measurement, and a linear map (`surrogate`): samples of a law with about the posterior's mean
              and spread. With learned energies it is the better answer by itself: each sweep adds what the energy gets wrong (30 angles
              of garments, mean of 8 samples: 23.8 dB, after 4 sweeps 23.1, after 20 22.2).
All that is approximate in the exact sweeps is the path of x|z, whose error is of second order in its step. They are local: how often each
of several *separate* kinds of image appears is decided by the start, and R-hat tells.

With `metropolis` the sweeps are MALA moves of z on its exact density, known because energies are normalised at *every* noise level,
    p(z | y) ∝ exp(−U(z, ρ²I)) N(y; Hz, σ²I − ρ²HHᵀ),
so that no discretisation is left but that of the last path; at ρ = √λ_min this is the density at the floor, where steps are tiny.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.energy import Energy, floor_covariance
from linverse.operator_measurement import OperatorMeasurement
from linverse.progress import Progress, silent
from linverse.rng import keyed_generator, normal_like
from linverse.sampling.chebyshev import root_of_complement
from linverse.sampling.coupling import COUPLING, between, couple
from linverse.sampling.diagnostics import r_hat
from linverse.sampling.evaluator import Evaluator
from linverse.sampling.langevin import MALA, begin_chain, warm_up
from linverse.sampling.run import Finish, Report
from linverse.sampling.sampler import SamplerOptions, chunk_size, part_of, sample_in_basis
from linverse.sampling.surrogate import Surrogate, moved, surrogate
from linverse.sampling.targets import OperatorTarget

# ρ²‖H‖²/σ² of Metropolis moves, whose steps are bound by the steepest direction of z's density
METROPOLIS_COUPLING = 0.5
SHORT = 100.0  # paths end at ρ²/SHORT, but for the last one: what they leave drowns in the noise of the next z
PROBES = 8  # directions in which the chains are watched


@dataclass(frozen=True)
class SplitGibbsOptions:
    """Exact `sweeps` after the start, and steps of each `path` of x|z (twice as many at the end)."""

    sweeps: int = 0
    path: int = 10
    metropolis: bool = False
    finish: Finish = "mean"
    chunk: int | None = None

    def __post_init__(self) -> None:
        if self.path < 1 or self.sweeps < 0:
            raise ValueError(f"path is at least 1, sweeps at least 0; got {self.path} and {self.sweeps}")


@dataclass(frozen=True, repr=False)
class OperatorSamples:
    """Samples [N, C, H, W] that came to the end, and how far they can be trusted.

    `average` is the mean of x over the second half of each chain's sweeps, [N, C, H, W]: its mean over chains is a better E[x|y] than that
    of the samples. `residual` ‖y − Hx‖/(σ√m) of each, [N]. `trace` is what was watched in every exact sweep, [sweeps, N, summaries]: the
    residual and some random projections of x. `acceptance` is that of the Metropolis moves, [moves, N], if there were any;
    `evaluations` of the energy for one sample. After Ctrl-C `completed` is False, and `unfinished` are the images of those that had not
    come to the end.
    """

    samples: Tensor
    average: Tensor
    residual: Tensor
    trace: Tensor
    acceptance: Tensor | None
    evaluations: int
    completed: bool
    unfinished: Tensor

    def __repr__(self) -> str:
        state = "" if self.completed else f", interrupted with {len(self.unfinished)} unfinished"
        shape = "×".join(map(str, self.samples.shape[1:]))
        return f"OperatorSamples({len(self.samples)} of {shape}, {self.evaluations} evaluations each{state})"

    def r_hat(self, measurements: int) -> Tensor:
        """[B]: the largest R-hat of what was watched, over the second half of the sweeps, of the chains of each of B measurements.

        NaN where there are fewer than 4 sweeps to compare, or nothing moved.
        """
        kept = self.trace[len(self.trace) // 2 :]
        if len(kept) < 4 or not kept.shape[1]:
            return torch.full((measurements,), math.nan)
        return r_hat(kept.unflatten(1, (-1, measurements))).amax(dim=-1)


def sample_operator(
    energy: Energy,
    measurement: OperatorMeasurement,
    options: SplitGibbsOptions | None = None,
    *,
    start: Surrogate | None = None,
    generator: torch.Generator | None = None,
    progress: Progress = silent,
) -> OperatorSamples:
    """One sample for each row of a measurement; `chunk` rows are held in memory at a time. `start` is its surrogate, if that is known."""
    options = options or SplitGibbsOptions()
    measurement = _within_reach(energy, measurement)
    size = chunk_size(options.chunk, measurement.template)
    starts = range(0, measurement.batch, size)
    runs: list[Chains] = []
    completed = True
    with torch.no_grad():
        try:
            for number, first in enumerate(starts):
                rows = measurement[first : first + size]
                begin = surrogate(energy, rows) if start is None else start[first : first + size]
                runs.append(Chains(energy, rows, begin, options, generator))
                runs[-1].go(part_of(progress, number, len(starts)))
        except KeyboardInterrupt:
            completed = False
    return _gather(runs, measurement, completed)


def _within_reach(energy: Energy, measurement: OperatorMeasurement) -> OperatorMeasurement:
    """The measurement, with the least noise that this energy can resolve if it has less: ρ² is at least λ_min."""
    least = energy.range.minimum * measurement.linear.gain / METROPOLIS_COUPLING
    if measurement.variance >= least:
        return measurement
    given, used = math.sqrt(measurement.variance), math.sqrt(least)
    warnings.warn(
        f"the noise, sigma = {given:.3g}, is less than the model can resolve (its floor λ_min = {energy.range.minimum:.3g}): samples "
        f"are drawn as if sigma were {used:.3g}",
        stacklevel=3,
    )
    return OperatorMeasurement(measurement.raw, measurement.linear, least)


def _gather(runs: list[Chains], measurement: OperatorMeasurement, completed: bool) -> OperatorSamples:
    done, begun = ([run for run in runs if run.x is not None and run.arrived == end] for end in (True, False))
    empty = measurement.raw.new_empty(0, *measurement.linear.shape)
    samples = torch.cat([empty, *(run.images() for run in done)])
    accepted = [torch.stack(run.acceptance, dim=0) for run in done if run.acceptance]
    return OperatorSamples(
        samples=samples,
        average=torch.cat([empty, *(run.average() for run in done)]),
        residual=measurement[: len(samples)].normalised_residual(samples),
        trace=torch.cat([torch.stack(run.trace) for run in done if run.trace], dim=1)
        if any(run.trace for run in done)
        else samples.new_empty(0, len(samples), PROBES + 1),
        acceptance=torch.cat(accepted, dim=1) if accepted else None,
        evaluations=max((run.evaluations for run in runs), default=0),
        completed=completed,
        unfinished=torch.cat([empty, *(run.images() for run in begun)]),
    )


@dataclass
class Chains:
    """One chunk of chains on their way; `x` is where they are, so that an interruption keeps it."""

    energy: Energy
    seen: OperatorMeasurement
    start: Surrogate
    options: SplitGibbsOptions
    generator: torch.Generator | None
    x: Tensor | None = field(default=None, init=False)
    total: Tensor | float = field(default=0.0, init=False)
    trace: list[Tensor] = field(default_factory=list, init=False)
    acceptance: list[Tensor] = field(default_factory=list, init=False)
    evaluations: int = field(default=0, init=False)
    arrived: bool = field(default=False, init=False)

    def go(self, report: Report) -> None:
        """The start, and the exact sweeps."""
        sweeps = self.options.sweeps
        z, cov = self.start.cov.synthesis(self.start.coefficients), self.start.cov
        self.evaluations += self.start.evaluations
        self.x = x = moved(self.start, self.seen, self.between(z, cov) if sweeps else self.last(z, cov))
        report(1, 1 + sweeps)
        moves = self.metropolis(x) if self.options.metropolis else self.gibbs(x)
        for done, image in enumerate(moves):
            self.x = image
            self.trace.append(self.watch(image))
            if 2 * done >= sweeps:
                self.total = self.total + image
            report(2 + done, 1 + sweeps)
        self.arrived = True

    def images(self) -> Tensor:
        """Where the chains are."""
        assert self.x is not None
        return self.x

    def average(self) -> Tensor:
        """The mean over the second half of the sweeps."""
        return self.images() if isinstance(self.total, float) else self.total / ((self.options.sweeps + 1) // 2)

    # --- noise levels ------------------------------------------------------------------------------------------------------

    @cached_property
    def template(self) -> Covariance:
        """The identity in a basis that the energy knows."""
        return floor_covariance(self.energy, self.seen.raw.new_empty(self.seen.shape))

    @cached_property
    def coupling(self) -> float:
        """ρ² of white noise between x and z, within what the energy knows."""
        share = METROPOLIS_COUPLING if self.options.metropolis else COUPLING
        return min(share * self.seen.variance / self.seen.linear.gain, self.energy.range.maximum)

    @cached_property
    def noise(self) -> Covariance:
        """Σ_z of the exact sweeps."""
        return couple(self.energy, self.seen)

    # --- x given z, and z given x --------------------------------------------------------------------------------------------

    def between(self, z: Tensor, noise: Covariance) -> Tensor:
        """x given z for the next z: a path that ends early, and the variance that is left there."""
        end = max(float(noise.log_variance.min().exp()) / SHORT, self.energy.range.minimum)
        options = SamplerOptions(self.options.path + self._longer(noise), floor=end, finish="sample", chunk=len(z))
        return self.restore(z, noise, options)

    def last(self, z: Tensor, noise: Covariance) -> Tensor:
        """The same by a finer path down to the floor."""
        steps = 2 * (self.options.path + self._longer(noise))
        return self.restore(z, noise, SamplerOptions(steps, finish=self.options.finish, chunk=len(z)))

    def _longer(self, noise: Covariance) -> int:
        """Steps that a path needs more because Σ_z is not white."""
        spread = float(noise.log_variance.max() - noise.log_variance.min())
        return math.ceil(self.options.path * spread / math.log(SHORT))

    def restore(self, z: Tensor, noise: Covariance, options: SamplerOptions) -> Tensor:
        cov = noise.expand(len(z))
        found = sample_in_basis(self.energy, cov.analysis(z), cov, options, generator=self.generator, check_range=False)
        if not found.completed:
            raise KeyboardInterrupt
        self.evaluations += found.evaluations
        return found.samples

    def exact_draw(self, x: Tensor, noise: Covariance) -> Tensor:
        """z ~ N(x + Σ_zHᵀ(y − Hx)/σ², Σ_z^{½}(I − A)Σ_z^{½})."""
        pull = noise.apply(self.seen.adjoint(self.seen.residual(x))) / self.seen.variance
        white = root_of_complement(between(noise, self.seen), normal_like(x, self.generator), COUPLING)
        return x + pull + noise.power(white, 0.5)

    # --- the exact sweeps ----------------------------------------------------------------------------------------------------

    def gibbs(self, x: Tensor) -> Iterator[Tensor]:
        """x after each sweep."""
        for sweep in range(self.options.sweeps):
            z = self.exact_draw(x, self.noise)
            final = sweep + 1 == self.options.sweeps
            x = self.last(z, self.noise) if final else self.between(z, self.noise)
            yield x

    def metropolis(self, x: Tensor) -> Iterator[Tensor]:
        """E[x|z] after each sweep of `path` moves, those of the first half to adapt their step; after the last one x given z."""
        evaluator = Evaluator(self.energy, self.template, "a Metropolis move")
        noise = self.template.isotropic(self.coupling)
        target = OperatorTarget(evaluator, noise, self.seen)
        state, kernel = begin_chain(target.evaluate(self.template.analysis(self.exact_draw(x, noise))), target), MALA()
        for sweep in range(self.options.sweeps):
            if sweep < self.options.sweeps // 2:
                state, kernel = warm_up(kernel, state, target, self.options.path, self.generator)
            else:
                for _ in range(self.options.path):
                    state, info = kernel.step(state, target, self.generator)
                    self.acceptance.append(info.acceptance)
            if sweep + 1 < self.options.sweeps:
                yield self.template.synthesis(state.iterate.mean)
        self.evaluations += evaluator.evaluations
        yield self.last(self.template.synthesis(state.iterate.z), noise)

    def watch(self, x: Tensor) -> Tensor:
        """The residual in units of σ and projections on random unit directions, [N, 1 + PROBES]."""
        directions = normal_like(x.new_empty(PROBES, x[0].numel()), keyed_generator("probes"))
        projected = x.flatten(1) @ torch.nn.functional.normalize(directions, dim=1).mT
        return torch.cat([self.seen.normalised_residual(x)[:, None].to(x), projected], dim=1)

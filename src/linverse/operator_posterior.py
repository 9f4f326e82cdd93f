"""The posterior of a measurement whose operator no basis diagonalises: the same questions, answered by samples (mathematics §14).

The data are no noisy image with a Σ of ours; expectation propagation finds one that says nearly the same of x (`sampling.surrogate`). One
evaluation there is the one-shot answer, and samples start from it. The density of an image at the floor,
    log p(x|y) = −U(x, λ_min I) + log N(y; Hx, σ²I) − log p(y),
is known up to the evidence log p(y), which has no closed form: `log_prob` and `rank` leave it out, so that images can be compared.

Two things are watched, and a warning says when they are bad: whether the chains of one measurement agree (R-hat), and whether samples
explain the data as well as the noise allows, ‖y − Hx‖ ≈ σ√m.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import NoReturn, Unpack

import torch
from torch import Tensor

from linverse.any_posterior import AnyPosterior, DrawOptions, check_fit
from linverse.covariance import Covariance
from linverse.energy import Energy, Evaluation, evaluate_in_basis, floor_covariance, in_precision_of
from linverse.operator_measurement import OperatorMeasurement
from linverse.progress import Progress, silent
from linverse.rng import keyed_generator
from linverse.sampling.run import Finish
from linverse.sampling.sampler import chunk_size, part_of
from linverse.sampling.split_gibbs import OperatorSamples, SplitGibbsOptions, sample_operator
from linverse.sampling.surrogate import Surrogate, joined, surrogate

SAMPLES = 16  # behind a mean or a std, unless said otherwise
# Where posteriors are known exactly (benchmarks/convergence.py) the variance of samples is off by a factor of about 1.10 in the median
# below 2, at most 2.0 in 59 problems; beyond, 1.12 and up to 2.2 in 21; 1.18 and up to 2.7 in 40 without any sweeps. The usual limits,
# 1.01 to 1.2, are for averages over chains that started anywhere: these start near the posterior, and their last states count.
LARGEST_R_HAT = 2.0
LARGEST_GAP = 1.0  # of the means, in standard deviations
SLACK = 0.1  # how far the residual may be from σ beyond what chance allows


@dataclass(frozen=True)
class Convergence:
    """Of each measurement, [B].

    The largest `r_hat` of what was watched, NaN for fewer than 8 sweeps; the mean `residual` of its samples, ‖y − Hx‖/(σ√m); the `gap` that
    is left between what energy and data say of the mean, in standard deviations.
    """

    r_hat: Tensor
    residual: Tensor
    gap: Tensor

    def complaints(self, numbers: int) -> list[str]:
        """What is wrong, in words; `numbers` is m."""
        found = []
        if bool((self.r_hat > LARGEST_R_HAT).any()):
            worst = float(self.r_hat[~self.r_hat.isnan()].max())
            found.append(
                f"the chains have not forgotten their starts (R-hat {worst:.2f}, where up to {LARGEST_R_HAT:g} is usual): the variance of "
                "samples rests on the start, and may be off by a factor of two. More `sweeps` help"
            )
        if bool((self.gap > LARGEST_GAP).any()):
            found.append(
                f"energy and data have not agreed on the mean (they differ by {float(self.gap.max()):.1f} standard deviations, rms): "
                "compare it with that of samples after some `sweeps`"
            )
        allowed = SLACK + 5 * math.sqrt(0.5 / numbers)
        off = (self.residual - 1).abs() > allowed
        if bool(off.any()):
            worst = float(self.residual[(self.residual - 1).abs().argmax()])
            found.append(
                f"samples miss the data by {worst:.2f}σ where {1 - allowed:.2f} to {1 + allowed:.2f} is expected: is sigma right, "
                "and is the picture like those that the model knows?"
            )
        return found


class SweepOptions(DrawOptions, total=False):
    """What more can be said of samples by split Gibbs (`sampling.SplitGibbsOptions`)."""

    sweeps: int
    metropolis: bool


class OperatorPosterior(AnyPosterior):
    """What `Posterior(energy, measurement)` is for a measurement by a `LinearOperator` and its kin."""

    measurement: OperatorMeasurement

    def __init__(
        self, energy: Energy, measurement: OperatorMeasurement, generator: torch.Generator | None = None
    ) -> None:
        """The generator draws the samples behind `std`; `convergence` tells what to trust."""
        check_fit(energy, measurement)
        self.energy, self.measurement = energy, in_precision_of(energy, measurement)
        self._generator = generator
        self._surrogate: Surrogate | None = None
        self._evaluation: Evaluation | None = None
        self._kept: OperatorSamples | None = None
        self.convergence: Convergence | None = None

    def __repr__(self) -> str:
        return f"OperatorPosterior({type(self.energy).__name__}, {self.measurement})"

    # --- in one shot ---------------------------------------------------------------------------------------------------------

    def surrogate(self, *, progress: Progress = silent, chunk: int | None = None) -> Surrogate:
        """The noisy image and its Σ that say nearly the same of x as the data (32 evaluations, kept)."""
        if self._surrogate is None:
            size = chunk_size(chunk, self.measurement.template)
            firsts = range(0, self.measurement.batch, size)
            parts = [
                surrogate(
                    self.energy,
                    self.measurement[first : first + size],
                    report=part_of(progress, k, len(firsts), "matching"),
                )
                for k, first in enumerate(firsts)
            ]
            self._surrogate = joined(parts)
        return self._surrogate

    def evaluate(self, *, progress: Progress = silent) -> Evaluation:
        """Energy, scores, mean and variance at the surrogate, in its basis; exact means for a Gaussian prior, close ones for others."""
        if self._evaluation is None:
            found = self.surrogate(progress=progress)
            self._evaluation = evaluate_in_basis(self.energy, found.coefficients, found.cov)
        return self._evaluation

    # --- samples -------------------------------------------------------------------------------------------------------------

    def draw(
        self,
        n: int,
        path: int = 10,
        *,
        sweeps: int = 0,
        metropolis: bool = False,
        finish: Finish = "mean",
        generator: torch.Generator | None = None,
        progress: Progress = silent,
        chunk: int | None = None,
    ) -> OperatorSamples:
        """n posterior samples of each measurement with all that the sampler reports; rows are sample-major: [n·B, C, H, W].

        They start from the surrogate. `sweeps` then leave the energy's posterior invariant: more of them, and steps of each `path`, cost
        proportionally more and come as close to it as you like, where a learned energy is good enough to gain by that. `metropolis` takes
        the exact density of the noisy image for the sweeps.
        `convergence` holds R-hat and residuals of the last draw; bad ones are warned of.
        """
        if n < 1:
            raise ValueError(f"the number of samples is at least 1; got {n}")
        options = SplitGibbsOptions(sweeps, path, metropolis, finish, chunk)
        start, rows = self.surrogate(progress=progress, chunk=chunk), torch.arange(self.measurement.batch).repeat(n)
        drawn = sample_operator(
            self.energy, self.measurement[rows], options, start=start[rows], generator=generator, progress=progress
        )
        self._judge(drawn)
        return drawn

    def _judge(self, drawn: OperatorSamples) -> None:
        count = self.measurement.batch
        whole = len(drawn.samples) // count * count
        if not whole:
            return
        residual = drawn.residual[:whole].unflatten(0, (-1, count)).square().mean(dim=0).sqrt()
        self.convergence = Convergence(drawn.r_hat(count), residual, self.surrogate().gap)
        for complaint in self.convergence.complaints(self.measurement.numbers):
            warnings.warn(complaint, stacklevel=4)

    def sample(self, n: int, path: int = 10, **options: Unpack[SweepOptions]) -> Tensor:
        """n posterior samples of each measurement, [n, B, C, H, W]; options as in `draw`.

        Ctrl-C gives those that were finished, with a warning that says how many.
        """
        return self._finished(self.draw(n, path, **options), n, 1, "the others are left out")

    def _several(
        self, samples: int, generator: torch.Generator | None, progress: Progress, chunk: int | None
    ) -> OperatorSamples:
        """At least so many samples; those of an earlier question are kept."""
        if samples < 2:
            raise ValueError(f"a mean or a spread takes at least 2 samples; got {samples}")
        count = self.measurement.batch
        if self._kept is None or len(self._kept.samples) < samples * count:
            stream = generator or self._generator or keyed_generator("operator samples")
            self._kept = self.draw(samples, generator=stream, progress=progress, chunk=chunk)
        self._finished(self._kept, samples, 2, "the answer is theirs")
        return self._kept

    def mean(
        self,
        samples: int | None = None,
        *,
        generator: torch.Generator | None = None,
        progress: Progress = silent,
        chunk: int | None = None,
    ) -> Tensor:
        """E[x|y], [B, C, H, W]: in one shot, or the mean of so many chains, each averaged over the second half of its sweeps."""
        if samples is None:
            return self.evaluate(progress=progress).mean
        return self._by_measurement(self._several(samples, generator, progress, chunk).average).mean(dim=0)

    def std(
        self,
        samples: int | None = SAMPLES,
        *,
        generator: torch.Generator | None = None,
        progress: Progress = silent,
        chunk: int | None = None,
    ) -> Tensor:
        """How sure we are of every pixel: the spread of samples, [B, C, H, W]; the same samples as those of `mean(samples)`."""
        return self._by_measurement(self._several(samples or SAMPLES, generator, progress, chunk).samples).std(dim=0)

    # --- densities -----------------------------------------------------------------------------------------------------------

    @property
    def covariance(self) -> Covariance:
        """λ_min I: that of the images whose density is known."""
        return floor_covariance(self.energy, self.measurement.raw.new_empty(self.measurement.shape))

    def _warn_once(self) -> None:
        """There is no Σ that could lie outside of what the energy knows."""

    def _log_density(self, x: Tensor, rows: Tensor, noise: Tensor | None) -> Tensor:
        """log p(x|y) + log p(y), nats."""
        if noise is not None:
            x = x + noise[rows]
        seen = self.measurement[rows]
        squared = seen.normalised_residual(x).square() + math.log(2 * math.pi * seen.variance)
        return -0.5 * seen.numbers * squared - self.energy(x, self.covariance.expand(len(x)))

    # --- what there is not ----------------------------------------------------------------------------------------

    def _without_a_basis(self, what: str) -> NoReturn:
        raise TypeError(
            f"{what}: no basis diagonalises this operator. There are evaluate, sample, mean, std, log_prob and rank"
        )

    def lift(self, generator: torch.Generator | None = None, *, random_fill: bool = True) -> NoReturn:
        self._without_a_basis("the data are no noisy image with a Σ of ours")

    def coefficient_std(self) -> NoReturn:
        self._without_a_basis("there are no coefficients")

    def evidence(self) -> NoReturn:
        self._without_a_basis("the evidence has no closed form")

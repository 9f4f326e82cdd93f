"""Posterior(energy, measurement): what a user holds. One model answers every question about a degraded image.

Densities are of images at the energy's floor λ_min, x + N(0, λ_min):
    log p(x|y) = −U(x, Σ_min) + log N(y; x, Σ−Σ_min) + U(y, Σ)                     (mathematics §3)
Coefficients already at λ_min are pinned and leave the Gaussian. The energies are sums in float64, and so is the Gaussian, of the same y and
log λ that the energy saw: in float32 the whole is good to 1e-3 nats for λ up to 1e3.

The most probable x is not among the answers: at the floor of a high-dimensional density it looks like no sample, and from where a search
for it starts decides what it finds. `rank` sorts samples by their density instead.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, Unpack

import torch
from torch import Tensor

from linverse.any_posterior import AnyPosterior, DrawOptions, check_fit
from linverse.covariance import Covariance
from linverse.energy import Energy, Evaluation, evaluate_in_basis, group_mean, in_precision_of
from linverse.measurement import Lifted, Measurement
from linverse.memory import check_memory
from linverse.operator_measurement import OperatorMeasurement
from linverse.progress import Progress, silent
from linverse.rng import keyed_generator
from linverse.sampling import Kernel, Path, Predictor, SampleResult, SamplerOptions, sample_in_basis
from linverse.sampling.film import Film, film_in_basis
from linverse.sampling.guided import Rule
from linverse.sampling.run import Finish
from linverse.sampling.sampler import NOTHING
from linverse.typicality import calibration, reference_images

SUREST = 0.01
CHECKED = 32  # held-out images on which a model is tried under the noise of a measurement


def gaussian_energy(energy: Energy, y: Tensor, cov: Covariance) -> Tensor:
    """U_G = −log N(y; m, C + Σ) of the energy's own Gaussian, [B], float64."""
    mean, prior = energy.gaussian(cov)
    total = cov.with_log_variance(torch.logaddexp(prior.log(), cov.log_variance))
    return -total.log_normal_coefficients(cov.analysis(y) - mean)


def residual(energy: Energy, y: Tensor, cov: Covariance) -> Tensor:
    """R = U − U_G, [B], float64."""
    return energy(y, cov) - gaussian_energy(energy, y, cov)


class PathOptions(DrawOptions, total=False):
    """What more can be said of samples that follow a path through covariances (`sampling.sample`)."""

    predictor: Predictor | None
    corrector: Kernel | Sequence[Kernel] | None
    corrector_steps: int
    temperature: float
    floor: float | None


class Posterior(AnyPosterior):
    """p(x | measurement) under an energy's prior: what the image most likely was, how sure we are, what else it could have been.

    >>> import torch, linverse as lv
    >>> from linverse.analytic import GaussianMixture
    >>> energy = GaussianMixture(
    ...     torch.ones(2), torch.rand(2, 16), 0.02 * torch.eye(16).expand(2, 16, 16), (1, 4, 4), lv.VarianceRange(1e-6, 1e3)
    ... )
    >>> post = lv.Posterior(energy, lv.Box(side=2, sigma=0.1).measure(torch.rand(1, 1, 4, 4)))
    >>> post.mean().shape, post.std().shape, post.sample(3, path=10).shape
    (torch.Size([1, 1, 4, 4]), torch.Size([1, 1, 4, 4]), torch.Size([3, 1, 1, 4, 4]))
    """

    def __new__(
        cls,
        energy: Energy,
        measurement: Measurement,
        generator: torch.Generator | None = None,
        *,
        check: bool = True,
    ) -> Any:
        """For operators that no basis diagonalises, an `OperatorPosterior`."""
        if isinstance(measurement, OperatorMeasurement):
            from linverse.operator_posterior import OperatorPosterior

            return OperatorPosterior(energy, measurement, generator)
        return super().__new__(cls)

    def __init__(
        self,
        energy: Energy,
        measurement: Measurement,
        generator: torch.Generator | None = None,
        *,
        check: bool = True,
    ) -> None:
        """The generator draws the little noise that lifts variances to λ_min; without one the result is reproducible.

        `check`: at the first question, try the model on some of the held-out images that it carries under the same noise, and warn if
        it is not calibrated there (an evaluation of `CHECKED` images), or knows no more than a bound of this measurement.
        """
        check_fit(energy, measurement)
        self.energy, self.measurement = energy, in_precision_of(energy, measurement)
        self._lifted = self.lift(generator or keyed_generator("lift"), random_fill=False)
        self._excess = energy.range.excess(self._lifted.cov)
        self._warned, self._check = False, check
        self._evaluation: Evaluation | None = None

    def __repr__(self) -> str:
        return f"Posterior({type(self.energy).__name__}, {self.measurement})"

    def lift(self, generator: torch.Generator | None = None, *, random_fill: bool = True) -> Lifted:
        """(y, Σ) in the energy's range; a fresh random fill of what was not measured, or the prior mean there."""
        template = self.measurement.template
        gaussian = self.energy.gaussian(template)
        return self.measurement.lift(self.energy.range, gaussian, generator, random_fill=random_fill)

    @property
    def covariance(self) -> Covariance:
        """Σ of the measurement as the energy sees it."""
        return self._lifted.cov

    def _warn_once(self) -> None:
        """At the first question, and not again, say that Σ lies outside of what the energy knows, or that it is not calibrated there."""
        if self._warned:
            return
        self._warned = True
        if self._excess:
            warnings.warn(f"Σ has {self._excess}: the answer is an extrapolation", stacklevel=3)
        elif self._check and (doubt := self._miscalibration()):
            warnings.warn(doubt, stacklevel=3)

    def _miscalibration(self) -> str | None:
        """What is wrong with the model under the (first) Σ of the measurement, on held-out images of its size, if it carries any."""
        reference, cov = reference_images(self.energy), self.covariance[:1]
        if reference is None or tuple(reference.shape[1:]) != (cov.channels, *cov.size):
            return None
        images = reference[:CHECKED].to(cov.log_variance)
        return calibration(self.energy, cov, images, keyed_generator("calibration")).doubt()

    # --- one shot ----------------------------------------------------------------------------------------------------------

    def evaluate(self) -> Evaluation:
        """Energy, scores, mean and variance at the measurement (one network evaluation, kept)."""
        self._warn_once()
        if self._evaluation is None:
            self._evaluation = evaluate_in_basis(self.energy, self._lifted.coefficients, self._lifted.cov)
            unknown = self._evaluation.unknown
            if self._check and unknown is not None and bool(unknown.any()):
                warnings.warn(
                    f"{int(unknown.sum())} of {len(unknown)} measurements are so unlike what the model knows that its energy is only a "
                    "bound there: the mean is a guess, and the standard deviation that of any image (is the noise as stated?)",
                    stacklevel=3,
                )
        return self._evaluation

    def mean(
        self,
        samples: int | None = None,
        path: Path | Rule | int = 50,
        *,
        generator: torch.Generator | None = None,
        progress: Progress = silent,
        chunk: int | None = None,
    ) -> Tensor:
        """E[x|y], pixels [B, C, H, W]: the restoration of least squared error, in one shot.

        With a number of `samples` it is the average of their E[x|x_t] half-way, where the noise is as loud as what one shot does not know.
        That is better than one shot for blurs and super-resolution, whose loudest noise lies on every pixel and hides the picture from the
        network, and than the average of the samples, which has their spread. In pixels (masks, maps of noise) what was measured is
        seen undisturbed, and one shot is the best there is: the average is then that of one shot after different fills.
        """
        if samples is None:
            return self.evaluate().mean
        drawn = self.draw(samples, path, generator=generator, progress=progress, chunk=chunk)
        assert drawn.average is not None
        return self._finished(drawn, samples, 1, "the mean is theirs", drawn.average).mean(dim=0)

    def _mean_level(self) -> Tensor:
        """Σv²/Σv of each measurement, [B], v being the pixels' variances in one shot: what is not known, where it is not known."""
        if self.covariance.basis == "spatial":
            return self.covariance.log_variance.new_full((self.measurement.batch,), torch.inf)
        variance = self.std().square().flatten(1)
        return variance.square().sum(1) / variance.sum(1).clamp_min(1e-30)

    def coefficient_std(self) -> Tensor:
        """√Var[x_i|y] in one shot of each coefficient of the measurement's eigenbasis, of log λ's shape.

        A learned covariance score is noisy where little is left to know, and would call some coefficients certain: no variance is
        believed below `SUREST` times that of a Gaussian with the images' own variance.
        """
        cov, found, prior = self.covariance, self.evaluate(), self._prior_variance()
        least = SUREST * cov.variance * prior / (cov.variance + prior)
        return self._or_prior(torch.maximum(found.variance, least), prior).sqrt()

    def _prior_variance(self) -> Tensor:
        """The images' own variance in the measurement's basis, of log λ's shape."""
        cov = self.covariance
        return group_mean(self.energy.gaussian(cov)[1].expand(cov.batch, cov.channels, *cov.size), cov)

    def _or_prior(self, variance: Tensor, prior: Tensor) -> Tensor:
        """A variance, or that of any image in rows of which the energy knows only a bound: they claim no certainty."""
        unknown = self.evaluate().unknown
        return variance if unknown is None else torch.where(unknown.reshape(-1, 1, 1, 1), prior, variance)

    def std(
        self,
        samples: int | None = None,
        path: Path | Rule | int = 50,
        *,
        generator: torch.Generator | None = None,
        progress: Progress = silent,
        chunk: int | None = None,
    ) -> Tensor:
        """How sure we are of every pixel, whatever the basis: the standard deviation of x given y, [B, C, H, W].

        In one shot it is the energy's own estimate of its error at every pixel, where it has learned one (`evaluate().pixel_variance`).
        For others it is exact where the basis is pixels (noise, masks); in a frequency basis it is the *diagonal approximation*: the
        coefficients' variances, averaged over the block (super-resolution) or the whole image (blurs), because one evaluation does not
        tell how coefficients are correlated. Channels that share a noise level share their mean variance.
        With a number of `samples` it is their spread, exact up to Monte Carlo and path error; an interruption leaves the spread of the
        samples that were finished, and says how many. `coefficient_std` has the frequencies.
        """
        if samples is None:
            found, cov = self.evaluate(), self.covariance
            return self._or_prior(found.variance_by_pixel, cov.full(cov.pool(self._prior_variance()))).sqrt()
        if samples < 2:
            raise ValueError(f"a spread takes at least 2 samples; got {samples}")
        drawn = self.draw(samples, path, generator=generator, progress=progress, chunk=chunk)
        return self._finished(drawn, samples, 2, "the spread is theirs").std(dim=0)

    def evidence(self) -> Tensor:
        """log p(raw data), [B], nats: of data to which the noise that lifts them to λ_min was added."""
        lifted = self._lifted
        return -(self.evaluate().energy + lifted.log_gain + lifted.fill_log_density)

    # --- densities ---------------------------------------------------------------------------------------------------------

    def _log_density(self, x: Tensor, rows: Tensor, noise: Tensor | None) -> Tensor:
        """log p(x|y), nats, of images x + noise; `rows` says which measurement (and which noise) each of them belongs to."""
        if noise is not None:
            x = x + noise[rows]
        z, cov = self._repeated(rows)
        floor = self.covariance[:1].isotropic(self.energy.range.minimum).expand(len(x))
        return self._likelihood(x, z, cov, floor) - self.energy(x, floor) + self.evaluate().energy[rows]

    def _repeated(self, rows: Tensor) -> tuple[Tensor, Covariance]:
        """(Qᵀy, Σ) of the measurements of the given numbers; views, where there is only one."""
        z, cov = self._lifted.coefficients, self._lifted.cov
        if len(z) == 1:
            return z.expand(len(rows), -1, -1, -1), cov.expand(len(rows))
        return z[rows], cov[rows]

    @staticmethod
    def _likelihood(x: Tensor, z: Tensor, cov: Covariance, floor: Covariance) -> Tensor:
        """log N(y; x, Σ−Σ_min) over what is not pinned at λ_min, [B], in float64; λ−λ_min = −λ·expm1(log λ_min − log λ)."""
        cov, log_floor = cov.to(torch.float64), floor.log_variance.double()
        # log λ_min is negative and rounded: the margin goes up from it, a few float32 units of its size
        free = cov.log_variance > log_floor + 1e-6 * (1 + log_floor.abs())
        gap = torch.where(free, log_floor - cov.log_variance, torch.full_like(cov.log_variance, -1.0))
        log_step = cov.log_variance + torch.log(-torch.expm1(gap))
        shift = z.double() - cov.analysis(x.double())
        terms = -0.5 * (shift.square() * torch.exp(-log_step) + log_step + math.log(2 * math.pi))
        return torch.where(free, terms, torch.zeros_like(terms)).sum(dim=(1, 2, 3))

    # --- samples -----------------------------------------------------------------------------------------------------------

    def draw(
        self,
        n: int,
        path: Path | Rule | int = 50,
        *,
        predictor: Predictor | None = None,
        corrector: Kernel | Sequence[Kernel] | None = None,
        corrector_steps: int = 1,
        temperature: float = 1.0,
        floor: float | None = None,
        finish: Finish = "mean",
        generator: torch.Generator | None = None,
        progress: Progress = silent,
        chunk: int | None = None,
    ) -> SampleResult:
        """n posterior samples of each measurement with all that the sampler reports; rows are sample-major: [n·B, C, H, W].

        What was not measured is filled afresh for every sample. `path` is a number of steps, a path or a guided rule; the options are
        those of `sampling.sample`.
        """
        if n < 1:
            raise ValueError(f"the number of samples is at least 1; got {n}")
        size = self._lifted.coefficients.numel() * self._lifted.coefficients.element_size()
        check_memory(7 * n * size, f"drawing {n:,} samples", "draw them in several parts")
        self._warn_once()
        rows = torch.arange(self.measurement.batch).repeat(n)
        z, cov = self._redrawn(rows, generator)
        try:
            level = self._mean_level()[rows]
        except KeyboardInterrupt:
            raise KeyboardInterrupt(NOTHING) from None
        options = SamplerOptions(path, predictor, corrector, corrector_steps, temperature, floor, finish, chunk, level)
        known = self._excess is None
        return sample_in_basis(self.energy, z, cov, options, generator=generator, progress=progress, check_range=known)

    def film(
        self,
        path: Path | Rule | int = 50,
        *,
        generator: torch.Generator | None = None,
        progress: Progress = silent,
    ) -> Film:
        """One sample on its way from the (first) measurement to the floor, level by level: where it is, E[x|x_t], and Σ_t."""
        self._warn_once()
        z, cov = self._redrawn(torch.zeros(1, dtype=torch.long), generator)
        return film_in_basis(self.energy, z, cov, path, generator=generator, progress=progress)

    def _redrawn(self, rows: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Covariance]:
        """(Qᵀy, Σ) of the measurements of the given numbers, with fresh fills.

        What was measured stays as it is lifted in every other answer, so that `log_prob` speaks of the same posterior.
        """
        z, cov = self._repeated(rows)
        if bool(self.measurement.measured.all()):
            return z, cov
        measurement = self.measurement[rows]
        fresh = measurement.lift(self.energy.range, self.energy.gaussian(measurement.template), generator)
        return torch.where(measurement.measured, z, fresh.coefficients), cov

    def sample(self, n: int, path: Path | Rule | int = 50, **options: Unpack[PathOptions]) -> Tensor:
        """n posterior samples of each measurement, [n, B, C, H, W]; options as in `draw`.

        Ctrl-C gives those that were finished, with a warning that says how many; `draw` also keeps what was on its way.
        """
        return self._finished(self.draw(n, path, **options), n, 1, "the others are left out")

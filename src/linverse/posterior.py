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
from typing import Any, Protocol

import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.degradations import ImageLike, as_tensor
from linverse.degradations.base import describe
from linverse.energy import Energy, Evaluation, evaluate_in_basis, group_mean, in_precision_of, size_text, takes
from linverse.measurement import Lifted, Measurement
from linverse.memory import check_memory
from linverse.operator_measurement import OperatorMeasurement
from linverse.progress import Progress, silent
from linverse.rng import keyed_generator, normal_like
from linverse.sampling import Kernel, Path, Predictor, SampleResult, SamplerOptions, sample_in_basis
from linverse.sampling.guided import Rule
from linverse.sampling.run import Finish
from linverse.sampling.sampler import chunk_size
from linverse.typicality import calibration, reference_images
from linverse.units import bits_per_dim, decibels_per_dim

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


class Drawn(Protocol):
    """What a sampler hands back."""

    @property
    def samples(self) -> Tensor: ...

    @property
    def completed(self) -> bool: ...


class Posterior:
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

    def __new__(cls, energy: Energy, measurement: Measurement, *rest: Any, **options: Any) -> Posterior:
        """For operators that no basis diagonalises, an `OperatorPosterior`."""
        if isinstance(measurement, OperatorMeasurement) and cls is Posterior:
            from linverse.operator_posterior import OperatorPosterior

            return super().__new__(OperatorPosterior)
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
        if not callable(energy) or not hasattr(energy, "range"):
            raise TypeError(
                f"energy is {describe(energy)}; load one with lv.load, or build an exact one of linverse.analytic"
            )
        if not isinstance(measurement, Measurement):
            raise TypeError(
                f"measurement is a {type(measurement).__name__}; make one by a degradation, e.g. "
                "lv.Denoising(sigma=0.1).from_raw(picture)"
            )
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

    def mean(self) -> Tensor:
        """E[x|y] in one shot, pixels [B, C, H, W]: the restoration of least squared error."""
        return self.evaluate().mean

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
            learned = found.pixel_variance
            variance = cov.full(cov.pool(found.variance)) if learned is None else learned
            return self._or_prior(variance, cov.full(cov.pool(self._prior_variance()))).sqrt()
        if samples < 2:
            raise ValueError(f"a spread takes at least 2 samples; got {samples}")
        drawn = self.draw(samples, path, generator=generator, progress=progress, chunk=chunk)
        whole = self._by_measurement(drawn.samples)
        if len(whole) < 2:
            raise KeyboardInterrupt("interrupted before two samples were finished: they have no spread")
        self._say_interrupted(drawn, samples, "the spread is theirs")
        return whole.std(dim=0)

    def evidence(self) -> Tensor:
        """log p(raw data), [B], nats: of data to which the noise that lifts them to λ_min was added."""
        lifted = self._lifted
        return -(self.evaluate().energy + lifted.log_gain + lifted.fill_log_density)

    # --- densities ---------------------------------------------------------------------------------------------------------

    def log_prob(
        self, x: ImageLike, *, unit: str = "nats", floor_noise: bool = False, generator: torch.Generator | None = None
    ) -> Tensor:
        """log p(x|y), [B]: nats, "bits/dim" (negative log) or "dB/dim". x are images at the floor λ_min, one for each measurement.

        (For a single measurement there may be any number of them.)
        With `floor_noise` N(0, λ_min) is added to x first: do so for clean images; it is the same for all that are compared.
        """
        self._warn_once()
        check_unit(unit)
        images = self._images(x)
        count = self.measurement.batch
        if len(images) != count and count != 1:
            raise ValueError(f"there are {len(images)} images for {count} measurements; give one for each")
        rows = torch.arange(count).expand(len(images)) if count == 1 else torch.arange(count)
        noise = self._floor_noise(images, generator) if floor_noise else None
        return in_unit(self._log_density(images, rows, noise), self.covariance.dim, unit)

    @torch.no_grad()
    def rank(
        self,
        samples: ImageLike,
        *,
        unit: str = "nats",
        floor_noise: bool = False,
        generator: torch.Generator | None = None,
        chunk: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Samples [n, B, C, H, W] sorted by log p(x|y), most probable first, and those log-densities [n, B] (options as in `log_prob`).

        `chunk` images are evaluated at a time.
        """
        self._warn_once()
        check_unit(unit)
        count = self.measurement.batch
        given = as_tensor(samples, "samples")
        if given.ndim != 5 or given.shape[1] != count or len(given) == 0:
            raise ValueError(f"samples have shape {tuple(given.shape)}; they must be [n ≥ 1, {count}, C, H, W]")
        flat, rows = self._images(given.flatten(0, 1), "samples"), torch.arange(count).repeat(len(given))
        noise = self._floor_noise(flat, generator) if floor_noise else None
        parts = torch.arange(len(flat)).split(chunk_size(chunk, self.covariance))
        log_density = torch.cat([self._log_density(flat[part], rows[part], noise) for part in parts])
        if bool(log_density.isnan().any()):
            raise FloatingPointError(f"log p(x|y) is NaN for {int(log_density.isnan().sum())} of {len(flat)} samples")
        values, order = log_density.unflatten(0, (-1, count)).sort(dim=0, descending=True)
        return given[order, torch.arange(count)], in_unit(values, self.covariance.dim, unit)

    def _images(self, x: ImageLike, name: str = "image") -> Tensor:
        """Images that a density can be asked of, in the measurement's precision."""
        images = as_tensor(x, name)
        self.covariance.check_image(images)
        if len(images) == 0:
            raise ValueError(f"{name} has shape {tuple(images.shape)}: there is nothing in it")
        if not bool(torch.isfinite(images).all()):
            raise ValueError(f"{name} has {int((~torch.isfinite(images)).sum())} NaN or infinite pixels")
        return images.to(self.covariance.log_variance)

    def _floor_noise(self, like: Tensor, generator: torch.Generator | None) -> Tensor:
        """N(0, λ_min) for each measurement, [B, C, H, W]."""
        floor = self.covariance.isotropic(self.energy.range.minimum)
        blank = like.new_empty(self.measurement.batch, *like.shape[1:])
        return floor.colour(normal_like(blank, generator or keyed_generator("floor")))

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
        check_memory(6 * n * size, f"drawing {n:,} samples", "draw them in several parts")
        self._warn_once()
        z, cov = self._redrawn(torch.arange(self.measurement.batch).repeat(n), generator)
        options = SamplerOptions(path, predictor, corrector, corrector_steps, temperature, floor, finish, chunk)
        known = self._excess is None
        return sample_in_basis(self.energy, z, cov, options, generator=generator, progress=progress, check_range=known)

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

    def sample(
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
    ) -> Tensor:
        """n posterior samples of each measurement, [n, B, C, H, W]; options as in `draw`.

        Ctrl-C gives those that were finished, with a warning that says how many; `draw` also keeps what was on its way.
        """
        drawn = self.draw(
            n,
            path,
            predictor=predictor,
            corrector=corrector,
            corrector_steps=corrector_steps,
            temperature=temperature,
            floor=floor,
            finish=finish,
            generator=generator,
            progress=progress,
            chunk=chunk,
        )
        finished = self._by_measurement(drawn.samples)
        if len(finished) == 0:
            raise KeyboardInterrupt("interrupted before a sample was finished (fewer at a time: `chunk`)")
        self._say_interrupted(drawn, n, "the others are left out")
        return finished

    def _say_interrupted(self, drawn: Drawn, wanted: int, consequence: str) -> None:
        if not drawn.completed:
            finished = len(drawn.samples) // self.measurement.batch
            warnings.warn(f"interrupted: {finished} of {wanted} samples were finished; {consequence}", stacklevel=3)

    def _by_measurement(self, samples: Tensor) -> Tensor:
        """[n·B, …] → [n, B, …], without what an interruption left of a round."""
        count = self.measurement.batch
        return samples[: len(samples) // count * count].unflatten(0, (len(samples) // count, count))


def check_fit(energy: Energy, measurement: Measurement) -> None:
    """Refuse a measurement of images of another shape than the energy's (None: any)."""
    template = measurement.template
    found = (template.channels, *template.size)
    if not takes(energy.shape, found):
        taken = size_text(energy.shape)
        raise ValueError(f"the measurement is of {'×'.join(map(str, found))} images; the model takes {taken} images")


UNITS = ("nats", "bits/dim", "dB/dim")


def check_unit(unit: str) -> None:
    """Refuse a unit that is none, before anything is computed."""
    if unit not in UNITS:
        raise ValueError(f'unit is {unit!r}; it can be "nats", "bits/dim" or "dB/dim"')


def in_unit(log_density: Tensor, dim: int, unit: str) -> Tensor:
    """A log-density in the unit that was asked for."""
    check_unit(unit)
    if unit == "nats":
        return log_density
    return bits_per_dim(log_density, dim) if unit == "bits/dim" else decibels_per_dim(log_density, dim)

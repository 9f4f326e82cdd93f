"""Posterior(energy, measurement): what a user holds. One model answers every question about a degraded image.

Densities are of images at the energy's floor λ_min, x + N(0, λ_min): with K = (C+λ_min)/(C+λ) and V = (C+λ_min)(λ−λ_min)/(C+λ),
    log p(x|y) = Σ_i log N(x_i; m + K(y−m), V) − R(x, Σ_min) + R(y, Σ),   R = U − U_G,
which equals −U(x, Σ_min) + log N(y; x, Σ−Σ_min) + U(y, Σ) without its cancellations. Coefficients already at λ_min are pinned and
leave the density.

The most probable x is not among the answers: at the floor of a high-dimensional density it looks like no sample, and from where a search
for it starts decides what it finds. `rank` sorts samples by their density instead.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.energy import Energy, Evaluation, evaluate_in_basis
from linverse.measurement import Lifted, Measurement
from linverse.rng import keyed_generator, normal_like
from linverse.sampling import Path, SampleResult, sample
from linverse.sampling.guided import Rule
from linverse.sampling.sampler import chunk_size
from linverse.units import bits_per_dim, decibels_per_dim


def gaussian_energy(energy: Energy, y: Tensor, cov: Covariance) -> Tensor:
    """U_G = −log N(y; m, C + Σ) of the energy's own Gaussian, [B], float64."""
    mean, prior = energy.gaussian(cov)
    total = cov.with_log_variance(torch.logaddexp(prior.log(), cov.log_variance))
    quadratic = total.mahalanobis_coefficients(cov.analysis(y) - mean)
    return 0.5 * (quadratic + total.logdet() + cov.dim * math.log(2 * math.pi))


def residual(energy: Energy, y: Tensor, cov: Covariance) -> Tensor:
    """R = U − U_G, [B], float64."""
    return energy(y, cov) - gaussian_energy(energy, y, cov)


class Posterior:
    """p(x | measurement) under an energy's prior."""

    def __init__(self, energy: Energy, measurement: Measurement, generator: torch.Generator | None = None) -> None:
        """The generator draws the little noise that lifts variances to λ_min; without one the result is reproducible."""
        channels, height, width = energy.shape
        template = measurement.template
        if (template.channels, *template.size) != energy.shape:
            raise ValueError(
                f"the measurement is of {template.channels}×{template.size[0]}×{template.size[1]} images; "
                f"the model takes {channels}×{height}×{width} images"
            )
        self.energy, self.measurement = energy, measurement
        self._lifted = self.lift(generator or keyed_generator("lift"), random_fill=False)
        self._excess = energy.range.excess(self._lifted.cov)
        self._warned = False
        self._evaluation: Evaluation | None = None
        self._residual: Tensor | None = None

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
        """At the first question, and not again, say that Σ lies outside of what the energy knows, if it does."""
        if self._excess and not self._warned:
            self._warned = True
            warnings.warn(f"Σ has {self._excess}: the answer is an extrapolation", stacklevel=3)

    # --- one shot ----------------------------------------------------------------------------------------------------------

    def evaluate(self) -> Evaluation:
        """Energy, scores, mean and variance at the measurement (one network evaluation, kept)."""
        self._warn_once()
        if self._evaluation is None:
            self._evaluation = evaluate_in_basis(
                self.energy, self._lifted.cov.analysis(self._lifted.y), self._lifted.cov
            )
        return self._evaluation

    def mean(self) -> Tensor:
        """E[x|y] in one shot, [B, C, H, W]."""
        return self.evaluate().mean

    def std(self, samples: int | None = None, steps: Path | Rule | int = 50, **options: Any) -> Tensor:
        """√Var[x_i|y] in one shot, of log λ's shape, per coefficient of the measurement's basis (pixels for masks and denoising).

        With a number of `samples`, their spread in pixels, [B, C, H, W], whatever the basis; steps and options as in `draw`. An
        interruption leaves the spread of the samples that were finished.
        """
        if samples is None:
            return self.evaluate().variance.sqrt()
        if samples < 2:
            raise ValueError(f"a spread takes at least 2 samples; got {samples}")
        drawn = self.draw(samples, steps, **options)
        whole = self._by_measurement(drawn.samples[: drawn.finished])
        if len(whole) < 2:
            raise KeyboardInterrupt("interrupted before two samples were finished: they have no spread")
        return whole.std(dim=0)

    def evidence(self) -> Tensor:
        """log p(raw data), [B], nats: of data to which the noise that lifts them to λ_min was added."""
        lifted = self._lifted
        return -(self.evaluate().energy + lifted.log_gain + lifted.fill_log_density)

    # --- densities ---------------------------------------------------------------------------------------------------------

    def log_prob(
        self, x: Tensor, *, unit: str = "nats", floor_noise: bool = False, generator: torch.Generator | None = None
    ) -> Tensor:
        """log p(x|y), [B]: nats, "bits/dim" (negative log) or "dB/dim". x are images at the floor λ_min, one for each measurement.

        (For a single measurement there may be any number of them.)
        With `floor_noise` N(0, λ_min) is added to x first: do so for clean images; it is the same for all that are compared.
        """
        self._warn_once()
        check_unit(unit)
        self.covariance.check_image(x)
        count = self.measurement.batch
        if len(x) != count and count != 1:
            raise ValueError(f"there are {len(x)} images for {count} measurements; give one for each")
        rows = torch.arange(count).expand(len(x)) if count == 1 else torch.arange(count)
        noise = self._floor_noise(x, generator) if floor_noise else None
        return in_unit(self._log_density(x, rows, noise), self.covariance.dim, unit)

    @torch.no_grad()
    def rank(
        self,
        samples: Tensor,
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
        if samples.ndim != 5 or samples.shape[1] != count or len(samples) == 0:
            raise ValueError(f"samples have shape {tuple(samples.shape)}; they must be [n ≥ 1, {count}, C, H, W]")
        flat, rows = samples.flatten(0, 1), torch.arange(count).repeat(len(samples))
        self.covariance.check_image(flat)
        noise = self._floor_noise(flat, generator) if floor_noise else None
        parts = torch.arange(len(flat)).split(chunk_size(chunk, self.covariance))
        log_density = torch.cat([self._log_density(flat[part], rows[part], noise) for part in parts])
        if bool(log_density.isnan().any()):
            raise FloatingPointError(f"log p(x|y) is NaN for {int(log_density.isnan().sum())} of {len(flat)} samples")
        values, order = log_density.unflatten(0, (-1, count)).sort(dim=0, descending=True)
        return samples[order, torch.arange(count)], in_unit(values, self.covariance.dim, unit)

    def _floor_noise(self, like: Tensor, generator: torch.Generator | None) -> Tensor:
        """N(0, λ_min) for each measurement, [B, C, H, W]."""
        floor = self.covariance.isotropic(self.energy.range.minimum)
        blank = like.new_empty(self.measurement.batch, *like.shape[1:])
        return floor.colour(normal_like(blank, generator or keyed_generator("floor")))

    def _log_density(self, x: Tensor, rows: Tensor, noise: Tensor | None) -> Tensor:
        """log p(x|y), nats, of images x + noise; `rows` says which measurement (and which noise) each of them belongs to."""
        if noise is not None:
            x = x + noise[rows]
        y, cov = self._repeated(rows)
        floor = self.covariance[:1].isotropic(self.energy.range.minimum).expand(len(x))
        return self._transition(x, y, cov, floor) - residual(self.energy, x, floor) + self._residual_of_y()[rows]

    def _repeated(self, rows: Tensor) -> tuple[Tensor, Covariance]:
        """(y, Σ) of the measurements of the given numbers; views, where there is only one."""
        y, cov = self._lifted.y, self._lifted.cov
        if len(y) == 1:
            return y.expand(len(rows), -1, -1, -1), cov.expand(len(rows))
        return y[rows], cov[rows]

    @torch.no_grad()
    def _residual_of_y(self) -> Tensor:
        """R(y, Σ), [B], evaluated once."""
        if self._residual is None:
            self._residual = residual(self.energy, self._lifted.y, self._lifted.cov)
        return self._residual

    def _transition(self, x: Tensor, y: Tensor, cov: Covariance, floor: Covariance) -> Tensor:
        """Σ_i log N(x_i; m + K(y−m), V) over the coefficients that are not pinned at λ_min."""
        mean, prior = self.energy.gaussian(cov)
        log_prior = prior.log()
        log_total = torch.logaddexp(log_prior, cov.log_variance)
        log_low = torch.logaddexp(log_prior, floor.log_variance)
        # log λ_min is negative and rounded: the margin goes up from it, a few float32 units of its size
        free = cov.log_variance > floor.log_variance + 1e-6 * (1 + floor.log_variance.abs())
        gap = torch.where(free, floor.log_variance - cov.log_variance, torch.full_like(cov.log_variance, -1.0))
        log_spread = log_low + cov.log_variance + torch.log(-torch.expm1(gap)) - log_total
        shift = cov.analysis(x) - mean - torch.exp(log_low - log_total) * (cov.analysis(y) - mean)
        terms = -0.5 * (shift.square() * torch.exp(-log_spread) + log_spread + math.log(2 * math.pi))
        return torch.where(free, terms, torch.zeros_like(terms)).double().sum(dim=(1, 2, 3))

    # --- samples -----------------------------------------------------------------------------------------------------------

    def draw(
        self, n: int, steps: Path | Rule | int = 50, *, generator: torch.Generator | None = None, **options: Any
    ) -> SampleResult:
        """n posterior samples of each measurement with all that the sampler reports; rows are sample-major: [n·B, C, H, W].

        What was not measured is filled afresh for every sample. `steps` is a number, a path or a guided rule; the other options
        (`predictor`, `corrector`, `corrector_steps`, `temperature`, `finish`, `progress`, `chunk`) are those of `sampling.sample`.
        """
        if n < 1:
            raise ValueError(f"the number of samples is at least 1; got {n}")
        self._warn_once()
        y, cov = self._redrawn(torch.arange(self.measurement.batch).repeat(n), generator)
        return sample(self.energy, y, cov, steps, generator=generator, check_range=self._excess is None, **options)

    def _redrawn(self, rows: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Covariance]:
        """(y, Σ) of the measurements of the given numbers, with fresh fills.

        What was measured stays as it is lifted in every other answer, so that `log_prob` speaks of the same posterior.
        """
        y, cov = self._repeated(rows)
        if bool(self.measurement.measured.all()):
            return y, cov
        measurement = self.measurement[rows]
        fresh = measurement.lift(self.energy.range, self.energy.gaussian(measurement.template), generator)
        z = torch.where(measurement.measured, cov.analysis(y), cov.analysis(fresh.y))
        return cov.synthesis(z), cov

    def sample(self, n: int, steps: Path | Rule | int = 50, **options: Any) -> Tensor:
        """n posterior samples of each measurement, [n, B, C, H, W]; options as in `draw`.

        Ctrl-C gives what is there, with a warning: `draw` tells how many of them are finished.
        """
        drawn = self.draw(n, steps, **options)
        if not drawn.completed:
            warnings.warn(
                f"interrupted: {drawn.finished} samples are finished; any after them are means given the noise that was left",
                stacklevel=2,
            )
        return self._by_measurement(drawn.samples)

    def _by_measurement(self, samples: Tensor) -> Tensor:
        """[n·B, …] → [n, B, …], without what an interruption left of a round."""
        count = self.measurement.batch
        return samples[: len(samples) // count * count].unflatten(0, (len(samples) // count, count))


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

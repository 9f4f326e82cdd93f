"""Posterior(energy, measurement): what a user holds. One model answers every question about a degraded image.

Densities are of images at the energy's floor λ_min, x + N(0, λ_min): with K = (C+λ_min)/(C+λ) and V = (C+λ_min)(λ−λ_min)/(C+λ),
    log p(x|y) = Σ_i log N(x_i; m + K(y−m), V) − R(x, Σ_min) + R(y, Σ),   R = U − U_G,
which equals −U(x, Σ_min) + log N(y; x, Σ−Σ_min) + U(y, Σ) without its cancellations. Coefficients already at λ_min are pinned and
leave the density.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.energy import Energy, Evaluation, evaluate
from linverse.measurement import Lifted, Measurement
from linverse.rng import keyed_generator, normal_like
from linverse.sampling import Path, SampleResult, sample
from linverse.sampling.guided import Rule
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
        self._evaluation: Evaluation | None = None

    def lift(self, generator: torch.Generator | None = None, *, random_fill: bool = True) -> Lifted:
        """(y, Σ) in the energy's range; a fresh random fill of what was not measured, or the prior mean there."""
        template = self.measurement.template
        gaussian = self.energy.gaussian(template)
        return self.measurement.lift(self.energy.range, gaussian, generator, random_fill=random_fill)

    @property
    def covariance(self) -> Covariance:
        """Σ of the measurement as the energy sees it."""
        return self._lifted.cov

    def evaluate(self) -> Evaluation:
        """Energy, scores, mean and variance at the measurement (one network evaluation, kept)."""
        if self._evaluation is None:
            self._evaluation = evaluate(self.energy, self._lifted.y, self._lifted.cov)
        return self._evaluation

    def mean(self) -> Tensor:
        """E[x|y] in one shot, [B, C, H, W]."""
        return self.evaluate().mean

    def std(self) -> Tensor:
        """√Var[x_i|y] in one shot, of log λ's shape, per coefficient of the measurement's basis (pixels for masks and denoising)."""
        return self.evaluate().variance.sqrt()

    def log_prob(
        self, x: Tensor, *, unit: str = "nats", floor_noise: bool = False, generator: torch.Generator | None = None
    ) -> Tensor:
        """log p(x|y), [B]: nats, "bits/dim" (negative log) or "dB/dim". x is an image at the floor λ_min.

        With `floor_noise` N(0, λ_min) is added to x first: do so for clean images, alike for all that are compared.
        """
        y, cov = self._lifted.y, self._lifted.cov
        cov.check_image(x)
        floor = cov.isotropic(self.energy.range.minimum)
        if floor_noise:
            x = x + floor.colour(normal_like(x, generator or keyed_generator("floor")))
        log_density = (
            self._transition(x, y, cov, floor) - residual(self.energy, x, floor) + residual(self.energy, y, cov)
        )
        return in_unit(log_density, cov.dim, unit)

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

    def draw(
        self, n: int, steps: Path | Rule | int = 50, *, generator: torch.Generator | None = None, **options: Any
    ) -> SampleResult:
        """n posterior samples of each measurement with all that the sampler reports; rows are sample-major: [n·B, C, H, W].

        What was not measured is filled afresh for every sample. `steps` is a number, a path or a guided rule; the other options
        (`predictor`, `corrector`, `corrector_steps`, `temperature`, `finish`, `progress`, `chunk`) are those of `sampling.sample`.
        """
        if n < 1:
            raise ValueError(f"the number of samples is at least 1; got {n}")
        rows = torch.arange(self.measurement.batch).repeat(n)
        gaussian = self.energy.gaussian(self.measurement.template)
        lifted = self.measurement[rows].lift(self.energy.range, gaussian, generator)
        return sample(self.energy, lifted.y, lifted.cov, steps, generator=generator, **options)

    def sample(self, n: int, steps: Path | Rule | int = 50, **options: Any) -> Tensor:
        """n posterior samples of each measurement, [n, B, C, H, W]; options as in `draw`."""
        samples = self.draw(n, steps, **options).samples
        return samples[: len(samples) // self.measurement.batch * self.measurement.batch].unflatten(
            0, (-1, self.measurement.batch)
        )

    def rank(self, samples: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
        """Samples [n, B, C, H, W] sorted by log p(x|y), most probable first, and those log-densities [n, B]."""
        log_density = torch.stack([self.log_prob(x, **options) for x in samples])
        values, order = log_density.sort(dim=0, descending=True)
        return samples[order, torch.arange(samples.shape[1])], values

    def evidence(self) -> Tensor:
        """log p(raw data), [B], nats: of data to which the noise that lifts them to λ_min was added."""
        lifted = self._lifted
        return -(self.evaluate().energy + lifted.log_gain + lifted.fill_log_density)


def in_unit(log_density: Tensor, dim: int, unit: str) -> Tensor:
    """A log-density in the unit that was asked for."""
    if unit == "nats":
        return log_density
    if unit == "bits/dim":
        return bits_per_dim(log_density, dim)
    if unit == "dB/dim":
        return decibels_per_dim(log_density, dim)
    raise ValueError(f'unit is {unit!r}; it can be "nats", "bits/dim" or "dB/dim"')

"""What every posterior answers, whatever its operator: samples, a mean and a spread, and how probable an image is.

`Posterior` knows a basis that diagonalises the operator and asks the energy once; `OperatorPosterior` has none, and samples. They share
the questions here, and the options that mean the same for both; each of them adds its own.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import Protocol, TypedDict, Unpack

import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.degradations import ImageLike, as_tensor
from linverse.degradations.base import describe
from linverse.energy import Energy, size_text, takes
from linverse.measurement import Measurement
from linverse.progress import Progress, silent
from linverse.rng import keyed_generator, normal_like
from linverse.sampling.run import Finish
from linverse.sampling.sampler import chunk_size
from linverse.units import bits_per_dim, decibels_per_dim


class Drawn(Protocol):
    """What a sampler hands back."""

    @property
    def samples(self) -> Tensor: ...

    @property
    def completed(self) -> bool: ...


class DrawOptions(TypedDict, total=False):
    """What can be said of the samples of any posterior: how they end, their noise, whom to tell, and how many are held at a time."""

    finish: Finish
    generator: torch.Generator | None
    progress: Progress
    chunk: int | None


class AnyPosterior(ABC):
    """p(x | measurement): the questions that `Posterior` and `OperatorPosterior` both answer."""

    energy: Energy
    measurement: Measurement

    @property
    @abstractmethod
    def covariance(self) -> Covariance:
        """Σ of the noisy images in which the energy is asked: its basis, size and precision."""

    @abstractmethod
    def mean(self) -> Tensor:
        """E[x|y], pixels [B, C, H, W]: the restoration of least squared error."""

    @abstractmethod
    def std(
        self,
        samples: int | None = None,
        *,
        generator: torch.Generator | None = None,
        progress: Progress = silent,
        chunk: int | None = None,
    ) -> Tensor:
        """How sure we are of every pixel, [B, C, H, W]."""

    @abstractmethod
    def _log_density(self, x: Tensor, rows: Tensor, noise: Tensor | None) -> Tensor:
        """log p(x|y), nats, of images x + noise; `rows` says which measurement (and which noise) each of them belongs to."""

    @abstractmethod
    def _warn_once(self) -> None:
        """At the first question: what there is to be said of the measurement."""

    # --- samples -----------------------------------------------------------------------------------------------------------

    @abstractmethod
    def draw(
        self,
        n: int,
        *,
        finish: Finish = "mean",
        generator: torch.Generator | None = None,
        progress: Progress = silent,
        chunk: int | None = None,
    ) -> Drawn:
        """n posterior samples of each measurement with all that the sampler reports; rows are sample-major: [n·B, C, H, W]."""

    @abstractmethod
    def sample(self, n: int, **options: Unpack[DrawOptions]) -> Tensor:
        """n posterior samples of each measurement, [n, B, C, H, W]; options as in `draw`."""

    def _finished(self, drawn: Drawn, wanted: int, fewest: int, consequence: str, what: Tensor | None = None) -> Tensor:
        """What of [n·B, …] (the samples) is finished, [n, B, …]; less than was wanted is said, and fewer than so many are none."""
        finished = self._by_measurement(drawn.samples if what is None else what)
        if len(finished) < fewest:
            few = "a sample was" if fewest == 1 else "two samples were"
            raise KeyboardInterrupt(f"interrupted before {few} finished (fewer at a time: `chunk`)")
        if not drawn.completed:
            warnings.warn(
                f"interrupted: {len(finished)} of {wanted} samples were finished; {consequence}", stacklevel=3
            )
        return finished

    def _by_measurement(self, samples: Tensor) -> Tensor:
        """[n·B, …] → [n, B, …], without what an interruption left of a round."""
        count = self.measurement.batch
        return samples[: len(samples) // count * count].unflatten(0, (len(samples) // count, count))

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


def check_fit(energy: Energy, measurement: Measurement) -> None:
    """Refuse what is no energy or no measurement, and one of images of another shape than the energy's (None: any)."""
    if not callable(energy) or not hasattr(energy, "range"):
        raise TypeError(
            f"energy is {describe(energy)}; load one with lv.load, or build an exact one of linverse.analytic"
        )
    if not isinstance(measurement, Measurement):
        raise TypeError(
            f"measurement is a {type(measurement).__name__}; make one by a degradation, e.g. "
            "lv.Denoising(sigma=0.1).from_raw(picture)"
        )
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

"""Is this measurement like what the model knows? Error bars mean little without an answer.

Typicality compares U(y, Σ) with its distribution over *held-out* images seen in the same way. Where y's energy lies in
either tail, the image is unlike the training data (too high), or the noise is not what was said (too low, for white noise that is
overstated). For y to be judged alone its rank among n reference energies is a p-value, uniform if y is typical: at best 2/(n+1).

"In the same way" is y = x + N(0, Σ) for a noisy image. A measurement has more to it: where nothing was measured, y is filled, and is no
draw of p(y|Σ). The reference images then go through the same gains, noise and lift, with the same fill (the prior's mean on both sides: a
random one would add a variance of ½ nat² a coefficient to either).

A Σ of an unusual shape is judged by the covariance score: on held-out images whose noise is known, E[κ] = 0 and the regression of
½(1−ε²) on κ has slope 1 wherever the model is calibrated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.degradations import ImageLike
from linverse.energy import (
    Energy,
    check_pair,
    check_shapes,
    checked_images,
    evaluate,
    floor_covariance,
    group_mean,
    log_prob,
    matched,
)
from linverse.measurement import Measurement
from linverse.progress import Progress, silent
from linverse.rng import keyed_generator, normal_like
from linverse.store.references import references_of

FEWEST = 20  # reference images
LEVEL = 0.02  # of a false alarm
TOLD = 10.0  # times the images' own variance: noise above it tells nothing of a model
BATCHED_PIXELS = 2**12  # of pictures that are scored many at a time
LARGEST_BIAS, LARGEST_SLOPE_ERROR = 0.05, 0.3  # of the covariance score, before a model is not trusted with a Σ


def reference_images(energy: Energy) -> Tensor | None:
    """The held-out images [n, C, H, W] in [0, 1] that an energy carries, or None."""
    references = references_of(energy)
    return None if references is None else references.images()


# --- images ------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Typicality:
    """Where energies [B] lie among those of n reference images [1 or B, n]: `z`-scores and two-sided `p` values, [B]."""

    energy: Tensor
    reference: Tensor
    z: Tensor
    p: Tensor

    def __repr__(self) -> str:
        lines = self.describe()
        return f"Typicality({'; '.join(lines[:3])}{'; …' if len(lines) > 3 else ''})"

    @property
    def count(self) -> int:
        """n."""
        return self.reference.shape[1]

    def unusual(self, level: float = LEVEL) -> Tensor:
        """[B], True where the measurement is unlike the reference: p ≤ level, or p as small as n references can tell, 2/(n+1)."""
        return self.p <= max(level, 2 / (self.count + 1)) * (1 + 1e-9)

    def describe(self, level: float = LEVEL) -> list[str]:
        """A sentence for each measurement."""
        lines = []
        for z, p, odd in zip(self.z.tolist(), self.p.tolist(), self.unusual(level).tolist(), strict=True):
            if not odd:
                lines.append(f"typical of what the model knows (p = {p:.2f})")
            elif z > 0:
                lines.append(
                    f"unlike what the model knows: less probable than held-out images by {z:.1f} sd (p = {p:.3f})"
                )
            else:
                lines.append(
                    f"suspiciously probable: {-z:.1f} sd below held-out images (p = {p:.3f}); is the noise as stated?"
                )
        return lines

    def records(self) -> list[dict[str, Any]]:
        """The same as numbers, for a JSON file."""
        rows = zip(self.p.tolist(), self.z.tolist(), self.unusual().tolist(), self.describe(), strict=True)
        return [
            {"p": p, "z": z, "unusual": odd, "reference_images": self.count, "verdict": text}
            for p, z, odd, text in rows
        ]


def compare(observed: Tensor, reference: Tensor) -> Typicality:
    """Energies [B] among those of references, [1, n] for all or [B, n]."""
    count = reference.shape[1]
    if count < FEWEST:
        raise ValueError(f"typicality needs at least {FEWEST} held-out images to compare with; got {count}")
    if not bool(torch.isfinite(observed).all() and torch.isfinite(reference).all()):
        raise ValueError("the energy is NaN or infinite for the measurement or for held-out images: nothing to compare")
    z = (observed - reference.mean(dim=1)) / reference.std(dim=1)
    below = (reference < observed[:, None]).sum(dim=1)
    tail = torch.minimum(below, count - below).double()
    return Typicality(observed, reference, z, (2 * (tail + 1) / (count + 1)).clamp_max(1.0))


@torch.no_grad()
def typicality(
    energy: Energy,
    y: Tensor,
    cov: Covariance,
    reference: Tensor,
    generator: torch.Generator | None = None,
    chunk: int = 128,
) -> Typicality:
    """Compare U(y, Σ) of each noisy image with held-out images `reference` [n, C, H, W] under that Σ (one for all rows, or one per row)."""
    check_pair(energy, y, cov)
    shared = cov.batch == 1 or bool((cov.log_variance == cov.log_variance[:1]).all())
    groups = [cov[:1]] if shared else [cov[i : i + 1] for i in range(cov.batch)]
    rows = [noisy_energies(energy, group, reference, generator, chunk) for group in groups]
    return compare(energy(*matched(y, cov)), torch.stack(rows))


@torch.no_grad()
def noisy_energies(
    energy: Energy, cov: Covariance, x: Tensor, generator: torch.Generator | None = None, chunk: int = 128
) -> Tensor:
    """U(x + N(0, Σ), Σ) of images x under one Σ (batch 1), [n]."""

    def noisy(part: Tensor) -> tuple[Tensor, Covariance]:
        noise = cov.expand(len(part))
        return part + noise.colour(normal_like(part, generator)), noise

    return _energies(energy, x.to(cov.log_variance), noisy, chunk)


@torch.no_grad()
def measurement_typicality(
    energy: Energy,
    measurement: Measurement,
    reference: Tensor,
    generator: torch.Generator | None = None,
    chunk: int = 128,
    observed: Tensor | None = None,
) -> Typicality:
    """Compare each measurement with what the same instrument would have measured of held-out images `reference` [n, C, H, W].

    `observed` are the measurements' own energies U(y, Σ), [B], where they are known already (`Posterior.evaluate`).
    """
    shared = measurement.log_gain.shape[0] == measurement.log_noise.shape[0] == 1
    groups = [measurement] if shared else [measurement[i : i + 1] for i in range(measurement.batch)]
    if observed is None:
        # the noise of the lift is the one that `Posterior` draws, so that both judge the same y
        y, cov = _lift(energy, measurement, keyed_generator("lift"))
        check_pair(energy, y, cov)
        observed = energy(y, cov)
    rows = [measured_energies(energy, group, reference, generator, chunk) for group in groups]
    return compare(observed, torch.stack(rows))


@torch.no_grad()
def measured_energies(
    energy: Energy, measurement: Measurement, x: Tensor, generator: torch.Generator | None = None, chunk: int = 128
) -> Tensor:
    """U(y, Σ) of images x that go through the gains, noise and lift of one measurement, [n]."""

    def measured(part: Tensor) -> tuple[Tensor, Covariance]:
        return _lift(energy, alike(measurement, part, generator), generator)

    return _energies(energy, x.to(measurement.coefficients), measured, chunk)


def _lift(energy: Energy, measurement: Measurement, generator: torch.Generator | None) -> tuple[Tensor, Covariance]:
    """(y, Σ), what was not measured at the prior's mean."""
    gaussian = energy.gaussian(measurement.template)
    lifted = measurement.lift(energy.range, gaussian, generator, random_fill=False)
    return lifted.y, lifted.cov


def alike(measurement: Measurement, x: Tensor, generator: torch.Generator | None = None) -> Measurement:
    """Images x [n, C, H, W] measured with the gains and the noise of one measurement: z = |h|x + √ν v."""
    noise = torch.exp(0.5 * measurement.log_noise) * normal_like(x, generator)
    z = measurement.template.analysis(x) * measurement.log_gain.exp() + noise
    return replace(measurement, raw=z, coefficients=z, hidden=None)


def _energies(energy: Energy, x: Tensor, see: Callable[[Tensor], tuple[Tensor, Covariance]], chunk: int) -> Tensor:
    return torch.cat([energy(*see(part)) for part in x.split(chunk)])


# --- noises ------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Calibration:
    """How well an energy knows a Σ: `bias` = E[κ] (0), `slope` of ½(1−ε²) on κ (1), and their standard errors over images."""

    bias: float
    bias_error: float
    slope: float
    slope_error: float

    def doubt(self) -> str | None:
        """Why error bars under this Σ are not to be trusted, or None: deviations that are large, and beyond chance (4 standard errors)."""
        bias, slope = abs(self.bias) - 4 * self.bias_error, abs(self.slope - 1) - 4 * self.slope_error
        if bias <= LARGEST_BIAS and slope <= LARGEST_SLOPE_ERROR:
            return None
        return (
            f"the model is not calibrated for noise of this shape: on held-out images its covariance score has mean {self.bias:+.2f} "
            f"(0 if all is well) and slope {self.slope:.2f} (1)"
        )


def covariance_score_pairs(energy: Energy, x: Tensor, cov: Covariance, noise: Tensor) -> tuple[Tensor, Tensor]:
    """κ at x + Σ^{1/2}ε, and its target ½(1−ε²), both as means over the channels that share λ: of log λ's shape, float64."""
    kappa = evaluate(energy, x + cov.colour(noise), cov).cov_score.double()
    return kappa, group_mean(0.5 * (1 - noise.double().square()), cov)


def calibration_of(kappa: Tensor, target: Tensor) -> Calibration:
    """Mean of κ and slope of its target on it, [n, …] each, with standard errors over images."""
    means = kappa.flatten(1).mean(dim=1)
    products, squares = ((kappa * other).flatten(1).mean(dim=1) for other in (target, kappa))
    slope, root = products.sum() / squares.sum(), len(kappa) ** 0.5
    slope_error = (products - slope * squares).std() / (root * squares.mean())
    return Calibration(float(means.mean()), float(means.std()) / root, float(slope), float(slope_error))


def calibration(
    energy: Energy, cov: Covariance, reference: Tensor, generator: torch.Generator | None = None
) -> Calibration:
    """Judge one Σ (batch 1) on held-out images with known noise, by the coefficients of which something was measured.

    Where λ ≫ C the target is κ itself, whatever the model knows: coefficients with λ above `TOLD`·C say nothing (unless all are such).
    """
    noise = normal_like(reference, generator)
    pairs = covariance_score_pairs(energy, reference, cov.expand(len(reference)), noise)
    prior = group_mean(energy.gaussian(cov)[1].expand(1, cov.channels, *cov.size), cov)
    told = (cov.variance <= TOLD * prior)[0]
    return calibration_of(*(values[:, told] for values in pairs) if bool(told.any()) else pairs)


# --- scores ------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scores:
    """log p of images at the floor, [n], nats, and where they lie among held-out images (of a model that carries some)."""

    log_density: Tensor
    typicality: Typicality | None

    def __repr__(self) -> str:
        low, high = (f"{float(value):.1f}" for value in self.log_density.aminmax())
        return f"Scores({len(self.log_density)} images, log p from {low} to {high} nats)"


def score_pictures(energy: Energy, x: list[Tensor], *, seed: int = 0, progress: Progress = silent) -> Scores:
    """The same for pictures [1, C, H, W] of any sizes; those of one size are compared with held-out images, if they are of it too."""
    if len({tuple(picture.shape) for picture in x}) == 1 and x[0][0, 0].numel() <= BATCHED_PIXELS:
        return score_images(energy, torch.cat(x), seed=seed, progress=progress)
    values: list[Tensor] = []
    try:
        for picture in x:
            values.append(score_images(energy, picture, seed=seed).log_density)
            progress("scoring", len(values), len(x))
    except KeyboardInterrupt:
        if not values:
            raise
    return Scores(torch.cat(values), None)


def score_images(
    energy: Energy, images: ImageLike, *, seed: int = 0, chunk: int = 32, progress: Progress = silent
) -> Scores:
    """How probable are images [n, C, H, W], and are they like what the model knows? What `linverse score` prints.

    log p(x + N(0, λ_min)) with the same noise on all: what differs is then the images. A model that carries held-out images compares with
    theirs. Ctrl-C leaves the scores of those that were done.

    >>> import torch, linverse as lv
    >>> from linverse.data.examples import load_examples
    >>> boot = load_examples("fashion-mnist").batch(torch.tensor([0]))
    >>> scores = score_images(lv.load("fashion-mnist"), torch.cat([boot, 1 - boot]))
    >>> bool(scores.log_density[0] > scores.log_density[1])
    True
    >>> scores.typicality.unusual()  # a boot is typical of garments, its negative is not
    tensor([False,  True])
    """
    x = checked_images(energy, images)
    cov = floor_covariance(energy, x)
    check_shapes(energy, x, cov)
    noise = cov.colour(normal_like(x[:1], keyed_generator(seed, "score")))
    values: list[Tensor] = []
    try:
        for part in x.split(chunk):
            values.append(log_prob(energy, part + noise))
            progress("scoring", sum(map(len, values)), len(x))
    except KeyboardInterrupt:
        if not values:
            raise
    log_density, reference = torch.cat(values), reference_images(energy)
    if reference is None or reference.shape[1:] != x.shape[1:]:
        return Scores(log_density, None)
    expected = noisy_energies(energy, cov, reference, keyed_generator(seed, "reference"))
    return Scores(log_density, compare(-log_density, expected[None]))

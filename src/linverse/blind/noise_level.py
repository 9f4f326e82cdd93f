"""How much white noise is on a picture? A few evaluations of the energy, also for pictures that were clipped and rounded.

With λ = σ² + δ²/12 + λ_min (rounding, and the noise that lifts the data to the energy's floor) the covariance score is the derivative
of the likelihood for free:  g(log σ) = ∂ log p(y|σ)/∂ log σ = −2(σ²/λ) E[Σ_i κ_i],  the mean over the pixels that clipping hides
(`censored`; none: no mean). g = 0 is found by Newton's method with the curvature of white noise, 2d, then g is averaged at three levels
around it: a line through them has its root at the estimate and the information I as its slope. The posterior is N(log σ̂, 1/I), for a prior
that is flat in log σ over that little span; the root's own standard error over sweeps is the Monte Carlo error.

An energy is not the truth. On held-out images that it carries, with noise of level σ̂ of our own, one Newton step says by how much it would
have been wrong: its mean is taken off the estimate, and its spread beyond 1/I is added to the variance. Pictures of any size come from
anywhere, and those that an energy carries tell how large its error is, but not its sign: for photographs that were reduced until nothing
of the camera is left it is −0.3 % at σ = 0.05, for photographs at their own size, whose grain counts as noise, +1.7 %. There the mean is
not taken off, and its square is added to the variance, too.

A large picture is judged by tiles of it: the noise is the same everywhere, and a hundred thousand pixels say it to a third of a percent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from linverse.blind.censored import CensoredImages, sweep
from linverse.blind.estimate import BlindEstimate, checked_raw
from linverse.blind.families import UnknownNoise
from linverse.blind.search import Axis, Search, sigma_limits
from linverse.covariance import identity
from linverse.data.picture import Picture
from linverse.degradations import ImageLike
from linverse.energy import Energy, evaluate_in_basis
from linverse.progress import Progress, silent
from linverse.rng import keyed_generator, normal_like
from linverse.store.references import references_of

MOST_PIXELS = 2**16  # a picture of more is judged by tiles …
TILE = 128  # … of this side
LONGEST = 0.7  # step in log σ
NEWTON = 12  # steps at most
CLOSE = 0.1  # of a standard deviation: Newton's method has arrived
SWEEPS = 4  # in a round at each of three levels, where pixels are hidden; the first is not counted
ROUNDS = 4
SMALL = 0.2  # of the standard deviation: the Monte Carlo error at which rounds end
REFERENCES = 2**18  # pixels of held-out images on which the model's own error is measured
POINTS = 61  # of the posterior's grid


@dataclass(frozen=True, repr=False)
class NoiseSearch(Search):
    """The posterior of σ, and how it was found; errors are of log σ, that is relative ones of σ."""

    censored: float = 0.0
    monte_carlo_error: float = 0.0
    model_bias: float = 0.0
    model_error: float = 0.0
    evaluations: int = 0
    tiles: int = 1
    limits: tuple[float, float] = (1e-6, 1e6)

    @property
    def searched(self) -> tuple[Axis, ...]:
        """All levels that the energy knows: at their ends there is less noise than it can tell, or more."""
        return (Axis("sigma", *self.limits, POINTS, "log"),)

    @property
    def sigma(self) -> float:
        """The most probable level."""
        return self.value(self.axes[0])

    def record(self) -> dict[str, float | int]:
        """The numbers, for a JSON file."""
        names = ("censored", "monte_carlo_error", "model_bias", "model_error", "evaluations", "tiles")
        return {name: getattr(self, name) for name in names}


@torch.no_grad()
def search_noise(
    energy: Energy,
    raw: Picture | ImageLike,
    *,
    step: float | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> NoiseSearch:
    """The posterior of the level σ of white noise on one image [1, C, H, W].

    A `Picture` knows the distance of its levels; for pixels of another origin `step` says it (None: they were neither rounded nor clipped).

    >>> import torch, linverse as lv
    >>> from linverse.data.examples import load_examples
    >>> boot = load_examples("fashion-mnist").batch(torch.tensor([0]))
    >>> noisy = boot + 0.1 * torch.randn(boot.shape, generator=torch.Generator().manual_seed(0))
    >>> png = lv.Picture(noisy.clamp(0, 1).mul(255).round() / 255, depth=8)  # half of a boot's picture is black: clipped
    >>> 0.09 < search_noise(lv.load("fashion-mnist"), png).sigma < 0.11
    True
    """
    if isinstance(raw, Picture):
        step, raw = raw.step if raw.depth is not None else None, raw.pixels
    image = checked_raw(energy, raw)
    generator = keyed_generator("noise level", seed)
    tiles = spread_tiles(image) if None in energy.shape else image
    chain = _Chain(energy, CensoredImages.of(tiles, step), generator, progress)
    if bool(chain.images.censored.all()):
        raise ValueError("every pixel is black or white: nothing is left that tells the noise")
    found = _posterior(chain)
    bias, error = model_error(energy, found.sigma, generator)
    centre = math.log(found.sigma) - bias
    spread = math.sqrt(found.variance + error**2)
    return _as_search(image, centre, spread, chain, found, bias, error)


@dataclass(frozen=True)
class _Found:
    """The maximum of the likelihood in σ, the variance of log σ, and the standard error of the maximum over sweeps."""

    sigma: float
    variance: float
    monte_carlo_error: float


class _Chain:
    """The images, hidden pixels as they were last drawn, and g at any level."""

    def __init__(self, energy: Energy, images: CensoredImages, generator: torch.Generator, progress: Progress) -> None:
        self.energy, self.generator, self.progress = energy, generator, progress
        self.images = images.with_noise(energy.range.minimum, generator)
        self.extra = energy.range.minimum + images.rounding_variance
        self.dim = int((~images.censored).sum())
        self.level = first_guess(images)
        self.images = self.images.drawn(self.images.y.clamp(0, 1), self.level**2, generator)
        self.evaluations = 0

    def slope(self, sigma: float) -> float:
        """g(log σ) at the hidden pixels of now, which are then drawn afresh."""
        if self.images.share:  # what is hidden lies as many standard deviations beyond the end as before
            edge = self.images.y.clamp(0, 1)
            moved = edge + (self.images.y - edge) * (sigma / self.level)
            self.images = replace(self.images, y=torch.where(self.images.censored, moved, self.images.y))
        self.level = sigma
        variance = sigma**2 + self.extra
        found, self.images = sweep(self.energy, self.images, variance, self.generator)
        self.evaluations += 1
        self.progress("noise level", self.evaluations, max(self.evaluations, NEWTON))
        return -2 * sigma**2 / variance * float(found.cov_score.double().sum()) * found.cov.multiplicity


def first_guess(images: CensoredImages) -> float:
    """σ by the median of what differs from its neighbours, among pixels that were not clipped: high where pictures are rough."""
    y = images.y.double()
    fine = (y[..., 1:, 1:] - y[..., 1:, :-1] - y[..., :-1, 1:] + y[..., :-1, :-1]) / 2
    hidden = images.censored
    known = ~(hidden[..., 1:, 1:] | hidden[..., 1:, :-1] | hidden[..., :-1, 1:] | hidden[..., :-1, :-1])
    values = fine[known] if bool(known.any()) else fine.flatten()
    return min(1.0, max(2e-3, 1.4826 * float(values.abs().median())))


def _posterior(chain: _Chain) -> _Found:
    """Newton's method, then a line through g at three levels."""
    low, high = sigma_limits(chain.energy.range)
    information, t = 2.0 * chain.dim, math.log(min(max(chain.level, low), high))
    last: tuple[float, float] | None = None
    for _ in range(NEWTON):
        g = chain.slope(math.exp(t))
        if last is not None and abs(last[0] - t) > 1e-9:
            secant = -(g - last[1]) / (t - last[0])
            information = min(max(secant, 0.05 * chain.dim), 4.0 * chain.dim)
        last = (t, g)
        step = max(-LONGEST, min(LONGEST, g / information))
        t = min(max(t + step, math.log(low)), math.log(high))
        if abs(step) < CLOSE / math.sqrt(information) or (
            t in (math.log(low), math.log(high)) and abs(t - last[0]) < 1e-12
        ):
            break
    return _line(chain, t, max(2 / math.sqrt(information), 0.02))


def _line(chain: _Chain, centre: float, reach: float) -> _Found:
    """g at three levels around one, as a line; where pixels are hidden, rounds of sweeps until the Monte Carlo error is small."""
    levels = [centre - reach, centre, centre + reach]
    rows: list[list[float]] = [[], [], []]
    sweeps, rounds = (SWEEPS, ROUNDS) if chain.images.share else (1, 1)
    found = _Found(math.exp(centre), 1 / (2.0 * chain.dim), 0.0)
    for _ in range(rounds):
        for row, t in zip(rows, levels, strict=True):
            row += [chain.slope(math.exp(t)) for _ in range(sweeps)][sweeps // 4 :]
        values = torch.tensor(rows, dtype=torch.float64)
        means = values.mean(dim=1)
        information = float(means[0] - means[2]) / (2 * reach)
        if information <= 0:  # no maximum: the likelihood falls or rises all along
            return found
        shift = max(-2 * reach, min(2 * reach, float(means.mean()) / information))
        spread = float(values.var(dim=1).sum()) / values.shape[1] if values.shape[1] > 1 else 0.0
        found = _Found(math.exp(centre + shift), 1 / information, math.sqrt(spread) / (3 * information))
        if found.monte_carlo_error < SMALL * math.sqrt(found.variance):
            break
    return found


# --- the model's own error -----------------------------------------------------------------------------------------------------------


def model_error(energy: Energy, sigma: float, generator: torch.Generator) -> tuple[float, float]:
    """The energy's error in log σ that a new image is likely to have, and how sure that is: from held-out images, by one Newton step each.

    Zeros without such images.
    """
    references = references_of(energy)
    if references is None:
        return 0.0, 0.0
    images = references.images()
    images = images[: max(1, REFERENCES // images[0, 0].numel())]
    variance = sigma**2 + energy.range.minimum
    y = images + math.sqrt(variance) * normal_like(images, generator)
    cov = identity("spatial", y.shape, y)
    h = 0.03
    slopes = torch.stack(
        [_slopes(energy, y, cov.isotropic(variance * math.exp(2 * t)).expand(len(y))) for t in (-h, h)]
    )
    information = ((slopes[0] - slopes[1]) / (2 * h)).mean()
    if not bool(information > 0):
        return 0.0, 0.0
    errors = slopes.mean(0) / information
    spread, count = float(errors.var()), len(errors)
    own = excess_variance(spread, float(1 / information), count) + spread / count
    mean = float(errors.mean())
    return (0.0, math.hypot(math.sqrt(own), mean)) if None in energy.shape else (mean, math.sqrt(own))


def excess_variance(variance: float, expected: float, count: int) -> float:
    """What is left of a variance of `count` numbers beyond the expected one: its mean, given that it is positive.

    The variance of n normal numbers has a standard error of √(2/(n−1)) of itself; what it exceeds the expected one by is a normal number
    with that error, cut off at zero.

    >>> excess_variance(5.0, 1.0, 1000)  # far above zero: the difference
    4.0
    >>> round(excess_variance(1.0, 1.0, 51), 3)  # as expected: the mean of half a normal distribution of width 0.2
    0.16
    """
    error = variance * math.sqrt(2 / max(1, count - 1))
    seen = (variance - expected) / error
    if seen < -8:  # far fewer than expected: the tail's mean
        return error / -seen
    density = math.exp(-0.5 * seen * seen) / math.sqrt(2 * math.pi)
    return error * (seen + density / (0.5 * math.erfc(-seen / math.sqrt(2))))


def _slopes(energy: Energy, y: Tensor, cov: object) -> Tensor:
    """g of each image, [n]."""
    found = [evaluate_in_basis(energy, part, cov[: len(part)]) for part in y.split(32)]  # type: ignore[index]
    return torch.cat([-2 * f.cov_score.double().sum((1, 2, 3)) * f.cov.multiplicity for f in found])


# --- tiles and the grid ---------------------------------------------------------------------------------------------------------------


def spread_tiles(image: Tensor) -> Tensor:
    """A picture [1, C, H, W] of more than `MOST_PIXELS` as tiles spread evenly over it, [n, C, `TILE`, `TILE`]; others as they are."""
    height, width = image.shape[2:]
    if height * width <= MOST_PIXELS or min(height, width) < TILE:
        return image
    count = MOST_PIXELS // TILE**2
    down = min(height // TILE, max(1, round(math.sqrt(count * height / width))))
    across = min(width // TILE, max(1, count // down))
    rows = [round((i + 0.5) * height / down - TILE / 2) for i in range(down)]
    columns = [round((i + 0.5) * width / across - TILE / 2) for i in range(across)]
    return torch.cat([image[..., r : r + TILE, c : c + TILE] for r in rows for c in columns])


def _as_search(
    image: Tensor, centre: float, spread: float, chain: _Chain, found: _Found, bias: float, error: float
) -> NoiseSearch:
    """N(centre, spread²) over log σ on a grid."""
    axis = Axis("sigma", math.exp(centre - 5 * spread), math.exp(centre + 5 * spread), POINTS, "log")
    log_p = -0.5 * torch.linspace(-5, 5, POINTS, dtype=torch.float64).square()
    result = BlindEstimate(UnknownNoise(), {"sigma": axis.values()}, log_p, torch.log_softmax(log_p, 0), image)
    return NoiseSearch(
        (((axis,), result),),
        censored=chain.images.share,
        monte_carlo_error=found.monte_carlo_error,
        model_bias=bias,
        model_error=error,
        evaluations=chain.evaluations,
        tiles=len(chain.images.y),
        limits=sigma_limits(chain.energy.range),
    )

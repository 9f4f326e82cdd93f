"""Blind estimation: which degradation made this image?

    −log p(y_raw|θ) = U(y(θ), Σ(θ)) + Σ_i log h̃_i(θ)  (+ the fill's own log-density where nothing was measured)
The second term matters whenever y itself depends on θ (blurs): U alone runs to the edge of the grid. With a prior over θ this gives
a normalised posterior over the grid, credible intervals, and restorations with θ plugged in or integrated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from linverse.blind.families import Family, Parameters
from linverse.covariance import identity
from linverse.degradations import ImageLike, as_tensor
from linverse.energy import Energy, check_pair, evaluate, evaluate_in_basis, in_precision_of, size_text, takes
from linverse.progress import Progress, silent
from linverse.rng import keyed_generator, normal_like

CHUNK_PIXELS = 2**17


def log_evidence(
    energy: Energy,
    raw: ImageLike,
    family: Family,
    theta: Parameters,
    *,
    seed: int = 0,
    chunk: int = 64,
    progress: Progress = silent,
) -> Tensor:
    """log p(y_raw + N(0, λ_min) | θ) for each of n parameter values, [n], nats; differentiable in θ.

    The added noise is the same for all of them.
    """
    image = checked_raw(energy, raw)
    count, chunk = len(next(iter(theta.values()))), min(chunk, rows_at_a_time(image))
    noise = normal_like(image, keyed_generator("blind", seed))
    out: list[Tensor] = []
    for rows in torch.arange(count).split(chunk):
        measurement = family.measurement(image, {name: value[rows].to(image) for name, value in theta.items()})
        gaussian = energy.gaussian(measurement.template)
        lifted = measurement.lift(energy.range, gaussian, noise=noise, random_fill=False, add_floor=True)
        if not out:  # all of a family have one basis and lie within the energy's range: it is said once
            check_pair(energy, lifted.y, lifted.cov)
        out.append(-(energy(lifted.y, lifted.cov) + lifted.log_gain + lifted.fill_log_density))
        progress("evidence", int(rows[-1]) + 1, count)
    return torch.cat(out)


def rows_at_a_time(image: Tensor) -> int:
    """How many copies of an image [1, C, H, W] are evaluated together, whatever its size."""
    return max(1, CHUNK_PIXELS // image.numel())


def checked_raw(energy: Energy, raw: ImageLike) -> Tensor:
    """One measured image [1, C, H, W] in the precision of the energy's network; anything else is refused with a word on what to do."""
    image = as_tensor(raw, "measurement")
    if image.ndim != 4 or image.shape[0] != 1:
        raise ValueError(f"blind estimation takes one image [1, C, H, W]; got {tuple(image.shape)}")
    channels, height, width = image.shape[1:]
    if not takes(energy.shape, (channels, height, width)):
        raise ValueError(f"the image is {channels}×{height}×{width}; the model takes {size_text(energy.shape)} images")
    if not bool(torch.isfinite(image).all()):
        raise ValueError(f"measurement has {int((~torch.isfinite(image)).sum())} NaN or infinite pixels")
    # noise of any strength leaves the mean where it is, up to its standard error
    mean, error = float(image.double().mean()), float(image.double().std()) / math.sqrt(image.numel())
    if abs(mean - 0.5) > 1 + 8 * error:
        raise ValueError(f"measurement has a mean of {mean:.3g}; pixels live in [0, 1] (divide 8-bit values by 255)")
    return in_precision_of(energy, image)


@dataclass(frozen=True)
class BlindEstimate:
    """A posterior over a grid of parameters: `axes` name → values, `log_posterior` over their product (normalised to sum 1)."""

    family: Family
    axes: dict[str, Tensor]
    log_evidence: Tensor
    log_posterior: Tensor
    raw: Tensor

    def __repr__(self) -> str:
        found = ", ".join(f"{name} = {value:.4g}" for name, value in self.best.items())
        size = "×".join(map(str, self.log_posterior.shape))
        return f"BlindEstimate({found}; a grid of {size})"

    @property
    def best(self) -> dict[str, float]:
        """The most probable grid point."""
        index = torch.unravel_index(self.log_posterior.argmax(), self.log_posterior.shape)
        return {name: float(values[i]) for (name, values), i in zip(self.axes.items(), index, strict=True)}

    def log_marginal(self, name: str) -> Tensor:
        """log p(θ_name | y) on its axis."""
        position = list(self.axes).index(name)
        others = [d for d in range(self.log_posterior.ndim) if d != position]
        return torch.logsumexp(self.log_posterior, dim=others) if others else self.log_posterior

    def marginal(self, name: str) -> Tensor:
        """p(θ_name | y) on its axis, summing to 1."""
        return self.log_marginal(name).exp()

    def interval(self, name: str, level: float = 0.9) -> tuple[float, float]:
        """The central credible interval, interpolated between grid points (equal weight to equal axis steps)."""
        cumulative = self.marginal(name).cumsum(0)
        middle = cumulative - 0.5 * self.marginal(name)
        tail = 0.5 * (1 - level)
        return tuple(_interpolate(p, middle, self.axes[name]) for p in (tail, 1 - tail))  # type: ignore[return-value]

    def refined(self, name: str) -> float:
        """The maximum of a parabola through the best point of a marginal and its neighbours (in log θ for positive axes)."""
        # in logs: next to a sharp peak probabilities underflow
        log_p, axis = self.log_marginal(name).double(), self.axes[name].double()
        i = int(log_p.argmax())
        if i in (0, len(axis) - 1):
            return float(axis[i])
        positive = bool((axis > 0).all())
        x = axis[i - 1 : i + 2].log() if positive else axis[i - 1 : i + 2]
        fit = torch.linalg.solve(torch.stack([x * 0 + 1, x, x * x], dim=1), log_p[i - 1 : i + 2])
        top = float((-fit[1] / (2 * fit[2])).clamp(x[0], x[2]))
        return math.exp(top) if positive else top


def _interpolate(p: float, cumulative: Tensor, axis: Tensor) -> float:
    index = int(torch.searchsorted(cumulative, p).clamp(1, len(axis) - 1))
    low, high = cumulative[index - 1], cumulative[index]
    weight = float(((p - low) / (high - low).clamp_min(1e-300)).clamp(0, 1))
    return float(axis[index - 1]) + weight * float(axis[index] - axis[index - 1])


def grid_product(axes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All combinations of the axes' values, [n] each, the last axis running fastest."""
    indices = torch.meshgrid(*(torch.arange(len(axis)) for axis in axes.values()), indexing="ij")
    return {name: axis[index.flatten()] for (name, axis), index in zip(axes.items(), indices, strict=True)}


def estimate(
    energy: Energy,
    raw: ImageLike,
    family: Family,
    axes: Mapping[str, Tensor],
    log_prior: Callable[[Parameters], Tensor] | None = None,
    *,
    seed: int = 0,
    chunk: int = 64,
    progress: Progress = silent,
) -> BlindEstimate:
    """Which parameters θ of a family made this image [1, C, H, W]? Their posterior over the product of the given axes.

    The prior is uniform on the grid unless `log_prior` says otherwise; on an axis that is equally spaced in log θ that means uniform in
    log θ. `search` finds the axes by itself.

    >>> import torch, linverse as lv
    >>> from linverse.analytic import DiagonalGaussian
    >>> from linverse.blind import UnknownNoise
    >>> prior = DiagonalGaussian(lv.SpatialCovariance(torch.full((1, 1, 16, 16), -9.0)), limits=lv.VarianceRange(1e-6, 1e3))
    >>> raw = 0.3 * torch.randn(1, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    >>> found = estimate(prior, raw, UnknownNoise(), {"sigma": torch.logspace(-2, 0, 60)})
    >>> low, high = found.interval("sigma", 0.9)
    >>> low < 0.3 < high
    True
    """
    image = checked_raw(energy, raw)
    missing = set(family.names) - set(axes)
    if missing:
        raise ValueError(f"{type(family).__name__} needs an axis for {', '.join(sorted(missing))}")
    theta = grid_product(axes)
    with torch.no_grad():
        evidence = log_evidence(energy, image, family, theta, seed=seed, chunk=chunk, progress=progress)
    if not bool(torch.isfinite(evidence).all()):
        raise ValueError(
            "the energy is not finite for some parameters of the grid; is the grid inside the model's range?"
        )
    prior = torch.zeros_like(evidence) if log_prior is None else log_prior(theta).to(evidence)
    posterior = torch.log_softmax(evidence + prior, dim=0)
    shape = [len(axis) for axis in axes.values()]
    return BlindEstimate(family, dict(axes), evidence.reshape(shape), posterior.reshape(shape), image)


@torch.no_grad()
def noise_levels(energy: Energy, y: Tensor, axis: Tensor, *, seed: int = 0, chunk: int = 256) -> Tensor:
    """The most probable σ of white noise for each image of a batch, [B]: the best of `axis`, refined by a parabola in log σ."""
    noise = math.sqrt(energy.range.minimum) * normal_like(y, keyed_generator("blind", seed))
    template = identity("spatial", y.shape, y)
    columns = []
    for sigma in axis.tolist():
        cov = template.isotropic(sigma**2 + energy.range.minimum)
        columns.append(torch.cat([energy(part, cov.expand(len(part))) for part in (y + noise).split(chunk)]))
    values = torch.stack(columns, dim=1)
    best = values.argmin(dim=1).clamp(1, len(axis) - 2)
    rows, x = torch.arange(len(y)), axis.double().log()
    left, middle, right = (values[rows, best + shift] for shift in (-1, 0, 1))
    a, b = x[best] - x[best - 1], x[best + 1] - x[best]
    slopes = (middle - left) / a, (right - middle) / b
    curvature = 2 * (slopes[1] - slopes[0]) / (a + b)
    top = 0.5 * (x[best - 1] + x[best]) - slopes[0] / curvature
    return torch.where(curvature > 0, top.clamp(x[best - 1], x[best + 1]), x[best]).exp()


def noise_bound(energy: Energy, y: Tensor, variance: float, *, chunk: int = 128) -> float:
    """The least standard deviation of log σ̂² from one image y ~ p(y | σ²I) [B, …] that is unknown too: (E[(Σκ)²])^{-1/2}."""
    cov = identity("spatial", y.shape, y).isotropic(variance)
    totals = [
        evaluate(energy, part, cov.expand(len(part))).cov_score.double().sum((1, 2, 3)) for part in y.split(chunk)
    ]
    return float((torch.cat(totals) * cov.multiplicity).square().mean().rsqrt())


def integrated_mean(
    energy: Energy,
    result: BlindEstimate,
    *,
    integrate: bool = True,
    mass: float = 0.99,
    seed: int = 0,
    chunk: int = 64,
) -> Tensor:
    """E[x|y] with θ integrated over its posterior (the grid points that hold `mass` of it), or at its best value."""
    weights = result.log_posterior.flatten().exp()
    order = weights.argsort(descending=True)
    keep = order[: int((weights[order].cumsum(0) < mass).sum()) + 1] if integrate else order[:1]
    share = (weights[keep] / weights[keep].sum()).to(result.raw.dtype)
    noise = normal_like(result.raw, keyed_generator("blind", seed))
    total, chunk = torch.zeros_like(result.raw), min(chunk, rows_at_a_time(result.raw))
    for part, weight in zip(keep.split(chunk), share.split(chunk), strict=True):
        theta = {name: values[part].to(result.raw) for name, values in grid_product(result.axes).items()}
        measurement = result.family.measurement(result.raw, theta)
        gaussian = energy.gaussian(measurement.template)
        lifted = measurement.lift(energy.range, gaussian, noise=noise, random_fill=False)
        means = evaluate_in_basis(energy, lifted.coefficients, lifted.cov).mean
        total = total + (weight.reshape(-1, 1, 1, 1) * means).sum(0, keepdim=True)
    return total

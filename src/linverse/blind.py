"""Blind estimation: which degradation made this image?

    −log p(y_raw|θ) = U(y(θ), Σ(θ)) + Σ_i log h̃_i(θ)  (+ the fill's own log-density where nothing was measured)
The second term matters whenever y itself depends on θ (blurs): U alone runs to the edge of the grid. With a prior over θ this gives
a normalised posterior over the grid, credible intervals, and restorations with θ plugged in or integrated.

A family maps parameters, one value a row, to a `Measurement`; all rows are evaluated together, and U is differentiable in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from linverse.covariance import FourierCovariance, SpatialCovariance
from linverse.covariance.fourier import grid_frequencies, mirrored
from linverse.covariance.random import centre_box
from linverse.covariance.transfer import gaussian_transfer
from linverse.energy import Energy, check_pair, evaluate_in_basis
from linverse.measurement import Measurement
from linverse.rng import keyed_generator, normal_like

Parameters = Mapping[str, Tensor]  # name → [n] values


class Family(Protocol):
    """A parametric family of degradations."""

    @property
    def names(self) -> tuple[str, ...]:
        """Its parameters."""

    def measurement(self, raw: Tensor, theta: Parameters) -> Measurement:
        """The raw image [1, C, H, W] as a measurement under each of n parameter values: a batch of n."""


def _rows(value: Tensor) -> Tensor:
    return value.reshape(-1, 1, 1, 1)


def _pixels(raw: Tensor, log_noise: Tensor) -> Measurement:
    """Raw pixels under noise maps [n, 1, H, W]."""
    template = SpatialCovariance(raw.new_zeros(1, 1, *raw.shape[2:]), raw.shape[1])
    repeated = raw.expand(len(log_noise), -1, -1, -1)
    return Measurement(repeated, template, repeated, torch.zeros_like(log_noise), log_noise)


@dataclass(frozen=True)
class UnknownNoise:
    """White noise of unknown standard deviation `sigma`."""

    names: tuple[str, ...] = ("sigma",)

    def measurement(self, raw: Tensor, theta: Parameters) -> Measurement:
        return _pixels(raw, _rows(2 * theta["sigma"].log()).expand(-1, 1, *raw.shape[2:]))


@dataclass(frozen=True)
class UnknownNoiseBox:
    """Noise `sigma` inside a centred box of side `side` (optionally displaced by `dy`, `dx`) and a known `outside` elsewhere."""

    outside: float
    names: tuple[str, ...] = ("side", "sigma")

    def measurement(self, raw: Tensor, theta: Parameters) -> Measurement:
        sides = theta["side"].round().long().reshape(-1, 1, 1)
        inside = centre_box(sides, *raw.shape[2:])[:, None]
        if "dy" in theta:
            shifts = zip(theta["dy"].long().tolist(), theta["dx"].long().tolist(), strict=True)
            inside = torch.stack([torch.roll(m, shift, dims=(-2, -1)) for m, shift in zip(inside, shifts, strict=True)])
        floor = torch.as_tensor(2 * math.log(max(self.outside, 1e-12)), dtype=raw.dtype)
        return _pixels(raw, torch.where(inside, _rows(2 * theta["sigma"].log()), floor))


@dataclass(frozen=True, eq=False)
class UnknownMask:
    """Which of several masks was it? `index` counts `masks` [K, 1, H, W] (True = measured); missing pixels have noise `missing`."""

    masks: Tensor
    sigma: float
    missing: float
    names: tuple[str, ...] = ("index",)

    def measurement(self, raw: Tensor, theta: Parameters) -> Measurement:
        chosen = self.masks[theta["index"].long()]
        levels = torch.tensor([2 * math.log(self.missing), 2 * math.log(self.sigma)], dtype=raw.dtype)
        return _pixels(raw, levels[chosen.long()])


def _blurred(raw: Tensor, transfer: Tensor, log_noise: Tensor) -> Measurement:
    """Raw pixels under real transfer functions [n, H, W], periodic."""
    template = FourierCovariance(raw.new_zeros(1, 1, *raw.shape[2:]), raw.shape[1])
    sign = torch.where(transfer < 0, -1.0, 1.0).to(raw.dtype)[:, None]
    gain = transfer.abs().clamp_min(torch.finfo(raw.dtype).tiny)[:, None]
    repeated = raw.expand(len(transfer), -1, -1, -1)
    return Measurement(repeated, template, template.analysis(raw) * sign, gain.log(), log_noise.expand_as(gain))


@dataclass(frozen=True)
class UnknownGaussianBlur:
    """A periodic Gaussian blur of unknown width `std` (pixels) with noise `sigma`, known or, if in theta, unknown too."""

    sigma: float
    names: tuple[str, ...] = ("std",)

    def measurement(self, raw: Tensor, theta: Parameters) -> Measurement:
        transfer = gaussian_transfer(theta["std"], (raw.shape[2], raw.shape[3]), "periodic")
        sigma = theta["sigma"] if "sigma" in theta else torch.as_tensor(self.sigma, dtype=raw.dtype)
        return _blurred(raw, transfer, _rows(2 * sigma.log()))


@dataclass(frozen=True)
class UnknownLineBlur:
    """A straight motion of `length` pixels at `angle` (radians from horizontal): h(f) = sinc(length · f∥), periodic."""

    sigma: float
    names: tuple[str, ...] = ("angle", "length")

    def transfer(self, theta: Parameters, raw: Tensor) -> Tensor:
        """[n, H, W]."""
        vertical, horizontal = grid_frequencies(raw.shape[2], raw.shape[3], raw)
        angle, length = (theta[name].reshape(-1, 1, 1) for name in ("angle", "length"))
        transfer = torch.special.sinc(length * (horizontal * angle.cos() - vertical * angle.sin()))
        return 0.5 * (
            transfer + mirrored(transfer)
        )  # at the Nyquist frequency k and −k are one: an image blurs to an image

    def measurement(self, raw: Tensor, theta: Parameters) -> Measurement:
        return _blurred(
            raw, self.transfer(theta, raw), torch.full((1, 1, 1, 1), 2 * math.log(self.sigma), dtype=raw.dtype)
        )


def log_evidence(
    energy: Energy, raw: Tensor, family: Family, theta: Parameters, *, seed: int = 0, chunk: int = 64
) -> Tensor:
    """log p(y_raw + N(0, λ_min) | θ) for each of n parameter values, [n], nats; differentiable in θ.

    The added noise is the same for all of them.
    """
    if tuple(raw.shape[1:]) != energy.shape:
        found, taken = ("×".join(map(str, shape)) for shape in (raw.shape[1:], energy.shape))
        raise ValueError(f"the image is {found}; the model takes {taken} images")
    count = len(next(iter(theta.values())))
    noise = normal_like(raw, keyed_generator("blind", seed))
    out: list[Tensor] = []
    for rows in torch.arange(count).split(chunk):
        measurement = family.measurement(raw, {name: value[rows] for name, value in theta.items()})
        gaussian = energy.gaussian(measurement.template)
        lifted = measurement.lift(energy.range, gaussian, noise=noise, random_fill=False, add_floor=True)
        if not out:  # all of a family have one basis and lie within the energy's range: it is said once
            check_pair(energy, lifted.y, lifted.cov)
        out.append(-(energy(lifted.y, lifted.cov) + lifted.log_gain + lifted.fill_log_density))
    return torch.cat(out)


@dataclass(frozen=True)
class BlindEstimate:
    """A posterior over a grid of parameters: `axes` name → values, `log_posterior` over their product (normalised to sum 1)."""

    family: Family
    axes: dict[str, Tensor]
    log_evidence: Tensor
    log_posterior: Tensor
    raw: Tensor

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


def _product(axes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All combinations of the axes' values, [n] each, the last axis running fastest."""
    indices = torch.meshgrid(*(torch.arange(len(axis)) for axis in axes.values()), indexing="ij")
    return {name: axis[index.flatten()] for (name, axis), index in zip(axes.items(), indices, strict=True)}


def estimate(
    energy: Energy,
    raw: Tensor,
    family: Family,
    axes: Mapping[str, Tensor],
    log_prior: Callable[[Parameters], Tensor] | None = None,
    *,
    seed: int = 0,
    chunk: int = 64,
) -> BlindEstimate:
    """The posterior over the product of the given axes; the prior is uniform on the grid unless `log_prior` says otherwise.

    On an axis that is equally spaced in log θ a uniform grid means a prior uniform in log θ.
    """
    if raw.ndim != 4 or raw.shape[0] != 1:
        raise ValueError(f"blind estimation takes one image [1, C, H, W]; got {tuple(raw.shape)}")
    missing = set(family.names) - set(axes)
    if missing:
        raise ValueError(f"{type(family).__name__} needs an axis for {', '.join(sorted(missing))}")
    theta = _product(axes)
    with torch.no_grad():
        evidence = log_evidence(energy, raw, family, theta, seed=seed, chunk=chunk)
    if not bool(torch.isfinite(evidence).all()):
        raise ValueError(
            "the energy is not finite for some parameters of the grid; is the grid inside the model's range?"
        )
    prior = torch.zeros_like(evidence) if log_prior is None else log_prior(theta).to(evidence)
    posterior = torch.log_softmax(evidence + prior, dim=0)
    shape = [len(axis) for axis in axes.values()]
    return BlindEstimate(family, dict(axes), evidence.reshape(shape), posterior.reshape(shape), raw)


@torch.no_grad()
def noise_levels(energy: Energy, y: Tensor, axis: Tensor, *, seed: int = 0, chunk: int = 256) -> Tensor:
    """The most probable σ of white noise for each image of a batch, [B]: the best of `axis`, refined by a parabola in log σ."""
    noise = math.sqrt(energy.range.minimum) * normal_like(y, keyed_generator("blind", seed))
    template = SpatialCovariance(y.new_zeros(1, 1, *y.shape[2:]), y.shape[1])
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


def maximise(
    energy: Energy,
    raw: Tensor,
    family: Family,
    start: Mapping[str, float],
    *,
    steps: int = 60,
    rate: float = 0.1,
    seed: int = 0,
) -> dict[str, float]:
    """argmax_θ log p(y_raw|θ) by gradient ascent in log θ (positive parameters, continuous families), from `start`."""
    logs = {name: torch.tensor([math.log(value)], dtype=raw.dtype, requires_grad=True) for name, value in start.items()}
    optimiser = torch.optim.Adam(list(logs.values()), lr=rate)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = rate * (1 - step / steps)
        loss = -log_evidence(energy, raw, family, {name: value.exp() for name, value in logs.items()}, seed=seed).sum()
        if not bool(torch.isfinite(loss)):
            raise ValueError(
                f"the evidence is not finite at { ({k: float(v.detach().exp()) for k, v in logs.items()}) }"
            )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return {name: float(value.detach().exp()) for name, value in logs.items()}


def restore(
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
    total = torch.zeros_like(result.raw)
    for part, weight in zip(keep.split(chunk), share.split(chunk), strict=True):
        theta = {name: values[part] for name, values in _product(result.axes).items()}
        measurement = result.family.measurement(result.raw, theta)
        gaussian = energy.gaussian(measurement.template)
        lifted = measurement.lift(energy.range, gaussian, noise=noise, random_fill=False)
        means = evaluate_in_basis(energy, lifted.cov.analysis(lifted.y), lifted.cov).mean
        total = total + (weight.reshape(-1, 1, 1, 1) * means).sum(0, keepdim=True)
    return total

"""The width of a blur from means alone, and as surely as held-out images allow.

The slope of the evidence needs the covariance score along the path of Σ(θ). The heat equation (mathematics §3) has it by derivatives in y:
    κ_i = ½(1 − ∂x̂_i/∂y_i − e_i²),    S(θ) = ∂ log p(y_raw|θ)/∂ log θ = −⟨κ, ∂log λ⟩ − ⟨∇U, ∂y⟩ − ∂Σ log h̃,
with Σ_i v_i ∂x̂_i/∂y_i by products with random signs. For a blur that is Fisher's identity, Σ_i (∂log h_i){x̂_i(y_i−x̂_i)/λ_i − ∂x̂_i/∂y_i}.
By Stein's lemma E[x̂_i(y_i−x_i)]/λ_i = E[∂x̂_i/∂y_i] *whatever* x̂, so that at the true θ the mean of S is that of
Σ_i (∂log h_i) x̂_i(x_i−x̂_i)/λ_i: it vanishes for means of the right length, however badly an energy knows how its density changes with Σ.
(24 training garments each at 0.8, 1.2 and 1.8 pixels: widths are 2, 3 and 2 % too small by S, 7, 10 and 4 % by the evidence itself.)

The estimate θ̂ is where S falls through zero, on the highest hill of ∫S d log θ. (A picture that was blurred a lot could have been a smooth
one that was blurred a little: S is small there, too.) What it is wrong by is measured: held-out images that the energy carries are
blurred by our own hand at values of θ along the axis, and the errors of their log θ̂ have the mean b(θ) and the standard deviation s(θ).
    t(θ) = (log θ̂ − log θ − b(θ))/(s(θ)√(1 + 1/n))
then follows Student's law with n−1 degrees of freedom if θ is true, and its density, as a function of θ, is the posterior given here: its
intervals hold the truth as often as they say, for pictures like the held-out ones. For larger pictures than those they are too wide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from linverse.blind.estimate import BlindEstimate, checked_raw
from linverse.blind.families import Family
from linverse.blind.search import Axis, Search, simulate
from linverse.energy import Energy, evaluate_in_basis, in_precision_of
from linverse.progress import Progress, silent
from linverse.rng import keyed_generator, normal_like
from linverse.store.references import references_of

REFERENCES = 16  # held-out images, unless more are asked for
PLACES = 13  # of the first grid
WIDTH, AROUND = 0.8, 7  # in log θ to either side of the truth of a held-out image, and places in all
NEAR, NEARBY = 0.2, 3  # likewise around an estimate, where held-out images are blurred
SECANTS = 3  # steps between two places
SPAN, POINTS = 8.0, 81  # standard deviations of the posterior's grid, and its points
PROBES = (2**11, 4)  # products with random signs: for so many signs of an image in all, and no more than this
CHUNK_VALUES = 2**16  # of images that are differentiated twice at a time


def evidence_slopes(energy: Energy, raw: Tensor, family: Family, name: str, values: Tensor, *, seed: int = 0) -> Tensor:
    """∂ log p(y_raw|θ)/∂ log θ, [n], float64, of one positive parameter: for n images, or one, at n values (of θ)."""
    rows = raw.expand(len(values), -1, -1, -1)
    size = max(1, CHUNK_VALUES // raw[0].numel())
    parts = zip(rows.split(size), values.to(raw).split(size), strict=True)
    return torch.cat([_slopes(energy, image, family, name, value, seed) for image, value in parts])


def _slopes(energy: Energy, raw: Tensor, family: Family, name: str, values: Tensor, seed: int) -> Tensor:
    noise = normal_like(raw[:1], keyed_generator("blind", seed)).expand_as(raw)
    template = family.measurement(raw[:1], {name: values[:1]}).template

    def lift(log_theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        measurement = family.measurement(raw, {name: log_theta.exp()})
        gaussian = energy.gaussian(measurement.template)
        lifted = measurement.lift(energy.range, gaussian, noise=noise, random_fill=False, add_floor=True)
        return lifted.coefficients, lifted.cov.log_variance, lifted.log_gain

    place = values.log()
    along: tuple[tuple[Tensor, ...], ...] = torch.func.jvp(lift, (place,), (torch.ones_like(place),))
    (z, log_variance, _), (dz, change, gain) = along
    cov = template.with_log_variance(log_variance.detach())
    z, change = z.detach().requires_grad_(), change.expand_as(z)
    seen = evaluate_in_basis(energy, z, cov, create_graph=True)
    following = _weighted_diagonal(seen.mean_coefficients, z, change, cov.variance.sqrt(), seed)
    with torch.no_grad():
        squares = change * (1 - (z - seen.mean_coefficients).square() / cov.variance)
        by_noise = 0.5 * (squares.double().sum(dim=(1, 2, 3)) - following)
        by_data = (seen.score_coefficients * dz).double().sum(dim=(1, 2, 3))
        return -(by_noise + by_data + gain.double()).cpu()


def _weighted_diagonal(mean: Tensor, z: Tensor, weight: Tensor, root: Tensor, seed: int) -> Tensor:
    """Σ_i v_i ∂x̂_i/∂z_i, [n], float64: ⟨r√λ, Jᵀ(vr/√λ)⟩ for signs r (Hutchinson); λ^½ makes J symmetric, and the products calm."""
    probes = min(PROBES[1], max(1, PROBES[0] // z[0].numel()))
    total = z.new_zeros(len(z), dtype=torch.float64)
    for number in range(probes):
        generator = keyed_generator("signs", seed, number)
        signs = torch.randint(0, 2, (1, *z.shape[1:]), generator=generator).to(z) * 2 - 1
        (back,) = torch.autograd.grad(mean, z, weight * signs / root, retain_graph=number + 1 < probes)
        total += (back * root * signs).double().sum(dim=(1, 2, 3)) / probes
    return total


def tops(
    energy: Energy, raw: Tensor, family: Family, name: str, places: Tensor, *, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """log θ̂ of each image, [n], float64: where the slope falls through zero on the highest hill between places log θ, [n, k].

    The first or last place where the hill has its top there. Besides, the log-evidence at all places less that at the first, [n, k].
    """

    def slopes(column: Tensor) -> Tensor:
        return evidence_slopes(energy, raw, family, name, column.exp(), seed=seed)

    table = torch.stack([slopes(column) for column in places.unbind(1)], dim=1)
    climbed = torch.cat([torch.zeros_like(table[:, :1]), torch.cumulative_trapezoid(table, places, dim=1)], dim=1)
    left, right, below, above = bracket(places, table, climbed)
    place = left
    for _ in range(SECANTS):
        share = torch.where(below > above, below / (below - above), 0.0)
        place = left + share * (right - left)
        found = torch.where(right > left, slopes(place), 0.0)
        rising = found > 0  # the top lies to the right; the other end counts half, so that both ends move (Illinois)
        left, below, above = (
            torch.where(rising, place, left),
            torch.where(rising, found, 0.5 * below),
            torch.where(rising, 0.5 * above, found),
        )
        right = torch.where(rising, right, place)
    return place, climbed


def bracket(places: Tensor, slopes: Tensor, climbed: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Places [n, k] to either side of the highest point climbed, and the slopes there, [n] each; the same place twice at an end."""
    top = climbed.argmax(dim=1, keepdim=True)
    upward = (slopes.gather(1, top) > 0).long()
    first, last = top - 1 + upward, top + upward
    most = places.shape[1] - 1
    at_end = (first < 0) | (last > most)
    first, last = (torch.where(at_end, top, side.clamp(0, most)) for side in (first, last))
    return tuple(values.gather(1, side)[:, 0] for values in (places, slopes) for side in (first, last))  # type: ignore[return-value]


@dataclass(frozen=True)
class SlopeCalibration:
    """Errors of log θ̂ over held-out images: mean and standard deviation at places log θ, [k], float64."""

    places: Tensor
    bias: Tensor
    deviation: Tensor
    count: int

    def at(self, log_theta: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation at other places, [n] each."""
        known, wanted = self.places.numpy(), log_theta.double().numpy()
        bias, deviation = (np.interp(wanted, known, values.numpy()) for values in (self.bias, self.deviation))
        return torch.from_numpy(bias), torch.from_numpy(deviation)

    def log_density(self, estimate: float, log_theta: Tensor) -> Tensor:
        """The log of Student's density, up to a constant, of an estimate log θ̂ if log θ were true, [n]."""
        bias, deviation = self.at(log_theta)
        t = (estimate - log_theta - bias) / (deviation * math.sqrt(1 + 1 / self.count))
        return -0.5 * self.count * torch.log1p(t.square() / (self.count - 1)) - deviation.log()


def calibrate_slopes(
    energy: Energy,
    family: Family,
    name: str,
    places: Tensor,
    *,
    images: int = REFERENCES,
    seed: int = 0,
    progress: Progress = silent,
) -> SlopeCalibration | None:
    """What estimates from an energy's held-out images are wrong by, at places log θ; None where it carries none."""
    references = references_of(energy)
    if references is None:
        return None
    chosen = references.images()[:images]
    errors = []
    for done, place in enumerate(places.tolist()):
        raw = [
            simulate(family, x[None], {name: math.exp(place)}, keyed_generator("reference", seed, number))
            for number, x in enumerate(chosen)
        ]
        around = place + torch.linspace(-WIDTH, WIDTH, AROUND, dtype=torch.float64).expand(len(chosen), -1)
        seen = in_precision_of(energy, torch.cat(raw))
        errors.append(tops(energy, seen, family, name, around, seed=seed)[0] - place)
        progress("the model's own error", done + 1, len(places))
    found = torch.stack(errors)
    return SlopeCalibration(places.double(), found.mean(dim=1), found.std(dim=1), len(chosen))


@dataclass(frozen=True, repr=False)
class CorrectedSearch(Search):
    """The posterior of one positive parameter; both errors of the model are of its logarithm, that is relative ones."""

    model_bias: float = 0.0
    model_error: float = 0.0

    def record(self) -> dict[str, float]:
        """The numbers, for a JSON file."""
        return {"model_bias": self.model_bias, "model_error": self.model_error}


def search_by_slope(
    energy: Energy,
    raw: Tensor,
    family: Family,
    axis: Axis,
    calibration: SlopeCalibration | None = None,
    *,
    seed: int = 0,
    progress: Progress = silent,
) -> Search:
    """The posterior of one positive parameter for an image [1, C, H, W]; `calibration`, found here if not given, serves all of a family.

    An estimate at an end of the axis is given as it is, without an interval of its own.
    """
    image, log = checked_raw(energy, raw), math.log
    places = torch.linspace(log(axis.low), log(axis.high), PLACES, dtype=torch.float64)
    top, climbed = tops(energy, image, family, axis.name, places[None], seed=seed)
    estimate = float(top)
    progress("slope of the evidence", 1, 1)
    looked = Axis(axis.name, axis.low, axis.high, PLACES, "log", axis.unit)
    first = _grid(family, looked, climbed[0], image)
    if looked.ends_at(math.exp(estimate)):
        return Search((first,))
    if calibration is None:
        near = torch.linspace(
            max(log(axis.low), estimate - NEAR), min(log(axis.high), estimate + NEAR), NEARBY, dtype=torch.float64
        )
        calibration = calibrate_slopes(energy, family, axis.name, near, seed=seed, progress=progress)
    if calibration is None:
        raise ValueError(
            "this energy carries no held-out images to judge itself by; `search` takes its evidence as it is"
        )
    bias, deviation = (float(value) for value in calibration.at(torch.tensor([estimate])))
    low, high = (estimate - bias + side * SPAN * deviation for side in (-1, 1))
    grid = Axis(axis.name, math.exp(low), math.exp(high), POINTS, "log", axis.unit)
    last = _grid(family, grid, calibration.log_density(estimate, grid.values().double().log()), image)
    return CorrectedSearch((first, last), model_bias=bias, model_error=deviation)


def _grid(family: Family, axis: Axis, log_p: Tensor, image: Tensor) -> tuple[tuple[Axis, ...], BlindEstimate]:
    return (axis,), BlindEstimate(family, {axis.name: axis.values()}, log_p, torch.log_softmax(log_p, 0), image)

"""Where to look for an unknown degradation: grids over its parameters θ that zoom in until the posterior is resolved.

A first, coarse grid spans what is plausible; the next one spans where the posterior is not negligible (within e^−12 of its maximum), and
so on until a standard deviation is worth a few points. The prior is uniform along each axis: in log θ where the axis is logarithmic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from linverse.blind.estimate import BlindEstimate, estimate, noise_levels
from linverse.blind.families import Family, UnknownGaussianBlur, UnknownLineBlur, UnknownNoise, UnknownNoiseBox
from linverse.covariance import VarianceRange
from linverse.energy import Energy
from linverse.progress import Progress, silent
from linverse.rng import normal_like

NEGLIGIBLE = 12.0  # nats below the maximum
ENOUGH = 6  # grid points within one nat or so of the maximum: the posterior is resolved
ROUNDS = 4
MOST_POINTS = 10_000  # of one axis


@dataclass(frozen=True)
class Axis:
    """The values of one parameter: `count` of them from `low` to `high`."""

    name: str
    low: float
    high: float
    count: int
    spacing: Literal["log", "linear", "whole"] = "linear"
    unit: str = ""
    periodic: bool = False  # an angle: `high` is `low` again
    scale: float = 1.0  # of what a person reads to what the family takes: degrees to radians

    def __post_init__(self) -> None:
        positive = self.low > 0 or self.spacing != "log"
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high and positive):
            raise ValueError(
                f"a grid of {self.name} needs {'0 < ' if self.spacing == 'log' else ''}low < high; got {self.low:g} and {self.high:g}"
            )
        if self.count < 3:
            raise ValueError(f"a grid needs at least 3 points; got {self.count}")
        points = self.high - self.low + 1 if self.spacing == "whole" else self.count
        if points > MOST_POINTS:
            raise ValueError(f"a grid of {self.name} has at most {MOST_POINTS:,} points; got {points:,.0f}")

    def values(self) -> Tensor:
        """[n], as a person reads them."""
        if self.spacing == "whole":
            return torch.arange(math.ceil(self.low), math.floor(self.high) + 1).float()
        if self.spacing == "log":
            return torch.logspace(math.log10(self.low), math.log10(self.high), self.count)
        return torch.linspace(self.low, self.high, self.count + self.periodic)[: self.count]

    def ends_at(self, value: float) -> bool:
        """Whether a value is nearer to an end of this axis than to any point between: what is sought may lie beyond."""
        if self.periodic:
            return False
        points, place = self.values().double(), torch.tensor(value, dtype=torch.float64)
        if self.spacing == "log":
            points, place = points.log(), place.log()
        return int((points - place).abs().argmin()) in (0, len(points) - 1)

    def narrowed(self, log_p: Tensor, count: int) -> Axis:
        """The part of this axis where a log-posterior [n] is not negligible, and one step to either side of it."""
        kept = (log_p > log_p.max() - NEGLIGIBLE).nonzero().flatten()
        first, last = int(kept[0]) - 1, int(kept[-1]) + 1
        values, n = self.values(), len(log_p)
        if self.periodic:
            reach = int((((kept - log_p.argmax()) + n // 2) % n - n // 2).abs().max()) + 1
            step, centre = float(values[1] - values[0]), float(values[log_p.argmax()])
            if 2 * reach >= n:
                return replace(self, count=max(count, n))
            return replace(self, low=centre - reach * step, high=centre + reach * step, count=count, periodic=False)
        low, high = float(values[max(first, 0)]), float(values[min(last, n - 1)])
        return replace(self, low=low, high=high, count=count)


@dataclass(frozen=True)
class FamilyPreset:
    """A family of degradations that a user can ask about: its name, its axes for images of some size, what `sigma` means to it."""

    description: str
    build: Callable[[float], Family]
    axes: Callable[[tuple[int, int]], tuple[Axis, ...]]
    sigma: float | None  # a known noise level by default; None: there is none
    main: str  # the parameter that a user may want to bound


def noise_axis(count: int) -> Axis:
    """σ from where 8-bit pictures hide it to where they drown in it."""
    return Axis("sigma", 3e-3, 3.0, count, "log")


FAMILIES: dict[str, FamilyPreset] = {
    "noise": FamilyPreset(
        "white noise of unknown level sigma",
        lambda sigma: UnknownNoise(),
        lambda size: (noise_axis(61),),
        None,
        "sigma",
    ),
    "noise-box": FamilyPreset(
        "noise of unknown level sigma in a centred square of unknown side; --sigma outside of it",
        UnknownNoiseBox,
        lambda size: (Axis("side", 2, min(size) - 1, 3, "whole", "pixels"), noise_axis(25)),
        1e-3,
        "sigma",
    ),
    "gaussian-blur": FamilyPreset(
        "a Gaussian blur of unknown std, and white noise --sigma",
        UnknownGaussianBlur,
        lambda size: (Axis("std", 0.2, min(4.0, min(size) / 6), 61, unit="pixels"),),
        0.01,
        "std",
    ),
    "line-blur": FamilyPreset(
        "a straight motion of unknown angle and length, and white noise --sigma",
        UnknownLineBlur,
        lambda size: (
            Axis("angle", 0, 180, 24, unit="degrees", periodic=True, scale=math.pi / 180),
            Axis("length", 1.0, min(size) / 2, 24, unit="pixels"),
        ),
        0.01,
        "length",
    ),
}


@dataclass(frozen=True)
class Search:
    """The grids from the coarse one to the last; axes as a person reads them, estimates as the family does."""

    rounds: tuple[tuple[tuple[Axis, ...], BlindEstimate], ...]

    def __repr__(self) -> str:
        found = []
        for axis in self.axes:
            low, high = self.interval(axis)
            found.append(f"{axis.name} = {self.value(axis):.4g}, 90 % in [{low:.4g}, {high:.4g}]")
        return f"Search({'; '.join(found)})"

    @property
    def coarse(self) -> BlindEstimate:
        return self.rounds[0][1]

    @property
    def final(self) -> BlindEstimate:
        return self.rounds[-1][1]

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.rounds[-1][0]

    def value(self, axis: Axis) -> float:
        """The most probable value: between the points of the grid, unless only whole numbers make sense."""
        best = self.final.best[axis.name] if axis.spacing == "whole" else self.final.refined(axis.name)
        return best / axis.scale

    def interval(self, axis: Axis, level: float = 0.9) -> tuple[float, float]:
        """The central credible interval."""
        if axis.spacing == "whole":
            return whole_interval(self.final.axes[axis.name], self.final.marginal(axis.name), level)
        low, high = self.final.interval(axis.name, level)
        return low / axis.scale, high / axis.scale

    @property
    def searched(self) -> tuple[Axis, ...]:
        """The axes of the first grid: all that was looked at."""
        return self.rounds[0][0]

    def at_edge(self) -> list[Axis]:
        """The axes at whose end the most probable value lies: it may be an answer of the grid, not of the picture."""
        return [axis for axis in self.searched if axis.ends_at(self.value(axis))]


def whole_interval(values: Tensor, weights: Tensor, level: float) -> tuple[float, float]:
    """Whole numbers with at most (1 − level)/2 of the probability beyond either end."""
    cumulative, tail = weights.cumsum(0), 0.5 * (1 - level)
    first = int((cumulative <= tail).sum())
    last = int((cumulative < 1 - tail).sum())
    return float(values[min(first, len(values) - 1)]), float(values[min(last, len(values) - 1)])


def search(
    energy: Energy,
    raw: Tensor,
    family: Family,
    axes: tuple[Axis, ...],
    *,
    count: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Search:
    """The posterior over θ on grids that zoom in, of `count` points per axis after the first, for one image [1, C, H, W]."""
    rounds: list[tuple[tuple[Axis, ...], BlindEstimate]] = []
    count = count or (61 if len(axes) == 1 else 31)
    while True:
        grid = {axis.name: (axis.values() * axis.scale).to(raw) for axis in axes}
        result = estimate(energy, raw, family, grid, seed=seed, chunk=32, progress=progress)
        rounds.append((axes, result))
        if len(rounds) == ROUNDS or all(resolved(axis, result) for axis in axes):
            return Search(tuple(rounds))
        axes = tuple(axis.narrowed(result.log_marginal(axis.name), count) for axis in axes)


def log_spaced(low: float, high: float, step: float, most: int = 80) -> Tensor:
    """From low to high in equal steps of the logarithm, about `step` wide, at most `most` of them."""
    count = min(most, max(3, 1 + math.ceil(math.log(high / low) / step)))
    return torch.linspace(math.log(low), math.log(high), count, dtype=torch.float64).exp()


def sigma_limits(limits: VarianceRange) -> tuple[float, float]:
    """Standard deviations that an energy knows, with room at either end."""
    return math.sqrt(4 * limits.minimum), math.sqrt(0.25 * limits.maximum)


def search_noise_levels(energy: Energy, y: Tensor, *, seed: int = 0) -> Tensor:
    """The most probable σ of white noise for each image of a batch, [B]: over all that the energy knows, then where the answers are."""
    low, high = sigma_limits(energy.range)
    coarse = noise_levels(energy, y, log_spaced(low, high, 0.2), seed=seed)
    near = max(low, 0.8 * float(coarse.min())), min(high, 1.25 * float(coarse.max()))
    return noise_levels(energy, y, log_spaced(*near, 0.025), seed=seed)


def resolved(axis: Axis, result: BlindEstimate) -> bool:
    """Whether the posterior is spread over enough points of an axis (or the axis has no finer ones)."""
    if axis.spacing == "whole":
        return True
    log_p = result.log_marginal(axis.name)
    return int((log_p > log_p.max() - 2).sum()) >= ENOUGH


@torch.no_grad()
def check_truth(values: Mapping[str, float], axes: tuple[Axis, ...]) -> None:
    """Refuse parameters, as a person reads them, with which nothing can be simulated."""
    for axis in axes:
        value = values[axis.name]
        if not 0 <= value < math.inf:
            raise ValueError(f"{axis.name} is a number ≥ 0; got {value:g}")
        if axis.spacing == "whole" and value not in axis.values():
            raise ValueError(f"{axis.name} is a whole number from {axis.low:g} to {axis.high:g}; got {value:g}")
    if values.get("sigma") == 0:
        raise ValueError("sigma is 0: there is no noise to look for")


def simulate(family: Family, x: Tensor, theta: Mapping[str, float], generator: torch.Generator) -> Tensor:
    """Raw data of a clean image [1, C, H, W] under known parameters: Hx + noise, in the basis where both are diagonal."""
    values = {name: torch.tensor([value]).to(x) for name, value in theta.items()}
    clean = family.measurement(x, values)
    z = clean.coefficients * clean.log_gain.exp()
    noise = torch.exp(0.5 * clean.log_noise) * normal_like(z, generator)
    return clean.template.synthesis(z + noise)

"""Training distributions over Σ.

Training must visit what inference visits: a draw is a degradation's Σ_T and then, with some probability, a random point on
the geometric path from it to the floor λ_min·I. With a small probability the draw is isotropic, so that every basis reaches
λ_max·I, where the energy is normalised and all bases meet. Variances are log-uniform, inside and outside of a mask drawn
independently (paper, appendix "Distribution covariances used for training").

A distribution is a frozen dataclass with `sample(n, shape, limits, generator)`; nothing loops over samples.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from linverse.covariance.base import Covariance, VarianceRange
from linverse.covariance.dct import BlockDCTCovariance, DCTCovariance
from linverse.covariance.fourier import FourierCovariance
from linverse.covariance.spatial import SpatialCovariance
from linverse.covariance.transfer import gaussian_transfer
from linverse.rng import keyed_generator

Shape = tuple[int, int, int]


class CovarianceDistribution(Protocol):
    """Draws n covariances of one basis for images of shape [C, H, W]; `kind` names it in a configuration."""

    kind: ClassVar[str]

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> Covariance: ...


def log_uniform(shape: tuple[int, ...], limits: VarianceRange, generator: torch.Generator | None) -> Tensor:
    """log λ uniform between the logarithms of the limits."""
    low, high = math.log(limits.minimum), math.log(limits.maximum)
    return low + (high - low) * torch.rand(shape, generator=generator)


def _check_ends(name: str, low: float, high: float, least: float = 0.0, most: float = math.inf) -> None:
    """Refuse an interval [low, high] of a distribution that is empty or reaches out of [least, most]."""
    if not least <= low <= high <= most:
        raise ValueError(f"{name} must satisfy {least:g} ≤ lower end ≤ upper end ≤ {most:g}; got {low:g} and {high:g}")


def _check_choice(name: str, given: str, accepted: tuple[str, ...]) -> None:
    if given not in accepted:
        raise ValueError(f"{name} can be {' or '.join(accepted)}; got {given!r}")


def _two_levels(inside: Tensor, limits: VarianceRange, generator: torch.Generator | None) -> Tensor:
    """[n, H, W] boolean masks → log λ with one level inside and one outside, [n, 1, H, W]."""
    levels = log_uniform((2, inside.shape[0], 1, 1), limits, generator)
    return torch.where(inside, levels[0], levels[1])[:, None]


@dataclass(frozen=True)
class Isotropic:
    """λ·I in pixels."""

    kind: ClassVar[str] = "isotropic"

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> Covariance:
        levels = log_uniform((n, 1, 1, 1), limits, generator).expand(n, 1, *shape[1:])
        return SpatialCovariance(levels.contiguous(), shape[0])


@dataclass(frozen=True)
class CentreBox:
    """A centred square of side `smallest`…`largest` (0: up to the shorter side of the image)."""

    kind: ClassVar[str] = "box"
    smallest: int = 1
    largest: int = 0

    def __post_init__(self) -> None:
        _check_ends("the sides of a box", self.smallest, self.largest or math.inf, least=1)

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> Covariance:
        _, height, width = shape
        largest = self.largest or min(height, width)
        side = torch.randint(self.smallest, largest + 1, (n, 1, 1), generator=generator)
        return SpatialCovariance(_two_levels(centre_box(side, height, width), limits, generator), shape[0])


def centre_box(side: Tensor, height: int, width: int) -> Tensor:
    """[n, 1, 1] sides → [n, H, W] masks, true inside the centred square."""
    top, left = (height - side) // 2, (width - side) // 2
    rows, columns = torch.arange(height)[None, :, None], torch.arange(width)[None, None, :]
    return (rows >= top) & (rows < top + side) & (columns >= left) & (columns < left + side)


@dataclass(frozen=True)
class HalfMasks:
    """A band of 1…N full rows ("horizontal") or columns ("vertical") at either end, or `smallest`…`largest` of them."""

    kind: ClassVar[str] = "half"
    direction: str = "horizontal"
    smallest: int = 1
    largest: int = 0

    def __post_init__(self) -> None:
        _check_choice("the direction of a half mask", self.direction, ("horizontal", "vertical"))
        _check_ends("the depths of a half mask", self.smallest, self.largest or math.inf, least=1)

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> Covariance:
        _, height, width = shape
        length = height if self.direction == "horizontal" else width
        depth = torch.randint(self.smallest, (self.largest or length) + 1, (n, 1), generator=generator)
        at_end = torch.rand((n, 1), generator=generator) < 0.5
        index = torch.arange(length)[None, :]
        band = torch.where(at_end, index >= length - depth, index < depth)
        line = band[:, :, None] if self.direction == "horizontal" else band[:, None, :]
        return SpatialCovariance(_two_levels(line.expand(n, height, width), limits, generator), shape[0])


@dataclass(frozen=True)
class RandomPixelMasks:
    """Each pixel inside with a probability drawn uniformly in [least, most] for the image."""

    kind: ClassVar[str] = "pixels"
    least: float = 0.05
    most: float = 0.95

    def __post_init__(self) -> None:
        _check_ends("the share of random pixels", self.least, self.most, most=1)

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> Covariance:
        share = self.least + (self.most - self.least) * torch.rand((n, 1, 1), generator=generator)
        inside = torch.rand((n, *shape[1:]), generator=generator) < share
        return SpatialCovariance(_two_levels(inside, limits, generator), shape[0])


@dataclass(frozen=True)
class Patches:
    """An independent variance for every b×b patch, b drawn from `sizes` (those that tile the image)."""

    kind: ClassVar[str] = "patches"
    sizes: tuple[int, ...] = (1, 2, 4, 7, 14, 28)

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> Covariance:
        channels, height, width = shape
        sizes = [b for b in self.sizes if height % b == 0 and width % b == 0]
        if not sizes:
            raise ValueError(f"none of the patch sizes {self.sizes} tiles a {height}×{width} image")
        choice = torch.randint(len(sizes), (n, 1, 1), generator=generator)
        levels = log_uniform((n, height, width), limits, generator)
        out = levels
        for index, b in enumerate(sizes):
            tiled = levels[:, ::b, ::b].repeat_interleave(b, dim=1).repeat_interleave(b, dim=2)
            out = torch.where(choice == index, tiled, out)
        return SpatialCovariance(out[:, None], channels)


@dataclass(frozen=True)
class GaussianBlurs:
    """λ = σ²/|h|² of a Gaussian blur, cut at λ_max; its std (pixels) log-uniform, and σ² too, up to `loudest` (0: λ_max).

    A share `capped` is cut at a log-uniform level instead: what a sampler meets on the clamped path, where the loudest frequencies
    fall first.
    """

    kind: ClassVar[str] = "gaussian-blur"
    narrowest: float = 0.3
    widest: float = 3.0
    boundary: str = "periodic"
    loudest: float = 0.0
    capped: float = 0.0

    def __post_init__(self) -> None:
        _check_ends("the share of capped blurs", 0.0, self.capped, most=1.0)
        _check_choice("the boundary of a blur", self.boundary, ("periodic", "reflecting"))
        _check_ends("the std of a blur", self.narrowest, self.widest, least=0.01)
        _check_ends("σ² of a blur", 0.0, self.loudest)

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> Covariance:
        std = self.narrowest * (self.widest / self.narrowest) ** torch.rand(n, generator=generator)
        # float64: σ²/h² < λ_max down to |h| = 1e-6, where a float32 sum of taps has no digits left
        gain = gaussian_transfer(std.double(), shape[1:], self.boundary).abs().clamp_min(1e-30)
        loudest = min(self.loudest or limits.maximum, limits.maximum)
        noise = log_uniform((n, 1, 1), VarianceRange(limits.minimum, loudest), generator)
        cap = torch.full_like(noise, math.log(limits.maximum))
        if self.capped:
            level = torch.maximum(log_uniform((n, 1, 1), limits, generator), noise)
            cap = torch.where(torch.rand(n, 1, 1, generator=generator) < self.capped, level, cap)
        log_variance = torch.minimum(noise - 2 * gain.log().to(noise.dtype), cap)[:, None]
        family = FourierCovariance if self.boundary == "periodic" else DCTCovariance
        return family(log_variance, shape[0])


@dataclass(frozen=True)
class BoxSuperResolution:
    """×factor box-mean super-resolution: one level for the DC coefficient of each block, one for the others."""

    kind: ClassVar[str] = "super-resolution"
    factor: int = 4

    def __post_init__(self) -> None:
        _check_ends("the factor of super-resolution", self.factor, math.inf, least=2)

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> Covariance:
        channels, height, width = shape
        constant = torch.zeros(height, width, dtype=torch.bool)
        constant[:: self.factor, :: self.factor] = True
        log_variance = _two_levels(constant.expand(n, height, width), limits, generator)
        return BlockDCTCovariance(log_variance, channels, self.factor)


@dataclass(frozen=True)
class SmoothSpectra:
    """Any smooth even spectrum: log λ = level + slope·log|k| + Σ_j a_j cos 2πp_j·k, in Fourier.

    The p_j are `terms` offsets of up to `reach` pixels, so that the last part is what log|h|² of a small kernel looks like; slopes up to
    `steepest` either way give pink and blue noise. The mean of log λ is log-uniform.
    """

    kind: ClassVar[str] = "smooth-spectra"
    terms: int = 4
    reach: int = 4
    ripple: float = 1.5
    steepest: float = 2.0

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> Covariance:
        rows, columns = (torch.fft.fftfreq(size) for size in shape[1:])
        offsets = torch.randint(-self.reach, self.reach + 1, (2, n, self.terms, 1, 1), generator=generator)
        heights = self.ripple * torch.randn(n, self.terms, 1, 1, generator=generator)
        phase = offsets[0] * rows[:, None] + offsets[1] * columns[None, :]
        ripples = (heights * torch.cos(2 * math.pi * phase)).sum(1)
        radius = (rows[:, None].square() + columns[None, :].square() + 0.25 / max(shape[1:]) ** 2).sqrt().log()
        slope = self.steepest * (2 * torch.rand(n, 1, 1, generator=generator) - 1)
        shaped = ripples + slope * (radius - radius.mean())
        low, high = math.log(limits.minimum), math.log(limits.maximum)
        return FourierCovariance(
            (log_uniform((n, 1, 1), limits, generator) + shaped).clamp(low, high)[:, None], shape[0]
        )


KINDS: dict[str, type[Any]] = {
    cls.kind: cls
    for cls in (
        Isotropic,
        CentreBox,
        HalfMasks,
        RandomPixelMasks,
        Patches,
        GaussianBlurs,
        BoxSuperResolution,
        SmoothSpectra,
    )
}


@dataclass(frozen=True)
class Component:
    """A distribution and how often it is drawn."""

    weight: float
    distribution: CovarianceDistribution


@dataclass(frozen=True)
class Mixture:
    """A mixture of distributions; `path` is the probability of moving on along a path to the floor, `isotropic` that of c·I.

    A share `clamped` of those that move takes the sampler's own path, min(λ, ℓ) with ℓ log-uniform, the others the geometric one.
    """

    components: tuple[Component, ...]
    path: float = 0.5
    isotropic: float = 0.05
    clamped: float = 0.0

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> list[tuple[Covariance, Tensor]]:
        """n draws, as (Σ, rows) for each basis that occurs: `rows` says which of the n samples they are."""
        weights = torch.tensor([c.weight for c in self.components], dtype=torch.float64)
        choice = torch.multinomial(weights, n, replacement=True, generator=generator)
        groups: dict[str, list[tuple[Covariance, Tensor]]] = {}
        for index, component in enumerate(self.components):
            rows = (choice == index).nonzero().flatten()
            if len(rows) == 0:
                continue
            start = component.distribution.sample(len(rows), shape, limits, generator)
            cov = self._along_path(start, limits, generator)
            groups.setdefault(cov.basis, []).append((cov, rows))
        return [_concatenate(parts) for parts in groups.values()]

    def _along_path(self, cov: Covariance, limits: VarianceRange, generator: torch.Generator | None) -> Covariance:
        shape = (cov.batch, 1, 1, 1)
        moved = torch.rand(shape, generator=generator) < self.path
        t = torch.rand(shape, generator=generator) * moved
        point = cov.interpolate(cov.isotropic(limits.minimum), t)
        if self.clamped:
            level = log_uniform(shape, limits, generator)
            cut = moved & (torch.rand(shape, generator=generator) < self.clamped)
            point = point.with_log_variance(
                torch.where(cut, torch.minimum(cov.log_variance, level), point.log_variance)
            )
        flat = torch.rand(shape, generator=generator) < self.isotropic
        return point.with_log_variance(torch.where(flat, log_uniform(shape, limits, generator), point.log_variance))

    def bases(self, shape: Shape) -> tuple[str, ...]:
        """The bases that this mixture draws from."""
        limits = VarianceRange(1e-2, 1.0)
        draws = (c.distribution.sample(1, shape, limits, keyed_generator("bases")) for c in self.components)
        return tuple(dict.fromkeys(cov.basis for cov in draws))

    def to_config(self) -> dict[str, Any]:
        parts = [
            {"weight": c.weight, "kind": c.distribution.kind, **asdict(c.distribution)}  # type: ignore[call-overload]
            for c in self.components
        ]
        return {"components": parts, "path": self.path, "isotropic": self.isotropic, "clamped": self.clamped}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Mixture:
        shares = {key: value for key, value in config.items() if key != "components"}
        return cls(tuple(_component(part) for part in config["components"]), **shares)


def _component(part: dict[str, Any]) -> Component:
    kind = part["kind"]
    if kind not in KINDS:
        raise ValueError(f"unknown covariance distribution {kind!r}; there are {', '.join(sorted(KINDS))}")
    options = {key: value for key, value in part.items() if key not in ("kind", "weight")}
    unknown = options.keys() - {f.name for f in fields(KINDS[kind])}
    if unknown:
        raise ValueError(f"covariance distribution {kind!r} has no option {', '.join(sorted(unknown))}")
    tuples = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    return Component(part["weight"], KINDS[kind](**tuples))


def _concatenate(parts: list[tuple[Covariance, Tensor]]) -> tuple[Covariance, Tensor]:
    covs, rows = zip(*parts, strict=True)
    log_variance = torch.cat([cov.log_variance for cov in covs])
    return covs[0].with_log_variance(log_variance), torch.cat(rows)

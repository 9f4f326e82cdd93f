"""The mixture of distributions that a model is trained on, and the paths that lead from each draw to the floor.

Training must visit what inference visits: a draw is a degradation's Σ_T and then, with some probability, a random point on a path from it
to the floor λ_min·I. With a small probability the draw is isotropic, so that every basis reaches λ_max·I, where the energy is
normalised and all bases meet.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor

from linverse.covariance import Covariance, VarianceRange
from linverse.rng import keyed_generator
from linverse.training.covariances.interface import CovarianceDistribution, Shape, log_uniform
from linverse.training.covariances.masks import (
    BayerPatterns,
    Boxes,
    CentreBox,
    HalfMasks,
    Isotropic,
    Patches,
    RandomPixelMasks,
    Strokes,
)
from linverse.training.covariances.spectra import (
    BoxSuperResolution,
    DefocusBlurs,
    GaussianBlurs,
    MotionBlurs,
    RandomKernels,
    SmoothSpectra,
)

KINDS: dict[str, type[Any]] = {
    cls.kind: cls
    for cls in (
        Isotropic,
        CentreBox,
        HalfMasks,
        RandomPixelMasks,
        Patches,
        Boxes,
        Strokes,
        BayerPatterns,
        GaussianBlurs,
        DefocusBlurs,
        MotionBlurs,
        RandomKernels,
        SmoothSpectra,
        BoxSuperResolution,
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
        """n draws, as (Σ, rows) by basis, and by whether channels and all pixels share λ: `rows` says which of the n samples they are.

        Isotropic noise stands apart because a base has less work with it.
        """
        weights = torch.tensor([c.weight for c in self.components], dtype=torch.float64)
        choice = torch.multinomial(weights, n, replacement=True, generator=generator)
        groups: dict[tuple[str, int, bool], list[tuple[Covariance, Tensor]]] = {}
        for index, component in enumerate(self.components):
            rows = (choice == index).nonzero().flatten()
            if len(rows) == 0:
                continue
            start = component.distribution.sample(len(rows), shape, limits, generator)
            cov = self._along_path(start, limits, generator)
            alike = isinstance(component.distribution, Isotropic)
            groups.setdefault((cov.basis, cov.multiplicity, alike), []).append((cov, rows))
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

    def isotropic_part(self) -> Mixture:
        """Isotropic noise alone: as this mixture draws it, or at all levels where it draws none."""
        parts = tuple(part for part in self.components if isinstance(part.distribution, Isotropic))
        return Mixture(parts, path=0.0, isotropic=0.0) if parts else ISOTROPIC

    def bases(self, shape: Shape) -> tuple[str, ...]:
        """The bases that this mixture draws from."""
        limits = VarianceRange(1e-9, 1e3)  # as wide as any: a component may be drawn from the faintest alone
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


ISOTROPIC = Mixture((Component(1.0, Isotropic()),), path=0.0, isotropic=0.0)

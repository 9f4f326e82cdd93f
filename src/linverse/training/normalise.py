"""The constant that normalises a trained energy, and the self-tests that travel with its weights (mathematics §6).

At Σ = λ_max·I noisy images are Gaussian to within nothing, so c = E[U_G − U_θ] there, with y ~ p(y|Σ) as drawn, never clamped. A-CSM
makes the constant the same for all connected Σ. What is checked afterwards:
    entropy        E[U_θ − U_G] at several large Σ of every basis: 0 for a normalised energy
    agreement      U in every basis at isotropic Σ: the same number
    bias, slope    E[κ] = 0, and regressing ½(1−ε²) on κ has slope 1
    ratio          E_{y~p(·|Σ_A)} exp(U(y,Σ_A) − U(y,Σ_B)) = 1 for neighbouring Σ
    heat equation  Σκ = ½ tr[Σ(∇²U − ∇U∇Uᵀ)], by Hutchinson's estimate
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from linverse.covariance import Covariance, identity
from linverse.energy import Energy, evaluate
from linverse.models.losses import NoisyBatch
from linverse.posterior import residual
from linverse.rng import keyed_generator, normal_like
from linverse.typicality import calibration_of, covariance_score_pairs


def normalising_constant(energy: Energy, x: Tensor, generator: torch.Generator, chunk: int = 256) -> float:
    """c = E[U_G − U_θ] at λ_max·I over noisy versions of the images x: add it to U_θ."""
    gaps = []
    for part in x.split(chunk):
        cov = _isotropic(part, "spatial", energy.range.maximum)
        gaps.append(-residual(energy, part + cov.colour(normal_like(part, generator)), cov).detach())
    return float(torch.cat(gaps).mean())


@dataclass(frozen=True)
class SelfTest:
    """Results in nats per dimension unless a field says otherwise; each is 0 (slope: 1) for a perfect energy."""

    entropy: dict[str, float]  # basis and λ → E[U − U_G]/d
    agreement: float  # largest |U_a − U_b|/d between bases at isotropic Σ
    bias: dict[str, float]  # basis → E[κ]
    slope: dict[str, float]  # basis → slope of ½(1−ε²) on κ
    ratio: dict[str, float]  # λ → log E exp(ΔU), nats
    heat: dict[str, float]  # λ → mean of Σκ − ½tr[…], per dimension

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def normalisation_error(self) -> float:
        """Largest |E[U − U_G]| per dimension at large Σ."""
        return max(abs(value) for value in self.entropy.values())

    def deviations(self) -> dict[str, float]:
        """The largest deviation of each kind from a perfect energy."""
        kinds = {"entropy": self.entropy, "bias": self.bias, "ratio": self.ratio, "heat": self.heat}
        slopes = {basis: slope - 1 for basis, slope in self.slope.items()}
        worst = {
            name: max(map(abs, values.values()), default=0.0) for name, values in {**kinds, "slope": slopes}.items()
        }
        return {**worst, "agreement": self.agreement}

    def table(self) -> list[tuple[str, str, str]]:
        """(what, value, meaning) for people."""
        return [
            (
                "normalisation error",
                f"{self.normalisation_error:.4f} nats/pixel",
                "probability sums to one at large noise",
            ),
            ("agreement of bases", f"{self.agreement:.1e} nats/pixel", "the same noise described in two ways"),
            ("covariance score, mean", _largest(self.bias), "0: no drift of the density with the noise"),
            ("covariance score, slope", _span(self.slope), "1: neither too timid nor too bold"),
            (
                "ratio of neighbours",
                f"{_largest(self.ratio)} nats",
                "0: neighbouring noise levels are normalised alike",
            ),
            (
                "heat equation",
                f"{_largest(self.heat)} nats/pixel",
                "0: the densities are those of one image under all noises",
            ),
        ]


def _largest(values: dict[str, float]) -> str:
    return f"{max(values.values(), key=abs):+.4f}"


def _span(values: dict[str, float]) -> str:
    return f"{min(values.values()):.3f} … {max(values.values()):.3f}"


def self_test(energy: Energy, x: Tensor, parts: list[NoisyBatch], bases: tuple[str, ...], seed: int = 0) -> SelfTest:
    """Run all the tests on held-out images x and on drawn (x, Σ, ε)."""
    top = energy.range.maximum
    levels = [top, 0.3 * top, 0.1 * top]
    pairs = {part.cov.basis: covariance_score_pairs(energy, part.x, part.cov, part.noise) for part in parts}
    kappa = {basis: calibration_of(*pair) for basis, pair in pairs.items()}
    return SelfTest(
        entropy={f"{b} {v:.3g}": _entropy(energy, x, b, v, seed) for b in bases for v in levels},
        agreement=_agreement(energy, x[:64], bases, seed),
        bias={basis: found.bias for basis, found in kappa.items()},
        slope={basis: found.slope for basis, found in kappa.items()},
        ratio={f"{v:.3g}": _ratio(energy, x, v, seed) for v in (1e-3, 1e-2, 1e-1, 1.0, 10.0) if _inside(energy, v)},
        heat={f"{v:.3g}": _heat(energy, x[:64], v, seed) for v in (1e-2, 1e-1, 1.0) if _inside(energy, v)},
    )


def _inside(energy: Energy, variance: float) -> bool:
    return energy.range.minimum <= variance <= energy.range.maximum


def _isotropic(x: Tensor, basis: str, variance: float) -> Covariance:
    return identity(basis, x.shape, x).isotropic(variance).expand(len(x))


def _noisy(x: Tensor, cov: Covariance, *key: int | str) -> Tensor:
    return x + cov.colour(normal_like(x, keyed_generator(*key)))


@torch.no_grad()
def _entropy(energy: Energy, x: Tensor, basis: str, variance: float, seed: int) -> float:
    cov = _isotropic(x, basis, variance)
    return float(residual(energy, _noisy(x, cov, seed, "entropy"), cov).mean()) / cov.dim


@torch.no_grad()
def _agreement(energy: Energy, x: Tensor, bases: tuple[str, ...], seed: int) -> float:
    worst = 0.0
    for variance in (1e-4, 1e-2, 1.0, 1e2):
        if not _inside(energy, variance):
            continue
        y = _noisy(x, _isotropic(x, "spatial", variance), seed, "agreement")
        values = torch.stack([energy(y, _isotropic(x, basis, variance)) for basis in bases])
        worst = max(worst, float((values - values[0]).abs().max()) / x[0].numel())
    return worst


@torch.no_grad()
def _ratio(energy: Energy, x: Tensor, variance: float, seed: int) -> float:
    here = _isotropic(x, "spatial", variance)
    step = min(0.05, math.sqrt(2 / here.dim))  # so that the exponent has a standard deviation of at most about 1
    there = here * math.exp(step)
    y = _noisy(x, here, seed, "ratio", f"{variance:.3g}")
    return float(torch.logsumexp(energy(y, here) - energy(y, there), dim=0) - math.log(len(x)))


def _heat(energy: Energy, x: Tensor, variance: float, seed: int, probes: int = 8) -> float:
    """Mean over images of (Σκ − ½ tr[Σ(∇²U − ∇U∇Uᵀ)])/d at an isotropic Σ."""
    cov = _isotropic(x, "spatial", variance)
    y = _noisy(x, cov, seed, "heat", f"{variance:.3g}").requires_grad_()
    result = evaluate(energy, y, cov, create_graph=True)
    trace = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    for probe in range(probes):
        v = normal_like(x, keyed_generator(seed, "probe", probe)).sign()
        (product,) = torch.autograd.grad((result.score * v).sum(), y, retain_graph=True)
        trace += (product * v).double().sum(dim=(1, 2, 3)).detach() / probes
    squared = result.score.double().square().sum(dim=(1, 2, 3))
    kappa = result.cov_score.double().sum(dim=(1, 2, 3)) * cov.multiplicity
    return float((kappa - 0.5 * variance * (trace - squared)).detach().mean()) / cov.dim

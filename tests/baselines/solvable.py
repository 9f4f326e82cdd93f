"""Inverse problems that every solver can be checked on: an isotropic Gaussian prior of known posterior, seen by an exact denoiser."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from linverse import degradations as dg
from linverse.analytic import DiagonalGaussian, GaussianMixture
from linverse.baselines import EnergyDenoiser, Solution
from linverse.covariance import SpatialCovariance, VarianceRange
from linverse.rng import keyed_generator
from oracles import Law, matrix_of, random_spd, z_threshold

SHAPE, DIM, SIGMA = (1, 4, 4), 16, 0.1
PRIOR = 0.04  # variance of the Gaussian prior
LIMITS = VarianceRange(1e-6, 1e3)

DEGRADATIONS: dict[str, dg.Degradation] = {
    "mask": dg.Box(2, SIGMA),
    "blur": dg.Blur(torch.tensor([[0.25, 0.5, 0.25]]).double(), SIGMA),
    "super-resolution": dg.SuperResolution(2, SIGMA),
}


def gaussian() -> DiagonalGaussian:
    """N(m, C·I), pixels about [0, 1]."""
    mean = 0.25 + 0.5 * torch.rand(SHAPE, generator=keyed_generator("mean"), dtype=torch.float64)
    log_prior = torch.full((1, 1, *SHAPE[1:]), PRIOR, dtype=torch.float64).log()
    return DiagonalGaussian(SpatialCovariance(log_prior), mean, LIMITS)


def mixture() -> GaussianMixture:
    """Three correlated components."""
    generator = keyed_generator("mixture prior")
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    means = torch.rand(3, DIM, generator=generator, dtype=torch.float64)
    return GaussianMixture(weights, means, random_spd(generator, 3, DIM, 0.01), SHAPE, LIMITS)


@dataclass(frozen=True)
class Problem:
    """Raw data of one image under the Gaussian prior, and the exact law of x given them."""

    energy: DiagonalGaussian
    degradation: dg.Degradation
    raw: Tensor
    law: Law

    @property
    def model(self) -> EnergyDenoiser:
        return EnergyDenoiser(self.energy)

    def many(self, n: int) -> Tensor:
        return self.raw.expand(n, -1, -1, -1)


def problem(name: str) -> Problem:
    energy, degradation = gaussian(), DEGRADATIONS[name]
    generator = keyed_generator("problem", name)
    raw = degradation.measure(energy.sample(1, generator).clamp(-0.4, 1.4), generator).raw
    prior = Law(
        torch.zeros(1, 1).double(), energy.mean.reshape(1, 1, -1), PRIOR * torch.eye(DIM, dtype=torch.float64)[None]
    )
    operator = matrix_of(degradation.operator, SHAPE)
    noise = SIGMA**2 * torch.eye(len(operator), dtype=torch.float64)
    return Problem(energy, degradation, raw, prior.posterior(raw, operator, noise))


def whitened(solution: Solution, law: Law) -> tuple[Tensor, Tensor]:
    """Samples in the posterior's eigenbasis, scaled to N(0, I) if they were right, and the eigenvalues, least first."""
    values, vectors = torch.linalg.eigh(law.covariance[0])
    return (solution.samples.double().flatten(1) - law.mean) @ vectors / values.sqrt(), values


def worst(white: Tensor, allowed: float = 0.0) -> float:
    """The largest |z| of means, variances and correlations of whitened samples, over the threshold of a false alarm of 1e-6.

    `allowed` is the discretisation error of a (co)variance that does not count.
    """
    count, dim = white.shape
    products = (white[:, :, None] * white[:, None, :] - torch.eye(dim)).flatten(1)
    z = [
        white.mean(0) * count**0.5 / white.std(0),
        (products.mean(0).abs() - allowed).clamp_min(0) * count**0.5 / products.std(0),
    ]
    flat = torch.cat(z).abs()
    return float(flat.max()) / z_threshold(len(flat))

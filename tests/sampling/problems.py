"""Small inverse problems with exact posteriors, and what it takes to say that samples follow a law."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import torch
from scipy.stats import kstest
from torch import Tensor

from linverse import degradations as dg
from linverse.analytic import GaussianMixture
from linverse.covariance import Covariance, VarianceRange
from linverse.rng import keyed_generator
from oracles import Law, random_spd, z_threshold

SHAPE = (1, 2, 4)
DIM = 8
LIMITS = VarianceRange(1e-6, 1e3)
ALARM = 1e-6  # of one call of `discrepancy`

DEGRADATIONS: dict[str, dg.Degradation] = {
    "mask": dg.Inpainting(torch.tensor([[1, 0, 0, 1], [0, 0, 1, 0]]).bool(), 0.3),
    "blur": dg.Blur(torch.tensor([[0.3, 0.4, 0.3]]).double(), 0.3),
    "super-resolution": dg.SuperResolution(2, 0.2),
}


def prior(components: int, limits: VarianceRange = LIMITS) -> tuple[GaussianMixture, Law]:
    """A correlated Gaussian (1) or a mixture (3), and the same as a dense law."""
    generator = keyed_generator("prior", components)
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)[:components]
    weights = weights / weights.sum()
    means = torch.rand(components, DIM, generator=generator, dtype=torch.float64)
    spread = random_spd(generator, components, DIM, 0.06)
    law = Law(weights.log()[None], means[None], spread)
    return GaussianMixture(weights, means, spread, SHAPE, limits), law


@dataclass(frozen=True)
class Problem:
    """One measurement (y, Σ) of one image, and the exact law of x given it."""

    energy: GaussianMixture
    y: Tensor
    cov: Covariance
    law: Law

    def many(self, n: int) -> Tensor:
        """The measurement n times."""
        return self.y.expand(n, -1, -1, -1)


def problem(degradation: str, components: int, limits: VarianceRange = LIMITS) -> Problem:
    energy, law = prior(components, limits)
    generator = keyed_generator("problem", degradation, components)
    image = energy.sample(1, generator).clamp(-0.4, 1.4)
    measurement = DEGRADATIONS[degradation].measure(image, generator, exact_fill=True)
    lifted = measurement.lift(limits, energy.gaussian(measurement.template), generator)
    eye = torch.eye(DIM, dtype=torch.float64)
    return Problem(energy, lifted.y, lifted.cov, law.posterior(lifted.y, eye, lifted.cov.dense()[0]))


def discrepancy(samples: Tensor, law: Law) -> float:
    """How far independent samples [N, …] are from a law, in units of the threshold of a false alarm of `ALARM`.

    The largest of: |z| of every mean and every (co)variance of the whitened samples and of their total, and Kolmogorov–Smirnov on
    every marginal and some projections.
    """
    x = samples.double().flatten(1)
    count, dim = x.shape
    factor = torch.linalg.cholesky(law.covariance[0])
    white = torch.linalg.solve_triangular(factor, (x - law.mean).mT, upper=False).mT
    products = white[:, :, None] * white[:, None, :] - torch.eye(dim)
    width = white.square().sum(dim=1, keepdim=True) - dim  # what is too wide or too narrow is so in every direction
    values = torch.cat([white, products.flatten(1), width], dim=1)
    z = values.mean(dim=0) * count**0.5 / values.std(dim=0)
    directions = [*torch.eye(dim, dtype=torch.float64), *_projections(dim)]
    smallest = min(kstest((x @ u).numpy(), law.projected_cdf(u)).pvalue for u in directions)
    # a p-value as the |z| that it stands for, so that one number says it all
    comparisons = values.shape[1] + len(directions)
    equivalent = abs(NormalDist().inv_cdf(max(smallest, 1e-300) / 2))
    strongest = max(float(z.abs().max()), equivalent)
    return strongest / z_threshold(comparisons, ALARM)


def _projections(dim: int) -> list[Tensor]:
    directions = torch.randn(4, dim, generator=keyed_generator("projections"), dtype=torch.float64)
    return list(directions)


def draw(law: Law, n: int, generator: torch.Generator) -> Tensor:
    """n exact samples of the first row of a law (its covariances may be singular), [n, C, H, W]."""
    choice = torch.multinomial(law.log_weights[0].exp(), n, replacement=True, generator=generator)
    values, vectors = torch.linalg.eigh(law.covariances)
    factors = vectors * values.clamp_min(0).sqrt()[:, None, :]
    noise = torch.randn(n, law.means.shape[-1], generator=generator, dtype=torch.float64)
    return (law.means[0, choice] + torch.einsum("nij,nj->ni", factors[choice], noise)).reshape(n, *SHAPE)

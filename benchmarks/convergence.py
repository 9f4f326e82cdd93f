"""How far is the spread of samples off, by R-hat? Any operator where the posterior is known: random projections of a mixture of ten digits.

    python benchmarks/convergence.py     (about two minutes)

Each problem is a digit of the mixture, 16 random projections and noise of some level; 48 samples from the surrogate alone, or after some
sweeps of split Gibbs. Printed are, by R-hat (which takes sweeps), the factors between the variance of their samples,
summed over pixels, and the exact one: what the limit of `operator_posterior` rests on.
"""

from __future__ import annotations

import math
import warnings
from itertools import pairwise

import torch
from torch import Tensor

import linverse as lv
from linverse.analytic import GaussianMixture
from linverse.experiments.demo import exact_digits
from linverse.rng import keyed_generator

SIGMAS, SWEEPS, PROBLEMS, CHAINS = (0.5, 0.3, 0.2, 0.1), (0, 20, 60), 10, 48
BINS = (1.0, 1.2, 1.5, 2.0, 2.5, math.inf)


def dense(operator: lv.CompressedSensing, shape: tuple[int, int, int]) -> Tensor:
    """H, [m, d]."""
    pixels = torch.eye(math.prod(shape)).reshape(-1, *shape)
    return operator.operator(pixels).flatten(1).T.double()


def exact_variance(energy: GaussianMixture, matrix: Tensor, y: Tensor, sigma: float) -> Tensor:
    """Var[x_i | y], [d], of a mixture under y = Hx + σv."""
    prior, means = energy.covariances.double(), energy.means.double()
    cross = prior @ matrix.T  # [K, d, m]
    total = matrix @ cross + sigma**2 * torch.eye(len(matrix), dtype=torch.float64)
    shift = y - means @ matrix.T
    log_weights = energy.log_weights + torch.distributions.MultivariateNormal(shift * 0, total).log_prob(shift)
    gain = torch.linalg.solve(total, cross.mT).mT
    centres = means + (gain @ shift[..., None])[..., 0]
    inner = (prior - gain @ cross.mT).diagonal(dim1=-2, dim2=-1)
    weights = log_weights.softmax(0)[:, None]
    middle = (weights * centres).sum(0)
    return (weights * (inner + (centres - middle).square())).sum(0)


def problem(energy: GaussianMixture, sigma: float, sweeps: int, number: int) -> tuple[float, float]:
    """R-hat, and the variance of samples over the exact one."""
    generator = keyed_generator("convergence", sigma, sweeps, number)
    operator = lv.CompressedSensing((8, 8), 0.25, sigma, seed=number)
    seen = operator.measure(energy.sample(1, generator).clamp(0, 1).float(), generator)
    post = lv.Posterior(energy, seen)
    samples = post.draw(CHAINS, sweeps=sweeps, generator=generator).samples.flatten(1).double()
    exact = exact_variance(energy, dense(operator, energy.shape), seen.raw.flatten().double(), sigma)
    return float(post.convergence.r_hat.max()), float(samples.var(0).sum() / exact.sum())


def main() -> None:
    warnings.simplefilter("ignore")
    energy = exact_digits()
    found = [problem(energy, s, w, n) for s in SIGMAS for w in SWEEPS for n in range(PROBLEMS)]
    tell("without sweeps", [ratio for r_hat, ratio in found if math.isnan(r_hat)])
    for low, high in pairwise(BINS):
        tell(f"R-hat {low:g} to {high:g}", [ratio for r_hat, ratio in found if low <= r_hat < high])


def tell(label: str, ratios: list[float]) -> None:
    factors = sorted(math.exp(abs(math.log(ratio))) for ratio in ratios)
    if factors:
        middle, worst = factors[len(factors) // 2], factors[-1]
        print(f"{label}: {len(factors)} problems, factor {middle:.2f} (median), {worst:.2f} (largest)")


if __name__ == "__main__":
    main()

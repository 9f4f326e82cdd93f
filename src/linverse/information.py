"""What a measurement tells, and what to measure next.

    I(x; y) = E_y[U(y,Σ)] − ½ log det(2πeΣ) = ½ Σ_i log(1 + C_i/λ_i) + E[R],   R = U − U_G      (half the Monte Carlo error)
    ∂I/∂log λ_i = −½ E Var[x_i|y]/λ_i                                                     (I-MMSE)
Measuring coefficient i of an image with noise σ² gains about ½ log(1 + Var[x_i|y]/σ²) nats (exactly, for a Gaussian posterior). The
one-shot variance gives all coefficients at once, so the next one to measure costs a single evaluation of the network.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.energy import Energy, check_pair, evaluate
from linverse.posterior import residual
from linverse.rng import normal_like


@dataclass(frozen=True)
class Estimate:
    """A Monte Carlo estimate in nats and its standard error."""

    value: float
    standard_error: float


def _estimate(samples: Tensor, offset: float = 0.0) -> Estimate:
    if len(samples) < 2:
        raise ValueError("a Monte Carlo estimate needs at least two images")
    return Estimate(float(samples.mean()) + offset, float(samples.std()) / math.sqrt(len(samples)))


def _noisy(x: Tensor, cov: Covariance, generator: torch.Generator | None) -> Tensor:
    return x + cov.colour(normal_like(x, generator))


@torch.no_grad()
def entropy(energy: Energy, cov: Covariance, x: Tensor, generator: torch.Generator | None = None) -> Estimate:
    """Differential entropy of y = x + N(0, Σ) for images x from the prior: E[U]."""
    check_pair(energy, x, cov)
    noise = cov.expand(len(x))
    return _estimate(energy(_noisy(x, noise, generator), noise))


@torch.no_grad()
def mutual_information(
    energy: Energy, cov: Covariance, x: Tensor, generator: torch.Generator | None = None
) -> Estimate:
    """How much does y = x + N(0, Σ) tell about x? I(x; y) in nats, from images x of the prior (one Σ, batch 1).

    >>> import torch, linverse as lv
    >>> from linverse.analytic import DiagonalGaussian
    >>> prior = DiagonalGaussian(lv.SpatialCovariance(torch.zeros(1, 1, 2, 2)), limits=lv.VarianceRange(1e-6, 1e3))
    >>> cov = lv.SpatialCovariance(torch.zeros(1, 1, 2, 2))  # noise as strong as the signal
    >>> mutual_information(prior, cov, torch.randn(8, 1, 2, 2)).value  # ½ log 2 for each of four pixels
    1.3862943611198906
    """
    check_pair(energy, x, cov)
    noise = cov.expand(len(x))
    _, prior = energy.gaussian(cov)
    gaussian = 0.5 * torch.log1p(prior.double() * torch.exp(-cov.log_variance.double()))
    copies = cov.dim / gaussian[0].numel()
    return _estimate(residual(energy, _noisy(x, noise, generator), noise), float(gaussian.sum()) * copies)


def information_gain(variance: Tensor, sigma: float) -> Tensor:
    """½ log(1 + Var/σ²): what measuring each coefficient with noise σ would tell, in nats."""
    if sigma <= 0:
        raise ValueError(f"a measurement needs noise sigma > 0 to tell a finite amount; got {sigma}")
    return 0.5 * torch.log1p(variance / sigma**2)


def next_coefficients(energy: Energy, y: Tensor, cov: Covariance, sigma: float, count: int, spacing: int = 1) -> Tensor:
    """Where should we measure next? For each image the `count` coefficients, [B, count, 2] as (row, column), most informative first.

    Coefficients closer than `spacing` to a chosen one are passed over: neighbours tell much the same.
    """
    return most_informative(evaluate(energy, y, cov).variance, sigma, count, spacing)


def most_informative(variance: Tensor, sigma: float, count: int, spacing: int = 1) -> Tensor:
    """The same from posterior variances [B, C, H, W] that are known already (`post.std() ** 2`); fewer where no more are so far apart."""
    if count < 1 or spacing < 1:
        raise ValueError(f"count and spacing are at least 1; got {count} and {spacing}")
    gain = information_gain(variance.mean(dim=1), sigma)
    places = [_top(image, count, spacing) for image in gain]
    return torch.stack([each[: min(map(len, places))] for each in places])


def _mark(log_variance: Tensor, places: Tensor, sigma: float) -> Tensor:
    """log λ after measuring the given places with noise σ as well."""
    out = log_variance.clone()
    for row, column in places.tolist():
        out[..., row, column] = torch.logaddexp(-out[..., row, column], out.new_tensor(-2 * math.log(sigma))).neg()
    return out


def design(
    energy: Energy,
    cov: Covariance,
    x: Tensor,
    sigma: float,
    count: int,
    *,
    each: int = 1,
    spacing: int = 1,
    generator: torch.Generator | None = None,
) -> Tensor:
    """A measurement for all images of the prior: `count` coefficients chosen greedily, [count, 2] as (row, column).

    Starts from Σ (batch 1; λ_max where nothing is measured yet). Each round takes the `each` coefficients with the largest gain
    at the expected posterior variance, and adds a measurement of noise σ there: 1/λ ← 1/λ + 1/σ².
    """
    if count < 1 or each < 1:
        raise ValueError(f"count and each are at least 1; got {count} and {each}")
    current, chosen = cov, torch.empty(0, 2, dtype=torch.long)
    while len(chosen) < count:
        noise = current.expand(len(x))
        variance = evaluate(energy, _noisy(x, noise, generator), noise).variance.mean(dim=(0, 1))
        gain = information_gain(variance, sigma)
        places = _top(gain, min(each, count - len(chosen)), spacing)
        chosen = torch.cat([chosen, places])
        current = current.with_log_variance(_mark(current.log_variance, places, sigma))
    return chosen


def _top(gain: Tensor, count: int, spacing: int) -> Tensor:
    """Places [count, 2] of the largest gains [H, W], none within `spacing` of another; fewer where there are no more."""
    rows, columns = torch.arange(gain.shape[0])[:, None], torch.arange(gain.shape[1])[None, :]
    out: list[tuple[int, int]] = []
    while len(out) < count and bool((gain > -math.inf).any()):
        index = int(gain.argmax())
        row, column = index // gain.shape[1], index % gain.shape[1]
        out.append((row, column))
        gain = gain.masked_fill((rows - row).abs().maximum((columns - column).abs()) < spacing, -math.inf)
    return torch.tensor(out)

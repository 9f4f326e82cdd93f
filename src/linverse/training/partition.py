"""Does exp(−U) still integrate to one at the floor? Two answers from samples of the model itself (mathematics §15).

Images are generated along the isotropic path λ_T = λ_max … λ_0 = λ_min, where Z(λ) = ∫ exp(−U(y, λI)) dy and Z(λ_max) = 1 by the
normalisation. With x̂ and v the mean and variance at x_t, a = λ_{t−1}/λ_t,
    q(x_{t−1}|x_t) = N(a·x_t + (1−a)x̂, ν),   ν = λ_{t−1}(1−a) + (1−a)²v          what is drawn
    r(x_t|x_{t−1}) = N(x_{t−1}, λ_t(1−a))                                        the noise that leads back
the weight w = exp(−U(x_0, λ_min)) Π r / (p_T(x_T) Π q) has E[w] = Z(λ_min) exactly, whatever the steps: annealed importance sampling. log w
averages below log Z (Jensen), so its mean bounds log Z from below, and log mean w approaches it as far as few weights do not rule.
The thermodynamic path takes the same images as draws of exp(−U)/Z at every level:  log Z(λ_min) = ∫ E[Σκ] d log λ.
With *data* in their place that integral only tests E[κ] = 0; with samples it tests what the model believes of itself.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from linverse.covariance import Covariance, identity
from linverse.energy import Energy, Evaluation, evaluate_in_basis
from linverse.posterior import gaussian_energy
from linverse.progress import Progress, silent
from linverse.rng import keyed_generator, normal_like
from linverse.sampling.prior import prior_start


@dataclass(frozen=True)
class PartitionTest:
    """log Z at the floor in nats per dimension, with standard errors over the generated images.

    `bound` is the mean of log w, `estimate` the log of the mean of w, `path` the thermodynamic integral; `share` of the weights that the
    effective sample size keeps.
    """

    bound: float
    bound_error: float
    estimate: float
    path: float
    path_error: float
    share: float
    images: int
    steps: int

    def rows(self) -> list[tuple[str, str, str]]:
        """Test, value and meaning, as a person reads them."""
        meaning = "0: probability still sums to one at the smallest noise"
        annealed = f"at least {self.bound:+.4f} ± {self.bound_error:.4f}, about {self.estimate:+.4f} nats/dimension"
        path = f"{self.path:+.4f} ± {self.path_error:.4f} nats/dimension"
        return [
            ("log of the sum at the floor, annealed importance sampling", annealed, meaning),
            ("the same, by the covariance score of its own samples", path, meaning),
        ]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def partition_test(
    energy: Energy,
    images: int = 32,
    steps: int = 200,
    *,
    size: tuple[int, int] | None = None,
    chunk: int = 32,
    progress: Progress = silent,
) -> PartitionTest:
    """Both answers from `images` generated in so many steps; `size` for an energy that takes any."""
    parts, done = [], 0
    for number in range(0, images, chunk):
        count = min(chunk, images - number)

        def told(step: int, before: int = done, rows: int = count) -> None:
            progress("log Z at the floor", before + rows * step, images * steps)

        parts.append(_generate(energy, count, steps, size, number, told))
        done += count * steps
    log_weights, paths = (torch.cat(column) for column in zip(*parts, strict=True))
    shape = prior_start(energy, 1, keyed_generator("partition"), size=size)[0].shape
    dim, root = math.prod(shape[1:]), math.sqrt(images)
    weights = torch.softmax(log_weights, dim=0)
    return PartitionTest(
        bound=float(log_weights.mean()) / dim,
        bound_error=float(log_weights.std()) / root / dim,
        estimate=float(torch.logsumexp(log_weights, dim=0) - math.log(images)) / dim,
        path=float(paths.mean()) / dim,
        path_error=float(paths.std()) / root / dim,
        share=float(1 / weights.square().sum() / images),
        images=images,
        steps=steps,
    )


def _generate(
    energy: Energy, count: int, steps: int, size: tuple[int, int] | None, key: int, told: Any
) -> tuple[Tensor, Tensor]:
    """log w and ∫Σκ d log λ of `count` images, [n] each, float64."""
    generator = keyed_generator("partition", key)
    x, top = prior_start(energy, count, generator, size=size)
    log_levels = torch.linspace(math.log(energy.range.maximum), math.log(energy.range.minimum), steps + 1).tolist()
    width = (log_levels[0] - log_levels[-1]) / steps
    log_weight = gaussian_energy(energy, x, top.expand(count))
    path = torch.zeros_like(log_weight)
    for step, log_level in enumerate(log_levels):
        cov = identity("spatial", x.shape, x).isotropic(math.exp(log_level)).expand(count)
        found = evaluate_in_basis(energy, x, cov)
        ends = 0.5 if step in (0, steps) else 1.0
        path += ends * width * cov.multiplicity * found.cov_score.double().sum(dim=(1, 2, 3))
        if step < steps:
            x, gain = _step(x, cov, found, log_levels[step + 1], generator)
            log_weight += gain
        else:
            log_weight -= found.energy
        told(step)
    return log_weight, path


def _step(
    x: Tensor, cov: Covariance, found: Evaluation, log_next: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """x_{t−1} and log r(x_t|x_{t−1}) − log q(x_{t−1}|x_t), [n], float64."""
    variance, left = cov.variance, math.exp(log_next)
    share = 1 - left / variance
    own = found.pixel_variance if found.pixel_variance is not None else found.variance
    spread = left * share + share.square() * own
    noise = normal_like(x, generator)
    after = x + share * (found.mean_coefficients - x) + spread.sqrt() * noise
    back = (x - after).double().square() / (variance * share)
    gain = 0.5 * (noise.double().square() - back + (spread / (variance * share)).double().log())
    return after, gain.sum(dim=(1, 2, 3))

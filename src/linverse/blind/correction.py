"""An estimate less what the model itself is known to be wrong by.

An energy is not the truth: its evidence may peak beside the true parameter, and far more sharply than it is right. Held-out images that it
carries are degraded as the estimate θ̂ says, by our own hand, and θ is estimated from each: the mean error of log θ is its bias b(θ̂), and by
how much the errors spread beyond what the curvatures I of the evidence explain is its own error. The corrected estimate solves
log θ + b(θ) = log θ̂; its variance is that of the evidence plus the square of the model's error, over (1 + b')²: where estimates hardly
follow the truth, they say little of it. (For the level of white noise `noise_level` does the same with fewer evaluations.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from linverse.blind.estimate import BlindEstimate, estimate
from linverse.blind.families import Family
from linverse.blind.search import Axis, Search, simulate
from linverse.energy import Energy
from linverse.progress import Progress, silent
from linverse.rng import keyed_generator
from linverse.store.references import references_of

REFERENCES = 16  # held-out images
WIDTH, GRID = 0.5, 11  # in log θ, to either side of the estimate, and points in all
LEAST_MOVE, LEAST_FOLLOWING = 0.02, 0.25  # in log θ, for b' to be told; and 1 + b' at least
LEAST = 1.0  # information: a standard deviation of log θ of one
ROUNDS = 3  # of b(θ)
POINTS = 61  # of the posterior's grid


@dataclass(frozen=True, repr=False)
class CorrectedSearch(Search):
    """The posterior of one positive parameter, corrected; both errors are of its logarithm, that is relative ones."""

    model_bias: float = 0.0
    model_error: float = 0.0

    def record(self) -> dict[str, float]:
        """The numbers, for a JSON file."""
        return {"model_bias": self.model_bias, "model_error": self.model_error}


@dataclass(frozen=True)
class ModelError:
    """Of log θ, on held-out images: mean, and spread beyond what their own noise explains."""

    bias: float
    excess: float


@torch.no_grad()
def model_error(energy: Energy, family: Family, name: str, value: float, seed: int) -> ModelError | None:
    """The energy's own error near a value of a parameter; None where it carries no images."""
    references = references_of(energy)
    if references is None:
        return None
    grid = {name: value * torch.linspace(-WIDTH, WIDTH, GRID).exp()}
    errors, variances = [], []
    for number, x in enumerate(references.images()[:REFERENCES]):
        raw = simulate(family, x[None], {name: value}, keyed_generator("reference", seed, number))
        found = estimate(energy, raw, family, grid, seed=number)
        errors.append(math.log(found.refined(name) / value))
        variances.append(1 / information(found.log_evidence))
    spread = torch.tensor(errors, dtype=torch.float64)
    return ModelError(float(spread.mean()), math.sqrt(max(0.0, float(spread.var()) - sum(variances) / len(variances))))


def information(log_evidence: Tensor) -> float:
    """−∂² log p/∂(log θ)² at the maximum over the grid, by second differences; small, not negative, where that lies at an end."""
    best = int(log_evidence.argmax().clamp(1, len(log_evidence) - 2))
    low, middle, high = log_evidence[best - 1 : best + 2].double().tolist()
    return max(LEAST, (2 * middle - low - high) / (2 * WIDTH / (GRID - 1)) ** 2)


def corrected(
    energy: Energy, found: Search, family: Family, *, seed: int = 0, progress: Progress = silent
) -> Search | CorrectedSearch:
    """A search for one positive parameter, corrected by the model's own error; as it is where that cannot be told."""
    axis = found.axes[0]
    first = math.log(found.value(axis))
    places, errors = [first], list[ModelError]()
    for done in range(ROUNDS):
        error = model_error(energy, family, axis.name, math.exp(places[-1]), seed)
        if error is None:
            return found
        errors.append(error)
        places.append(first - error.bias)
        progress("the model's own error", done + 1, ROUNDS)
    moved = places[-2] - places[0]
    follows = 1 + (errors[-1].bias - errors[0].bias) / moved if abs(moved) > LEAST_MOVE else 1.0
    centre, error = places[-1], errors[-1]
    spread = math.sqrt(own_variance(found) + error.excess**2) / min(1.0, max(LEAST_FOLLOWING, follows))
    grid = Axis(axis.name, math.exp(centre - 5 * spread), math.exp(centre + 5 * spread), POINTS, "log", axis.unit)
    log_p = -0.5 * torch.linspace(-5, 5, POINTS, dtype=torch.float64).square()
    values = {axis.name: grid.values()}
    result = BlindEstimate(family, values, log_p, torch.log_softmax(log_p, 0), found.final.raw)
    return CorrectedSearch((*found.rounds, ((grid,), result)), model_bias=error.bias, model_error=error.excess)


def own_variance(found: Search) -> float:
    """Of log θ under the posterior as the energy has it."""
    axis = found.axes[0]
    weights, places = found.final.marginal(axis.name).double(), found.final.axes[axis.name].double().log()
    mean = (weights * places).sum() / weights.sum()
    return float((weights * (places - mean).square()).sum() / weights.sum())

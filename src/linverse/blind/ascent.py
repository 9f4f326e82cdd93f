"""The most probable parameters of a degradation, by ascent: argmax_θ log p(y_raw | θ) in log θ.

A scan around the start finds the right hill: far from the answer the evidence is flat, or bends the wrong way, and a gradient alone goes
nowhere. A quasi-Newton method with a line search (L-BFGS-B) climbs it, whatever its steepness: a noise level has a curvature of d/2 nats,
a blur's width a hundredth of that. In the end the Newton step that is left says how far from the top we are; if that is more than asked
for, or the top lies at the edge of what was searched, a warning says so.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

import numpy as np
import torch

from linverse.blind.estimate import checked_raw, grid_product, log_evidence
from linverse.blind.families import Family
from linverse.degradations import ImageLike
from linverse.energy import Energy
from linverse.extras import require

SCANNED = {1: 49, 2: 13}  # points per parameter; 5 for more of them
PROBE = 1e-3  # in log θ: how far apart gradients are compared for the curvature

Vector = np.ndarray[tuple[int], np.dtype[np.float64]]


class _Objective:
    """−log p(y_raw | θ) and its gradient as a function of log θ, float64 vectors as scipy wants them."""

    def __init__(self, energy: Energy, raw: ImageLike, family: Family, names: tuple[str, ...], seed: int) -> None:
        self.energy, self.family, self.names, self.seed = energy, family, names, seed
        self.raw = checked_raw(energy, raw)

    def scan(self, axes: Mapping[str, torch.Tensor]) -> Vector:
        """log θ of the best point of a grid."""
        theta = grid_product(axes)
        with torch.no_grad():
            evidence = log_evidence(self.energy, self.raw, self.family, theta, seed=self.seed)
        best = int(evidence.nan_to_num(nan=-math.inf).argmax())  # points where the energy fails are not the best ones
        if not math.isfinite(float(evidence[best])):
            raise ValueError("the evidence is not finite anywhere near the start; is that inside the model's range?")
        return np.array([math.log(float(values[best])) for values in theta.values()])

    def __call__(self, log_theta: Vector) -> tuple[float, Vector]:
        leaf = torch.tensor(log_theta, dtype=torch.float64, requires_grad=True)
        theta = {name: leaf[i : i + 1].exp() for i, name in enumerate(self.names)}
        loss = -log_evidence(self.energy, self.raw, self.family, theta, seed=self.seed).sum()
        (gradient,) = torch.autograd.grad(loss, leaf)
        if not (bool(torch.isfinite(loss)) and bool(torch.isfinite(gradient).all())):
            raise ValueError(f"the evidence is not finite at {self.named(log_theta)}")
        return float(loss.detach()), gradient.numpy()

    def named(self, log_theta: Vector) -> dict[str, float]:
        return {name: math.exp(value) for name, value in zip(self.names, log_theta.tolist(), strict=True)}

    def step_left(self, log_theta: Vector) -> float:
        """The length of the Newton step from here, in log θ; infinite where this is no hill."""
        units = PROBE * np.eye(len(log_theta))
        rows = [(self(log_theta + unit)[1] - self(log_theta - unit)[1]) / (2 * PROBE) for unit in units]
        hessian = 0.5 * (np.array(rows) + np.array(rows).T)
        if np.linalg.eigvalsh(hessian)[0] <= 0:
            return math.inf
        return float(np.abs(np.linalg.solve(hessian, self(log_theta)[1])).max())


def maximise(
    energy: Energy,
    raw: ImageLike,
    family: Family,
    start: Mapping[str, float],
    *,
    reach: float = 100.0,
    tolerance: float = 1e-3,
    seed: int = 0,
) -> dict[str, float]:
    """The most probable parameters of a continuous family, all positive, between start/`reach` and start·`reach`.

    Warns if the answer may be off by more than a share of `tolerance`, or lies at the edge.
    """
    minimize = require("scipy.optimize", "evaluate").minimize
    if not start or not all(math.isfinite(value) and value > 0 for value in start.values()):
        raise ValueError(f"start needs a positive value for each parameter; got {dict(start)}")
    if not (math.isfinite(reach) and reach > 1):
        raise ValueError(f"reach is a factor above 1; got {reach}")
    objective = _Objective(energy, raw, family, tuple(start), seed)
    points = SCANNED.get(len(start), 5)
    factors = torch.linspace(-math.log(reach), math.log(reach), points, dtype=torch.float64).exp()
    best = objective.scan({name: value * factors for name, value in start.items()})
    bounds = [(math.log(value / reach), math.log(value * reach)) for value in start.values()]
    options = {"ftol": 1e-15, "gtol": 1e-6, "maxls": 40}
    found = minimize(objective, best, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    _warn_unless_on_top(objective, found, bounds, tolerance)
    return objective.named(found)


def _warn_unless_on_top(
    objective: _Objective, found: Vector, bounds: list[tuple[float, float]], tolerance: float
) -> None:
    at_edge = [
        name
        for name, value, (low, high) in zip(objective.names, found, bounds, strict=True)
        if min(value - low, high - value) < PROBE
    ]
    if at_edge:
        warnings.warn(
            f"the most probable {', '.join(at_edge)} lies at the edge of what was searched ({objective.named(found)}): "
            "start elsewhere, or reach further",
            stacklevel=3,
        )
        return
    left = objective.step_left(found)
    if left > tolerance:
        distance = f"about {100 * left:.2g} % away" if math.isfinite(left) else "not where the search ended"
        warnings.warn(f"the most probable parameters are {distance} from {objective.named(found)}", stacklevel=3)

"""Densities right down to the floor (mathematics §15): E[U] at λ_min against what the model's own denoiser allows.

A normalised energy satisfies the identities of de Bruijn and I-MMSE: with y = x + √λε of held-out images,
    E[U(y, λ_min)] = E[U(y, λ_max)] − ∫ ½(d − E‖x−x̂‖²/λ) d log λ        from λ_min to λ_max,
whatever x̂ = E[x|y] is; for an x̂ that is not the best the right-hand side bounds the true cross-entropy from above. The gap between the
two sides, in nats per dimension, is what the energy has lost or gained on its way from λ_max, where it was normalised.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from linverse.covariance import identity
from linverse.energy import Energy, evaluate
from linverse.progress import Progress, silent
from linverse.rng import keyed_generator, normal_like


@dataclass(frozen=True)
class FloorTest:
    """Nats per dimension: E[U] at the floor, the bound of the denoiser, their difference and its standard error over images."""

    energy: float
    bound: float
    gap: float
    gap_error: float
    levels: int
    images: int

    def row(self) -> tuple[str, str, str]:
        """Test, value and meaning, as a person reads them."""
        value = f"{self.gap:+.4f} ± {self.gap_error:.4f} nats/dimension"
        return "gap to its denoiser's bound at the floor", value, "0: densities are right down to the smallest noise"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def floor_test(
    energy: Energy, x: Tensor, levels: int = 48, *, chunk: int = 64, progress: Progress = silent
) -> FloorTest:
    """The gap on held-out images x, with `levels` noise levels, equal steps in log λ (trapezoidal rule)."""
    low, high = math.log(energy.range.minimum), math.log(energy.range.maximum)
    grid = torch.linspace(low, high, levels, dtype=torch.float64).tolist()
    width = (high - low) / (levels - 1)
    drifts, ends = [], {}
    for number, level in enumerate(grid):
        energies, drift = _level(energy, x, level, number, chunk)
        drifts.append(drift)
        if number in (0, levels - 1):
            ends[number] = energies
        progress("floor", number + 1, levels)
    weights = torch.full((levels, 1), width, dtype=torch.float64)
    weights[0] = weights[-1] = 0.5 * width
    bound = ends[levels - 1] - (weights * torch.stack(drifts)).sum(0)
    gap, dim = ends[0] - bound, x[0].numel()
    mean, mean_bound, mean_gap = (float(values.mean()) / dim for values in (ends[0], bound, gap))
    return FloorTest(mean, mean_bound, mean_gap, float(gap.std()) / math.sqrt(len(x)) / dim, levels, len(x))


def _level(energy: Energy, x: Tensor, log_level: float, number: int, chunk: int) -> tuple[Tensor, Tensor]:
    """U(y, λI) and an estimate of ½(d − E‖x−x̂‖²/λ) for every image, [n].

    ‖ε‖² − d has mean zero and is known: as a control variate it takes away what noise of one realisation does to ‖x−x̂‖²/λ.
    """
    energies, losses, controls = [], [], []
    cov = identity("spatial", x.shape, x).isotropic(math.exp(log_level))
    for part, rows in enumerate(x.split(chunk)):
        noise = normal_like(rows, keyed_generator("floor", number, part))
        here = cov.expand(len(rows))
        result = evaluate(energy, rows + here.colour(noise), here)
        error = (rows - result.mean).double().square().sum(dim=(1, 2, 3)) * math.exp(-log_level)
        energies.append(result.energy)
        losses.append(error)
        controls.append(noise.double().square().sum(dim=(1, 2, 3)) - here.dim)
    loss, control = torch.cat(losses), torch.cat(controls)
    centred = control - control.mean()
    slope = (centred * loss).sum() / centred.square().sum().clamp_min(1e-30)
    return torch.cat(energies), 0.5 * (x[0].numel() - (loss - slope * control))

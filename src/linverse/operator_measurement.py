"""What was measured by an operator that no basis of ours diagonalises: y_raw = Hx + σv, known by Hx and Hᵀr alone (mathematics §14).

Such a measurement has no coefficients and no λ. What a solver asks of it is the same as of any other, by conjugate gradients:
    guidance         Hᵀ(ρHHᵀ + σ²)⁻¹(y − Hu)
    proximal point   u + ρ·guidance                  the mean of x under N(u, ρI) and the data
    pseudo-inverse   Hᵀ(HHᵀ + c²‖H‖²)⁻¹y              gains below c‖H‖ are damped
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

import torch
from torch import Tensor

from linverse.conjugate_gradients import conjugate_gradients
from linverse.covariance import Covariance, identity
from linverse.measurement import Measurement
from linverse.rng import keyed_generator, normal_like

Linear = Callable[[Tensor], Tensor]
POWER_ITERATIONS = 50
SAFETY = 1.05  # power iteration comes to ‖HᵀH‖ from below
DAMPING = 1e-2  # of the pseudo-inverse: gains below so much of the largest drown in any noise


def largest_eigenvalue(matrix: Linear, like: Tensor) -> float:
    """That of a symmetric matrix on images by power iteration, and a little more for safety."""
    x = normal_like(like, keyed_generator("operator norm"))
    norm = x.norm()
    for _ in range(POWER_ITERATIONS):
        x = matrix(x / norm)
        norm = x.norm()
        if float(norm) == 0:
            raise ValueError("the operator maps images to 0: nothing was measured")
    return SAFETY * float(norm)


@dataclass(frozen=True)
class LinearMap:
    """H and Hᵀ in one precision and on one device, whatever those of what they are applied to; `like` [1, C, H, W] is an image there."""

    function: Linear
    transpose: Linear
    like: Tensor

    @property
    def shape(self) -> tuple[int, int, int]:
        """[C, H, W] of the images."""
        channels, height, width = self.like.shape[1:]
        return channels, height, width

    def forward(self, x: Tensor) -> Tensor:
        """Hx of images [B, C, H, W]."""
        return self.function(x.to(self.like)).to(x)

    def adjoint(self, r: Tensor) -> Tensor:
        """Hᵀr of data [B, …]."""
        return self.transpose(r.to(self.like)).to(r)

    @cached_property
    def gain(self) -> float:
        """‖HᵀH‖, and a little more for safety."""
        return largest_eigenvalue(lambda x: self.transpose(self.function(x)), self.like)

    def check_adjoint(self, tolerance: float = 1e-3) -> None:
        """Refuse an adjoint that is none: ⟨Hx, v⟩ = ⟨x, Hᵀv⟩ for random x and v."""
        generator = keyed_generator("adjoint")
        x = normal_like(self.like, generator)
        seen = self.function(x)
        probe = normal_like(seen, generator)
        back = self.transpose(probe)
        if back.shape != x.shape:
            raise ValueError(
                f"the adjoint gives images of shape {tuple(back.shape)}; the operator takes {tuple(x.shape)}"
            )
        forth, returned = float((seen * probe).double().sum()), float((x * back).double().sum())
        scale = float(seen.double().norm() * probe.double().norm())
        if not abs(forth - returned) <= tolerance * scale:
            raise ValueError(
                f"the adjoint is not the operator's: ⟨Hx, v⟩ = {forth:.6g} but ⟨x, Hᵀv⟩ = {returned:.6g} for random x and v"
            )


class OperatorMeasurement(Measurement):
    """Raw data [B, …] of a linear map under white noise of the given `variance`: a measurement without coefficients and without λ.

    Made by `LinearOperator.from_raw` and its kin; `Posterior` samples what it leaves open.
    """

    def __init__(self, raw: Tensor, linear: LinearMap, variance: float) -> None:
        for name, value in (("raw", raw), ("linear", linear), ("variance", variance)):
            object.__setattr__(self, name, value)

    linear: LinearMap
    variance: float

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.linear.shape))
        data = "×".join(map(str, self.raw.shape[1:]))
        return (
            f"OperatorMeasurement({self.batch} of {shape} by data of {data}, noise std {math.sqrt(self.variance):.3g})"
        )

    @property
    def batch(self) -> int:
        return self.raw.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.batch, *self.linear.shape)

    @cached_property
    def template(self) -> Covariance:
        """Pixels: it carries the images' shape, precision and device."""
        return identity("spatial", self.linear.shape, self.raw)

    @property
    def numbers(self) -> int:
        """How many numbers were measured of each image."""
        return self.raw[0].numel()

    # --- its operator ------------------------------------------------------------------------------------------------------

    def blank(self) -> Tensor:
        return self.raw.new_empty(self.shape)

    @property
    def noise(self) -> Tensor:
        """σ², a number."""
        return self.raw.new_tensor(self.variance)

    def forward(self, x: Tensor) -> Tensor:
        """Hx, of the data's shape."""
        return self.linear.forward(x)

    def residual(self, x: Tensor) -> Tensor:
        """y − Hx, of the data's shape."""
        return self.raw - self.forward(x)

    def adjoint(self, residual: Tensor) -> Tensor:
        return self.linear.adjoint(residual)

    def pseudo_inverse(self, cutoff: float = 0.0) -> Tensor:
        """Hᵀ(HHᵀ + c²‖H‖²)⁻¹y, c the `cutoff` or, if that is larger, 0.01."""
        damping = max(cutoff, DAMPING) ** 2 * self.linear.gain
        return self._solved(self.raw, 1.0, damping)

    def guidance(self, u: Tensor, variance: float) -> Tensor:
        return self._solved(self.residual(u), variance, self.variance)

    def _solved(self, data: Tensor, scale: float, shift: float) -> Tensor:
        """Hᵀ(`scale`·HHᵀ + `shift`)⁻¹ data."""

        def matrix(w: Tensor) -> Tensor:
            return scale * self.linear.forward(self.linear.adjoint(w)) + shift * w

        return self.adjoint(conjugate_gradients(matrix, data).solution)

    def normalised_residual(self, x: Tensor) -> Tensor:
        """‖y − Hx‖/(σ√m), [B]: near 1 for samples of the posterior."""
        return (self.residual(x).double().flatten(1).square().mean(dim=1) / self.variance).sqrt()

    # --- parts of a batch --------------------------------------------------------------------------------------------------

    def __getitem__(self, rows: slice | Tensor | list[int]) -> OperatorMeasurement:
        return OperatorMeasurement(self.raw[rows], self.linear, self.variance)

    def to(self, target: torch.device | torch.dtype | str) -> OperatorMeasurement:
        return OperatorMeasurement(self.raw.to(target), self.linear, self.variance)

    # --- what it has not ---------------------------------------------------------------------------------------------------

    def _missing(self) -> NoReturn:
        raise TypeError(
            "no basis diagonalises this operator: its measurement has no coefficients, no gains and no λ. Ask a Posterior for "
            "samples, mean, std and log_prob"
        )

    coefficients = property(_missing)
    log_gain = property(_missing)
    log_noise = property(_missing)
    hidden = property(_missing)


def as_operator(measurement: Measurement) -> OperatorMeasurement:
    """A measurement in a basis as one of a general operator, for energies that do not know its Σ: split Gibbs asks about white noise only.

    The data are the coefficients that were measured, [B, m]. Noise that differs between them is made white: h_i ← h_i√(ν/ν_i), ν the least.

    >>> import torch, linverse as lv
    >>> as_operator(lv.MRI(4, sigma=0.05).measure(torch.rand(1, 1, 32, 32)))
    OperatorMeasurement(1 of 1×32×32 by data of 416, noise std 0.05)
    """
    if isinstance(measurement, OperatorMeasurement):
        return measurement
    if measurement.log_gain.shape[0] != 1 or measurement.log_noise.shape[0] != 1:
        raise ValueError("the measurements of this batch have operators of their own; take them one by one")
    basis, shape = measurement.template, measurement.shape[1:]
    seen = measurement.measured[0].expand(shape).flatten().nonzero()[:, 0]
    noise = measurement.noise[0].expand(shape).flatten()[seen]
    variance = float(noise.min())
    white = (variance / noise).sqrt()
    gain = measurement.gain[0].expand(shape).flatten()[seen] * white

    def forward(x: Tensor) -> Tensor:
        return gain.to(x) * basis.analysis(x).flatten(1)[:, seen]

    def adjoint(r: Tensor) -> Tensor:
        z = r.new_zeros(len(r), math.prod(shape)).index_copy(1, seen, gain.to(r) * r)
        return basis.synthesis(z.unflatten(1, shape))

    raw = measurement.coefficients.flatten(1)[:, seen] * white
    return OperatorMeasurement(raw, LinearMap(forward, adjoint, measurement.blank()[:1].zero_()), variance)

"""What solvers ask of a measurement y_raw = Hx + noise: residuals, adjoints, and the inverses that are exact because HᵀH is diagonal.

In the basis of the measurement, z_i = h_i x_i + √ν_i v_i (phases undone, h_i ≥ 0), and coefficient by coefficient
    pseudo-inverse   H⁺y              z_i/h_i where h_i > 0, else 0
    proximal point   argmin_x ‖y − Hx‖²/2ν + ‖x − u‖²/2ρ        u_i + ρh_i(z_i − h_iu_i)/(ρh_i² + ν_i)
    its posterior    variance of x_i under N(u, ρI) and the data  ρν_i/(ρh_i² + ν_i)
    whitened pull    Hᵀ(ρHHᵀ + ν)⁻¹(y − Hu)                     h_i(z_i − h_iu_i)/(ρh_i² + ν_i)
for masks, blurs and super-resolution alike. Hᵀ itself is the vector–Jacobian product of the degradation's operator.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from linverse.degradations import Degradation
from linverse.measurement import Measurement


@dataclass(frozen=True)
class Observation:
    """Raw data with the operator that made them."""

    degradation: Degradation
    measurement: Measurement

    @staticmethod
    def of(degradation: Degradation, y_raw: Tensor) -> Observation:
        """Checks the data as `degradation.from_raw` does."""
        return Observation(degradation, degradation.from_raw(y_raw))

    @property
    def raw(self) -> Tensor:
        """The data; 0 where a mask hides them."""
        return self.measurement.raw

    @property
    def shape(self) -> tuple[int, ...]:
        """[B, C, H, W] of the images."""
        return tuple(self.measurement.coefficients.shape)

    def new_images(self) -> Tensor:
        """Images of 0, in the data's precision."""
        return torch.zeros_like(self.measurement.coefficients)

    # --- by the operator ---------------------------------------------------------------------------------------------------

    def residual(self, x: Tensor) -> Tensor:
        """y − Hx, of y's shape."""
        return self.raw - self.degradation.operator(x)

    def adjoint(self, residual: Tensor) -> Tensor:
        """Hᵀr, images."""
        with torch.enable_grad():
            x = self.new_images().requires_grad_()
            return torch.autograd.grad(self.degradation.operator(x), x, residual)[0]

    # --- coefficient by coefficient ------------------------------------------------------------------------------------------

    @property
    def gain(self) -> Tensor:
        """h ≥ 0, [1 or B, 1 or C, H, W]."""
        return self.measurement.log_gain.exp()

    @property
    def noise(self) -> Tensor:
        """ν, of the same shape."""
        return self.measurement.log_noise.exp()

    def pseudo_inverse(self, cutoff: float = 0.0) -> Tensor:
        """H⁺y. Gains below `cutoff`, or the precision of the data, times the largest count as 0."""
        gain = self.gain
        smallest = max(cutoff, torch.finfo(gain.dtype).eps) * float(gain.max())
        seen = gain > smallest
        return self._image(torch.where(seen, self.measurement.coefficients / torch.where(seen, gain, 1.0), 0.0))

    def proximal(self, u: Tensor, variance: float) -> Tensor:
        """The mean of x under the prior N(u, `variance`·I) and the data."""
        return u + variance * self.pull(u, variance)

    def spread(self, variance: float) -> Tensor:
        """The variance that goes with it, of each coefficient."""
        return variance * self.noise / (variance * self.gain.square() + self.noise)

    def pull(self, u: Tensor, variance: float) -> Tensor:
        """Hᵀ(`variance`·HHᵀ + ν)⁻¹(y − Hu), an image: the gradient of log N(y; Hu, `variance`·HHᵀ + ν) by u."""
        gain, coefficients = self.gain, self.measurement.template.analysis(u)
        residual = self.measurement.coefficients - gain * coefficients
        return self._image(gain * residual / (variance * gain.square() + self.noise))

    def colour(self, noise: Tensor, variance: float) -> Tensor:
        """White noise → noise of the covariance whose spectrum is `spread`."""
        return self._image(noise * self.spread(variance).sqrt())

    def _image(self, coefficients: Tensor) -> Tensor:
        return self.measurement.template.synthesis(coefficients)

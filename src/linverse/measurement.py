"""What was measured, what its operator can be asked, and how it is seen as an image under coloured noise.

In the eigenbasis Q of HᵀH a measurement is z_i = h_i x_i + √ν_i v_i (phase and sign undone, h_i ≥ 0). Coefficient by coefficient
    pseudo-inverse   H⁺y              z_i/h_i where h_i > 0, else 0
    proximal point   argmin_x ‖y − Hx‖²/2ν + ‖x − u‖²/2ρ        u_i + ρh_i(z_i − h_iu_i)/(ρh_i² + ν_i)
    its posterior    variance of x_i under N(u, ρI) and the data  ρν_i/(ρh_i² + ν_i)
    guidance         Hᵀ(ρHHᵀ + ν)⁻¹(y − Hu)                     h_i(z_i − h_iu_i)/(ρh_i² + ν_i)
for noise, masks, blurs and super-resolution alike. Lifting it into an energy's range [λ_min, λ_max] gives y = x + noise of covariance
Σ = Q diag(λ) Qᵀ:
    h̃_i = max(h_i, √(ν_i/λ_max)),   y_i = z_i/h̃_i,   λ_i = ν_i/h̃_i²            (continuous in the operator's parameters)
    not measured at all (h_i = 0):     λ_i = λ_max and y_i is filled: m_i + N(0, λ_max + C_i), afresh for every posterior sample,
                                       or m_i itself where an expectation is wanted; the error is at most E‖x−m‖²/(2λ_max) nats
    λ_i < λ_min:                       λ_i ← λ_min, and N(0, λ_min − λ_i) is added to y_i. (When operators are compared, N(0, λ_min) is
                                       added always and λ_i ← λ_i + λ_min, so that the noise added does not depend on the operator.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from linverse.covariance import Covariance, VarianceRange
from linverse.rng import normal_like


@dataclass(frozen=True)
class Lifted:
    """(y, Σ) for an energy, and what turns U(y, Σ) into the evidence of the raw data.

    `coefficients` are those of y in Σ's basis, [B, C, H, W]. −log p(raw) = U(y, Σ) + `log_gain` + `fill_log_density`, both [B]:
    Σ log h̃ over what was measured, and the density that the fill has of its own where nothing was.
    """

    coefficients: Tensor
    cov: Covariance
    log_gain: Tensor
    fill_log_density: Tensor

    @property
    def y(self) -> Tensor:
        """y as an image: one synthesis."""
        return self.cov.synthesis(self.coefficients)


@dataclass(frozen=True, repr=False)
class Measurement:
    """What was measured: raw data, and the same as coefficients z = |h|x + √ν v in a basis that diagonalises the operator.

    Made by a degradation's `measure` (a simulation) or `from_raw` (real data). `raw` is what a person would look at; `template`
    carries the basis; `coefficients` z, [B, C, H, W]; `log_gain` = log|h|, −inf where nothing was measured, and `log_noise` = log ν
    have log λ's shape, [1 or B, 1 or C, H, W]. `hidden` holds the true coefficients in a simulation that wants the exact law of the
    fill, x_i + N(0, λ_max).
    """

    raw: Tensor
    template: Covariance
    coefficients: Tensor
    log_gain: Tensor
    log_noise: Tensor
    hidden: Tensor | None = None

    def __repr__(self) -> str:
        batch, *shape = self.shape
        low, high = (math.exp(0.5 * float(value)) for value in self.log_noise.aminmax())
        noise = f"{low:.3g}" if high - low < 1e-3 * high else f"{low:.3g} to {high:.3g}"
        share = 100 * float(self.measured.double().mean())
        return (
            f"Measurement({batch} of {'×'.join(map(str, shape))} in the {self.template.basis} basis, "
            f"{share:.3g} % measured, noise std {noise})"
        )

    def rounded(self, step: float) -> Measurement:
        """The same of raw data that were rounded to levels `step` apart: that adds step²/12 to their noise (mathematics §12)."""
        return replace(self, log_noise=torch.logaddexp(self.log_noise, self.log_noise.new_tensor(step**2 / 12).log()))

    @property
    def batch(self) -> int:
        return self.coefficients.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """[B, C, H, W] of the images."""
        return tuple(self.coefficients.shape)

    @property
    def log_variance(self) -> Tensor:
        """log λ = log ν − 2 log|h| before any limits; +inf where nothing was measured."""
        return self.log_noise - 2 * self.log_gain

    @property
    def measured(self) -> Tensor:
        """True where there is data."""
        return self.log_gain > -math.inf

    # --- its operator ------------------------------------------------------------------------------------------------------

    @property
    def gain(self) -> Tensor:
        """|h|, [1 or B, 1 or C, H, W]; 0 where nothing was measured."""
        return self.log_gain.exp()

    @property
    def noise(self) -> Tensor:
        """ν, of the same shape."""
        return self.log_noise.exp()

    def blank(self) -> Tensor:
        """An empty image for each measurement, [B, C, H, W], in the data's precision and on their device."""
        return self.coefficients.new_empty(self.shape)

    def forward(self, x: Tensor) -> Tensor:
        """|h|x, coefficients of images x: Hx up to an isometry."""
        return self.gain * self.template.analysis(x)

    def residual(self, x: Tensor) -> Tensor:
        """z − |h|x, coefficients of images x: y − Hx up to an isometry, so of the same norm."""
        return self.coefficients - self.forward(x)

    def adjoint(self, residual: Tensor) -> Tensor:
        """Images |h|r of coefficients r: Hᵀ(y − Hx) for r = `residual(x)`."""
        return self.template.synthesis(self.gain * residual)

    def pseudo_inverse(self, cutoff: float = 0.0) -> Tensor:
        """H⁺y. Gains below `cutoff`, or the precision of the data, times the largest count as 0."""
        gain = self.gain
        seen = gain > max(cutoff, torch.finfo(gain.dtype).eps) * float(gain.max())
        return self.template.synthesis(torch.where(seen, self.coefficients / torch.where(seen, gain, 1.0), 0.0))

    def proximal(self, u: Tensor, variance: float) -> Tensor:
        """The mean of x under the prior N(u, `variance`·I) and the data."""
        return u + variance * self.guidance(u, variance)

    def proximal_variance(self, variance: float) -> Tensor:
        """The variance that goes with it, of each coefficient."""
        return variance * self.noise / (variance * self.gain.square() + self.noise)

    def guidance(self, u: Tensor, variance: float) -> Tensor:
        """Hᵀ(`variance`·HHᵀ + ν)⁻¹(y − Hu), an image: the gradient of log N(y; Hu, `variance`·HHᵀ + ν) by u."""
        return self.adjoint(self.residual(u) / (variance * self.gain.square() + self.noise))

    # --- parts of a batch --------------------------------------------------------------------------------------------------

    def __getitem__(self, rows: slice | Tensor | list[int]) -> Measurement:
        def pick(t: Tensor) -> Tensor:
            return t[rows] if t.shape[0] == self.batch else t

        return replace(
            self,
            raw=self.raw[rows],
            coefficients=self.coefficients[rows],
            log_gain=pick(self.log_gain),
            log_noise=pick(self.log_noise),
            hidden=None if self.hidden is None else self.hidden[rows],
        )

    def repeat_interleave(self, n: int) -> Measurement:
        """Each measurement n times in a row."""
        return self[torch.arange(self.batch).repeat_interleave(n)]

    def to(self, target: torch.device | torch.dtype | str) -> Measurement:
        """On another device, or in another precision."""
        hidden = None if self.hidden is None else self.hidden.to(target)
        parts = (self.raw, self.coefficients, self.log_gain, self.log_noise)
        raw, coefficients, log_gain, log_noise = (part.to(target) for part in parts)
        return Measurement(raw, self.template.to(target), coefficients, log_gain, log_noise, hidden)

    # --- as an energy sees it ----------------------------------------------------------------------------------------------

    def covariance(self, limits: VarianceRange) -> Covariance:
        """Σ within the limits."""
        log_variance = self.log_variance.clamp(math.log(limits.minimum), math.log(limits.maximum))
        return self.template.with_log_variance(log_variance.expand(self.batch, -1, -1, -1).contiguous())

    def lift(
        self,
        limits: VarianceRange,
        gaussian: tuple[Tensor, Tensor],
        generator: torch.Generator | None = None,
        *,
        random_fill: bool = True,
        add_floor: bool = False,
        noise: Tensor | None = None,
    ) -> Lifted:
        """(y, Σ) in the limits of an energy whose data have the given mean and variance in this basis.

        `random_fill`: draw what was not measured rather than put the mean there. `add_floor`: add N(0, λ_min) to every coefficient.
        `noise`: the white noise to use, instead of drawing it from the generator.
        """
        mean, prior = gaussian
        z, measured = self.coefficients, self.measured
        bottom, top = math.log(limits.minimum), math.log(limits.maximum)
        log_gain = torch.maximum(self.log_gain, 0.5 * (self.log_noise - top))
        fill_std = (limits.maximum + prior).sqrt()
        noise = normal_like(z, generator) if noise is None else noise.expand_as(z)
        # −inf gains make infinities that `where` would pass on to gradients: they are replaced before the division
        safe_gain = torch.where(measured, log_gain, torch.zeros_like(log_gain))
        log_variance = torch.where(measured, self.log_noise - 2 * safe_gain, torch.full_like(log_gain, top))
        if add_floor:
            deficit = torch.full_like(log_variance, math.sqrt(limits.minimum))
            log_variance = torch.logaddexp(log_variance, torch.full_like(log_variance, bottom))
        else:
            deficit = (limits.minimum - log_variance.exp()).clamp_min(0).sqrt()
        y = z * torch.exp(-safe_gain) + noise * deficit
        y = torch.where(measured, y, self._fill(mean, fill_std, noise, limits, random_fill))
        cov = self.template.with_log_variance(
            log_variance.clamp(bottom, top).expand(self.batch, -1, -1, -1).contiguous()
        )
        filled = (~measured).expand_as(z)
        log_density = -0.5 * ((y - mean) / fill_std).square() - fill_std.log() - 0.5 * math.log(2 * math.pi)
        return Lifted(
            y,
            cov,
            cov.full(safe_gain).expand_as(z).double().sum(dim=(1, 2, 3)),
            torch.where(filled, log_density, torch.zeros_like(log_density)).double().sum(dim=(1, 2, 3)),
        )

    def _fill(self, mean: Tensor, std: Tensor, noise: Tensor, limits: VarianceRange, random: bool) -> Tensor:
        if not random:
            return mean.expand_as(noise)
        if self.hidden is not None:
            return self.hidden + math.sqrt(limits.maximum) * noise
        return mean + std * noise

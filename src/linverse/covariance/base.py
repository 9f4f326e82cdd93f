"""Covariances Σ = Q diag(λ) Qᵀ with Q real orthonormal, one spectrum a sample.

A family gives `analysis` (Qᵀx) and `synthesis` (Qz); every operation on Σ is written here, once, in terms of them and of
log λ. log λ is what is stored, because λ runs over twelve decades and because λ∂/∂λ = ∂/∂log λ is the scale-free
covariance score κ: its gradient *is* κ, and nothing overflows.

`log_variance` has shape [B, 1 or C, H, W]. With one channel the spectrum is shared by all C colours: `multiplicity` then says
how many coefficients hang on one entry, and a derivative with respect to it is the *sum* over them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor

from linverse.rng import normal_like


@dataclass(frozen=True, eq=False, repr=False)
class Covariance(ABC):
    """The covariance of noise on images [B, `channels`, H, W]: Σ = Q diag(λ) Qᵀ, one spectrum λ for each image of a batch.

    A family (pixels, Fourier, DCT, block DCT) is a basis Q; `log_variance` holds log λ, [B, 1 or C, H, W].

    >>> import torch
    >>> from linverse.covariance import identity
    >>> cov = identity("fourier", (1, 8, 8)).isotropic(0.04)
    >>> cov
    FourierCovariance(1 of 1×8×8, variances 0.04)
    >>> noise = cov.sample_noise(torch.Generator().manual_seed(0))
    >>> torch.allclose(cov.solve(cov.apply(noise)), noise, atol=1e-6)
    True
    """

    log_variance: Tensor
    channels: int = 1

    def __post_init__(self) -> None:
        lv = self.log_variance
        if lv.ndim != 4 or lv.shape[1] not in (1, self.channels):
            raise ValueError(
                f"log_variance has shape {tuple(lv.shape)}; it must be [batch, 1 or {self.channels}, height, width]"
            )

    def __repr__(self) -> str:
        low, high = (f"{float(value.exp()):.3g}" for value in self.log_variance.detach().aminmax())
        shape = "×".join(map(str, (self.channels, *self.size)))
        return f"{type(self).__name__}({self.batch} of {shape}, variances {low if low == high else f'{low} to {high}'})"

    # --- what a family defines -------------------------------------------------------------------------------------------

    @abstractmethod
    def analysis(self, x: Tensor) -> Tensor:
        """Qᵀx: the coefficients of an image."""

    @abstractmethod
    def synthesis(self, z: Tensor) -> Tensor:
        """Qz: the image of some coefficients."""

    @property
    @abstractmethod
    def basis(self) -> str:
        """The name of Q; two covariances can be combined when it is the same."""

    @abstractmethod
    def frequencies(self) -> Tensor:
        """[2, bh, bw]: vertical and horizontal frequency (cycles a pixel) of the coefficients of one block.

        A block is the support of Q's columns: one pixel for a spatial Σ, the whole image for a Fourier one.
        """

    # --- shapes ----------------------------------------------------------------------------------------------------------

    @property
    def batch(self) -> int:
        return self.log_variance.shape[0]

    @property
    def size(self) -> tuple[int, int]:
        return self.log_variance.shape[2], self.log_variance.shape[3]

    @property
    def dim(self) -> int:
        """d = C·H·W."""
        return self.channels * self.size[0] * self.size[1]

    @property
    def multiplicity(self) -> int:
        """How many coefficients share one entry of log λ."""
        return self.channels // self.log_variance.shape[1]

    def check_image(self, x: Tensor) -> None:
        """Refuse an image that this Σ cannot act on."""
        if x.ndim != 4 or x.shape[1] != self.channels or tuple(x.shape[2:]) != self.size:
            height, width = self.size
            raise ValueError(
                f"image has shape {tuple(x.shape)}; this covariance acts on [batch, {self.channels}, {height}, {width}]"
            )

    # --- making new ones -------------------------------------------------------------------------------------------------

    def with_log_variance(self, log_variance: Tensor) -> Self:
        """The same family with another spectrum."""
        return replace(self, log_variance=log_variance)

    def isotropic(self, variance: float | Tensor) -> Self:
        """`variance`·I in the same family (a float, or one value a sample)."""
        value = torch.as_tensor(variance, dtype=self.log_variance.dtype, device=self.log_variance.device)
        return self.with_log_variance(value.log().reshape(-1, 1, 1, 1).expand_as(self.log_variance).contiguous())

    def __getitem__(self, rows: slice | Tensor | list[int]) -> Self:
        """A part of the batch."""
        return self.with_log_variance(self.log_variance[rows])

    def expand(self, batch: int) -> Self:
        """Repeat a single Σ over a batch (a view)."""
        return self.with_log_variance(self.log_variance.expand(batch, -1, -1, -1))

    def repeat_interleave(self, n: int) -> Self:
        """Each Σ n times in a row: [a, b] → [a, a, b, b] for n = 2."""
        return self.with_log_variance(self.log_variance.repeat_interleave(n, dim=0))

    def to(self, target: torch.device | torch.dtype | str) -> Self:
        """On another device, or in another precision."""
        return self.with_log_variance(self.log_variance.to(target))

    def detach(self) -> Self:
        return self.with_log_variance(self.log_variance.detach())

    # --- algebra on the spectrum -----------------------------------------------------------------------------------------

    @property
    def variance(self) -> Tensor:
        """λ, [B, 1 or C, H, W]."""
        return self.log_variance.exp()

    def full(self, values: Tensor) -> Tensor:
        """Spread values of log λ's shape over the channels: [B, C, H, W]."""
        return values.expand(-1, self.channels, -1, -1)

    def _spectrum_of(self, other: Covariance) -> Tensor:
        if self.basis != other.basis or self.size != other.size or self.channels != other.channels:
            raise ValueError(
                f"cannot combine a {self.basis} covariance of {self.channels}×{self.size} with a {other.basis} one of "
                f"{other.channels}×{other.size}: they have no common eigenbasis"
            )
        return other.log_variance

    def __add__(self, other: Covariance | float) -> Self:
        """Σ + Σ', or Σ + c·I for a number c."""
        if isinstance(other, Covariance):
            return self.with_log_variance(torch.logaddexp(self.log_variance, self._spectrum_of(other)))
        if other == 0:
            return self
        if other < 0:
            raise ValueError(f"adding {other}·I: only a variance ≥ 0 can be added")
        log_other = torch.full_like(self.log_variance, math.log(other))
        return self.with_log_variance(torch.logaddexp(self.log_variance, log_other))

    def __sub__(self, other: Covariance) -> Self:
        """Σ − Σ' for Σ' ≤ Σ, stably: λ − λ' = −λ·expm1(log λ' − log λ). Equal eigenvalues give λ = 0 (log λ = −inf)."""
        ratio = self._spectrum_of(other) - self.log_variance
        if bool((ratio > 0).any()):
            raise ValueError("Σ − Σ' is not a covariance: Σ' exceeds Σ in some direction")
        return self.with_log_variance(self.log_variance + (-torch.expm1(ratio)).log())

    def __mul__(self, factor: float | Tensor) -> Self:
        """factor·Σ (a float, or one factor a sample)."""
        value = torch.as_tensor(factor, dtype=self.log_variance.dtype, device=self.log_variance.device)
        if bool((value <= 0).any()):
            raise ValueError("a covariance can only be scaled by a positive number")
        return self.with_log_variance(self.log_variance + value.log().reshape(-1, 1, 1, 1))

    __rmul__ = __mul__

    def clamp(self, minimum: float | None = None, maximum: float | None = None) -> Self:
        """Σ with its eigenvalues clamped."""
        lower = None if minimum is None else math.log(minimum)
        upper = None if maximum is None else math.log(maximum)
        return self.with_log_variance(self.log_variance.clamp(lower, upper))

    def interpolate(
        self, other: Covariance, t: float | Tensor, kind: Literal["geometric", "linear"] = "geometric"
    ) -> Self:
        """From self (t = 0) to other (t = 1): λ^{1−t}λ'^t, or (1−t)λ + tλ'. t may be one number a sample."""
        a, b = self.log_variance, self._spectrum_of(other)
        weight = torch.as_tensor(t, dtype=a.dtype, device=a.device).reshape(-1, 1, 1, 1)
        if kind == "geometric":
            return self.with_log_variance(torch.lerp(a, b, weight))
        return self.with_log_variance(torch.logaddexp(a + torch.log1p(-weight), b + weight.log()))

    # --- acting on images ------------------------------------------------------------------------------------------------

    def power(self, x: Tensor, exponent: float) -> Tensor:
        """Σ^p x."""
        return self.synthesis(self.analysis(x) * torch.exp(exponent * self.log_variance))

    def apply(self, x: Tensor) -> Tensor:
        """Σx."""
        return self.power(x, 1.0)

    def solve(self, x: Tensor) -> Tensor:
        """Σ⁻¹x."""
        return self.power(x, -1.0)

    def colour(self, noise: Tensor) -> Tensor:
        """Q λ^{1/2} v: noise of covariance Σ from white noise v *in the eigenbasis* (one transform, not two)."""
        return self.synthesis(noise * (0.5 * self.log_variance).exp_())  # in place: one allocation less counts here

    def sample_noise(self, generator: torch.Generator | None = None, batch: int | None = None) -> Tensor:
        """Noise of covariance Σ, [B, C, H, W]."""
        shape = (batch or self.batch, self.channels, *self.size)
        return self.colour(normal_like(self.log_variance.new_empty(shape), generator))

    def logdet(self) -> Tensor:
        """log det Σ, [B], summed in float64."""
        return self.log_variance.double().sum(dim=(1, 2, 3)) * self.multiplicity

    def mahalanobis(self, x: Tensor) -> Tensor:
        """xᵀΣ⁻¹x, [B], summed in float64."""
        return self.mahalanobis_coefficients(self.analysis(x))

    def mahalanobis_coefficients(self, z: Tensor) -> Tensor:
        """zᵀ diag(λ)⁻¹ z for coefficients z, [B], summed in float64."""
        whitened = z * torch.exp(-0.5 * self.log_variance)
        return whitened.double().square().sum(dim=(1, 2, 3))

    def log_normal(self, x: Tensor) -> Tensor:
        """log N(x; 0, Σ), [B], nats, summed in float64."""
        return self.log_normal_coefficients(self.analysis(x))

    def log_normal_coefficients(self, z: Tensor) -> Tensor:
        """log N(z; 0, diag λ) for coefficients z, [B], nats, summed in float64."""
        return -0.5 * (self.mahalanobis_coefficients(z) + self.logdet() + self.dim * math.log(2 * math.pi))

    def trace(self) -> Tensor:
        """tr Σ, [B], in float64."""
        return self.log_variance.double().exp().sum(dim=(1, 2, 3)) * self.multiplicity

    def dense(self) -> Tensor:
        """Σ as a [B, d, d] matrix: an oracle for small d."""
        eye = torch.eye(self.dim, dtype=self.log_variance.dtype, device=self.log_variance.device)
        columns = eye.reshape(self.dim, self.channels, *self.size)
        spectra = self.log_variance.repeat_interleave(self.dim, dim=0)
        images = columns.repeat(self.batch, 1, 1, 1)
        out = self.with_log_variance(spectra).apply(images)
        return out.reshape(self.batch, self.dim, self.dim).mT

    # --- where in space and frequency a coefficient sits --------------------------------------------------------------------

    def blocks(self, values: Tensor) -> Tensor:
        """[B, c, H, W] → [B, c, H/bh, bh, W/bw, bw]: the coefficients block by block."""
        bh, bw = self.frequencies().shape[1:]
        height, width = self.size
        return values.reshape(values.shape[0], values.shape[1], height // bh, bh, width // bw, bw)

    def pool(self, values: Tensor) -> Tensor:
        """The mean of a function of the coefficients over each block, as an image: Q diag(v) Qᵀ's average diagonal."""
        bh, bw = self.frequencies().shape[1:]
        if bh == bw == 1:
            return values
        means = self.blocks(values).mean(dim=(3, 5), keepdim=True)
        return means.expand(-1, -1, -1, bh, -1, bw).reshape(values.shape)

    def pool_bands(self, values: Tensor, weights: Tensor) -> Tensor:
        """Weighted means over each block, one a band: values [B, c, H, W], weights [K, bh, bw] → [B, c·K, H, W]."""
        bh, bw = self.frequencies().shape[1:]
        bands = weights.shape[0]
        if bh == bw == 1:
            return values.repeat_interleave(bands, dim=1)
        means = torch.einsum("bcyuxv,kuv->bckyx", self.blocks(values), weights).flatten(1, 2)
        tiled = means[:, :, :, None, :, None].expand(-1, -1, -1, bh, -1, bw)
        return tiled.reshape(values.shape[0], values.shape[1] * bands, *self.size)

    def pool_each(self, values: Tensor, weights: Tensor) -> Tensor:
        """The same for values of their own in each band: [B, c, K, H, W], weights [K, bh, bw] → [B, c·K, H, W]."""
        bh, bw = self.frequencies().shape[1:]
        if bh == bw == 1:
            return values.flatten(1, 2)
        height, width = self.size
        split = values.unflatten(3, (height // bh, bh)).unflatten(5, (width // bw, bw))
        means = torch.einsum("bckyuxv,kuv->bckyx", split, weights).flatten(1, 2)
        tiled = means[:, :, :, None, :, None].expand(-1, -1, -1, bh, -1, bw)
        return tiled.reshape(len(values), -1, height, width)


@dataclass(frozen=True)
class VarianceRange:
    """Where an energy is known: variances in [minimum, maximum], for some bases (empty: every basis)."""

    minimum: float
    maximum: float
    bases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.minimum < self.maximum < math.inf:
            raise ValueError(f"a variance range needs 0 < minimum < maximum; got [{self.minimum}, {self.maximum}]")

    def excess(self, cov: Covariance, slack: float = 1e-3) -> str | None:
        """What of Σ lies outside, in words, or None."""
        if self.bases and cov.basis not in self.bases:
            return f"a {cov.basis} covariance; the energy knows {', '.join(self.bases)}"
        low, high = (float(value.exp()) for value in cov.log_variance.detach().double().aminmax())
        if low < self.minimum * (1 - slack) or high > self.maximum * (1 + slack):
            return f"variances in [{low:.3g}, {high:.3g}]; the energy knows [{self.minimum:.3g}, {self.maximum:.3g}]"
        return None

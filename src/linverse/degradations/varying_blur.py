"""A blur that changes across the picture: y = Σ_k w_k ⊙ (g_k ∗ x) + σv (Nagy & O'Leary 1998).

The w_k are maps that say how much of kernel k a pixel sees; they sum to one. Each convolution is diagonal in Fourier, their mixture is not.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from linverse.degradations.base import Size, size_of
from linverse.degradations.blurs import Convolution, GaussianBlur
from linverse.degradations.operators import GeneralOperator, Shape, positive_sigma


class VaryingBlur(GeneralOperator):
    """`blurs` (periodic) and for each of them a map [K, H, W], not negative, that sum to one at every pixel.

    `VaryingBlur.across` makes the common case: sharp on one side, blurred on the other.
    """

    def __init__(self, blurs: Sequence[Convolution], maps: Tensor, sigma: float) -> None:
        if maps.ndim != 3 or len(maps) != len(blurs) or not blurs:
            raise ValueError(
                f"there are {len(blurs)} blurs and maps of shape {tuple(maps.shape)}; give one [H, W] each"
            )
        if bool((maps < 0).any()) or not bool(((maps.sum(dim=0) - 1).abs() < 1e-4).all()):
            raise ValueError("the maps of a varying blur are not negative and sum to one at every pixel")
        if any(blur.boundary != "periodic" for blur in blurs):
            raise ValueError("the blurs of a varying blur have periodic boundaries")
        self.blurs, self.maps, self.sigma = tuple(blurs), maps, positive_sigma(sigma)

    def __repr__(self) -> str:
        return f"VaryingBlur({', '.join(blur.describe_kernel() for blur in self.blurs)}, sigma={self.sigma:g})"

    @staticmethod
    def across(size: Size, first: float, last: float, sigma: float, kernels: int = 4) -> VaryingBlur:
        """Gaussian blurs whose std goes from `first` (left) to `last` (right) pixels, interpolated between so many kernels.

        >>> VaryingBlur.across((8, 8), 0.3, 1.0, sigma=0.05, kernels=2)
        VaryingBlur(std=0.3, std=1, sigma=0.05)
        """
        if kernels < 2:
            raise ValueError(f"a blur that varies takes at least 2 kernels; got {kernels}")
        where = torch.linspace(0, kernels - 1, size[1], dtype=torch.float64)
        maps = (1 - (where[None] - torch.arange(kernels)[:, None]).abs()).clamp_min(0)
        stds = [first + (last - first) * k / (kernels - 1) for k in range(kernels)]
        return VaryingBlur([GaussianBlur(std) for std in stds], maps[:, None].expand(-1, *size).clone(), sigma)

    def operator(self, x: Tensor) -> Tensor:
        self._check(x)
        return sum((m.to(x) * blur.operator(x) for m, blur in zip(self.maps, self.blurs, strict=True)), x.new_zeros(()))

    def adjoint(self, r: Tensor) -> Tensor:
        self._check(r)
        total = r.new_zeros(())
        for weight, blur in zip(self.maps, self.blurs, strict=True):
            transfer = blur.transfer(size_of(r), r.dtype).to(r.device)
            total = total + torch.fft.ifft2(torch.fft.fft2(r * weight.to(r)) * transfer.conj()).real
        return total

    def _check(self, x: Tensor) -> None:
        if x.ndim != 4 or tuple(x.shape[2:]) != tuple(self.maps.shape[1:]):
            height, width = self.maps.shape[1:]
            raise ValueError(
                f"the picture has shape {tuple(x.shape)}; the maps of this blur are for [batch, channels, {height}, {width}]"
            )

    def image_shape(self, raw: Tensor) -> Shape:
        return raw.shape[1], raw.shape[2], raw.shape[3]

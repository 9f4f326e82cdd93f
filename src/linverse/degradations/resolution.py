"""Super-resolution: a camera of fewer, larger pixels.

box      the mean of every factor×factor box: exactly diagonal in the DCT of blocks (mathematics §1), of which it measures the DC
bicubic  what image programs do: the cubic kernel (a = −½), widened by the factor, rows and columns apart. It overlaps its neighbours and
         is diagonal in no basis of ours, so that its posterior is sampled as that of any operator (mathematics §14).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from linverse.covariance import BlockDCTCovariance
from linverse.degradations.base import Degradation, blank, checked_sigma
from linverse.degradations.operators import general_measurement
from linverse.measurement import Measurement
from linverse.memory import check_memory
from linverse.units import check_number


@dataclass(frozen=True)
class SuperResolution(Degradation):
    """One pixel for every factor×factor: raw data are [B, C, H/factor, W/factor], the means of boxes or (`kernel`) a bicubic reduction."""

    factor: int
    sigma: float = 0.0
    kernel: Literal["box", "bicubic"] = "box"

    def __post_init__(self) -> None:
        checked_sigma(self.sigma)
        check_number("factor", self.factor, whole=True)
        if self.factor < 2:
            raise ValueError(f"the factor of super-resolution is at least 2; got {self.factor}")
        if self.kernel not in ("box", "bicubic"):
            raise ValueError(f"kernel is {self.kernel!r}; it can be box or bicubic")

    def operator(self, x: Tensor) -> Tensor:
        if x.shape[2] % self.factor or x.shape[3] % self.factor:
            raise ValueError(f"boxes of {self.factor}×{self.factor} do not tile a {x.shape[2]}×{x.shape[3]} image")
        if self.kernel == "box":
            return torch.nn.functional.avg_pool2d(x, self.factor)
        rows, columns = (bicubic_matrix(n, self.factor).to(x) for n in x.shape[2:])
        return rows @ x @ columns.mT

    def _bicubic_adjoint(self, r: Tensor) -> Tensor:
        rows, columns = (bicubic_matrix(n * self.factor, self.factor).to(r) for n in r.shape[2:])
        return rows.mT @ r @ columns

    def encode(self, raw: Tensor) -> Measurement:
        if self.kernel == "bicubic":
            return general_measurement(self.operator, self._bicubic_adjoint, raw, self.sigma)
        size = (raw.shape[2] * self.factor, raw.shape[3] * self.factor)
        needed = 4 * raw.shape[0] * raw.shape[1] * size[0] * size[1] * raw.element_size()
        check_memory(needed, f"a picture of {size[0]}×{size[1]}", "take a smaller factor")
        coefficients = raw.new_zeros(raw.shape[0], raw.shape[1], *size)
        coefficients[:, :, :: self.factor, :: self.factor] = raw
        gain = raw.new_zeros(1, 1, *size)
        gain[:, :, :: self.factor, :: self.factor] = 1 / self.factor
        template = blank(BlockDCTCovariance, raw, size, block=self.factor)
        return self._levels(template, gain, raw, coefficients)


@lru_cache(maxsize=8)
def bicubic_matrix(length: int, factor: int) -> Tensor:
    """[length/factor, length]: the reduction of a line by torch's antialiased bicubic kernel, which is Pillow's."""
    line = torch.eye(length, dtype=torch.float64)[:, None, None, :]  # every pixel of a line alone
    reduced = torch.nn.functional.interpolate(line, (1, length // factor), mode="bicubic", antialias=True)
    return reduced[:, 0, 0].mT.contiguous()

"""Super-resolution: a camera of fewer, larger pixels. Exactly diagonal in the DCT of blocks (mathematics §1): it measures their means."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from linverse.covariance import BlockDCTCovariance
from linverse.degradations.base import Degradation, blank, checked_sigma
from linverse.measurement import Measurement
from linverse.memory import check_memory
from linverse.units import check_number


@dataclass(frozen=True)
class SuperResolution(Degradation):
    """The mean of every factor×factor box: raw data are [B, C, H/factor, W/factor]."""

    factor: int
    sigma: float = 0.0

    def __post_init__(self) -> None:
        checked_sigma(self.sigma)
        check_number("factor", self.factor, whole=True)
        if self.factor < 2:
            raise ValueError(f"the factor of super-resolution is at least 2; got {self.factor}")

    def operator(self, x: Tensor) -> Tensor:
        if x.shape[2] % self.factor or x.shape[3] % self.factor:
            raise ValueError(f"boxes of {self.factor}×{self.factor} do not tile a {x.shape[2]}×{x.shape[3]} image")
        return torch.nn.functional.avg_pool2d(x, self.factor)

    def encode(self, raw: Tensor) -> Measurement:
        size = (raw.shape[2] * self.factor, raw.shape[3] * self.factor)
        needed = 4 * raw.shape[0] * raw.shape[1] * size[0] * size[1] * raw.element_size()
        check_memory(needed, f"a picture of {size[0]}×{size[1]}", "take a smaller factor")
        coefficients = raw.new_zeros(raw.shape[0], raw.shape[1], *size)
        coefficients[:, :, :: self.factor, :: self.factor] = raw
        gain = raw.new_zeros(1, 1, *size)
        gain[:, :, :: self.factor, :: self.factor] = 1 / self.factor
        template = blank(BlockDCTCovariance, raw, size, block=self.factor)
        return self._levels(template, gain, raw, coefficients)

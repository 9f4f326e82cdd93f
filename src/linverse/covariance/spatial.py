"""Q = I: noise of its own variance in every pixel (masks, noise maps, patches)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from linverse.covariance.base import Covariance


@dataclass(frozen=True, eq=False, repr=False)
class SpatialCovariance(Covariance):
    """Σ = diag(λ) in pixels."""

    def analysis(self, x: Tensor) -> Tensor:
        return x

    def synthesis(self, z: Tensor) -> Tensor:
        return z

    @property
    def basis(self) -> str:
        return "spatial"

    def frequencies(self) -> Tensor:
        return torch.zeros(2, 1, 1, dtype=self.log_variance.dtype, device=self.log_variance.device)

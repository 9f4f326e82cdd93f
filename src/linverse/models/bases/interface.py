"""What a Gaussian base N(m, C) says of y under noise Σ, in Σ's eigenbasis (mathematics §11).

    u = (C+Σ)⁻¹(y−m)     x̂_G = y − Σu  (linear MMSE)     V_G = Σ(C+Σ)⁻¹C  (its posterior covariance)
    U_G = ½ log det 2π(C+Σ) + ½(y−m)ᵀu
A base has no trainable parameters: it is fitted to the training images once. With R = 0 on top of it an energy is the best linear
estimator with its exact error bars, whatever Σ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from linverse.covariance import Covariance


@dataclass(frozen=True)
class BaseAnswer:
    """All in Σ's eigenbasis: `u`, `mean` x̂_G and `variance` diag V_G are [B, C, H, W]; `spread(g)` is V_G g.

    `energy()` computes U_G, [B], float64, when it is asked for: training has no use for it.
    """

    u: Tensor
    mean: Tensor
    variance: Tensor
    spread: Callable[[Tensor], Tensor]
    energy: Callable[[], Tensor]


class GaussianBase(Protocol):
    """N(m, C): the Gaussian that an energy starts from."""

    mean: Tensor

    def fit(self, mean: Tensor, covariance: Tensor) -> None:
        """Take over the mean [C, H, W] and the covariance [d, d] of the training images."""

    def solve(self, z: Tensor, cov: Covariance) -> BaseAnswer:
        """The linear answer for coefficients z = Qᵀy."""

    def marginal(self, cov: Covariance) -> tuple[Tensor, Tensor]:
        """Mean and variance of the images' coefficients in Σ's eigenbasis, [1, C, H, W] each."""

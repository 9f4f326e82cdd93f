"""What an energy gives to training: both scores in Σ's eigenbasis, scale-free, and what they are weighed by."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from linverse.covariance import Covariance

Pair = tuple[Tensor, Covariance]  # coefficients z = Qᵀy [B, C, H, W] and their Σ, all of one basis


@dataclass
class Scores:
    """`e` = Λ^{1/2}Qᵀ∇U [B, C, H, W]; `kappa` = λ∂U/∂λ, the mean over channels that share λ, of log λ's shape.

    `base_variance` is the posterior variance of each coefficient under the Gaussian base, [B, 1 or C, H, W], before anything is learned:
    the scale of errors. `log_pixel_variance` [B, C, H, W] is the network's own estimate of its squared error by pixel, if it has one.
    """

    e: Tensor
    kappa: Tensor
    base_variance: Tensor
    log_pixel_variance: Tensor | None = None

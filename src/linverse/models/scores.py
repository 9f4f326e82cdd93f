"""What a parameterisation of the energy gives to training: the energy and both scores, in the eigenbasis, scale-free."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from linverse.covariance import Covariance

Pair = tuple[Tensor, Covariance]  # coefficients z = Qᵀy [B, C, H, W] and their Σ, all of one basis


@dataclass
class Scores:
    """`energy` [B]; `e` = Λ^{1/2}Qᵀ∇U [B, C, H, W]; `kappa` = λ∂U/∂λ, the mean over channels that share λ."""

    energy: Tensor
    e: Tensor
    kappa: Tensor

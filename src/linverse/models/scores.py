"""What a parameterisation of the energy gives to training: the energy and both scores, in the eigenbasis, scale-free."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from linverse.covariance import Covariance

Pair = tuple[Tensor, Covariance]  # y [B, C, H, W] and its Σ, all of one basis


@dataclass
class Scores:
    """`energy` [B]; `e` = Λ^{1/2}Qᵀ∇U [B, C, H, W]; `kappa` = λ∂U/∂λ, the mean over channels that share λ."""

    energy: Tensor
    e: Tensor
    kappa: Tensor


def differentiable(x: Tensor) -> Tensor:
    """A tensor to differentiate by: a new node of x's graph if it has one, else a fresh leaf."""
    return x.view_as(x) if x.requires_grad else x.detach().requires_grad_()

"""M^{−½}v of a symmetric positive definite M that is known by its products, for many rows at once (Lanczos 1950).

k products give an orthonormal basis V of the Krylov space of v with VᵀMV = T tridiagonal, and M^{−½}v ≈ ‖v‖VT^{−½}e₁: exact when the space
is invariant, so at once where v is an eigenvector, else as fast as conjugate gradients.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

INVARIANT = 1e-6  # of the first product: a residual below that ends the basis of a row


def inverse_root(matrix: Callable[[Tensor], Tensor], v: Tensor, steps: int = 30) -> Tensor:
    """M^{−½}v, row by row of v [B, …], by at most so many products.

    >>> import torch
    >>> scales = torch.tensor([[1.0, 4.0, 16.0]])
    >>> inverse_root(lambda u: scales * u, torch.ones(1, 3))
    tensor([[1.0000, 0.5000, 0.2500]])
    """
    basis, diagonal, beside = [], [], []
    norm = _norm(v)
    last, current = torch.zeros_like(v), v / norm.clamp_min(torch.finfo(v.dtype).tiny)
    coupled = scale = torch.zeros_like(norm)
    for step in range(steps):
        product = matrix(current) - coupled * last
        along = (product * current).flatten(1).sum(dim=1).reshape(norm.shape)
        product = product - along * current
        basis.append(current)
        diagonal.append(along.flatten())
        scale = along if step == 0 else scale
        coupled = _norm(product)
        coupled = torch.where(coupled > INVARIANT * scale, coupled, 0.0)
        if not bool((coupled > 0).any()):
            break
        beside.append(coupled.flatten())
        last, current = current, torch.where(coupled > 0, product / torch.where(coupled > 0, coupled, 1.0), 0.0)
    return norm * torch.einsum("kb...,bk->b...", torch.stack(basis), _weights(diagonal, beside).to(v))


def _weights(diagonal: list[Tensor], beside: list[Tensor]) -> Tensor:
    """T^{−½}e₁ of each row, [B, k]; where a row's basis has ended T goes on with ones."""
    d = torch.stack(diagonal, dim=1).double()
    t = torch.diag_embed(torch.where(d > 0, d, 1.0))
    if len(diagonal) > 1:
        b = torch.stack(beside[: len(diagonal) - 1], dim=1).double()
        t = t + torch.diag_embed(b, 1) + torch.diag_embed(b, -1)
    values, vectors = torch.linalg.eigh(t)
    return torch.einsum("bij,bj,bj->bi", vectors, values.clamp_min(1e-12).rsqrt(), vectors[:, 0])


def _norm(v: Tensor) -> Tensor:
    """[B, 1, …]."""
    return v.flatten(1).norm(dim=1).reshape(-1, *[1] * (v.ndim - 1))

"""Conjugate gradients for many systems at once: A w = b, A symmetric, positive definite, known by its products (Hestenes & Stiefel 1952).

Each row stops when its own residual is below `tolerance` times ‖b‖, and stands still while the others go on. The error after k steps is at
most 2((√c − 1)/(√c + 1))^k of the first one, c the condition number of A. With a preconditioner M⁻¹ ≈ A⁻¹ it is that of M⁻¹A, and
residuals are measured by ‖r‖² = rᵀM⁻¹r.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Solved:
    """`solution` w, of b's shape; `iterations` made; `residual` ‖b − Aw‖/‖b‖ of each row, [B] (0 where b is 0)."""

    solution: Tensor
    iterations: int
    residual: Tensor


def conjugate_gradients(
    matrix: Callable[[Tensor], Tensor],
    b: Tensor,
    *,
    tolerance: float = 1e-4,
    most: int = 200,
    precondition: Callable[[Tensor], Tensor] = lambda r: r,
) -> Solved:
    """A⁻¹b, row by row of b [B, …], in at most `most` products with A.

    >>> import torch
    >>> scales = torch.tensor([[1.0, 2.0, 4.0]])
    >>> conjugate_gradients(lambda v: scales * v, torch.ones(2, 3)).solution[0]
    tensor([1.0000, 0.5000, 0.2500])
    """
    x, r, p = torch.zeros_like(b), b, precondition(b)
    squared = start = _dot(r, p)
    goal = tolerance**2 * start
    iterations = 0
    while iterations < most and bool((active := squared > goal).any()):
        product = matrix(p)
        curvature = _dot(p, product)
        active = active & (curvature > 0)  # below rounding nothing more can be gained
        if not bool(active.any()):
            break
        step = torch.where(active, squared / torch.where(active, curvature, 1.0), 0.0)
        x, r = x + _rows(step, b) * p, r - _rows(step, b) * product
        z = precondition(r)
        now = torch.where(active, _dot(r, z), squared)
        turn = torch.where(active, now / torch.where(squared > 0, squared, 1.0), 0.0)
        p, squared = torch.where(_rows(active, b), z + _rows(turn, b) * p, p), now
        iterations += 1
    return Solved(x, iterations, torch.where(start > 0, (squared / torch.where(start > 0, start, 1.0)).sqrt(), 0.0))


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """⟨a, b⟩ of each row, [B]."""
    return (a * b).flatten(1).sum(dim=1)


def _rows(values: Tensor, like: Tensor) -> Tensor:
    """[B] → [B, 1, …]."""
    return values.reshape(-1, *[1] * (like.ndim - 1))

"""Any linear operator H, diagonal in no basis we have: a function and its adjoint (Radon transforms, spatially varying blurs, …).

Such a measurement has no coefficients and no λ: `linverse.sampling.sample_operator` samples its posterior from H and Hᵀ alone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from linverse.rng import keyed_generator, normal_like

Linear = Callable[[Tensor], Tensor]


def operator_gain(operator: Linear, adjoint: Linear, like: Tensor, iterations: int = 50) -> float:
    """‖HᵀH‖ by power iteration, with a little above it for safety; refuses an adjoint that is not one.

    `like` is an image [1, C, H, W] of the shape, precision and device that H takes.
    """
    generator = keyed_generator("operator")
    x = normal_like(like, generator)
    seen = operator(x)
    probe = normal_like(seen, generator)
    forth, back = float((seen * probe).double().sum()), float((x * adjoint(probe)).double().sum())
    scale = float(seen.double().norm() * probe.double().norm())
    if not abs(forth - back) <= 1e-3 * scale:
        raise ValueError(f"the adjoint is not the operator's: ⟨Hx, v⟩ = {forth:.6g} but ⟨x, Hᵀv⟩ = {back:.6g}")
    norm = torch.zeros(())
    for _ in range(iterations):
        x = adjoint(operator(x / x.norm()))
        norm = x.norm()
        if float(norm) == 0:
            raise ValueError("the operator maps images to 0: nothing was measured")
    return 1.05 * float(norm)

"""Muon: momentum whose matrix is replaced by the nearest orthogonal one, for the weights of convolutions; AdamW for all else.

    M ← βM + (1−β)G,   W ← (1 − ηδ)W − η √max(1, rows/columns)·orth((1−β)G + βM)
orth(A) = UVᵀ of A = USVᵀ, by five steps of a Newton–Schulz iteration (Jordan et al. 2024; its coefficients give up exactness, the
singular values end within about 0.7…1.2, for speed). A convolution's weight is the matrix [out, in·h·w]. torch.optim.Muon takes
matrices only, and two optimisers would make two states to save and to wrap. Every step has the same size, however small the
gradient: the decay δ bounds the weights (by 1/δ), which a network that learns nothing would otherwise drive away in a straight line.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def orthogonalised(matrix: Tensor, steps: int = 5) -> Tensor:
    """The orthogonal factor of a matrix, approximately."""
    a, b, c = NEWTON_SCHULZ
    x = matrix / matrix.norm().clamp_min(torch.finfo(matrix.dtype).tiny)
    wide = x if x.shape[0] <= x.shape[1] else x.mT
    for _ in range(steps):
        gram = wide @ wide.mT
        wide = a * wide + (b * gram + c * gram @ gram) @ wide
    return wide if x.shape[0] <= x.shape[1] else wide.mT


def takes_muon(module: nn.Module) -> bool:
    """Convolutions wider than one pixel that neither read the image nor write the output."""
    return isinstance(module, nn.Conv2d) and max(module.kernel_size) > 1 and min(module.weight.shape[:2]) >= 16


class MuonAdamW(torch.optim.AdamW):
    """One optimiser of two groups: AdamW (group 0) and Muon (group 1, `momentum` in place of `betas`)."""

    def __init__(
        self,
        model: nn.Module,
        rate: float,
        muon_rate: float,
        momentum: float = 0.95,
        muon_decay: float = 0.0,
        **options: Any,
    ) -> None:
        chosen = {id(module.weight) for module in model.modules() if takes_muon(module)}
        rest = [p for p in model.parameters() if id(p) not in chosen]
        matrices = [p for p in model.parameters() if id(p) in chosen]
        muon = {"params": matrices, "lr": muon_rate, "momentum": momentum, "decay": muon_decay}
        groups: list[dict[str, Any]] = [{"params": rest}, muon]
        super().__init__(groups, lr=rate, **options)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Muon updates its weights and takes their gradients away; AdamW passes over weights without one."""
        group = self.param_groups[1]
        for weight in group["params"]:
            if weight.grad is not None:
                weight.mul_(1 - group["lr"] * group["decay"])
                self._orthogonal_step(weight, weight.grad, group["lr"], group["momentum"])
                weight.grad = None
        super().step()

    def __setstate__(self, state: dict[str, Any]) -> None:
        for entry in state["state"].values():
            entry.setdefault("step", torch.zeros(()))  # of runs that were saved without it
        super().__setstate__(state)

    def _orthogonal_step(self, weight: Tensor, gradient: Tensor, rate: float, momentum: float) -> None:
        state = self.state[weight]
        if not state:
            state["step"] = torch.zeros(())  # AdamW looks for it in every state that it is given back
            state["momentum"] = torch.zeros_like(weight)
        state["momentum"].lerp_(gradient, 1 - momentum)
        update = torch.lerp(gradient, state["momentum"], momentum).flatten(1)
        scale = max(1.0, update.shape[0] / update.shape[1]) ** 0.5
        weight.add_(orthogonalised(update).reshape(weight.shape), alpha=-rate * scale)

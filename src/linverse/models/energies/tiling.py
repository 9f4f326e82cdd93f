"""A network over a large picture, tile by tile: the same sum over pixels and the same gradients, in bounded memory.

R is a sum over pixels of what a convolutional network says around each. A tile is run, from what the network is shown on, with a margin of
its receptive field on every side, and only its own pixels are summed; the gradients of all tiles, margins included, add up to
that of the whole. Base, Σ and everything else that knows the whole picture stay outside. The network's weights are taken as fixed: no
gradient reaches them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

Terms = Callable[
    [Tensor, Tensor], tuple[Tensor, Tensor]
]  # planes and maps [B, …, h, w] → terms of the sum, and the other outputs


def tiles(height: int, width: int, side: int, margin: int) -> Iterator[tuple[slice, slice, slice, slice]]:
    """For each tile: rows and columns with the margin, then where its own pixels lie within them."""
    for top in range(0, height, side):
        for left in range(0, width, side):
            bottom, right = min(top + side, height), min(left + side, width)
            up, before = max(0, top - margin), max(0, left - margin)
            rows, columns = slice(up, min(bottom + margin, height)), slice(before, min(right + margin, width))
            yield rows, columns, slice(top - up, bottom - up), slice(left - before, right - before)


def _within(outer: slice, inner: slice) -> slice:
    return slice(outer.start + inner.start, outer.start + inner.stop)


class TiledSum(torch.autograd.Function):
    """The sum of all terms of a picture, [B], float64, and the outputs that are no part of it; differentiable once."""

    @staticmethod
    def forward(
        context: Any, planes: Tensor, maps: Tensor, network: Terms, side: int, margin: int
    ) -> tuple[Tensor, Tensor]:
        """Runs the network on each tile, with gradients if any will be asked for."""
        wanted = any(context.needs_input_grad[:2])
        energy = torch.zeros(len(planes), dtype=torch.float64, device=planes.device)
        rest: Tensor | None = None
        gradients = [torch.zeros_like(t) for t in (planes, maps)] if wanted else []
        height, width = planes.shape[2:]
        for rows, columns, down, across in tiles(height, width, side, margin):
            with torch.set_grad_enabled(wanted):
                seen = [t[..., rows, columns].detach().requires_grad_(wanted) for t in (planes, maps)]
                terms, others = network(*seen)
                part = terms[..., down, across].flatten(1).sum(dim=1, dtype=torch.float64)
                pieces = torch.autograd.grad(part.sum(), seen) if wanted else ()
            energy += part.detach()
            if rest is None:
                rest = others.new_zeros(len(planes), others.shape[1], height, width)
            rest[..., _within(rows, down), _within(columns, across)] = others.detach()[..., down, across]
            for whole, piece in zip(gradients, pieces, strict=True):
                whole[..., rows, columns] += piece
        context.save_for_backward(*gradients)
        assert rest is not None
        context.mark_non_differentiable(rest)
        return energy, rest

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context: Any, of_energy: Tensor, of_rest: Tensor) -> tuple[Any, ...]:
        """The kept gradients, row by row."""
        if bool((of_energy == 1).all()):  # the usual case, and the gradients of a large picture are large
            return (*context.saved_tensors, None, None, None)
        scale = of_energy.reshape(-1, 1, 1, 1)
        return (*(g * scale.to(g.dtype) for g in context.saved_tensors), None, None, None)

"""Layers whose second derivatives cost no more than they must.

Score matching differentiates a gradient: loss(∂U/∂y), then ∂loss/∂θ. torch's own second derivative of a convolution finds that of the
weights by a convolution of batches with kernels as large as the picture, twice to four times as slow as the weights' gradient, which it
equals with the second gradient h in the place of the input; that of SiLU is a chain of a dozen element-wise products.
    y = w∗x          g_x = wᵀ∗g          ∂⟨g_x, h⟩/∂g = w∗h          ∂⟨g_x, h⟩/∂w = (weights' gradient of g with input h)
    y = xσ(x)        g_x = g·y'          ∂⟨g_x, h⟩/∂g = h·y'         ∂⟨g_x, h⟩/∂x = g·h·y'',   y'' = σ(1−σ)(2 + x(1−2σ))
    y = rx           g_x = rg − r³⟨x,g⟩x                             ∂⟨g_x, h⟩/∂x = −r³(⟨h,g⟩x + ⟨x,g⟩h + ⟨h,x⟩g − 3r²⟨h,x⟩⟨x,g⟩x)
with r = (1 + ⟨x,x⟩)^(−½) in the last line, ⟨·,·⟩ the mean over channels.

Within `twice_differentiable` the gradient that is differentiated again is that of the inputs alone: with `create_graph` there is none of
the weights. A third derivative is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

_asked: ContextVar[bool] = ContextVar("twice_differentiable", default=False)

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


@contextmanager
def twice_differentiable(asked: bool = True) -> Iterator[None]:
    """What is computed within is to be differentiated by its inputs with `create_graph`, then by anything without it."""
    token = _asked.set(asked)
    try:
        yield
    finally:
        _asked.reset(token)


def _applies(x: Tensor) -> bool:
    """Not in half precision, whose casts torch must see."""
    return _asked.get() and not torch.is_autocast_enabled(x.device.type)


class Conv2d(nn.Conv2d):
    """A convolution with zeros around it, as torch's."""

    def forward(self, x: Tensor) -> Tensor:
        if not _applies(x):
            return super().forward(x)
        out: Tensor = _Convolution.apply(x, self.weight, self.bias, self.stride, self.padding)
        return out


def silu(x: Tensor) -> Tensor:
    """xσ(x)."""
    if not _applies(x):
        return F.silu(x)
    out: Tensor = _SiLU.apply(x)
    return out


def bounded(x: Tensor) -> Tensor:
    """x/√(1 + mean x²), the mean over channels: of a size below √channels, whatever x."""
    if not _applies(x):
        return x * torch.rsqrt(1 + x.square().mean(dim=1, keepdim=True))
    out: Tensor = _Bounded.apply(x)
    return out


def join(parts: list[Tensor]) -> Tensor:
    """Channels side by side, as `torch.cat`, whose second derivative would fill a whole tensor with zeros for each part."""
    if not _asked.get():
        return torch.cat(parts, dim=1)
    out: Tensor = _Join.apply(*parts)
    return out


def _convolution_gradients(g: Tensor, x: Tensor, weight: Tensor, layout: Any, wanted: list[bool]) -> Gradients:
    """Those of input, weights and bias, where wanted."""
    stride, padding = (list(each) for each in layout)
    found: Gradients = torch.ops.aten.convolution_backward(
        g, x, weight, [len(weight)], stride, padding, [1, 1], False, [0, 0], 1, wanted
    )
    return found


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.layout = stride, padding
        return F.conv2d(x, weight, bias, stride, padding)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        if torch.is_grad_enabled():  # the first of two: by the inputs alone
            return _InputGradient.apply(g, x.detach(), weight, ctx.layout), None, None, None, None
        wanted = list(ctx.needs_input_grad[:3])
        return *_convolution_gradients(g, x, weight, ctx.layout, wanted), None, None


class _InputGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, weight: Tensor, layout: Any) -> Tensor | None:
        ctx.save_for_backward(g, weight)
        ctx.layout = layout
        return _convolution_gradients(g, x, weight, layout, [True, False, False])[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, h: Tensor) -> tuple[Tensor | None, ...]:
        g, weight = ctx.saved_tensors
        wanted = [False, ctx.needs_input_grad[2], False]
        by_weight = _convolution_gradients(g, h, weight, ctx.layout, wanted)[1] if any(wanted) else None
        return F.conv2d(h, weight, None, *ctx.layout), None, by_weight, None


def _along(a: Tensor, b: Tensor) -> Tensor:
    """⟨a, b⟩, the mean over channels."""
    return (a * b).mean(dim=1, keepdim=True)


class _Bounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        root = torch.rsqrt(1 + _along(x, x))
        ctx.save_for_backward(x, root)
        return x * root

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        x, root = ctx.saved_tensors
        out: Tensor = _BoundedGradient.apply(g, x, root.detach())
        return out


def _bounded_gradient(g: Tensor, x: Tensor, root: Tensor) -> Tensor:
    return torch.addcmul(g * root, x, root.pow(3) * _along(x, g), value=-1)


class _BoundedGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, root: Tensor) -> Tensor:
        ctx.save_for_backward(g, x, root)
        return _bounded_gradient(g, x, root)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, h: Tensor) -> tuple[Tensor, Tensor, None]:
        g, x, root = ctx.saved_tensors
        xg, hx, hg = _along(x, g), _along(h, x), _along(h, g)
        cube = -root.pow(3)
        bent = x * (cube * (hg - 3 * root.square() * hx * xg))
        bent.addcmul_(h, cube * xg).addcmul_(g, cube * hx)
        return torch.addcmul(h * root, x, cube * hx), bent, None


class _Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *parts: Tensor) -> Tensor:
        ctx.sizes = [part.shape[1] for part in parts]
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, ...]:
        return g.split(ctx.sizes, dim=1)  # whose own derivative is one `cat`


class _SiLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return F.silu(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        out: Tensor = _SiLUGradient.apply(g, x)
        return out


class _SiLUGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(g, x)
        out: Tensor = torch.ops.aten.silu_backward(g, x)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, h: Tensor) -> tuple[Tensor, Tensor]:
        g, x = ctx.saved_tensors
        share = torch.sigmoid(x)
        rest = 1 - share
        curvature = torch.sub(rest, share).mul_(x).add_(2).mul_(share).mul_(rest)
        return torch.ops.aten.silu_backward(h, x), curvature.mul_(g).mul_(h)

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

A convolution may also be `rounded`: its factors are rounded to bfloat16, their products added up in float32, and all else stays in
float32. Processors with units for it (AMX) convolve three times as fast.
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

    rounded = False

    def forward(self, x: Tensor) -> Tensor:
        if _applies(x):
            out: Tensor = _Convolution.apply(x, self.weight, self.bias, (self.stride, self.padding), self.rounded)
            return out
        if not self.rounded:
            return super().forward(x)
        seen, kernel = _factors(True, x, self.weight)
        out = F.conv2d(seen, kernel, None, self.stride, self.padding).to(x.dtype)
        return out if self.bias is None else out + self.bias[:, None, None]


def round_products(network: nn.Module) -> None:
    """Let all convolutions of a network be `rounded`, from now on."""
    for layer in network.modules():
        if isinstance(layer, Conv2d):
            layer.rounded = True


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


def _factors(rounded: bool, *tensors: Tensor) -> list[Tensor]:
    """What is to be multiplied."""
    return [t.to(torch.bfloat16) if rounded else t for t in tensors]


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, layout: Any, rounded: bool) -> Tensor:
        seen, kernel = _factors(rounded, x, weight)
        ctx.save_for_backward(seen, weight)
        ctx.layout, ctx.rounded = layout, rounded
        if not rounded:
            return F.conv2d(x, weight, bias, *layout)
        out = F.conv2d(seen, kernel, None, *layout).to(x.dtype)
        return out if bias is None else out.add_(bias[:, None, None])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        seen, weight = ctx.saved_tensors
        if torch.is_grad_enabled():  # the first of two: by the inputs alone
            return _InputGradient.apply(g, seen.detach(), weight, ctx.layout, ctx.rounded), None, None, None, None
        by_input, by_weight, by_bias = ctx.needs_input_grad[:3]
        factors = _factors(ctx.rounded, g, weight)
        found = _convolution_gradients(factors[0], seen, factors[1], ctx.layout, [by_input, by_weight, False])
        bias = g.sum(dim=(0, 2, 3)) if by_bias else None
        return *(t if t is None else t.to(g.dtype) for t in found[:2]), bias, None, None


class _InputGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, g: Tensor, seen: Tensor, weight: Tensor, layout: Any, rounded: bool) -> Tensor:
        above, kernel = _factors(rounded, g, weight)
        ctx.save_for_backward(above, weight)
        ctx.layout, ctx.rounded = layout, rounded
        found = _convolution_gradients(above, seen, kernel, layout, [True, False, False])[0]
        assert found is not None
        return found.to(g.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, h: Tensor) -> tuple[Tensor | None, ...]:
        above, weight = ctx.saved_tensors
        below, kernel = _factors(ctx.rounded, h, weight)
        by_weight = None
        if ctx.needs_input_grad[2]:
            by_weight = _convolution_gradients(above, below, kernel, ctx.layout, [False, True, False])[1]
        by_g = F.conv2d(below, kernel, None, *ctx.layout).to(h.dtype)
        return by_g, None, by_weight if by_weight is None else by_weight.to(h.dtype), None, None


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

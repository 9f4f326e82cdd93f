"""The stationary Gaussian under noise that differs from pixel to pixel: masks, maps of noise levels, colour filter arrays.

C is diagonal in the DCT of the picture (by opponent colour), Σ in its pixels, C+Σ nowhere. With λ₀ the faintest noise, K = (C+λ₀)⁻¹ and
D = λ−λ₀, which is not 0 on a set H of pixels, (C+Σ)u = δ says that u = Kc for the picture c that is δ where noise is faintest and
elsewhere a completion s,
    (D⁻¹ + K_HH) s = D⁻¹δ_H − (K δ₀)_H,   δ₀ = δ without H,        u_H = D⁻¹(δ_H − s),
and the mean is the Wiener filter of c. This is solved by conjugate gradients. A pixel of H feels K's diagonal k̄ by itself and all else of K
by the share p of H among its neighbours, so that F(pK + (1−p)k̄ + D̃⁻¹)⁻¹F, D̃ the largest D, F² = (D̃⁻¹+k̄)/(D⁻¹+k̄), is close to the
inverse: 8 to 30 steps for scratches, random pixels, boxes and Bayer patterns alike, where K⁻¹ alone takes 20 to 140. p is taken from the
mean share among the eight around, as 1 − (1−√·)², which serves boxes, too. (float32 does: K spans seven decades, but holes are fine.)

(Quadtrees, `tree`, which this replaces in the means, are blind across the edges of their blocks: scratches in 16 held-out crops of 48×48
had 33.8 dB by trees, 38.8 by this, and 38.8 by biharmonic inpainting.)

`gaussian_energy` is ½δᵀu with its derivatives, which need no second solution for the first ones:
    ∂/∂δ = u,   ∂/∂log λ = −½λu²,       ∂u = (C+Σ)⁻¹(∂δ − λu ∂log λ).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from linverse.conjugate_gradients import conjugate_gradients
from linverse.covariance.dct import dct2, inverse_dct2

MOST = 300  # steps
# residuals relative to the right side, in the preconditioner's norm: of float32 (10⁻³ left Bayer patterns at λ = 10⁻⁶ an rms error of
# 0.0203 where the solution has 0.0181) and of float64
ROUGH, FINE = 2e-4, 1e-10

Filter = Callable[[Tensor, Tensor], Tensor]  # an image, and what its DCT coefficients are multiplied by → an image


def solve_pixels(shift: Tensor, log_variance: Tensor, power: Tensor, colours: Tensor) -> Tensor:
    """u of δ [B, C, H, W] for log λ [B, 1 or C, H, W], powers [C, H, W] of DCT coefficients by opponent colour, and these colours' rows.

    Where the channels share λ each opponent colour is by itself.
    """
    variance, turn = log_variance.exp(), colours.to(shift)
    tolerance = FINE if shift.dtype == torch.float64 else ROUGH

    def turned(x: Tensor, back: bool = False) -> Tensor:
        return torch.einsum("co,bcyx->boyx" if back else "oc,bcyx->boyx", turn, x)

    def plain(x: Tensor, factor: Tensor) -> Tensor:
        return inverse_dct2(dct2(x) * factor)

    def mixed(x: Tensor, factor: Tensor) -> Tensor:
        return turned(plain(turned(x), factor), back=True)

    if log_variance.shape[1] == 1:
        return turned(_complete(turned(shift), variance, power, plain, (2, 3), tolerance), back=True)
    return _complete(shift, variance, power, mixed, (1, 2, 3), tolerance)


def _complete(
    delta: Tensor, variance: Tensor, power: Tensor, apply: Filter, alike: tuple[int, ...], tolerance: float
) -> Tensor:
    """u, by way of s; `alike` are the dimensions along which the diagonal of K does not change."""
    every = (1, 2, 3)
    faintest = variance.amin(dim=every, keepdim=True)
    louder = (variance - faintest).expand_as(delta)
    inside, precision = louder > 0, (power + faintest).reciprocal()
    inverse = torch.where(inside, louder, 1.0).reciprocal()
    own = precision.mean(dim=alike, keepdim=True)  # k̄
    quietest = torch.where(inside, inverse, torch.inf).amin(dim=every, keepdim=True)  # D̃⁻¹
    near = crowding(louder * own / (1 + louder * own))
    middle = (near * precision + (1 - near) * own + quietest).reciprocal()
    scale = torch.where(inside, (quietest + own) / (inverse + own), 0.0).sqrt()

    def product(p: Tensor) -> Tensor:
        return torch.where(inside, inverse * p + apply(p, precision), 0.0)

    outside = torch.where(inside, 0.0, delta)
    right = torch.where(inside, inverse * delta - apply(outside, precision), 0.0)
    solved = conjugate_gradients(
        product, right, tolerance=tolerance, most=MOST, precondition=lambda r: scale * apply(scale * r, middle)
    )
    left, s = float(solved.residual.amax()), solved.solution
    if solved.iterations == MOST and left > tolerance:
        warnings.warn(
            f"holes were filled to {left:.1g} only, in {MOST} steps of conjugate gradients (wanted: {tolerance:.0g})",
            RuntimeWarning,
            stacklevel=2,
        )
    return torch.where(louder * own > 1, inverse * (delta - s), apply(outside + s, precision))


def crowding(unknown: Tensor) -> Tensor:
    """p: how much of what is around an unknown pixel is unknown, too, the mean over an image, [B, 1, 1, 1]."""
    around = (9 * F.avg_pool2d(F.pad(unknown, (1, 1, 1, 1), mode="replicate"), 3, stride=1) - unknown) / 8
    total, count = (x.sum(dim=(1, 2, 3), keepdim=True) for x in (around * unknown, unknown))
    share = torch.where(count > 0, total / count.clamp_min(torch.finfo(count.dtype).tiny), 0.0).clamp(0, 1)
    return 1 - (1 - share.sqrt()).square()


class _Gaussian(torch.autograd.Function):
    """δ, log λ → ½δᵀ(C+Σ)⁻¹δ [B], float64, and u; derivatives of any order, each but the first at the price of a solution."""

    @staticmethod
    def forward(ctx: Any, shift: Tensor, log_variance: Tensor, power: Tensor, colours: Tensor) -> tuple[Tensor, Tensor]:
        u = solve_pixels(shift, log_variance, power, colours)
        ctx.save_for_backward(log_variance, power, colours, u)
        return 0.5 * (shift * u).flatten(1).sum(dim=1, dtype=torch.float64), u

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        by_energy, by_u = grads
        log_variance, power, colours, u = ctx.saved_tensors
        shift = u * by_energy[:, None, None, None].to(u)
        noise = -0.5 * shift * u
        if bool(by_u.any()):
            solved = _Gaussian.apply(by_u, log_variance, power, colours)[1]
            shift, noise = shift + solved, noise - u * solved
        noise = noise * log_variance.exp()
        return shift, noise.sum(dim=1, keepdim=True) if log_variance.shape[1] == 1 else noise, None, None


def gaussian_energy(shift: Tensor, log_variance: Tensor, power: Tensor, colours: Tensor) -> tuple[Tensor, Tensor]:
    """½δᵀ(C+Σ)⁻¹δ, [B], float64, and u = (C+Σ)⁻¹δ, of δ's dtype; both may be differentiated in δ and log λ as often as one likes."""
    energy, u = _Gaussian.apply(shift, log_variance, power, colours)
    return energy, u


class _SumOfLogs(torch.autograd.Function):
    """log λ [B, c, H, W] → Σ_j w_j log(λ + v_j), v [J], w [c, J]: terms are kept only for derivatives of derivatives."""

    @staticmethod
    def forward(ctx: Any, log_variance: Tensor, values: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(log_variance, values, weights)
        variance, total = log_variance.exp(), torch.zeros_like(log_variance)
        for v, w in zip(values, weights.unbind(1), strict=True):
            total += w.reshape(1, -1, 1, 1) * (variance + v).log()
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        log_variance, values, weights = ctx.saved_tensors
        total = torch.zeros_like(log_variance)
        for v, w in zip(values.log(), weights.unbind(1), strict=True):
            total = total + w.reshape(1, -1, 1, 1) * torch.sigmoid(log_variance - v)
        return grads[0] * total, None, None


def sum_of_logs(log_variance: Tensor, values: Tensor, weights: Tensor) -> Tensor:
    """Σ_pixels Σ_j w_j log(λ + v_j), [B], float64, for log λ [B, c, H, W], v [J] and w [c, J]."""
    terms: Tensor = _SumOfLogs.apply(log_variance, values, weights)
    return terms.flatten(1).sum(dim=1, dtype=torch.float64)

"""Our models asked at any noise level, as other libraries ask: y = x + σv, σ a number, one per image, or a map of the pixels.

A model knows the variances λ = σ² of its range. Below it, the noise is said to be the least that is known, σ = √λ_min. Above it images are
lost in noise and the mean is linear in y, E[x|y] − m ≈ C(y − m)/λ: y is brought to m + (y − m)λ_max/λ, where the model answers the same.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from linverse.baselines.denoisers import moments
from linverse.baselines.interface import IsotropicDenoiser
from linverse.covariance import VarianceRange, identity
from linverse.energy import Energy, evaluate, size_text, takes

Prior = Energy | IsotropicDenoiser


def denoise(model: Prior, y: Tensor, sigma: float | Tensor) -> tuple[Tensor, Tensor | None]:
    """E[x|y] and, of an energy, the variance of every pixel given y, both [B, C, H, W] in y's precision; differentiable in y."""
    if not takes(model.shape, (y.shape[1], y.shape[2], y.shape[3])):
        raise ValueError(f"the images are {size_text((*y.shape[1:],))}; the model takes {size_text(model.shape)}")
    weights = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    inside = y if weights is None else y.to(weights.dtype).to(weights.device)
    seen, variance = within(inside, noise_variance(sigma, inside), model.range, data_mean(model, inside))
    if isinstance(model, Energy):
        mean, spread = _energy_moments(model, seen, variance)
        return mean.to(y), spread.to(y)
    if variance.shape[1:] != (1, 1, 1):
        raise ValueError("a network for white noise takes one sigma per image; a map of sigmas needs an energy")
    levels = variance.flatten()
    level = levels.expand(len(seen)) if len(levels.unique()) > 1 else float(levels[0])
    return model(seen, level).to(y), None  # type: ignore[arg-type]


def _energy_moments(energy: Energy, y: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    mapped = variance.shape[2:] == y.shape[2:]
    channels, basis = (variance.shape[1], "spatial") if mapped else (1, _white_basis(energy))
    log_variance = variance.log().expand(len(y), channels, *y.shape[2:]).contiguous()
    cov = identity(basis, tuple(y.shape[1:]), y).with_log_variance(log_variance)
    found = evaluate(energy, y, cov, create_graph=torch.is_grad_enabled() and y.requires_grad)
    return found.mean, cov.full(cov.pool(found.variance))


def _white_basis(energy: Energy) -> str:
    """White noise is white in every basis: it is asked about in pixels, or, where an energy knows none, in a basis that it knows."""
    known = energy.range.bases
    return "spatial" if not known or "spatial" in known else known[0]


def noise_variance(sigma: float | Tensor, like: Tensor) -> Tensor:
    """σ² as [1 or B, 1, 1, 1], or [1 or B, 1 or C, H, W] for a map, or an error that says what is taken."""
    value = torch.as_tensor(sigma, dtype=like.dtype, device=like.device)
    if value.ndim < 2:
        value = value.reshape(-1, 1, 1, 1)
    elif value.ndim < 4:
        value = value[(None,) * (4 - value.ndim)]
    fits = all(mine in (1, other) for mine, other in zip(value.shape, like.shape, strict=True))
    if not fits or (value.shape[2:] != (1, 1) and value.shape[2:] != like.shape[2:]):
        raise ValueError(
            f"sigma has shape {tuple(torch.as_tensor(sigma).shape)} for images {tuple(like.shape)}; it is a number, one per "
            "image, or a map of the pixels"
        )
    if not bool((value >= 0).all()):  # written so that NaN is refused too
        raise ValueError(f"sigma is a standard deviation ≥ 0; got {float(value.min()):.4g}")
    return value.square()


def within(y: Tensor, variance: Tensor, limits: VarianceRange, mean: Tensor) -> tuple[Tensor, Tensor]:
    """(y, λ) brought into the variances that a model knows."""
    excess = (variance / limits.maximum).clamp_min(1)
    return mean + (y - mean) / excess, variance.clamp(limits.minimum, limits.maximum)


def data_mean(model: Prior, like: Tensor) -> Tensor:
    """m, the data's mean image as far as the model knows it, else middle grey."""
    if isinstance(model, Energy):
        template = identity(_white_basis(model), tuple(like.shape[1:]), like)
        return template.synthesis(model.gaussian(template)[0].to(like).expand(-1, *like.shape[1:]))
    known = moments(model)
    return like.new_full((1,), 0.5) if known is None else known[0].to(like)

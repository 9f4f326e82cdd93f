"""Other people's denoisers as priors of our baselines: x̂ = E[x|y] for y = x + √λ v in our pixels, [0, 1]. No energy is needed for those.

    from_function   D(y, σ) as EDM, k-diffusion and deepinv have it
    from_azula      azula's Denoiser, of any noise schedule: x_t = α_t x + σ_t v, so that y = x_t/α_t at √λ = σ_t/α_t
    from_diffusers  a network of diffusers with its alphas_cumprod ᾱ: y = x_t/√ᾱ_t at λ = (1 − ᾱ_t)/ᾱ_t

`pixels` are the values of black and white that the network was trained with, most often (−1, 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from linverse.covariance import VarianceRange

ImageShape = tuple[int, int, int]
Prediction = Literal["epsilon", "v_prediction", "sample"]


class ForeignDenoiser:
    """x̂(y, λ) by a function of (y, σ) in its own pixels: what our baselines call a denoiser.

    >>> import torch
    >>> model = ForeignDenoiser(lambda y, sigma: y / (1 + sigma**2), (1, 2, 2), VarianceRange(1e-4, 1e4), (-1.0, 1.0))
    >>> model(torch.ones(1, 1, 2, 2), 0.25)[0, 0, 0, 0]  # white, seen under σ = 0.5: σ = 1 in [−1, 1], where white is 1
    tensor(0.7500)
    """

    def __init__(
        self,
        function: Callable[[Tensor, float], Tensor],
        shape: ImageShape,
        limits: VarianceRange,
        pixels: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        if not pixels[1] > pixels[0]:
            raise ValueError(f"pixels are the values of black and white, in this order; got {pixels}")
        self.function, self.shape, self.range, self.pixels = function, shape, limits, pixels

    def __repr__(self) -> str:
        sides = "×".join(map(str, self.shape))
        return f"ForeignDenoiser({sides}, pixels in [{self.pixels[0]:g}, {self.pixels[1]:g}])"

    def __call__(self, y: Tensor, variance: float) -> Tensor:
        black, white = self.pixels
        seen = self.function(black + (white - black) * y, (white - black) * math.sqrt(variance))
        return (seen - black) / (white - black)


def from_function(
    function: Callable[[Tensor, Any], Tensor],
    shape: ImageShape,
    *,
    sigma_min: float = 0.002,
    sigma_max: float = 80.0,
    pixels: tuple[float, float] = (-1.0, 1.0),
) -> ForeignDenoiser:
    """A denoiser D(y, σ) of EDM's kind, σ in its own pixels from `sigma_min` to `sigma_max` (deepinv's: pixels=(0, 1))."""

    def call(y: Tensor, sigma: float) -> Tensor:
        return function(y, torch.full((len(y),), sigma, dtype=y.dtype, device=y.device))

    scale = pixels[1] - pixels[0]
    return ForeignDenoiser(call, shape, VarianceRange((sigma_min / scale) ** 2, (sigma_max / scale) ** 2), pixels)


def from_azula(
    denoiser: Any, shape: ImageShape, *, pixels: tuple[float, float] = (-1.0, 1.0), **options: Any
) -> ForeignDenoiser:
    """An azula denoiser (its posterior's mean) at all noise levels of its schedule; `options` are handed to every call of it."""

    def level(t: float) -> float:
        alpha, sigma = denoiser.schedule(torch.tensor(t, dtype=torch.float64))
        return float(sigma / alpha)

    def call(y: Tensor, sigma: float) -> Tensor:
        t = torch.tensor(_time_of(level, sigma), dtype=y.dtype, device=y.device)
        alpha, _ = denoiser.schedule(t)
        return denoiser(alpha * y, t, **options).mean

    scale = pixels[1] - pixels[0]
    limits = VarianceRange((level(0.0) / scale) ** 2, (level(1.0) / scale) ** 2)
    return ForeignDenoiser(call, shape, limits, pixels)


def _time_of(level: Callable[[float], float], sigma: float) -> float:
    """t with level(t) = σ, level growing on [0, 1], by bisection to the last bit."""
    low, high = 0.0, 1.0
    while low < (middle := 0.5 * (low + high)) < high:
        low, high = (middle, high) if level(middle) < sigma else (low, middle)
    return high


def from_diffusers(
    network: Callable[[Tensor, Tensor], Any],
    alphas_cumprod: Tensor | Sequence[float],
    shape: ImageShape,
    *,
    prediction: Prediction = "epsilon",
    pixels: tuple[float, float] = (-1.0, 1.0),
) -> ForeignDenoiser:
    """A network of diffusers (`UNet2DModel`) and the `alphas_cumprod` of its scheduler; asked at the nearest of its time steps.

    The network sees x_t = √ᾱ_t y and gives ε̂, v̂ = √ᾱ_t ε − √(1−ᾱ_t) x, or x̂ itself, as its scheduler's `prediction_type` says.
    """
    if prediction not in ("epsilon", "v_prediction", "sample"):
        raise ValueError(f'prediction is {prediction!r}; it can be "epsilon", "v_prediction" or "sample"')
    alphas = torch.as_tensor(alphas_cumprod, dtype=torch.float64)
    if alphas.ndim != 1 or len(alphas) < 2 or not bool(((alphas > 0) & (alphas < 1)).all()):
        raise ValueError("alphas_cumprod is a list of at least two numbers between 0 and 1")
    log_levels = 0.5 * ((1 - alphas) / alphas).log()

    def call(y: Tensor, sigma: float) -> Tensor:
        step = int((log_levels - math.log(sigma)).abs().argmin())
        alpha = 1 / (1 + sigma**2)  # of the noise that is there; the step that is nearest tells the network
        x_t = math.sqrt(alpha) * y
        found = network(x_t, torch.full((len(y),), step, device=y.device))
        out = getattr(found, "sample", found)
        if prediction == "epsilon":
            return (x_t - math.sqrt(1 - alpha) * out) / math.sqrt(alpha)
        return math.sqrt(alpha) * x_t - math.sqrt(1 - alpha) * out if prediction == "v_prediction" else out

    scale = pixels[1] - pixels[0]
    low, high = (float((2 * value).exp()) / scale**2 for value in log_levels.aminmax())
    return ForeignDenoiser(call, shape, VarianceRange(low, high), pixels)

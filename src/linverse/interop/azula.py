"""An energy as azula's Denoiser: q(x|x_t) = N(mean, variance), both from one evaluation (paper §3.2), for azula's samplers and guidance.

azula's x_t = α_t x + σ_t v is our y = x_t/α_t under λ = (σ_t/α_t)². Pixels are ours, [0, 1]. For azula's denoisers as our priors see
`interop.denoisers.from_azula`.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from linverse.interop.libraries import load_azula
from linverse.interop.noise_levels import Prior, denoise

_denoise, _noise = load_azula("denoise"), load_azula("noise")


class AzulaDenoiser(_denoise.Denoiser):  # type: ignore[name-defined]
    """A model of ours as azula's denoiser; the variance is an energy's, a score network has none (a Dirac posterior)."""

    def __init__(self, model: Prior, schedule: Any = None) -> None:
        """Without a `schedule`: variance exploding between the model's least and largest noise."""
        super().__init__()
        self.model = model
        limits = model.range
        self.schedule = schedule or _noise.VESchedule(limits.minimum**0.5, limits.maximum**0.5)

    def forward(self, x_t: Tensor, t: Tensor, **options: Any) -> Any:
        if options:
            raise TypeError(f"this model takes no {', '.join(options)}: it is not conditional")
        alpha, sigma = (value.reshape(-1, 1, 1, 1) for value in self.schedule(t))
        mean, variance = denoise(self.model, x_t / alpha, (sigma / alpha).flatten())
        if variance is None:
            return _denoise.DiracPosterior(mean)
        return _denoise.GaussianPosterior(mean, variance)


def to_denoiser(model: Prior, schedule: Any = None) -> AzulaDenoiser:
    """Our energy or score network for azula's samplers.

    >>> import torch, linverse as lv
    >>> from azula.sample import DDIMSampler
    >>> denoiser = to_denoiser(lv.load("mnist"))
    >>> posterior = denoiser(torch.rand(2, 1, 28, 28), torch.tensor(0.5))
    >>> posterior.mean.shape, posterior.var.shape
    (torch.Size([2, 1, 28, 28]), torch.Size([2, 1, 28, 28]))
    >>> digits = DDIMSampler(denoiser, steps=4, silent=True)(1000**0.5 * torch.randn(2, 1, 28, 28))
    """
    return AzulaDenoiser(model, schedule)

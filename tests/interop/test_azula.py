"""azula's samplers on our models: mean and variance are the exact ones, and samples have the prior's law."""

from __future__ import annotations

import pytest
import torch

from linverse.analytic import DiagonalGaussian
from linverse.covariance import SpatialCovariance, VarianceRange
from linverse.extras import MissingExtra
from linverse.interop.denoisers import from_azula

try:
    from linverse.interop.azula import to_denoiser
except MissingExtra as missing:
    pytest.skip(f"{missing} (make test-all)", allow_module_level=True)

from azula.noise import VPSchedule  # type: ignore[import-not-found,unused-ignore]
from azula.sample import DDIMSampler  # type: ignore[import-not-found,unused-ignore]

SHAPE = (1, 4, 4)
S = torch.linspace(0.01, 0.1, 16, dtype=torch.float64).reshape(1, 1, 4, 4)
MEAN = torch.full(SHAPE, 0.4, dtype=torch.float64)
ENERGY = DiagonalGaussian(SpatialCovariance(S.log()), MEAN, VarianceRange(1e-6, 1e3))


@pytest.mark.parametrize("t", [0.3, 0.5, 0.8])
def test_mean_and_variance_are_exact_under_any_schedule(t: float) -> None:
    denoiser, time = to_denoiser(ENERGY, VPSchedule()), torch.tensor(t, dtype=torch.float64)
    alpha, sigma = denoiser.schedule(time)
    x_t = torch.randn(3, *SHAPE, dtype=torch.float64)
    found, variance = denoiser(x_t, time), (sigma / alpha) ** 2
    assert torch.allclose(found.mean, MEAN + S / (S + variance) * (x_t / alpha - MEAN), rtol=1e-4, atol=1e-6)
    assert torch.allclose(found.var, (S * variance / (S + variance)).expand_as(x_t), rtol=1e-4)


def test_its_sampler_draws_the_prior() -> None:
    count = 2000
    denoiser = to_denoiser(ENERGY)
    start = ENERGY.range.maximum**0.5 * torch.randn(
        count, *SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    samples = DDIMSampler(denoiser, steps=200, silent=True)(start)
    # 16 means and 16 variances at a false-alarm rate of 1e-4: z = 4.6; 2 % are the sampler's own
    assert (
        float((samples.mean(0) - MEAN).abs().max()) < 4.6 * float(S.max() / count) ** 0.5 + 0.02 * float(S.max()) ** 0.5
    )
    assert float((samples.var(0) / S[0] - 1).abs().max()) < 4.6 * (2 / count) ** 0.5 + 0.05


def test_there_and_back_again_is_the_same_denoiser() -> None:
    model = from_azula(to_denoiser(ENERGY, VPSchedule()), SHAPE, pixels=(0.0, 1.0))
    y = torch.rand(2, *SHAPE, dtype=torch.float64)
    assert torch.allclose(model(y, 0.05), MEAN + S / (S + 0.05) * (y - MEAN), atol=1e-7)


def test_conditions_are_refused() -> None:
    with pytest.raises(TypeError, match="takes no label"):
        to_denoiser(ENERGY)(torch.rand(1, *SHAPE), torch.tensor(0.5), label=3)

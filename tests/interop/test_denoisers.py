"""Other people's denoisers behind ours: on a Gaussian prior every convention must give the same Wiener filter."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from linverse.baselines import METHODS
from linverse.covariance import VarianceRange
from linverse.degradations import Box
from linverse.interop.denoisers import ForeignDenoiser, from_azula, from_diffusers, from_function

SHAPE = (1, 4, 4)
MEAN, PRIOR = 0.3, 0.04  # of the pixels, in [0, 1]
OWN_MEAN, OWN_PRIOR = 2 * MEAN - 1, 4 * PRIOR  # the same in [−1, 1]


def wiener(y: Tensor, variance: float) -> Tensor:
    return MEAN + PRIOR / (PRIOR + variance) * (y - MEAN)


def edm(y: Tensor, sigma: Tensor) -> Tensor:
    share = OWN_PRIOR / (OWN_PRIOR + sigma.square()).reshape(-1, 1, 1, 1)
    return OWN_MEAN + share * (y - OWN_MEAN)


class FakeAzula:
    """Variance preserving: x_t = α_t x + σ_t v, σ_t/α_t growing."""

    @staticmethod
    def schedule(t: Tensor) -> tuple[Tensor, Tensor]:
        alpha = torch.exp(math.log(1e-2) * t**2)
        return alpha, torch.sqrt(1 - alpha**2 + 1e-6)

    def __call__(self, x_t: Tensor, t: Tensor) -> SimpleNamespace:
        alpha, sigma = self.schedule(t)
        return SimpleNamespace(mean=edm(x_t / alpha, (sigma / alpha).reshape(1)))


ALPHAS = torch.linspace(0.9999, 0.95, 4000, dtype=torch.float64).cumprod(0).clamp_min(1e-4)[:300]


def diffusers_network(kind: str) -> Any:
    def network(x_t: Tensor, step: Tensor) -> SimpleNamespace:
        alpha = ALPHAS[step].reshape(-1, 1, 1, 1)
        x = edm(x_t / alpha.sqrt(), ((1 - alpha) / alpha).sqrt().flatten())
        noise = (x_t - alpha.sqrt() * x) / (1 - alpha).sqrt()
        velocity = alpha.sqrt() * noise - (1 - alpha).sqrt() * x
        return SimpleNamespace(sample={"epsilon": noise, "v_prediction": velocity, "sample": x}[kind])

    return network


def foreign(kind: str) -> ForeignDenoiser:
    if kind == "edm":
        return from_function(edm, SHAPE)
    if kind == "azula":
        return from_azula(FakeAzula(), SHAPE)
    return from_diffusers(diffusers_network(kind), ALPHAS, SHAPE, prediction=kind)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["edm", "azula", "epsilon", "v_prediction", "sample"])
def test_every_convention_gives_the_same_mean(kind: str) -> None:
    model = foreign(kind)
    y = torch.randn(3, *SHAPE, dtype=torch.float64)
    for share in (0.3, 0.5, 0.7):
        variance = model.range.minimum ** (1 - share) * model.range.maximum**share
        # diffusers has discrete steps: its networks are told the nearest one
        tolerance = 1e-9 if kind in ("edm", "azula") else 0.02
        assert float((model(y, variance) - wiener(y, variance)).abs().max()) < tolerance


def test_ranges_are_in_our_pixels() -> None:
    assert from_function(edm, SHAPE, sigma_min=0.002, sigma_max=80).range == VarianceRange(1e-6, 1600.0)
    alpha, sigma = FakeAzula.schedule(torch.tensor(1.0, dtype=torch.float64))
    assert foreign("azula").range.maximum == pytest.approx(float((sigma / alpha / 2) ** 2))


@pytest.mark.parametrize("method", ["dps", "pigdm", "diffpir", "daps", "red-diff"])
def test_baselines_run_on_a_foreign_denoiser_as_on_an_exact_one(method: str) -> None:
    exact = ForeignDenoiser(lambda y, sigma: wiener(y, sigma**2), SHAPE, from_function(edm, SHAPE).range)
    x = torch.full((2, *SHAPE), 0.4, dtype=torch.float64)
    degradation = Box(2, 0.1)
    raw = degradation.measure(x, torch.Generator().manual_seed(0)).raw
    ours, theirs = (
        METHODS[method].solve(model, degradation, raw, torch.Generator().manual_seed(1), steps=8).samples
        for model in (exact, from_function(edm, SHAPE))
    )
    assert torch.allclose(ours, theirs, atol=1e-8)


def test_what_is_no_denoiser_is_refused() -> None:
    with pytest.raises(ValueError, match="black and white, in this order"):
        from_function(edm, SHAPE, pixels=(1.0, -1.0))
    with pytest.raises(ValueError, match=r"prediction is 'noise'; it can be"):
        from_diffusers(diffusers_network("epsilon"), ALPHAS, SHAPE, prediction="noise")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="between 0 and 1"):
        from_diffusers(diffusers_network("epsilon"), [0.5, 0.0], SHAPE)

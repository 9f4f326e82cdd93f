from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from linverse.metrics import rank_statistics
from linverse.rng import keyed_generator
from linverse.sampling import KernelInfo
from linverse.sampling.diagnostics import (
    effective_sample_size,
    r_hat,
    rank_coverage,
    summarise_acceptance,
    uniformity,
)


def normal(*shape: int, key: str = "x") -> torch.Tensor:
    return torch.randn(shape, generator=keyed_generator(key), dtype=torch.float64)


def autoregression(draws: int, chains: int, memory: float) -> torch.Tensor:
    noise = normal(draws, chains, 2, key="ar")
    x = [noise[0]]
    for step in noise[1:]:
        x.append(memory * x[-1] + (1 - memory**2) ** 0.5 * step)
    return torch.stack(x)


def test_effective_sample_size() -> None:
    independent = effective_sample_size(normal(2000, 4, 2))
    assert independent.shape == (2,)
    assert float(independent.min()) == pytest.approx(8000, rel=0.15)
    expected = 8000 * (1 - 0.8) / (1 + 0.8)
    assert float(effective_sample_size(autoregression(2000, 4, 0.8)).mean()) == pytest.approx(expected, rel=0.3)


def test_r_hat_sees_chains_that_disagree() -> None:
    draws = normal(500, 4, 3)
    assert float(r_hat(draws).max()) < 1.02
    draws[:, 0, 1] += 2.0
    assert (r_hat(draws) > 1.1).tolist() == [False, True, False]


def test_r_hat_is_that_of_arviz() -> None:
    from arviz_stats.base import array_stats

    draws = autoregression(31, 6, 0.9).double()  # an odd number: the draw in the middle belongs to neither half
    draws = torch.cat([draws, draws.round(decimals=1), torch.zeros_like(draws[..., :1]), 3 * draws[..., :1]], dim=-1)
    draws[:, :3, -1] *= 20  # differs in its tails alone
    with np.errstate(invalid="ignore"):
        theirs = torch.as_tensor(array_stats.rhat(draws.numpy(), chain_axis=1, draw_axis=0))
    assert theirs.isnan().tolist() == [False] * 4 + [True, False]
    assert torch.allclose(r_hat(draws), theirs, rtol=1e-12, atol=0, equal_nan=True)
    assert r_hat(draws.unflatten(2, (2, 3))).shape == (2, 3)
    assert r_hat(draws[:3]).isnan().all()
    assert r_hat(draws[:, :1]).isnan().all()
    draws[4, 1, 0] = math.nan
    assert r_hat(draws).isnan().tolist() == [True, False, False, False, True, False]


def test_acceptance_summary() -> None:
    acceptance = torch.tensor([[0.2, 0.4], [0.6, 0.8]])
    summary = summarise_acceptance(KernelInfo(acceptance, acceptance > 0.5, acceptance, acceptance))
    assert summary.mean == pytest.approx(0.5)
    assert (summary.lowest_step, summary.lowest_chain, summary.moved) == pytest.approx((0.3, 0.4, 0.5))


def test_ranks() -> None:
    samples = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    assert rank_statistics(samples, torch.tensor([2.5, 0.0])).tolist() == [2, 0]
    tied = rank_statistics(torch.ones(4000, 3), torch.ones(4000), keyed_generator("ties"))
    assert uniformity(tied, 3, bins=4).p_value > 1e-5
    with pytest.raises(ValueError, match="needed are"):
        rank_statistics(torch.ones(4, 3), torch.ones(3))


def test_uniformity_accepts_the_right_law_and_finds_wrong_ones() -> None:
    truth, samples = normal(2000, key="truth"), normal(2000, 63)
    good = uniformity(rank_statistics(samples, truth), 63)
    assert good.p_value > 1e-5
    assert float(good.counts.sum()) == 2000
    assert uniformity(rank_statistics(0.8 * samples, truth), 63).p_value < 1e-5
    assert uniformity(rank_statistics(samples + 0.2, truth), 63).p_value < 1e-5
    with pytest.raises(ValueError, match="do not divide"):
        uniformity(rank_statistics(samples, truth), 63, bins=10)


@pytest.mark.parametrize("central", [True, False])
def test_coverage(central: bool) -> None:
    truth, samples = normal(4000, key="truth"), normal(4000, 99)
    levels = torch.tensor([0.1, 0.5, 0.9])
    good = rank_coverage(samples, truth, levels, central=central)
    torch.testing.assert_close(good.nominal, levels, atol=0.011, rtol=0, check_dtype=False)
    assert float(((good.observed - good.nominal) / good.standard_error).abs().max()) < 4.8
    wrong = rank_coverage(0.7 * samples, truth, levels, central=True)
    assert float(((wrong.observed - wrong.nominal) / wrong.standard_error).min()) < -4.8


def test_highest_density_sets_hold_the_largest_values() -> None:
    samples, levels = normal(100, 99), torch.tensor([0.1, 0.9])
    assert rank_coverage(samples, torch.full((100,), 10.0).double(), levels, central=False).observed.tolist() == [1, 1]
    assert rank_coverage(samples, torch.full((100,), -10.0).double(), levels, central=False).observed.tolist() == [0, 0]

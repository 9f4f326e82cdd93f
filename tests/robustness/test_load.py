"""Under load: many threads on one model give what one gives, and memory does not grow from sampling to sampling."""

from __future__ import annotations

import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import linverse as lv
from robustness.models import saved_model
from small import SHAPE


def answers(energy: lv.Energy, seed: int) -> list[torch.Tensor]:
    """Mean, spread and samples of a measurement in one of three bases."""
    x = torch.rand(1, *SHAPE, generator=torch.Generator().manual_seed(seed))
    degradation = (lv.Box(3, 0.1), lv.GaussianBlur(0.8, 0.1), lv.SuperResolution(4, 0.1))[seed % 3]
    post = lv.Posterior(energy, degradation.measure(x, torch.Generator().manual_seed(seed)), check=False)
    drawn = post.sample(2, path=3, generator=torch.Generator().manual_seed(seed))
    return [post.mean().detach(), post.std().detach(), drawn, post.evidence().detach()]


def test_eight_threads_on_one_model_give_what_one_gives() -> None:
    energy, seeds = lv.load(saved_model()), range(24)
    alone = [answers(energy, seed) for seed in seeds]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda seed: answers(energy, seed), seeds))
    for one, other in zip(alone, together, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.slow
def test_memory_is_flat_over_500_samplings() -> None:
    statistics = Path("/proc/self/statm")
    if not statistics.exists():
        pytest.skip("this system does not tell how much memory a process has")
    page = resource.getpagesize()
    energy = lv.load(saved_model())
    seen = []
    post = lv.Posterior(energy, lv.GaussianBlur(0.8, 0.1).measure(torch.rand(1, *SHAPE)), check=False)
    for seed in range(500):
        post.sample(1, path=2, generator=torch.Generator().manual_seed(seed))
        if seed in (99, 499):
            seen.append(int(statistics.read_text().split()[1]) * page / 1e6)
    assert seen[1] - seen[0] < 30, seen  # MB: 400 samplings that kept their graphs would hold ten times that

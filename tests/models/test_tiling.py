"""Tiles: the same energy and the same derivatives as the whole picture, whatever the tile."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from conftest import COVARIANCES, random_covariance, same_evaluation
from linverse.energy import evaluate
from linverse.models.energies import network_residual
from linverse.models.energies.learned import EnergyConfig, LearnedEnergy
from linverse.models.energies.tiling import tiles
from linverse.rng import keyed_generator
from tiny import BACKBONE, awaken

SIZE = (53, 44)


def picture(count: int = 2) -> Tensor:
    return torch.rand(count, 3, *SIZE, generator=keyed_generator("picture"), dtype=torch.float64)


def energy_for_any_size() -> LearnedEnergy:
    backbone = replace(BACKBONE, style="compact", multipliers=(1, 1), stem=2, middle=1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = EnergyConfig((3, None, None), parameterisation="spectral", backbone=backbone)
        energy = LearnedEnergy(config).double()
    awaken(energy, size=0.1)
    energy.form.base.fit([picture(8)])
    return energy.eval().requires_grad_(False)


@pytest.mark.parametrize("family", [f for f in COVARIANCES if f != "block-dct"])
def test_a_picture_in_tiles_has_the_same_answers(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    energy, y = energy_for_any_size(), picture()
    cov = random_covariance(family, (3, *SIZE), batch=2, shared=True, spread=0.5)
    whole = evaluate(energy, y, cov)
    value = energy(y, cov)
    monkeypatch.setattr(network_residual, "TILED_FROM", 0)
    monkeypatch.setattr(network_residual, "TILE", 16)
    tiled = evaluate(energy, y, cov)
    same_evaluation(tiled, whole, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(tiled.pixel_variance, whole.pixel_variance)
    torch.testing.assert_close(energy(y, cov), value)


def test_a_margin_smaller_than_the_network_s_reach_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    energy, y = energy_for_any_size(), picture()
    cov = random_covariance("spatial", (3, *SIZE), batch=2, shared=True, spread=0.5)
    whole = evaluate(energy, y, cov)
    monkeypatch.setattr(network_residual, "TILED_FROM", 0)
    monkeypatch.setattr(network_residual, "TILE", 16)
    monkeypatch.setattr(network_residual.NetworkResidual, "_margin", 0)
    assert float((evaluate(energy, y, cov).mean - whole.mean).abs().max()) > 1e-6


def test_tiles_cover_every_pixel_once() -> None:
    seen = torch.zeros(SIZE)
    for rows, columns, down, across in tiles(*SIZE, 16, 8):
        seen[rows, columns][down, across] += 1
    assert torch.equal(seen, torch.ones(SIZE))

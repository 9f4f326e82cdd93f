"""The end of a run: what is tested, and at which sizes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

import linverse as lv
from linverse.data.crops import load_crops
from linverse.models.energies.learned import EnergyConfig, LearnedEnergy
from linverse.models.networks.unet import UNetConfig
from linverse.training import finish
from tiny import Pictures, tiny_config

BACKBONE = UNetConfig(
    channels=4, multipliers=(1, 2), blocks=1, embedding=4, stem=2, stem_channels=4, style="compact", middle=1
)


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A finished run on a folder of small pictures, with a silent network."""
    for number, x in enumerate(Pictures(6, (3, 20, 24), seed=1).batch(torch.arange(6))):
        lv.write(tmp_path / f"{number}.png", x)
    monkeypatch.setattr(finish, "SIZES", (8, 16, 32))
    monkeypatch.setattr(finish, "FEWEST", 2)
    model = EnergyConfig((3, None, None), 1e-4, 1e2, parameterisation="spectral", backbone=BACKBONE)
    pictures = load_crops(f"folder:{tmp_path}", cache=tmp_path / "cache")
    config = tiny_config(data=f"folder:{tmp_path}", model=model, crops=(8,), self_test_images=4)
    return SimpleNamespace(
        config=config, train_images=pictures, held_out=Held(lambda rows: pictures.fixed(8, len(rows)))
    )


class Held:
    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return 4


def test_a_model_of_any_size_is_tested_at_every_size_that_its_pictures_have(
    trainer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    energy = LearnedEnergy(trainer.config.model)
    energy.fit(Pictures(64, (3, 16, 16)))
    monkeypatch.setattr(type(trainer.train_images), "held_out", type(trainer.train_images).fixed)
    tests = finish.run_band_tests(cast(Any, trainer), energy)
    assert [test.size for test in tests] == [(8, 8), (16, 16)]  # 32 does not fit into 20×24
    assert [test.floor.images for test in tests] == [4, 2]
    for test in tests:
        assert any("white noise" in band.family for band in test.bands)
        assert all(f"{test.size[0]}×{test.size[1]}" in what for what, _, _ in test.rows())


def test_a_model_of_one_size_is_tested_at_that_size(trainer: Any) -> None:
    trainer.config = tiny_config(model=EnergyConfig((3, 8, 8), 1e-4, 1e2, parameterisation="spectral"))
    assert [tuple(x.shape) for x in finish._held_out_sizes(cast(Any, trainer), 3)] == [(3, 3, 8, 8)]

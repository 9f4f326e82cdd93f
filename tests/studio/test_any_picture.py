"""Visitors' own pictures: colour of any size through every tab."""

from __future__ import annotations

import pytest
import torch

import linverse as lv
from linverse.models.energies.learned import LearnedEnergy
from linverse.question import ask
from linverse.studio import markup, work
from linverse.studio.kinds import KINDS, damage_of
from linverse.studio.models import StudioModel
from tiny import Pictures, any_size_energy

SIZE = (24, 32)


@pytest.fixture(scope="module")
def energy() -> LearnedEnergy:
    return any_size_energy()


@pytest.fixture(scope="module")
def model(energy: LearnedEnergy) -> StudioModel:
    return StudioModel("tiny", energy, pace=1e-7)


@pytest.fixture(scope="module")
def photo() -> lv.Picture:
    return lv.Picture(Pictures(1, (3, *SIZE), seed=3).batch(torch.arange(1)), "photo.png", depth=8)


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_kind_restores_a_colour_picture_in_its_own_size(model: StudioModel, photo: lv.Picture, kind: str) -> None:
    what = KINDS[kind]
    mask = torch.ones(1, 1, *SIZE, dtype=torch.bool)
    mask[..., 4:9, 4:9] = False
    damage = damage_of(kind, what.default, what.sigma, simulate=not what.auto, mask=mask)
    question = ask(model.energy, photo, damage, tell=lambda text: None)
    *_, (result, _) = work.restored(model, question, samples=1, steps=2, seed=0)
    assert result.mean.shape == (3, *SIZE)
    assert len(result.samples) == 1
    assert markup.picture(result.mean).shape[2] == 3


def test_blind_and_film_take_a_colour_picture(model: StudioModel, photo: lv.Picture) -> None:
    found = work.blind(model, photo, "noise", truth={"sigma": 0.15}).search
    low, high = found.interval(found.axes[0])
    assert 0.1 < low < high < 0.2
    question = ask(model.energy, photo, damage_of("noise of a known level", 0, 0.1, simulate=True))
    assert work.filmed(model, question, "geometric", steps=8, seed=0).images.shape == (9, 3, *SIZE)

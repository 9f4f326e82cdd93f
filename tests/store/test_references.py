"""Held-out images that travel with a model: which ones are kept, that every bit comes back, and that a foreign file is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from linverse.data.digits import load_digits
from linverse.files.saving import MANIFEST, REFERENCE, ModelFileError
from linverse.models.energies.learned import LearnedEnergy
from linverse.store import hub
from linverse.store.references import FEWEST, MOST_BYTES, References, references_of
from linverse.training.finish import finish
from linverse.training.loop import Trainer
from small import write_manifest
from tiny import Pictures, pretend_hub, tiny_config, tiny_energy

SHAPE = (1, 8, 8)


def pictures(count: int, shape: tuple[int, int, int] = SHAPE) -> Tensor:
    """Image i is grey level i, of 255."""
    return (torch.arange(count) % 256).reshape(-1, 1, 1, 1).expand(count, *shape) / 255


def kept(count: int, wanted: int, shape: tuple[int, int, int] = SHAPE) -> References | None:
    return References.last_of(count, lambda numbers: pictures(count, shape)[numbers], wanted)


@pytest.fixture
def energy() -> LearnedEnergy:
    model = tiny_energy(SHAPE).float()
    references = kept(60, 40)
    assert references is not None
    model.attach(REFERENCE, references.encode())
    return model


@pytest.fixture
def saved(energy: LearnedEnergy, tmp_path: Path) -> Path:
    energy.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


# --- which ones --------------------------------------------------------------------------------------------------------------


def test_the_last_images_are_kept() -> None:
    references = kept(100, 30)
    assert references is not None
    assert references.pixels[:, 0, 0, 0].tolist() == list(range(70, 100))
    assert torch.equal(references.images(), pictures(100)[70:])


@pytest.mark.parametrize(
    ("count", "wanted", "number"), [(100, 128, 100), (100, 0, 0), (19, 128, 0), (128, 19, 0), (20, 20, 20)]
)
def test_too_few_are_none(count: int, wanted: int, number: int) -> None:
    references = kept(count, wanted)
    assert (0 if references is None else len(references)) == number


def test_the_file_stays_small(tmp_path: Path) -> None:
    """3×64×64 images: 162 fit; of 3×192×192 fewer than 20 would, and none are kept."""
    references = kept(300, 300, (3, 64, 64))
    assert references is not None
    assert FEWEST < len(references) < 300
    assert int(references.pixels[-1, 0, 0, 0]) == 299 % 256
    model = tiny_energy(SHAPE)
    model.attach(REFERENCE, references.encode())
    model.save_pretrained(tmp_path)
    assert 0.95 * MOST_BYTES < (tmp_path / REFERENCE).stat().st_size < MOST_BYTES
    assert kept(128, 128, (3, 192, 192)) is None


def test_data_of_other_bytes_come_back_bit_for_bit() -> None:
    digits = load_digits("test")
    references = References.last_of(len(digits), digits.batch, 50, digits.white)
    assert references is not None
    assert torch.equal(references.pixels, digits.images[-50:])
    assert torch.equal(references.images(), digits.batch(torch.arange(len(digits) - 50, len(digits))))


# --- on disk -----------------------------------------------------------------------------------------------------------------


def test_they_travel_with_the_weights(energy: LearnedEnergy, saved: Path, tmp_path: Path) -> None:
    back = hub.load(saved)
    found = references_of(back)
    assert found is not None
    assert torch.equal(found.images(), pictures(60)[20:])
    assert back.attachments[REFERENCE] == energy.attachments[REFERENCE]
    back.save_pretrained(tmp_path / "again")
    assert (tmp_path / "again" / REFERENCE).read_bytes() == (saved / REFERENCE).read_bytes()
    assert set(json.loads((saved / MANIFEST).read_text())["files"]) >= {REFERENCE}


def test_a_model_without_them_works_as_before(tmp_path: Path) -> None:
    tiny_energy(SHAPE).save_pretrained(tmp_path)
    assert not (tmp_path / REFERENCE).exists()
    assert references_of(hub.load(tmp_path)) is None


def test_those_of_another_model_do_not_stay(saved: Path) -> None:
    tiny_energy(SHAPE).save_pretrained(saved)
    assert not (saved / REFERENCE).exists()
    assert references_of(hub.load(saved)) is None


def test_they_are_pushed_to_the_hub(energy: LearnedEnergy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_hub(monkeypatch, tmp_path / "pushed")
    energy.push_to_hub("someone/some-model")
    assert references_of(hub.load(tmp_path / "pushed")) is not None


def test_a_file_that_was_changed_is_refused(saved: Path) -> None:
    content = bytearray((saved / REFERENCE).read_bytes())
    content[-3] ^= 1
    (saved / REFERENCE).write_bytes(bytes(content))
    with pytest.raises(ModelFileError, match=f"{REFERENCE} is not the file that was saved"):
        hub.load(saved)


def test_a_file_that_is_missing_or_unknown_is_refused(saved: Path, tmp_path: Path) -> None:
    tiny_energy(SHAPE).save_pretrained(tmp_path / "without")
    shutil.copy(saved / REFERENCE, tmp_path / "without")
    with pytest.raises(ModelFileError, match=f"says nothing of {REFERENCE}"):
        hub.load(tmp_path / "without")
    (saved / REFERENCE).unlink()
    with pytest.raises(ModelFileError, match=f"has no {REFERENCE}, which was saved with the model"):
        hub.load(saved)


@pytest.mark.parametrize(
    ("tensors", "white"),
    [
        ({"images": torch.zeros(3, 1, 8, 8)}, {"white": "255"}),
        ({"images": torch.zeros(3, 8, 8).byte()}, {"white": "255"}),
        ({"images": torch.zeros(3, 1, 8, 8).byte()}, {"white": "0"}),
        ({"images": torch.zeros(3, 1, 8, 8).byte()}, None),
        ({"other": torch.zeros(3, 1, 8, 8).byte()}, {"white": "255"}),
    ],
    ids=["floats", "three axes", "no white", "no word of white", "another name"],
)
def test_what_is_no_reference_is_refused(saved: Path, tensors: dict[str, Tensor], white: dict[str, str] | None) -> None:
    save_file(tensors, saved / REFERENCE, metadata=white)
    write_manifest(saved)
    with pytest.raises(ModelFileError, match=f"{REFERENCE} holds no reference images"):
        hub.load(saved)


# --- training ----------------------------------------------------------------------------------------------------------------


def trained(folder: Path, **changes: int) -> Trainer:
    """A run of no steps."""
    data = Pictures(count=60)
    folder.mkdir(exist_ok=True)
    config = tiny_config(steps=0, **changes)
    return Trainer(config, data, replace(data, seed=1), folder)


def test_a_finished_run_keeps_the_last_held_out_images(tmp_path: Path) -> None:
    trainer = trained(tmp_path, reference_images=25)
    card = finish(trainer, tmp_path / "model", "tiny")
    assert card.reference_images == 25
    kept_images = references_of(hub.load(tmp_path))
    assert kept_images is not None
    expected = trainer.held_out.batch(torch.arange(35, 60))
    torch.testing.assert_close(kept_images.images(), expected, rtol=0, atol=0.5 / 255 + 1e-6)


def test_a_run_may_go_on_with_another_number_of_them(tmp_path: Path) -> None:
    """A run that was begun before there were any, too: its configuration does not name them."""
    trainer = trained(tmp_path, reference_images=0)
    assert finish(trainer, tmp_path / "model", "tiny").reference_images == 0
    assert references_of(hub.load(tmp_path)) is None
    older = json.loads(trainer.config.to_json())
    del older["reference_images"]
    assert type(trainer.config).from_dict(older).reference_images == 128
    trainer.save()
    again = trained(tmp_path, reference_images=30)
    assert finish(again, tmp_path / "model", "tiny").reference_images == 30
    assert references_of(hub.load(tmp_path)) is not None

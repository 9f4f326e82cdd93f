"""A finished run becomes a bundled model: everything is there, and nothing half-made or nameless gets in."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from linverse.cli import bundle as command
from linverse.cli import main
from linverse.files.saving import CARD, CONFIG, LICENCE, MANIFEST, PAGE, WEIGHTS, ModelFileError
from linverse.models.energies.learned import LearnedEnergy
from linverse.store import hub
from linverse.store.bundle import bundle
from linverse.store.card import Card, card_of
from tiny import tiny_energy


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """What a finished run leaves."""
    energy = tiny_energy((1, 8, 8)).float()
    Card("preset", data="mnist", title="digits", licence="theirs", tests=(("a", "1", "b"),)).attach_to(energy)
    energy.save_pretrained(tmp_path / "run" / "model")
    return tmp_path / "run"


def test_a_run_is_bundled_with_card_licence_and_manifest(run: Path, tmp_path: Path) -> None:
    root = tmp_path / "weights"
    folder = bundle(run, "digits-2", root)
    assert {path.name for path in folder.iterdir()} == {WEIGHTS, CONFIG, MANIFEST, CARD, PAGE, LICENCE}
    assert [path.name for path in root.iterdir()] == ["digits-2"]
    assert hub.bundled(root) == ["digits-2"]
    energy = LearnedEnergy.from_folder(hub.find_model("digits-2", root))
    before = LearnedEnergy.from_folder(run / "model").state_dict()
    assert all(torch.equal(value, before[key]) for key, value in energy.state_dict().items())
    card = card_of(energy)
    assert card is not None
    assert card.name == "digits-2"
    assert 'lv.load("digits-2")' in (folder / PAGE).read_text()
    assert "digits (theirs)" in (folder / LICENCE).read_text()


def test_a_name_is_taken_once_unless_it_is_to_be_replaced(run: Path, tmp_path: Path) -> None:
    root = tmp_path / "weights"
    bundle(run, "small", root)
    with pytest.raises(ValueError, match="already; --replace"):
        bundle(run, "small", root)
    bundle(run, "small", root, replace=True)
    assert hub.bundled(root) == ["small"]


@pytest.mark.parametrize("name", ["", "../up", "Two Words", ".hidden", "a/b"])
def test_a_name_that_is_no_name_is_refused(run: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="small letters"):
        bundle(run, name, tmp_path / "weights")


def test_what_has_no_card_or_does_not_load_is_refused(run: Path, tmp_path: Path) -> None:
    tiny_energy((1, 8, 8)).save_pretrained(tmp_path / "bare")
    with pytest.raises(ModelFileError, match="has no card"):
        bundle(tmp_path / "bare", "small", tmp_path / "weights")
    (run / "model" / WEIGHTS).write_bytes(b"")
    with pytest.raises(ModelFileError, match="cut short"):
        bundle(run, "small", tmp_path / "weights")
    assert hub.bundled(tmp_path / "weights") == []


def test_the_command(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "weights"
    monkeypatch.setattr(command, "bundle", lambda run, name, replace: bundle(run, name, root, replace=replace))
    main(["bundle", str(run), "small"])
    assert "bundled small" in capsys.readouterr().out
    assert hub.bundled(root) == ["small"]

"""Cards: what is written comes back, and saving, loading and pushing keep it."""

from __future__ import annotations

from pathlib import Path

import pytest

from linverse.files.saving import CARD, PAGE, ModelFileError
from linverse.store import hub
from linverse.store.card import Card, card_of
from tiny import pretend_hub, tiny_energy

WRITTEN = Card(
    "small",
    data="mnist",
    parameters=7,
    held_out={"dsm": 0.5},
    tests=(("a", "1", "b"),),
    reference_images=0,
    limits="is small",
    credits=("Zoë (CC-BY): a, b",),
)


def test_a_card_comes_back_and_what_it_does_not_say_is_not_written() -> None:
    from linverse.files import json_bytes

    content = json_bytes(WRITTEN.to_dict())
    assert Card.decode(content) == WRITTEN
    assert b"epochs" not in content
    assert "- Zoë (CC-BY): a, b" in WRITTEN.page()
    assert b'"reference_images": 0' in content


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"name": "a", "colour": 1}', b'{"name": "a", "tests": [[1]]}']
)
def test_what_is_no_card_is_refused(content: bytes) -> None:
    with pytest.raises(ModelFileError, match=r"card\.json holds no card"):
        Card.decode(content)


def test_a_card_travels_with_the_model_to_a_folder_and_to_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    energy = tiny_energy((1, 8, 8))
    WRITTEN.attach_to(energy)
    energy.save_pretrained(tmp_path / "once")
    pretend_hub(monkeypatch, tmp_path / "pushed")
    again = hub.load(tmp_path / "once")
    again.push_to_hub("someone/small")
    assert card_of(hub.load(tmp_path / "pushed")) == WRITTEN
    assert (tmp_path / "pushed" / PAGE).read_text() == WRITTEN.page()


def test_a_model_without_a_card_keeps_none_of_another_model(tmp_path: Path) -> None:
    energy = tiny_energy((1, 8, 8))
    WRITTEN.attach_to(energy)
    energy.save_pretrained(tmp_path)
    plain = tiny_energy((1, 8, 8))
    plain.save_pretrained(tmp_path)
    assert not (tmp_path / CARD).exists()
    assert card_of(hub.load(tmp_path)) is None
    assert "# small" not in (tmp_path / PAGE).read_text()

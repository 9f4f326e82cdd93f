"""The page's callbacks without a browser: they turn what gradio hands in into questions, and answers into what it shows."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import linverse as lv

gr = pytest.importorskip("gradio", reason="the extra `studio` (gradio) is not installed")

from linverse.files.saving import MANIFEST  # noqa: E402
from linverse.store.choice import main_models  # noqa: E402
from linverse.studio import callbacks  # noqa: E402
from linverse.studio import page as pages  # noqa: E402
from linverse.studio.kinds import PAINTED  # noqa: E402
from linverse.studio.models import Models  # noqa: E402

SPACE = Path(__file__).parents[2] / "spaces" / "app.py"


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    return callbacks.Studio(Models(["mnist", "fashion-mnist"]), tmp_path_factory.mktemp("outbox"))


def visitor(name: str = "somebody"):
    return SimpleNamespace(session_hash=name)


def painted() -> dict[str, object]:
    """What the editor hands in after a stroke: a layer as large as the enlarged picture."""
    layer = np.zeros((336, 336, 4), dtype=np.uint8)
    layer[120:168, 120:168] = 255
    return {"background": None, "layers": [layer], "composite": None}


def answers(studio, name="somebody", samples=1):
    picture = studio.take_example("mnist 2", "mnist")[0]
    bar = lambda done, desc="": None  # noqa: E731
    asked = ("mnist", picture, PAINTED, 0, 0.01, callbacks.MANNERS[0], painted(), 0, samples, 2)
    return list(studio.restore(*asked, visitor(name), bar))


def test_restore_streams_and_packs(studio) -> None:
    seen = answers(studio)
    assert [one[4].count("<img") for one in seen] == [0, 0, 1, 1]  # samples
    assert all("<img" in str(one[3]) for one in seen)  # the error map stays in sight
    question = studio.visitors.answer("somebody").question
    assert int((~question.degradation.mask).sum()) == 16  # 48 pixels of the screen are 4 of the picture
    path = Path(studio.pack(visitor()))
    assert path.is_file()
    assert path.is_relative_to(studio.visitors.folder)
    assert "lv.Inpainting" in seen[-1][5]
    studio.leave(visitor())
    assert list(studio.visitors.folder.iterdir()) == []
    assert "somebody" not in studio.visitors.answers


def test_an_earlier_zip_goes_when_the_next_one_comes_but_not_that_of_others(studio) -> None:
    first, other, again = (Path(studio.pack(visitor(name))) for name in ("a", "b", "a") if answers(studio, name, 0))
    assert (first.exists(), other.exists(), again.exists()) == (False, True, True)
    for name in ("a", "b"):
        studio.leave(visitor(name))


def test_a_click_names_the_pixel_below_it(studio) -> None:
    answers(studio, samples=0)
    shown, row, column = studio.click(SimpleNamespace(index=[125, 250]), visitor())
    assert (row, column) == (20, 10)  # 12 pixels of the screen for each
    assert 'alt="row 20, column 10' in shown
    with pytest.raises(gr.Error, match="press Restore"):
        studio.click(SimpleNamespace(index=[125, 250]), visitor("a stranger"))


def test_errors_are_sentences(studio, tmp_path) -> None:
    asked = (PAINTED, 0, 0.01, callbacks.MANNERS[0], None, 0, 1, 2, visitor(), None)
    with pytest.raises(gr.Error, match="there is no picture yet"):
        next(studio.restore("mnist", None, *asked))
    with pytest.raises(gr.Error, match="there is no model '/etc' here"):
        next(studio.restore("/etc", None, *asked))
    picture = studio.take_example("mnist 1", "mnist")[0]
    with pytest.raises(gr.Error, match="noise is empty"):
        next(studio.restore("mnist", picture, PAINTED, 0, None, *asked[3:]))
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG nothing")
    with pytest.raises(gr.Error, match="this picture cannot be read") as caught:
        studio.take(str(broken), "mnist")
    assert str(tmp_path) not in str(caught.value)
    assert not broken.exists()
    with pytest.raises(gr.Error, match="patches are numbered"):
        studio.board(picture, "99", "mnist")


def test_stop_while_it_waits_keeps_it_from_beginning(studio) -> None:
    studio.press(visitor("hasty"))
    studio.stop(visitor("hasty"))
    with pytest.raises(gr.Error, match="stopped before there was an answer"):
        answers(studio, "hasty")
    assert answers(studio, "hasty", samples=0)  # the next one begins


def test_patches_are_clicked_one_after_the_other(studio) -> None:
    picture = studio.take_example("mnist 1", "mnist")[0]
    order = studio.add_patch(picture, "", "mnist", SimpleNamespace(index=[100, 100]))
    assert order == "5"
    assert studio.add_patch(picture, order, "mnist", SimpleNamespace(index=[300, 10])) == "5, 3"
    assert studio.add_patch(picture, "5, 3", "mnist", SimpleNamespace(index=[100, 100])) == "5, 3"


def test_blind_follows_picture_and_brush_only_while_it_is_looked_at(studio) -> None:
    picture = studio.take_example("mnist 1", "mnist")[0]
    rest = ("mnist", picture, painted(), callbacks.MANNERS[0], "noise", 0.2, 0, 0, visitor(), lambda *a, **k: None)
    assert studio.blind(*rest, True, False) == studio.blind(*rest, False, True) == (gr.skip(), gr.skip())
    assert studio.blind(rest[0], None, *rest[2:], True, True) == (gr.skip(), gr.skip())
    drawn, words = studio.blind(*rest, True, True)
    assert "<img" in drawn
    assert "sigma = 0." in words


def test_only_a_simulation_asks_how_strong_it_shall_be(studio) -> None:
    for manner, asked in ((callbacks.MANNERS[0], True), (callbacks.MANNERS[1], False)):
        first, second = studio.parameters("line-blur", manner)
        assert (first["visible"], second["visible"]) == (asked, asked)
    assert studio.parameters("noise", callbacks.MANNERS[0])[1]["visible"] is False


def test_another_model_brings_its_card_and_its_examples(studio) -> None:
    digit = studio.take_example("mnist 2", "mnist")[0]
    examples, card, picture, _, words = studio.choose_model("fashion-mnist", digit, "mnist 2")
    assert "fashion-mnist 1" in examples["choices"]
    assert card.lstrip().startswith("# fashion-mnist")
    assert (examples["value"], picture.name) == ("fashion-mnist 1", "fashion-mnist-1.png")
    assert "fashion-mnist-1.png: 28×28, grey" in words


def test_another_model_takes_the_picture_that_was_uploaded(studio) -> None:
    mine = lv.Picture(torch.rand(1, 1, 28, 28), "mine.png", depth=8)
    examples, _, picture, _, words = studio.choose_model("fashion-mnist", mine)
    assert examples["value"] is None
    assert picture is mine
    assert "mine.png" in words


def test_photographs_are_offered_first_as_soon_as_they_are_bundled(tmp_path) -> None:
    for name in ("mnist", "photographs", "photographs-grey", "mnist-classifier"):
        (tmp_path / name).mkdir()
        (tmp_path / name / MANIFEST).write_text("{}")
    names = main_models(tmp_path)
    assert names == ["photographs", "photographs-grey", "mnist"]
    grey = lv.Picture(torch.zeros(1, 1, 9, 9), "grey.png")
    assert Models(names).fitting("photographs", grey) == "photographs-grey"
    assert Models(names).fitting("photographs-grey", grey.colour()) == "photographs"
    assert Models(names).fitting("mnist", grey.colour()) == "mnist"
    assert Models(["photographs"]).fitting("photographs", grey) == "photographs"


def test_a_kind_shows_its_own_option(studio) -> None:
    strength, sigma, _ = studio.choose("Gaussian blur")
    assert (strength["visible"], sigma["value"]) == (True, 0.01)
    assert "width of the blur" in strength["label"]
    strength, sigma, manner = studio.choose("noise, find its level (auto)")
    assert (strength["visible"], sigma["visible"], manner) == (False, False, callbacks.MANNERS[1])


def test_who_paints_says_that_something_is_missing(studio) -> None:
    assert studio.paint(painted(), "Gaussian blur") == PAINTED
    assert studio.paint({"layers": []}, "Gaussian blur") == gr.skip()
    assert studio.paint(painted(), PAINTED) == gr.skip()


def test_an_uploaded_file_is_read_by_linverse_with_all_its_bits(studio, tmp_path) -> None:
    deep = tmp_path / "deep.png"
    lv.write(deep, lv.Picture(torch.rand(1, 1, 28, 28), "deep.png", depth=16))
    path = pages.upload_of().preprocess(SimpleNamespace(path=str(deep)))
    assert studio.take(path, "mnist")[0].depth == 16


def test_the_page_fetches_no_fonts_and_reports_to_nobody(studio, tmp_path) -> None:
    built = pages.build(studio.models, tmp_path)
    assert built.analytics_enabled is False
    assert built._queue.max_size == pages.QUEUE
    assert not re.search("https?://", str(pages.theme()._stylesheets))


def test_a_space_serves_the_same_page(monkeypatch) -> None:
    asked: dict[str, object] = {}
    monkeypatch.setenv("LINVERSE_MODEL", "mnist")
    monkeypatch.setattr(pages, "launch", lambda models, **where: asked.update(first=models.names[0], **where))
    runpy.run_path(str(SPACE), run_name="__main__")
    assert asked == {"first": "mnist", "host": "0.0.0.0", "port": 7860}

"""docs/paper.md is what the records in results/ give, to the letter."""

from __future__ import annotations

from pathlib import Path

from linverse.experiments.paper import ITEMS
from linverse.report.paper import render_page

ROOT = Path(__file__).parents[2]


def test_the_page_is_that_of_the_records() -> None:
    assert (ROOT / "docs" / "paper.md").read_text() == render_page(ROOT / "results", "../results")


def test_every_picture_of_the_page_is_there() -> None:
    text = (ROOT / "docs" / "paper.md").read_text()
    for item in ITEMS:
        if f"](../results/{item.name}.png)" in text:
            assert (ROOT / "results" / f"{item.name}.png").is_file()
            assert (ROOT / "results" / f"{item.name}.json").is_file()

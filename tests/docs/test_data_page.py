"""docs/data.md is right: its example runs, and it names every data set and package count that there is."""

from __future__ import annotations

import re
from pathlib import Path

from linverse.data import Picture, describe
from linverse.data.photograph_sources import SOURCES

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text()


def test_the_example_runs() -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    scope: dict[str, object] = {}
    exec(snippet, scope)
    photo = scope["photo"]
    assert isinstance(photo, Picture)
    assert f"photo  # {photo!r}\n" in snippet


def test_the_tables_name_what_there_is() -> None:
    for entry in describe():
        assert f"`{entry.name}`" in PAGE
    assert len(SOURCES) == 10
    assert "from ten packages" in PAGE

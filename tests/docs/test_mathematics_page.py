"""The page that docstrings cite: every section that is cited is there, and every module that the page names exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "mathematics.md").read_text()


def test_cited_sections_exist() -> None:
    sections = {int(number) for number in re.findall(r"^## (\d+)\. ", PAGE, flags=re.MULTILINE)}
    assert sections == set(range(1, 16))
    cited = {
        (path.name, int(number))
        for path in (ROOT / "src").rglob("*.py")
        for number in re.findall(r"mathematics,? §(\d+)", path.read_text())
    }
    assert cited
    assert {number for _, number in cited} <= sections, cited


def test_named_modules_exist() -> None:
    names = set(re.findall(r"`(linverse(?:\.\w+)+)`", PAGE))
    assert names
    for name in names:
        importlib.import_module(name)

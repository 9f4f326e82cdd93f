"""Every Python block of the site's pages runs, in the order of its page; so do the notebooks and the gallery before a release."""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCKS = re.compile(r"^```python\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
ELSEWHERE = {"data.md", "evaluation.md", "inference.md"}  # tested by files of their own
AT_RELEASE = {
    "index.md",
    "tutorials/training.md",
    "tutorials/comparing-solvers.md",
    "tutorials/any-operator.md",
    "how-to/sampling.md",
}
NEEDS = {"tutorials/deepinv.md": "deepinv"}


def blocks(page: Path) -> list[str]:
    return BLOCKS.findall(page.read_text())


def pages() -> list[object]:
    """All pages with Python in them, the long ones marked."""
    found = []
    for path in sorted(DOCS.rglob("*.md")):
        name = path.relative_to(DOCS).as_posix()
        if blocks(path) and name not in ELSEWHERE:
            found.append(pytest.param(name, marks=[pytest.mark.release] if name in AT_RELEASE else []))
    return found


@pytest.mark.parametrize("name", pages())
def test_the_blocks_of_a_page_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed (make test-all)")
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "page"}
    for number, block in enumerate(blocks(DOCS / name)):
        exec(compile(block, f"{name}, block {number}", "exec"), scope)


def test_the_pages_that_are_named_exist() -> None:
    for name in ELSEWHERE | AT_RELEASE | NEEDS.keys():
        assert blocks(DOCS / name), name


NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


def cells(notebook: Path) -> list[str]:
    return ["".join(c["source"]) for c in json.loads(notebook.read_text())["cells"] if c["cell_type"] == "code"]


@pytest.mark.release
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    scope: dict[str, object] = {"__name__": "notebook"}
    for number, cell in enumerate(cells(notebook)):
        exec(compile(cell, f"{notebook.name}, code cell {number}", "exec"), scope)


def test_there_are_three_notebooks_without_outputs() -> None:
    assert len(NOTEBOOKS) == 3
    for notebook in NOTEBOOKS:
        book = json.loads(notebook.read_text())
        assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
        assert all(not c["outputs"] and c["execution_count"] is None for c in book["cells"] if c["cell_type"] == "code")
        assert all(compile(cell, notebook.name, "exec") for cell in cells(notebook))


@pytest.mark.release
@pytest.mark.parametrize("script", sorted((DOCS / "gallery").glob("*.py")), ids=lambda path: path.stem)
def test_a_picture_of_the_gallery_is_drawn(script: Path, tmp_path: Path) -> None:
    picture = runpy.run_path(str(DOCS / "tools" / "gallery.py"))["picture"](script, tmp_path)
    assert picture.stat().st_size > 5_000

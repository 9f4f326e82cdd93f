"""The site holds everything public, and its checker finds what is broken."""

from __future__ import annotations

import importlib
import json
import re
import runpy
from pathlib import Path

import pytest

import linverse
from linverse.files.saving import hash_weights

TOOLS = Path(__file__).parents[2] / "docs" / "tools"
reference = runpy.run_path(str(TOOLS / "reference.py"))
problems = runpy.run_path(str(TOOLS / "links.py"))["problems"]


def test_every_public_name_is_where_the_reference_says() -> None:
    for module in reference["MODULES"]:
        if not module.startswith("interop."):
            for name, path in reference["public_names"](module).items():
                home, original = path.rsplit(".", 1)
                shown = getattr(importlib.import_module(f"linverse.{module}"), name)
                assert getattr(importlib.import_module(home), original) is shown


def test_the_front_door_and_all_modules_are_there() -> None:
    index = reference["index_page"]()
    assert all(f"| [`lv.{name}`]" in index for name in linverse.__all__)
    packages = {module.split(".")[0] for module in reference["MODULES"]}
    assert {module.split(".")[0] for module in linverse._MODULES} <= packages


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ('<a href="b.html#here">', None),
        ('<a href="c.html">', "leads nowhere"),
        ('<a href="b.html#there">', "an anchor that is not there"),
        ('<script src="https://example.org/x.js"></script>', "loads https://example.org/x.js"),
        ('<a href="https://example.org">', None),
    ],
)
def test_the_checker_finds_broken_links(tmp_path: Path, body: str, complaint: str | None) -> None:
    (tmp_path / "a.html").write_text(body)
    (tmp_path / "b.html").write_text('<p id="here">')
    found = problems(tmp_path)
    assert len(found) == (complaint is not None)
    assert not complaint or complaint in found[0]


def test_search_from_disk_brings_its_own_worker() -> None:
    """The plugin `offline` loads a script from elsewhere unless one of this name is given; `make docs` refuses the former."""
    settings = (TOOLS.parents[1] / "mkdocs.yml").read_text()
    (script,) = re.findall(r"polyfills: \[(.*iframe-worker.*)\]", settings)
    assert "  - offline" in settings
    assert (TOOLS.parent / script).is_file()


results = runpy.run_path(str(TOOLS / "results.py"))


def test_results_are_read_from_their_records_and_old_weights_are_named() -> None:
    page = results["page"]()
    for record in (TOOLS.parents[1] / "results").glob("*.json"):
        found = json.loads(record.read_text())
        assert f"## {found['experiment']}\n" in page
        assert all(f"`{key}`" in page for key in found["metrics"])
    names = [*re.findall(r"!\[[^]]*\]\(([^)]+\.png)\)", page)]
    assert names
    assert set(names) <= results["pictures"]().keys()
    current = results["weights_hash"]("mnist")
    assert current == hash_weights(linverse.load("mnist"))
    assert results["warning"]({"mnist": current, "nobody's": "1"}) == []
    assert "weights of mnist have changed" in results["warning"]({"mnist": "1"})[1]

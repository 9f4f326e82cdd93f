"""The examples in docstrings run, and give what they say."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

from linverse.extras import MissingExtra

SOURCE = Path(__file__).parents[2] / "src"
MODULES = [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((SOURCE / "linverse").rglob("*.py"))
    if re.search(r"^ *>>> ", path.read_text(), flags=re.MULTILINE)
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except MissingExtra as missing:
        pytest.skip(f"{missing} (make test-all)")
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
    assert result.attempted > 0 or name == "linverse.data.crops"  # its example wants data that may not be here


def test_there_are_examples_where_people_look_first() -> None:
    assert {"linverse.posterior", "linverse.restoration", "linverse.store.hub", "linverse.energy"} <= set(MODULES)

"""The snippets of docs/inference.md run, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "inference.md"


def test_the_snippets_run() -> None:
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(snippets) == 6
    names: dict[str, object] = {}
    for snippet in snippets:
        exec(compile(snippet, str(PAGE), "exec"), names)
    assert tuple(names["samples"].shape) == (16, 1, 1, 4, 4)  # type: ignore[attr-defined]
    assert names["found"].count == 128  # type: ignore[attr-defined]
    assert names["places"].shape == (1, 3, 2)  # type: ignore[attr-defined]
    assert names["plan"].shape == (3, 2)  # type: ignore[attr-defined]
    assert float((names["held"].observed - names["held"].nominal).abs().max()) < 0.25  # type: ignore[attr-defined]

"""Docstrings as Markdown: examples (`>>>`), formulas and columns become code blocks instead of quotations and running text."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = r"(?:^>>> .*\n?(?:^(?!\s*$).*\n?)*)+"  # to the next empty line
ASIDE = r"(?:^(?: {4}.*|\S.*\S {2,}\S.*)\n?)+"  # indented, or in columns
BLOCKS = re.compile(f"({EXAMPLE})|({ASIDE})", flags=re.MULTILINE)


def fenced(text: str) -> str:
    """The same text with every example and every run of lines that are indented or in columns between fences."""
    return BLOCKS.sub(lambda found: f"\n```{'pycon' if found[1] else 'text'}\n{found[0].rstrip()}\n```\n\n", text)


class FencedExamples(Extension):
    """Fences the blocks of every docstring that is shown."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)

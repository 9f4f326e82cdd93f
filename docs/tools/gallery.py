"""The gallery: every script of docs/gallery makes one picture, `draw()` → matplotlib's Figure, and its docstring is what is said about it.

Pictures are made when the site is built, into build/gallery, and made again when a script or the weights of a bundled model
have changed.
"""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "docs" / "gallery"
PICTURES = ROOT / "build" / "gallery"
WEIGHTS = ROOT / "src" / "linverse" / "weights"


def scripts() -> list[Path]:
    """In the order of their names."""
    return sorted(SCRIPTS.glob("*.py"))


def picture(script: Path, folder: Path = PICTURES) -> Path:
    """The picture of a script, made now if it is missing or older than the script or any weights."""
    target = folder / f"{script.stem}.png"
    newest = max(path.stat().st_mtime for path in [script, *WEIGHTS.glob("*/*.safetensors")])
    if not target.exists() or target.stat().st_mtime < newest:
        folder.mkdir(parents=True, exist_ok=True)
        runpy.run_path(str(script))["draw"]().savefig(target, dpi=110)
    return target


def page() -> str:
    """All of them, with their code."""
    lines = [
        "# Gallery",
        "",
        "Each picture is made by the code below it, with what comes in the package, when this site is built.",
        "",
    ]
    for script in scripts():
        text = script.read_text()
        title, _, about = (ast.get_docstring(ast.parse(text)) or script.stem).partition("\n")
        code = text.split('"""', 2)[2].strip()
        lines += [f"## {title.rstrip('.')}", about.strip(), "", f"![{title}]({script.stem}.png)", ""]
        lines += [
            '??? example "The code"',
            "    ```python",
            *(f"    {line}" for line in code.splitlines()),
            "    ```",
            "",
        ]
    return "\n".join(lines)

"""Pages that mkdocs makes when it builds the site (a hook): reference, gallery, results, model cards, files of the repository's root."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
import gallery
import reference
import results

ROOT = Path(__file__).parents[2]
WEIGHTS = ROOT / "src" / "linverse" / "weights"


def of_the_root(name: str) -> str:
    """CHANGELOG.md and its like, with links that lead to the pages here."""
    text = (ROOT / name).read_text()
    return re.sub(r"\]\(docs/", "](", text)


def model_cards() -> str:
    """The cards of all bundled models, one after the other; the main ones (those with the fewest words in their names) first."""
    lines = ["# Models that come with it", "", "`linverse info NAME` prints the same card.", ""]
    for card in sorted(WEIGHTS.glob("*/README.md"), key=lambda path: (path.parent.name.count("-"), path.parent.name)):
        text = re.sub(r"\A---\n.*?\n---\n", "", card.read_text(), flags=re.DOTALL)
        lines.append(re.sub(r"^#", "##", text.strip(), flags=re.MULTILINE) + "\n")
    return "\n".join(lines)


def generated() -> dict[str, str]:
    """Path in the site → text."""
    pages = {
        "changelog.md": of_the_root("CHANGELOG.md"),
        "contributing.md": of_the_root("CONTRIBUTING.md"),
        "security.md": of_the_root("SECURITY.md"),
        "models.md": model_cards(),
        "gallery/index.md": gallery.page(),
        "results/index.md": results.page(),
        "reference/index.md": reference.index_page(),
    }
    return pages | {reference.page_of(module): reference.module_page(module) for module in reference.MODULES}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put every module into the navigation."""
    for section in config.nav or []:
        if isinstance(section, dict) and "Reference" in section:
            section["Reference"] = ["reference/index.md", *({m: reference.page_of(m)} for m in reference.MODULES)]
    return config


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add them, and the pictures of the gallery and the results."""
    for path, text in generated().items():
        files.append(File.generated(config, path, content=text))
    for script in gallery.scripts():
        made = gallery.picture(script)
        files.append(File.generated(config, f"gallery/{made.name}", abs_src_path=str(made)))
    for name, path in results.pictures().items():
        files.append(File.generated(config, f"results/{name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Records and pictures of results/ lie beside docs/ in the repository, and below the site's root here."""
    return markdown.replace("](../results/", "](results/")

"""Checks the built site: every link within it leads somewhere, to an anchor that exists, and nothing is loaded from elsewhere.

python docs/tools/links.py build/site
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
ELSEWHERE = ("http:", "https:", "//")


class Page(HTMLParser):
    """What a page points to, what it loads, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        for name in ("id", "name"):
            if anchor := values.get(name):
                self.anchors.add(anchor)
        if tag == "a" and (target := values.get("href")):
            self.links.append(target)
        if tag in LOADS and (target := values.get(LOADS[tag])):
            self.loads.append(target)


def problems(site: Path) -> list[str]:
    """One line for each link that is broken and each thing that is loaded from another site."""
    pages = {path.resolve(): Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        if path.name == "404.html":  # its links begin at the root of wherever the site will be
            continue
        name = path.relative_to(site.resolve())
        found += [f"{name} loads {target}" for target in page.loads if target.startswith(ELSEWHERE)]
        for target in [*page.links, *page.loads]:
            if target.startswith(ELSEWHERE) or urlsplit(target).scheme in ("mailto", "data", "javascript"):
                continue
            parts = urlsplit(target)
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            file = file / "index.html" if file.is_dir() else file
            if not file.exists():
                found.append(f"{name}: {target} leads nowhere")
            elif parts.fragment and file in pages and unquote(parts.fragment) not in pages[file].anchors:
                found.append(f"{name}: {target} names an anchor that is not there")
    return found


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]))
    print("\n".join(wrong) or "all links lead somewhere")
    sys.exit(bool(wrong))

"""Whose picture is this, and what may be done with it: the notes that packages keep, read file by file.

Debian's copyright files and the READMEs of some programs are stanzas with the fields Files, Copyright, License and sometimes
Source; the last stanza whose pattern fits a file's name holds. KDE's wallpapers have a metadata.json. What is bundled with linverse
or shown in its pages must be free of conditions but attribution: CC0, public domain or CC-BY (`may_be_shown`). Training takes any
free licence.
"""

from __future__ import annotations

import fnmatch
import json
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

FIELD = re.compile(r"^(Files|Copyright|License|Licence|Source|Comments?|Upstream-[A-Za-z]+|Format):\s*(.*)$")


@dataclass(frozen=True)
class Credit:
    """Author, licence and, where it is said, the page a picture came from."""

    licence: str
    author: str = ""
    source: str = ""

    @property
    def may_be_shown(self) -> bool:
        """Whether its pixels may be bundled or shown: CC0, public domain or CC-BY (not share-alike)."""
        plain = self.licence.lower()
        return plain.startswith(("cc0", "public domain")) or re.fullmatch(r"cc-by-\d\.\d", plain) is not None


def stanza_credits(text: str) -> list[tuple[list[str], Credit]]:
    """The stanzas of a copyright file or README: patterns of file names and their credit, in order."""
    found = []
    for block in re.split(r"\n\s*\n", text):
        fields = _fields(block)
        licence, files = fields.get("License", ""), fields.get("Files", "").split("\n")
        patterns = [name for line in files for name in line.split()] + _stray_files(block)
        if patterns and licence:
            licence_name = licence.split("\n")[0]
            author = ", ".join(filter(None, map(_person, fields.get("Copyright", "").split("\n"))))
            found.append((patterns, Credit(_licence(licence_name), author, fields.get("Source", "").split("\n")[0])))
    return found


def find_credit(stanzas: list[tuple[list[str], Credit]], name: str) -> Credit | None:
    """The credit of a file: by the last pattern that fits its name; one for all files (*) only where no other does."""
    plain, general = PurePosixPath(name).name, None
    chosen = None
    for patterns, credit in stanzas:
        if any(
            fnmatch.fnmatchcase(plain, PurePosixPath(p).name) for p in patterns if p != "*" and not p.endswith("/*")
        ):
            chosen = credit
        elif "*" in patterns:
            general = credit
    return chosen or general


def metadata_credit(file: Path) -> Credit:
    """KDE's metadata.json of a wallpaper."""
    plugin = json.loads(file.read_text())["KPlugin"]
    authors = ", ".join(author["Name"] for author in plugin.get("Authors", []))
    return Credit(_licence(plugin["License"]), authors)


def _fields(block: str) -> dict[str, str]:
    """Field → its lines; lines that begin with no field's name belong to the one before."""
    fields: dict[str, str] = {}
    current = ""
    for line in block.splitlines():
        match = FIELD.match(line)
        if match:
            current = "License" if match[1] == "Licence" else match[1]
            fields[current] = match[2].strip()
        elif current:
            fields[current] += "\n" + line.strip()
    return fields


def _stray_files(block: str) -> list[str]:
    """READMEs sometimes list pictures without the word Files."""
    return [line.strip() for line in block.splitlines() if re.fullmatch(r"\S+\.(webp|jpe?g|png)", line.strip())]


def _person(text: str) -> str:
    """A name without years, copyright signs and addresses."""
    plain = re.sub(r"<[^>]*>|[©´\"]|\(c\)", "", text, flags=re.IGNORECASE)
    plain = re.sub(r"\b(19|20)\d\d(\s*[-,–]\s*(19|20)\d\d)*\b", "", plain)
    return plain.strip(" ,.")


def _licence(name: str) -> str:
    """One spelling: CC-BY-SA-4.0, CC0-1.0, public domain."""
    plain = name.strip()
    if plain.lower() in ("public domain", "public-domain"):
        return "public domain"
    return re.sub(r"^(CC-BY(?:-SA)?)[ -]v?(\d\.\d)$", r"\1-\2", plain)

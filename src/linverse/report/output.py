"""A command's folder of results: it overwrites what an earlier run of the same command wrote there, and nothing else.

`result.json` lists the files that are its own. It is written before each of them, so that a run that was interrupted at any moment leaves
a folder that the same command will take again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

from torch import Tensor

from linverse.files import make_folder, write_json, write_whole
from linverse.files.png import png_bytes

RECORD = "result.json"


class OutputFolder:
    """The folder `folder` of the command `command`, which is going to write the files `planned` (and maybe more)."""

    def __init__(self, folder: Path, command: str, planned: Iterable[str]) -> None:
        """Refuses, before any work is done, a folder in which somebody else's files are in the way."""
        self.folder, self.command = folder, command
        self.files: list[str] = []
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder} is a file; --out takes a folder")
        self.own = self._earlier_files()
        for name in planned:
            self._check(name)

    def _earlier_files(self) -> list[str]:
        path = self.folder / RECORD
        if not path.exists():
            return []
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            command, files = record["command"], [str(name) for name in record["files"]]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise ValueError(f"{path} exists and linverse did not write it; give another --out") from None
        if command != self.command:
            raise ValueError(f"{self.folder} holds the results of `{command}`; give another --out")
        # a record is only a file, and somebody may have forged it: it may not name what lies outside of its folder
        return [name for name in files if self._inside(name)]

    def _inside(self, name: str) -> bool:
        """Whether a name means a file within the folder, also where a part of it is a link to elsewhere."""
        if "\0" in name or Path(name).is_absolute() or ".." in Path(name).parts or name == RECORD:
            return False
        parent = (
            self.folder / name
        ).parent.resolve()  # a file that is a link itself is replaced or removed, not what it points to
        return parent.is_relative_to(self.folder.resolve())

    def _check(self, name: str) -> None:
        if not self._inside(name):
            raise ValueError(f"{self.folder / name} leads out of the folder {self.folder}: a part of it is a link")
        if (self.folder / name).exists() and name not in (*self.own, *self.files):
            raise ValueError(
                f"{self.folder / name} exists and no earlier `{self.command}` wrote it; give another --out"
            )

    def write(self, name: str, content: bytes) -> Path:
        """Write a file of one's own."""
        self._check(name)
        path = self.folder / name
        if name not in self.files:
            self.files.append(name)
        self._record({"completed": False}, [*self.own, *self.files])
        make_folder(path.parent)
        write_whole(path, content)
        return path

    def write_image(self, name: str, x: Tensor) -> Path:
        """[C, H, W] in [0, 1] as an 8-bit picture."""
        return self.write(name, png_bytes(x))

    def write_array(self, name: str, x: Tensor) -> Path:
        """A tensor as a numpy file, which keeps what eight bits cut off; linverse reads it like a picture."""
        import numpy as np

        buffer = BytesIO()
        np.save(buffer, x.detach().cpu().numpy(), allow_pickle=False)
        return self.write(name, buffer.getvalue())

    def finish(self, record: dict[str, Any]) -> Path:
        """Write result.json, and remove what an earlier run had left of its own."""
        for name in set(self.own) - set(self.files):
            path = self.folder / name
            if path.is_symlink() or path.is_file():
                path.unlink()
        return self._record(record, self.files)

    def _record(self, record: dict[str, Any], files: list[str]) -> Path:
        make_folder(self.folder)
        content = {"command": self.command, **record, "files": sorted(set(files))}
        path = self.folder / RECORD
        write_json(path, content)
        return path

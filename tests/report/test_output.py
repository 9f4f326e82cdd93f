"""A command's folder of results: it overwrites its own files and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from linverse.report.output import RECORD, OutputFolder
from small import record


def test_an_output_folder_guards_what_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine.png").write_text("mine")
    with pytest.raises(ValueError, match=r"mine\.png exists and no earlier"):
        OutputFolder(tmp_path, "linverse test", ["mine.png"])
    out = OutputFolder(tmp_path, "linverse test", ["a.txt"])
    with pytest.raises(ValueError, match=r"mine\.png exists"):
        out.write("mine.png", b"other")
    out.write("a.txt", b"1")
    out.write("parts/b.txt", b"1")
    with pytest.raises(ValueError, match="holds the results of `linverse test`"):
        OutputFolder(tmp_path, "linverse other", [])
    # interrupted here: the same command takes its own files again
    again = OutputFolder(tmp_path, "linverse test", ["a.txt", "parts/b.txt"])
    again.write("a.txt", b"2")
    again.finish({"completed": True})
    assert (tmp_path / "a.txt").read_text() == "2"
    assert not (tmp_path / "parts/b.txt").exists()  # left over from the run before
    assert (tmp_path / "mine.png").read_text() == "mine"
    assert record(tmp_path) == {"command": "linverse test", "completed": True, "files": ["a.txt"]}


def test_a_record_cannot_name_files_outside_of_its_folder(tmp_path: Path) -> None:
    victim = tmp_path / "victim.txt"
    victim.write_text("keep")
    folder = tmp_path / "out"
    folder.mkdir()
    forged = {"command": "linverse test", "files": ["../victim.txt", str(victim)]}
    (folder / RECORD).write_text(json.dumps(forged))
    OutputFolder(folder, "linverse test", []).finish({})
    assert victim.read_text() == "keep"

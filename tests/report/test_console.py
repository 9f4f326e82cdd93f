"""What commands say: notes, warnings, how far they are."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest
from rich.console import Console

from linverse.report import console as module
from linverse.report import console as show
from linverse.report.console import ProgressBars, note, open_picture, plain_warnings


def test_notes_are_printed_as_they_are() -> None:
    console = Console(record=True, width=30)
    with plain_warnings(console):
        note(console, "[bold]a name that is rather long[/bold].png")
        for _ in range(2):
            warnings.warn("said once", stacklevel=1)
    assert console.export_text() == "[bold]a name that is rather long[/bold].png\nnote: said once\n"


def test_nothing_opens_without_a_desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not open_picture(tmp_path / "x.png")
    monkeypatch.setattr(show, "viewer", lambda: sys.executable)
    assert not open_picture(tmp_path / "x.png")  # a desktop, but nobody at this terminal


def test_a_line_now_and_then_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBars(Console(width=200), "[2/2] ", visible=False) as progress:
        progress("batches", 1, 4)
        assert capsys.readouterr().out == ""  # not at once
        progress.last_line -= module.LINE_EVERY + 1
        progress.begun["batches"] -= 19.99
        progress("batches", 2, 4)
        progress("batches", 3, 4)
    assert capsys.readouterr().out == "[2/2] batches: 2/4, 0:00:20 left\n"


def test_bars_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBars(Console(width=80, force_terminal=True)) as progress:
        progress("sampling", 3, 7)
    said = capsys.readouterr().out
    assert "sampling" in said
    assert "3/7" in said

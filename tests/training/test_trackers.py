"""Trackers are told what the log is told; what is unknown or not installed is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from linverse.extras import MissingExtra
from linverse.training.progress import Reporter
from linverse.training.trackers import flattened, open_trackers

tracking = pytest.importorskip("accelerate.tracking", reason="pip install 'linverse[train]'")


class Recorder:
    """A tracker that remembers."""

    requires_logging_directory = False
    told: list[tuple[str, Any]]

    def __init__(self, run: str) -> None:
        type(self).told = [("run", run)]

    def start(self) -> None: ...

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.told.append(("config", values))

    def log(self, values: dict[str, float], step: int) -> None:
        self.told.append((f"step {step}", values))

    def finish(self) -> None:
        self.told.append(("finish", None))


def test_a_tracker_hears_configuration_and_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tracking.LOGGER_TYPE_TO_CLASS, "recorder", Recorder)
    monkeypatch.setattr(tracking, "get_available_trackers", lambda: ["recorder"])
    folder = tmp_path / "my-run"
    with Reporter(folder, 40, 0, True, False, ["recorder"], {"batch": 8, "model": {"kind": "energy"}}) as reporter:
        for step in range(1, 41):
            reporter.step(step, 0.1 * step, {"dsm": 1.0 / step})
        reporter.evaluation(40, 4.0, {"loss": 0.5})
    assert Recorder.told == [
        ("run", "my-run"),
        ("config", {"batch": 8, "model.kind": "energy"}),
        ("step 20", {"train/dsm": 0.05}),
        ("step 40", {"train/dsm": 0.025}),
        ("step 40", {"held out/loss": 0.5}),
        ("finish", None),
    ]


def test_unknown_and_missing_trackers_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "get_available_trackers", lambda: [])
    with pytest.raises(ValueError, match=r"no tracker 'wanda'; accelerate knows .*mlflow.*wandb"):
        open_trackers(["wanda"], tmp_path, {})
    with pytest.raises(MissingExtra, match="pip install wandb"):
        open_trackers(["wandb"], tmp_path, {})
    assert open_trackers([], tmp_path, {}) == []


def test_configurations_are_flat_and_plain() -> None:
    assert flattened({"a": {"b": (1, 2), "c": None}, "d": 0.1}) == {"a.b": "(1, 2)", "a.c": "None", "d": 0.1}

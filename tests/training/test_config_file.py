"""Training runs as files: what is written is read again, what differs from a preset is enough, and mistakes are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from linverse.cli import main
from linverse.training.config import TrainConfig
from linverse.training.config_file import read_config, write_config
from linverse.training.covariances import CentreBox, Component, GaussianBlurs, Mixture
from linverse.training.presets import PRESETS


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("ending", ["yaml", "json"])
def test_every_preset_survives_its_file(preset: str, ending: str, tmp_path: Path) -> None:
    config, path = PRESETS[preset][1], tmp_path / f"run.{ending}"
    write_config(config, path)
    assert read_config(path) == config


def written(path: Path, text: str) -> TrainConfig:
    path.write_text(text)
    return read_config(path)


def test_a_preset_and_what_differs(tmp_path: Path) -> None:
    found = written(
        tmp_path / "mine.yaml",
        """
preset: cifar10
steps: 7
optimiser: {rate: 1e-4}
model: {backbone: {channels: 8}}
covariances:
  path: 0.25
  components:
  - {weight: 0.5, kind: box, smallest: 4, largest: 28}
  - {weight: 0.5, kind: gaussian-blur}
""",
    )
    before = PRESETS["cifar10"][1]
    components = (Component(0.5, CentreBox(4, 28)), Component(0.5, GaussianBlurs()))
    assert found.covariances == Mixture(components, 0.25, before.covariances.isotropic, before.covariances.clamped)
    assert (found.steps, found.optimiser) == (7, replace(before.optimiser, rate=1e-4))
    assert found.model.backbone == replace(before.model.backbone, channels=8)
    assert (
        replace(
            found, steps=before.steps, optimiser=before.optimiser, model=before.model, covariances=before.covariances
        )
        == before
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("preset: cifar11", "no preset 'cifar11'; there are digits"),
        ("preset: digits\nstepps: 3", "there is no stepps here; there are data, model"),
        ("preset: digits\noptimiser: {rates: 3}", "optimiser: there is no rates here"),
        ("preset: digits\noptimiser: 3", "optimiser is a section"),
        ("preset: digits\nsteps: many", "steps is a number; got 'many'"),
        ("preset: digits\noptimiser: {rate: fast}", "rate is a number; got 'fast'"),
        (
            "preset: digits\ncovariances: {components: [{weight: 1, kind: ring}]}",
            "unknown covariance distribution 'ring'",
        ),
        ("data: digits", "lacks 'model'; name a preset"),
        ("- 1\n- 2", "holds no configuration"),
        ("preset: [digits", "cannot be read as a configuration"),
    ],
)
def test_mistakes_are_named(text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=complaint.replace("[", r"\[")):
        written(tmp_path / "wrong.yaml", text)


def test_missing_files_and_other_endings(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--write .*none.yaml. makes one"):
        read_config(tmp_path / "none.yaml")
    with pytest.raises(ValueError, match=r"ends in \.yaml"):
        write_config(PRESETS["digits"][1], tmp_path / "run.txt")


def test_command_writes_reads_and_overrides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.yaml"
    main(["train", "digits", "--steps", "5", "--batch", "4", "--write", str(path)])
    assert read_config(path) == replace(PRESETS["digits"][1], steps=5, batch=4)
    main(["train", str(path), "--batch", "3", "--dry-run"])
    said = capsys.readouterr().out
    assert "5 steps of 3 images" in said
    assert "runs/mine" in said

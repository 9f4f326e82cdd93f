"""`linverse train` as a user meets it: help, dry runs, whole runs, and errors that say what to do."""

from __future__ import annotations

import json
import os
import resource
import signal
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from linverse import __version__
from linverse.cli import COMMANDS, main
from linverse.store import hub
from linverse.training.checkpoint import STATE, read_state
from linverse.training.loop import Trainer
from linverse.training.presets import PRESETS
from tiny import DIGITS_FLAGS

pytestmark = pytest.mark.usefixtures("one_thread")


def train(folder: Path, *options: str, steps: int = 2) -> None:
    main(["train", "digits", "--out", str(folder), *DIGITS_FLAGS, "--no-tensorboard", f"--steps={steps}", *options])


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 1) -> str:
    """What a command that must fail says on stderr."""
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    assert caught.value.code == code
    return " ".join(capsys.readouterr().err.split())


# --- help --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_the_command_says_what_it_can_do(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(arguments)
    said = capsys.readouterr().out
    assert all(name in said for name in COMMANDS)


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--version"])
    assert capsys.readouterr().out == f"linverse {__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_train_lists_its_presets(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(["train", *arguments])
    said = capsys.readouterr().out
    assert all(f"{name} " in said and text in said for name, (text, _) in PRESETS.items())


def test_a_preset_lists_its_options_and_their_values(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["train", "digits", "--help"])
    assert caught.value.code == 0
    said = capsys.readouterr().out
    for option in (
        "--steps",
        "--batch",
        "--seed",
        "--optimiser.rate",
        "--model.backbone.channels",
        "--loss.objective",
        "--out",
        "--dry-run",
    ):
        assert option in said, option
    assert str(PRESETS["digits"][1].steps) in said


def test_what_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no command 'trian'" in refused(capsys, "trian", code=2)
    said = refused(capsys, "train", "digitz")
    assert "linverse train: there is no preset 'digitz'; there are digits, fashion-mnist" in said
    assert "--stepz" in refused(capsys, "train", "digits", "--stepz", "3", code=2)
    assert "invalid choice" in refused(capsys, "train", "digits", "--loss.objective", "triple", code=2)


# --- runs --------------------------------------------------------------------------------------------------------------------------


def test_a_dry_run_says_what_it_would_do_and_leaves_no_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path / "run", "--dry-run", steps=1234)
    said = " ".join(capsys.readouterr().out.split())
    assert "parameters; 1,500 images; 1×8×8 a sample" in said
    assert "1,234 steps of 8 images" in said
    assert "'loss'" in said
    assert not (tmp_path / "run").exists()


def test_a_run_ends_with_a_model_and_the_same_command_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path)
    said = capsys.readouterr().out
    assert "starting" in said
    assert "normalisation error" in said
    assert "nats/pixel" in said
    energy = hub.load(tmp_path)
    assert energy.shape == (1, 8, 8)
    records = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert records[-1]["kind"] == "held out"
    assert records[-1]["step"] == 2
    train(tmp_path, steps=3)
    assert "resuming at step 2" in capsys.readouterr().out
    state = read_state(tmp_path)
    assert state is not None
    assert state.step == 3
    assert json.loads((tmp_path / "config.json").read_text())["steps"] == 3
    assert json.loads((tmp_path / "model" / "card.json").read_text())["steps"] == 3


def test_a_run_can_be_followed_in_tensorboard(tmp_path: Path) -> None:
    main(["train", "digits", "--out", str(tmp_path), *DIGITS_FLAGS, "--steps=1", "--preview-every=1"])
    assert list((tmp_path / "tensorboard").glob("events.out.tfevents.*"))
    assert (tmp_path / "samples" / "step-000001.png").is_file()
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert "self-test" in kinds


def test_ctrl_c_saves_the_step_and_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Trainer.train_step

    def interrupted(self: Trainer) -> dict[str, float]:
        if self.step == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return original(self)

    monkeypatch.setattr(Trainer, "train_step", interrupted)
    with pytest.raises(SystemExit) as caught:
        train(tmp_path, steps=50)
    assert caught.value.code == 130
    assert "stopped at step 2; rerun the same command to go on" in capsys.readouterr().err
    state = read_state(tmp_path)
    assert state is not None
    assert state.step == 2


def test_a_folder_of_colour_pictures_of_any_size(tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    for split, count in (("train", 12), ("test", 4)):
        write_pictures(pictures / split, count)
    options = ("--data", f"folder:{pictures}", "--model.shape", "3", "8", "8", "--flips")
    train(tmp_path / "run", *options)
    assert hub.load(tmp_path / "run").shape == (3, 8, 8)


def write_pictures(folder: Path, count: int, size: tuple[int, int] = (11, 17)) -> None:
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for index in range(count):
        pixels = generator.integers(0, 256, (*size, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.png")


# --- errors that speak ---------------------------------------------------------------------------------------------------------------


def folder_options(tmp_path: Path, pictures: Path) -> list[str]:
    return [
        "train",
        "digits",
        "--out",
        str(tmp_path / "run"),
        *DIGITS_FLAGS,
        "--data",
        f"folder:{pictures}",
        "--steps=1",
    ]


def test_a_missing_folder_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no folder" in refused(capsys, *folder_options(tmp_path, tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    assert "there are no images in" in refused(capsys, *folder_options(tmp_path, tmp_path / "empty"))
    assert not (tmp_path / "run").exists()


def test_an_unreadable_image_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("train", "test"):
        write_pictures(tmp_path / "pictures" / split, 3)
    (tmp_path / "pictures" / "train" / "broken.png").write_bytes(b"no image")
    said = refused(capsys, *folder_options(tmp_path, tmp_path / "pictures"))
    assert "broken.png" in said
    assert "Traceback" not in said


def test_images_that_are_too_small_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("train", "test"):
        write_pictures(tmp_path / "pictures" / split, 3, size=(6, 20))
    said = refused(capsys, *folder_options(tmp_path, tmp_path / "pictures"))
    assert "6×20 is smaller than the size 8×8" in said


def test_an_unknown_data_set_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "train", "digits", "--out", str(tmp_path / "run"), "--data", "digitz")
    assert "digitz" in said
    assert "fashion-mnist" in said  # what there is


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    said = refused(capsys, "train", "digits", "--out", str(tmp_path / "file" / "run"), *DIGITS_FLAGS)
    assert str(tmp_path / "file" / "run") in said


def test_sizes_that_do_not_fit_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "train", "digits", "--out", str(tmp_path), "--model.shape", "1", "9", "8", code=2)
    assert "multiples of" in said
    assert "9×8" in said


def test_a_folder_of_another_run_is_refused_and_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path, steps=1)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    options = [*DIGITS_FLAGS, "--no-tensorboard", "--seed=1"]
    said = refused(capsys, "train", "digits", "--out", str(tmp_path), *options)
    assert "holds a run with another seed; give another --out folder" in said
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_a_full_disk_loses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The kernel refuses files as large as the state; the one before stays, and the run goes on from it later."""
    train(tmp_path, steps=2)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        options = [*DIGITS_FLAGS, "--no-tensorboard", "--steps=4"]
        said = refused(capsys, "train", "digits", "--out", str(tmp_path), *options)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "cannot write the checkpoint" in said
    assert f"Last good one: {tmp_path / STATE}" in said
    train(tmp_path, steps=4)
    assert "resuming at step 2" in capsys.readouterr().out

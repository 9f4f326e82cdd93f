"""What the commands say of pictures that are unlike what a model knows."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import linverse.store.hub
from linverse import cli
from linverse.analytic import GaussianMixture
from linverse.cli import restore
from linverse.data.digits import load_digits
from linverse.data.pictures import read_image
from linverse.degradations import Box, Denoising
from linverse.degradations.tasks import parse_task
from linverse.energy import floor_covariance
from linverse.experiments.demo import exact_digits
from linverse.files.saving import REFERENCE
from linverse.models.energies.learned import LearnedEnergy
from linverse.posterior import Posterior
from linverse.restoration import one_shot
from linverse.rng import keyed_generator
from linverse.store.references import References
from linverse.typicality import compare, measurement_typicality, noisy_energies, reference_images, score_images
from tiny import tiny_energy

SHAPE = (1, 8, 8)


class Digits(GaussianMixture):
    """The exact energy of digits, which carries its held-out images but for the first twenty."""

    def __init__(self) -> None:
        plain = exact_digits()
        super().__init__(plain.log_weights.exp(), plain.means, plain.covariances, plain.shape, plain.range)

        digits = load_digits("test")
        self.attachments = {REFERENCE: References(digits.images[20:], digits.white).encode()}


def digit(number: int = 0) -> Tensor:
    return load_digits("test").batch([number])


def foreign() -> Tensor:
    """A chessboard: in range, and no digit."""
    return ((torch.arange(8)[:, None] + torch.arange(8)) % 2).float().reshape(1, *SHAPE)


def save(path: Path, x: Tensor) -> Path:
    Image.fromarray((x.reshape(8, 8) * 255).round().byte().numpy()).save(path)
    return path


def run(*arguments: object) -> None:
    cli.main([str(argument) for argument in arguments])


def record(folder: str) -> dict[str, Any]:
    return json.loads(Path(folder, "result.json").read_text())


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    save(tmp_path / "digit.png", digit())
    save(tmp_path / "chess.png", foreign())
    return tmp_path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A learned energy of a few hundred weights, with references."""
    energy = tiny_energy(SHAPE, bases=("spatial", "fourier", "block-dct-4")).float()
    digits = load_digits("test")
    references = References.last_of(len(digits), digits.batch, 40, digits.white)
    assert references is not None
    energy.attach(REFERENCE, references.encode())
    energy.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


# --- restore -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["denoise:sigma=0.1", "box:sigma=0.1", "gauss:sigma=0.1", "superres:sigma=0.05"])
def test_a_foreign_picture_is_doubted_and_digits_are_not(task: str) -> None:
    energy, degradation = Digits(), parse_task(task, (8, 8))
    said = []
    for number in range(8):
        result = one_shot(Posterior(energy, degradation.measure(digit(number), keyed_generator("noise", number))))
        said.append(result.doubts())
    # 2 % of typical pictures are called unusual: four of eight in one run of 90 000
    assert sum(bool(doubts) for doubts in said) < 4
    strange = one_shot(Posterior(energy, degradation.measure(foreign(), keyed_generator("noise"))))
    if task.startswith("superres"):  # the means of a chessboard's blocks are all ½: nothing is left to tell it by
        assert strange.typicality is not None
        return
    assert "unlike what the model knows" in strange.doubts()[0]
    assert strange.record()["typicality"]["unusual"]


def test_a_model_without_references_says_nothing() -> None:
    result = one_shot(Posterior(exact_digits(), Box(4, 0.1).measure(foreign())))
    assert result.typicality is None
    assert not {"typicality", "calibration"} & set(result.record())


def test_noise_that_the_model_does_not_know_is_doubted() -> None:
    """Error bars of a prior that is too sure are off wherever the data leave it a say."""
    sure = Digits()
    sure.covariances = 0.02 * sure.covariances
    result = one_shot(Posterior(sure, Denoising(0.3).measure(digit(), keyed_generator("noise")), check=False))
    assert any("not calibrated for noise of this shape" in text for text in result.doubts())
    calm = one_shot(Posterior(Digits(), Denoising(0.3).measure(digit(), keyed_generator("noise"))))
    assert calm.doubts() == []
    assert calm.record()["calibration"]["slope"] == pytest.approx(1, abs=0.3)


def test_restore_prints_and_records_the_verdict(inside: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("restore", "digit.png", "--task", "box", "--simulate", "--samples", 0, "--model", model)
    said, found = capsys.readouterr().out, record("digit-restored")["typicality"]
    raw = torch.from_numpy(np.load(inside / "digit-restored/measurement.npy"))[None]
    energy = LearnedEnergy.from_pretrained(model)
    reference = reference_images(energy)
    assert reference is not None
    measurement = parse_task("box", (8, 8)).from_raw(raw)
    direct = measurement_typicality(energy, measurement, reference, keyed_generator("typicality"))
    assert found == direct.records()[0]
    assert found["reference_images"] == 40
    assert f"against 40 held-out images {found['verdict']}" in " ".join(said.split())
    assert ("note: this picture is" in said) == found["unusual"]


# --- score -------------------------------------------------------------------------------------------------------------------


def test_scores_tell_the_typical_from_the_foreign(
    inside: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    energy = Digits()
    monkeypatch.setattr(linverse.store.hub, "load", lambda name, device="cpu": energy)
    run("score", "digit.png", "chess.png", "--model", "any")
    said = capsys.readouterr().out
    rows = {row["image"]: row for row in csv.DictReader((inside / "scores/scores.csv").open())}
    assert rows["chess.png"]["unusual"] == "True"
    assert rows["digit.png"]["unusual"] == "False"
    assert "unlike what the model knows" in said
    assert "typical of what the model knows (p = " in said
    found = record("scores")
    reference = reference_images(energy)
    assert reference is not None
    assert found["reference_images"] == len(reference) == 277
    expected = noisy_energies(energy, floor_covariance(energy), reference, keyed_generator(0, "reference"))
    for row in found["scores"]:
        # the same noise for all pictures, and the numbers of the library
        x = read_image(inside / row["image"], SHAPE, print)
        log_density = score_images(energy, x, seed=0).log_density
        direct = compare(-log_density, expected[None])
        assert row["p"] == pytest.approx(float(direct.p[0]))
        assert row["z"] == pytest.approx(float(direct.z[0]))


def test_scores_without_references_are_as_before(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linverse.store.hub, "load", lambda name, device="cpu": exact_digits())
    run("score", "digit.png", "--model", "any")
    found = record("scores")
    assert found["reference_images"] == 0
    assert set(found["scores"][0]) == {"rank", "image", "log_density_nats", "bits_per_dim", "code_bits_per_dim"}


# --- blind -------------------------------------------------------------------------------------------------------------------


def test_blind_judges_the_picture_under_what_it_found(
    inside: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(linverse.store.hub, "load", lambda name, device="cpu": Digits())
    noisy = Denoising(0.15).measure(digit(3), keyed_generator(7)).raw
    np.save(inside / "noisy.npy", noisy[0].numpy())
    run("blind", "noisy.npy", "--family", "noise", "--model", "any")
    found = record("noisy-blind")["typicality"]
    assert not found["unusual"]
    assert f"with these values, against 277 held-out images: {found['verdict']}" in capsys.readouterr().out
    # a chessboard seen through a narrow blur: no width makes a digit of it
    options = ("--simulate", "std=0.3", "--sigma", 0.05, "--out", "chess", "--model", "any")
    run("blind", "chess.png", "--family", "gaussian-blur", *options)
    assert record("chess")["typicality"]["unusual"]


def test_floating_point_errors_get_one_clear_line(
    inside: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise FloatingPointError("the energy is NaN")

    monkeypatch.setattr(restore, "run", fail)
    with pytest.raises(SystemExit) as stop:
        run("restore", "digit.png", "--task", "half", "--model", model)
    assert stop.value.code == 1
    assert capsys.readouterr().err.strip() == "linverse restore: the energy is NaN"

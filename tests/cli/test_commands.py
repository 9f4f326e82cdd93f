"""The commands a user types: what they write, what they refuse, and that their numbers are those of the library."""

from __future__ import annotations

import csv
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import linverse
import linverse.store.hub
from linverse import cli
from linverse.blind import UnknownNoise, search
from linverse.blind.search import FAMILIES
from linverse.cli import blind, restore, score
from linverse.covariance import SpatialCovariance
from linverse.data.pictures import read_image
from linverse.degradations import Box, Denoising
from linverse.degradations.tasks import TASKS
from linverse.experiments import demo
from linverse.experiments.demo import exact_digits
from linverse.models.energies.learned import LearnedEnergy
from linverse.posterior import Posterior
from linverse.progress import silent
from linverse.report.console import ProgressBars
from linverse.report.output import RECORD
from linverse.report.scores import ranked
from linverse.rng import keyed_generator
from linverse.typicality import score_images
from small import SHAPE, digit, record
from tiny import tiny_energy

Run = Callable[..., None]


def save(path: Path, x: Tensor) -> Path:
    pixels = (x.reshape(x.shape[-2:]).clamp(0, 1) * 255).round().byte().numpy()
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model of a few hundred weights for 8×8 pictures."""
    folder = tmp_path_factory.mktemp("model")
    tiny_energy(SHAPE, bases=("spatial", "fourier", "block-dct-4")).float().save_pretrained(folder)
    return folder


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own, with a picture in it, to type commands in."""
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "digit.png", digit())
    return tmp_path


def run(*arguments: object) -> None:
    cli.main([str(argument) for argument in arguments])


# --- the front door ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["demo", "restore", "score", "blind"])
def test_help_teaches_by_example_without_waiting_for_torch(name: str) -> None:
    code = f"import sys; from linverse import cli\ntry: cli.main([{name!r}, '--help'])\nfinally: print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert f"linverse {name} " in answer.stdout.partition("examples:")[2]
    assert answer.stdout.rstrip().endswith("False"), answer.stdout[-200:]


def test_help_names_every_task_and_family() -> None:
    assert all((f"{name}" in restore.HELP.partition("tasks:")[2]) != (name in restore.SCANNED) for name in TASKS)
    assert all(f"  {name} " in blind.HELP for name in FAMILIES)
    assert set(cli.COMMANDS) >= {"demo", "restore", "score", "blind"}


def test_public_names_are_there_though_imported_late() -> None:
    assert set(linverse._HOME_OF) == set(linverse.__all__)
    assert linverse.Posterior is Posterior
    assert set(linverse.__all__) <= set(dir(linverse))
    with pytest.raises(AttributeError, match="nothing"):
        _ = linverse.nothing


NONSENSE = [
    ("restore digit.png", "neither"),
    ("restore digit.png --task box --mask digit.png", "both"),
    ("restore gone.png --task box", "gone.png does not exist"),
    ("restore . --task box", "is a folder"),
    ("restore text.png --task box", "text.png"),
    ("restore wide.png --task half", "wide.png is 8×12; the model takes 8×8 images. --resize"),
    ("restore digit.png --task superres", "8×8; this task measures 2×2 pixels"),
    ("restore digit.png --task nope", "there is no task 'nope'"),
    ("restore digit.png --task half --sigma nan", "sigma"),
    ("restore digit.png --task half --samples -1", "--samples is at least 0"),
    ("restore digit.png --task half --steps 0", "--steps at least 1"),
    ("restore digit.png --mask black.png", "all missing"),
    ("restore digit.png --mask wide.png", "the mask wide.png is 8×12; the picture is 8×8"),
    ("restore digit.png --mask text.png", "text.png cannot be read"),
    ("restore pickled.npy --task denoise", "no numpy array of numbers"),
    ("restore nan.npy --task denoise", "NaN"),
    ("restore whole.npy --task denoise", "int64"),
    ("restore digit.png --task half --out digit.png", "is a file"),
    ("score", "at least one picture"),
    ("score empty", "no pictures"),
    ("score digit.png wide.png", "wide.png is 8×12"),
    ("blind digit.png --family nope", "there are noise, noise-box, gaussian-blur, line-blur"),
    ("blind digit.png --family noise --sigma 1", "looks for sigma"),
    ("blind digit.png --family gaussian-blur --sigma 0", "positive"),
    ("blind digit.png --family noise --grid 1 0.1 9", "0 < low < high"),
    ("blind digit.png --family noise --grid 0.1 1 2", "at least 3 points"),
    ("blind digit.png --family noise --simulate std=1", "--simulate takes sigma=NUMBER"),
    ("blind digit.png --family noise --simulate sigma=x", "--simulate takes sigma=NUMBER"),
    ("blind digit.png --family noise --simulate sigma=0", "no noise to look for"),
    ("blind digit.png --family noise-box --simulate side=9,sigma=1", "whole number from 2 to 7"),
    ("demo --samples 0", "at least 1"),
]


@pytest.mark.parametrize(("typed", "answer"), NONSENSE, ids=[typed for typed, _ in NONSENSE])
def test_nonsense_gets_one_clear_line(
    typed: str, answer: str, inside: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (inside / "text.png").write_text("no picture")
    (inside / "empty").mkdir()
    Image.fromarray(np.zeros((8, 12), np.uint8)).save(inside / "wide.png")
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(inside / "black.png")
    np.save(inside / "nan.npy", np.full((8, 8), np.nan))
    np.save(inside / "whole.npy", np.ones((8, 8), np.int64))
    np.save(inside / "pickled.npy", np.array([{}], dtype=object), allow_pickle=True)
    extra = [] if typed.startswith("demo") else ["--model", str(model)]
    with pytest.raises(SystemExit) as stop:
        run(*typed.split(), *extra)
    said = capsys.readouterr().err.strip()
    assert stop.value.code == 1
    assert "\n" not in said
    with pytest.raises(ValueError, match=answer):
        raise ValueError(said)


def test_interruption_is_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(arguments: list[str]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(score, "main", interrupt)
    with pytest.raises(SystemExit) as stop:
        run("score", "x.png")
    assert stop.value.code == 130
    assert "interrupted" in capsys.readouterr().err


# --- restore -----------------------------------------------------------------------------------------------------------------------


def test_restore_writes_what_it_says(inside: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("restore", "digit.png", "--task", "box", "--simulate", "--steps", 4, "--model", model)
    run(*command, "--samples", 3)
    out = inside / "digit-restored"
    found = record(out)
    names = {"measurement.png", "measurement.npy", "mean.png", "mean.npy", "std.png", "std.npy"}
    names |= {"figure.png", "error-map.png"}
    assert set(found["files"]) == names | {f"samples/0{n}.png" for n in (1, 2, 3)}
    assert {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()} == set(found["files"]) | {RECORD}
    assert found["completed"]
    assert found["evaluations_per_sample"] == 5
    densities = [one["log_density_nats"] for one in found["samples"]]
    assert densities == sorted(densities, reverse=True)
    assert found["truth"]["bits_per_dim"] == pytest.approx(-found["truth"]["log_density_nats"] / (64 * math.log(2)))
    energy = LearnedEnergy.from_pretrained(model)
    raw = torch.from_numpy(np.load(out / "measurement.npy"))[None]
    posterior = Posterior(energy, Box(6, 1e-3).from_raw(raw))
    assert found["log_evidence_nats"] == pytest.approx(float(posterior.evidence()[0]))
    assert np.load(out / "mean.npy") == pytest.approx(posterior.mean()[0].detach().numpy(), abs=1e-6)
    assert Image.open(out / "samples/01.png").size == (8, 8)
    assert "PSNR" in capsys.readouterr().out
    before = {name: (out / name).read_bytes() for name in found["files"]}
    run(*command, "--samples", 3)
    assert {name: (out / name).read_bytes() for name in before} == before  # the same seed, the same bytes
    run(*command, "--samples", 1, "--seed", 1)
    assert not (out / "samples/02.png").exists()
    assert (out / "samples/01.png").read_bytes() != before["samples/01.png"]


def test_a_measurement_is_taken_as_it_is(inside: Path, model: Path) -> None:
    mask = np.full((8, 8), 255, np.uint8)
    mask[:, 4:] = 0
    Image.fromarray(mask).save(inside / "mask.png")
    run("restore", "digit.png", "--mask", "mask.png", "--samples", 0, "--model", model, "--out", "masked")
    pixels = np.load(inside / "masked/measurement.npy")
    seen = np.asarray(Image.open(inside / "digit.png")) / 255
    assert pixels[0, :, :4] == pytest.approx(seen[:, :4], abs=1e-6)
    assert not pixels[0, :, 4:].any()
    assert record("masked")["measure_next"] == []
    again = ("--mask", "mask.png", "--samples", 0, "--model", model, "--out", "masked", "--measure-next", 3)
    run("restore", "digit.png", *again)
    found = record("masked")
    assert len(found["measure_next"]) == 3
    assert all(column >= 4 for _, column in found["measure_next"])  # what is missing tells most
    assert (found["free_dimensions"], found["sigma"], found["simulated"]) == (
        64,
        1e-3,
        False,
    )  # rounding to 8 bits lifts what was measured off the floor
    assert "truth" not in found
    save(inside / "small.png", torch.rand(2, 2, generator=keyed_generator(3)))
    run("restore", "small.png", "--task", "superres", "--samples", 0, "--model", model, "--sigma", 0.02)
    assert record("small-restored")["sigma"] == 0.02
    assert np.load(inside / "small-restored/mean.npy").shape == SHAPE


def test_a_mask_is_scaled_with_its_picture(inside: Path, model: Path) -> None:
    Image.fromarray(np.full((16, 24), 128, np.uint8)).save(inside / "wide.png")
    mask = np.full((16, 24), 255, np.uint8)
    mask[:, 12:] = 0
    Image.fromarray(mask).save(inside / "mask.png")
    run("restore", "wide.png", "--mask", "mask.png", "--resize", "--samples", 0, "--model", model, "--out", "masked")
    missing = np.load(inside / "masked/measurement.npy") == 0
    assert missing.squeeze().tolist() == [[False] * 4 + [True] * 4] * 8


def test_an_interrupted_restoration_leaves_what_there_is(
    inside: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(self: ProgressBars, task: str, done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    command = ("restore", "digit.png", "--task", "half", "--simulate", "--model", model, "--samples", 2, "--steps", 4)
    with monkeypatch.context() as patch:
        patch.setattr(ProgressBars, "__call__", interrupt)
        with pytest.raises(SystemExit) as stop:
            run(*command)
    assert stop.value.code == 130
    found = record("digit-restored")
    assert not found["completed"]
    assert found["samples"] == []
    assert (inside / "digit-restored/mean.png").exists()
    assert not (inside / "digit-restored/samples/01.png").exists()  # neither was finished
    run(*command)
    assert record("digit-restored")["completed"]


# --- score -------------------------------------------------------------------------------------------------------------------------


def test_scores_are_energies_in_order(inside: Path, model: Path) -> None:
    (inside / "folder").mkdir()
    images = {f"folder/{n}.png": digit(n) for n in range(3)} | {"flat.png": torch.full((1, *SHAPE), 0.5)}
    for name, x in images.items():
        save(inside / name, x)
    run("score", "folder", "flat.png", "--model", model, "--out", "folder/scores")
    rows = list(csv.DictReader((inside / "folder/scores/scores.csv").open()))
    values = [float(row["log_density_nats"]) for row in rows]
    assert {row["image"] for row in rows} == set(images)
    assert values == sorted(values, reverse=True)
    energy = LearnedEnergy.from_pretrained(model)
    cov = SpatialCovariance(torch.zeros(1, 1, 8, 8)).isotropic(energy.range.minimum)
    for row in rows:
        x = read_image(inside / row["image"], SHAPE, print)
        noise = torch.randn(1, *SHAPE, generator=keyed_generator(0, "score")) * math.sqrt(energy.range.minimum)
        assert float(row["log_density_nats"]) == pytest.approx(-energy(x + noise, cov).item(), rel=1e-6, abs=1e-3)
        assert float(row["bits_per_dim"]) == pytest.approx(-float(row["log_density_nats"]) / 64 / math.log(2), abs=1e-4)
    assert record("folder/scores")["smallest_variance"] == energy.range.minimum
    run(
        "score", "folder", "flat.png", "--model", model, "--out", "folder/scores"
    )  # its own gallery is no picture to score
    assert len(record("folder/scores")["scores"]) == 4


def test_interrupted_scores_are_kept() -> None:
    x = torch.cat([digit(n) for n in range(5)])

    def interrupt(task: str, done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    kept, whole = (score_images(exact_digits(), x, chunk=2, progress=watch) for watch in (interrupt, silent))
    assert len(kept.log_density) == 4
    assert torch.equal(kept.log_density, whole.log_density[:4])
    paths = [Path(f"{n}.png") for n in range(5)]
    listed = ranked(paths, x, kept, [None] * len(x))
    assert {one.path.name for one in listed} == {f"{n}.png" for n in range(4)}
    assert listed[0].log_density == float(kept.log_density.max())


# --- blind -------------------------------------------------------------------------------------------------------------------------


def test_blind_finds_the_noise_of_a_file(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    energy = exact_digits()
    monkeypatch.setattr(linverse.store.hub, "load", lambda name, device="cpu": energy)
    noisy = Denoising(0.15).measure(digit(3), keyed_generator(7)).raw
    np.save(inside / "noisy.npy", noisy[0].numpy())
    run("blind", "noisy.npy", "--family", "noise", "--model", "any")
    found = record("noisy-blind")["estimates"]["sigma"]
    direct = search(energy, noisy, UnknownNoise(), FAMILIES["noise"].axes((8, 8)))
    assert found["value"] == pytest.approx(direct.value(direct.axes[0]))
    assert found["low"] < found["value"] < found["high"]
    assert abs(math.log(found["value"] / 0.15)) < 4.5 * math.sqrt(1 / 128) * 1.5  # half the pixels' worth, at 1e-5
    assert found["prior"] == "uniform in log sigma"
    assert "truth" not in found
    restored = torch.from_numpy(np.load(inside / "noisy-blind/restored.npy"))
    errors = [float((image - digit(3)[0]).square().mean()) for image in (restored, noisy[0])]
    assert errors[0] < 0.79 * errors[1]  # a decibel
    rows = list(csv.DictReader((inside / "noisy-blind/evidence.csv").open()))
    assert len(rows) == sum(result.log_evidence.numel() for _, result in direct.rounds)
    assert float(rows[0]["sigma"]) == pytest.approx(3e-3)


def test_blind_warns_of_cut_noise_and_short_grids(
    inside: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(linverse.store.hub, "load", lambda name, device="cpu": exact_digits())
    run("blind", "digit.png", "--family", "noise", "--grid", 1, 2, 5, "--model", "any")
    said = capsys.readouterr().out
    assert "black or white" in said
    assert "edge of the grid of sigma" in said
    simulated = ("--simulate", "side=4,sigma=0.6", "--sigma", 0.05, "--out", "box", "--model", "any")
    run("blind", "digit.png", "--family", "noise-box", *simulated)
    found = record("box")["estimates"]
    assert found["side"]["truth"] == 4
    assert "edge" not in capsys.readouterr().out
    assert found["side"]["low"] <= 4 <= found["side"]["high"]


# --- demo --------------------------------------------------------------------------------------------------------------------------


def test_demo_needs_no_trained_model(
    inside: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(linverse.store.hub, "bundled", lambda: [])
    monkeypatch.setattr(demo, "ORDERS", ("centre-out",))
    run("demo", "--samples", 4, "--steps", 5, "--no-show")
    said = capsys.readouterr().out
    assert "exact energy" in said
    assert "linverse-demo/demo.png" in said
    width, height = Image.open(inside / "linverse-demo/demo.png").size
    assert min(width, height) > 1000
    found = record("linverse-demo")
    assert len(found["restorations"]) == 3
    for one in found["restorations"].values():
        assert len(one["samples"]) == 4
        assert one["psnr_of_mean_db"] > 10
    for one in found["blind"].values():
        low, high = one["interval_90"]
        assert low < one["value"] < high
        assert 0.5 < one["value"] / one["truth"] < 2


def test_demo_refuses_a_model_for_other_pictures(model: Path, inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("demo", "--model", model)
    assert "the demo's pictures are 1×28×28" in capsys.readouterr().err

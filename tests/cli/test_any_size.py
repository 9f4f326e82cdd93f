"""A user's picture of any size through the commands: chosen models, noise found or given, masks, depth and size kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import linverse as lv
from linverse import cli
from linverse.data import Picture
from linverse.data.example_photographs import CHOSEN, FILE, load_photographs, write_photographs
from linverse.data.photographs import INDEX, photographs_home
from linverse.experiments import photographs_demo
from linverse.files.saving import ModelFileError
from linverse.models.energies.learned import LearnedEnergy
from linverse.posterior import Posterior
from linverse.report.photographs_demo import found_text, photographs_figure
from linverse.restoration import restore
from linverse.rng import keyed_generator
from linverse.store.choice import model_for
from small import record
from tiny import Pictures, any_size_energy

SIZE = (20, 24)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photographs")
    any_size_energy().save_pretrained(folder)
    return folder


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a noisy photograph in it."""
    monkeypatch.chdir(tmp_path)
    x = Pictures(1, (3, *SIZE), seed=3).batch(torch.arange(1))
    lv.write("photo.png", x + 0.1 * torch.randn(x.shape, generator=keyed_generator("photo")))
    return tmp_path


def run(*arguments: object) -> None:
    cli.main([str(argument) for argument in arguments])


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    with pytest.raises(SystemExit):
        run(*arguments)
    return capsys.readouterr().err


def test_the_noise_is_found_and_taken_away(inside: Path, model: Path) -> None:
    run("restore", "photo.png", "--auto", "--samples", 0, "--model", model)
    found = record("photo-restored")
    assert found["found"]["sigma"]["value"] == pytest.approx(0.1, rel=0.2)
    assert found["sigma"] == found["found"]["sigma"]["value"]
    picture = Image.open("photo-restored/mean.png")
    assert (picture.size, picture.mode) == ((24, 20), "RGB")
    measurement = lv.Denoising(found["sigma"]).from_raw(lv.read("photo.png")).rounded(1 / 255)
    expected = Posterior(LearnedEnergy.from_pretrained(model), measurement).mean()[0]
    assert np.load("photo-restored/mean.npy") == pytest.approx(expected.numpy(), abs=1e-6)
    assert Path("photo-restored/error-map.png").is_file()


def test_depth_and_transparency_are_kept(inside: Path, model: Path) -> None:
    x = Pictures(1, (3, *SIZE), seed=4).batch(torch.arange(1)).clamp(0, 1)
    alpha = torch.ones(1, 1, *SIZE)
    alpha[..., :5, :] = 0.5
    lv.write("deep.png", Picture(x, depth=16, alpha=alpha))
    run("restore", "deep.png", "--task", "denoise", "--sigma", 0.02, "--samples", 0, "--model", model)
    written = lv.read("deep-restored/mean.png")
    assert (written.depth, written.size) == (16, SIZE)
    assert written.alpha is not None
    assert float(written.alpha.min()) == pytest.approx(0.5, abs=1e-3)


def test_several_pictures_get_folders_of_their_own(
    inside: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Image.open("photo.png").rotate(90, expand=True).save("turned.png")
    options = ("--task", "denoise", "--sigma", 0.1, "--samples", 0, "--model", model, "--out", "both")
    run("restore", "photo.png", "turned.png", *options)
    assert np.load("both/photo/mean.npy").shape == (3, 20, 24)
    assert np.load("both/turned/mean.npy").shape == (3, 24, 20)
    (inside / "other").mkdir()
    Image.open("photo.png").save("other/photo.png")
    assert "the same name" in refused(capsys, "restore", "photo.png", "other/photo.png", *options)


def test_a_map_of_noise_levels(inside: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    levels = np.full((1, 1, *SIZE), 0.02, np.float32)
    levels[..., 12:] = 0.4
    np.save("levels.npy", levels)
    options = ("restore", "photo.png", "--sigma", "levels.npy", "--model", model, "--samples", 0)
    run(*options, "--task", "denoise")
    moved = np.abs(np.load("photo-restored/mean.npy") - np.asarray(lv.read("photo.png"))[0])
    assert moved[..., 12:].mean() > 1.5 * moved[..., :12].mean()
    assert "goes with the task denoise" in refused(capsys, *options, "--task", "gauss")
    assert "a number, or a file" in refused(
        capsys, "restore", "photo.png", "--task", "denoise", "--sigma", "x", "--model", model
    )


@pytest.mark.parametrize(
    ("task", "shape"), [("sr2", (3, 40, 48)), ("gauss:std=1", (3, 20, 24)), ("defocus", (3, 20, 24))]
)
def test_tasks_take_raw_pictures_of_any_size(task: str, shape: tuple[int, ...], inside: Path, model: Path) -> None:
    run("restore", "photo.png", "--task", task, "--samples", 0, "--model", model, "--out", "out")
    assert np.load("out/mean.npy").shape == shape


def test_a_mosaic_becomes_a_colour_picture(inside: Path, model: Path) -> None:
    x = Pictures(1, (3, *SIZE), seed=3).batch(torch.arange(1))
    lv.write("mosaic.png", lv.Demosaicing("RGGB", 0.01).measure(x, keyed_generator(1)).raw)
    run("restore", "mosaic.png", "--task", "demosaic", "--samples", 0, "--model", model)
    assert np.load("mosaic-restored/mean.npy").shape == (3, *SIZE)


def test_a_mask_and_samples(inside: Path, model: Path) -> None:
    mask = np.full(SIZE, 255, np.uint8)
    mask[5:9, 3:20] = 0
    Image.fromarray(mask).save("mask.png")
    run("restore", "photo.png", "--mask", "mask.png", "--samples", 4, "--steps", 3, "--model", model)
    found = record("photo-restored")
    assert (found["mean_from"], found["std_from"]) == ("one network evaluation", "one-shot")
    assert len(found["samples"]) == 4


def test_of_blurred_pictures_mean_and_std_come_from_samples(inside: Path, model: Path) -> None:
    words = ("restore", "photo.png", "--task", "gauss:std=1", "--samples", 4, "--steps", 3, "--model", model)
    run(*words, "--out", "out")
    found = record("out")
    assert (found["mean_from"], found["std_from"]) == ("of 4 samples", "the spread of 4 samples")


def test_auto_finds_noise_and_gaussian_blurs_only(
    inside: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--auto finds noise" in refused(capsys, "restore", "photo.png", "--auto", "--task", "motion")
    assert "--sigma cannot be given" in refused(capsys, "restore", "photo.png", "--auto", "--sigma", 0.1)
    words = ("restore", "photo.png", "--auto", "--task", "gauss", "--samples", 0, "--model", model)
    assert "the width of the blur was not found" in refused(
        capsys, *words
    )  # it is not blurred: the widest is as good as any


def test_blind_and_score_take_any_size(inside: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("blind", "photo.png", "--model", model)
    found = record("photo-blind")
    assert found["estimates"]["sigma"]["value"] == pytest.approx(0.1, rel=0.2)
    assert found["search"]["evaluations"] > 3
    assert "evaluations" in capsys.readouterr().out
    Image.open("photo.png").crop((0, 0, 16, 12)).save("part.png")
    run("score", "photo.png", "part.png", "--model", model)
    assert {row["image"] for row in record("scores")["scores"]} == {"photo.png", "part.png"}


# --- the model that a picture asks for ------------------------------------------------------------------------------------------------


def test_the_model_is_chosen_by_the_picture(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"photographs-grey, is not bundled here; name another with --model"):
        model_for(1, tmp_path)
    for name in ("photographs", "photographs-grey"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text("{}")
    assert (model_for(3, tmp_path), model_for(1, tmp_path)) == ("photographs", "photographs-grey")
    with pytest.raises(ModelFileError, match="5 channels"):
        model_for(5, tmp_path)


def test_white_noise_keeps_its_one_shot_mean() -> None:
    energy = any_size_energy().eval().requires_grad_(False)
    x = Pictures(1, (3, 8, 8)).batch(torch.arange(1))
    posterior = Posterior(energy, lv.Denoising(0.1).measure(x, keyed_generator(0)))
    result = restore(posterior, samples=4, path=2)
    assert torch.equal(result.mean, posterior.mean()[0])
    assert result.mean_from == "one network evaluation"


# --- the demo's photographs -----------------------------------------------------------------------------------------------------------


def test_the_bundled_photographs_are_those_of_the_held_out_set(tmp_path: Path) -> None:
    photographs = load_photographs()
    assert set(photographs) == set(CHOSEN)
    assert all("CC0" in one.credit or "public domain" in one.credit for one in photographs.values())
    assert FILE.stat().st_size < 500_000
    if not (photographs_home() / INDEX).is_file():
        pytest.skip("the photographs are not gathered here")
    write_photographs(tmp_path / "again.safetensors")
    again = load_photographs(tmp_path / "again.safetensors")
    assert all(torch.equal(again[name].pixels, one.pixels) for name, one in photographs.items())


def test_missing_photographs_are_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="install linverse again"):
        load_photographs(tmp_path / "gone.safetensors")


def test_the_demo_opens_with_photographs(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {
        name: type(one)(name, torch.nn.functional.avg_pool2d(one.pixels, 4), one.credit)
        for name, one in load_photographs().items()
    }
    monkeypatch.setattr(photographs_demo, "load_photographs", lambda: small)
    energy = any_size_energy().eval().requires_grad_(False)
    noisy, scratched, blurred = photographs_demo.ask_photographs(energy, samples=4, path=2)
    assert 0.03 < noisy.found["sigma"][0] < 0.3
    assert not scratched.found
    assert blurred.record()["found"] == {}
    assert "σ found" in found_text(noisy)
    assert len(photographs_figure((noisy, scratched, blurred), "x").axes) == 21
    share = float((~photographs_demo.scratches(128)).double().mean())
    assert 0.03 < share < 0.08

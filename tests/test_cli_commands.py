"""The commands a user types: what they write, what they refuse, and that their numbers are those of the library."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from torch import Tensor

import linverse
import linverse.store.hub
from linverse import cli
from linverse.analytic import DenseGaussian, DiagonalGaussian
from linverse.blind import UnknownGaussianBlur, UnknownLineBlur, UnknownNoise, UnknownNoiseBox, estimate
from linverse.cli import blind, demo, restore, score, show
from linverse.cli.exact import digit_mixture
from linverse.cli.experiment import Watcher
from linverse.cli.files import expand_paths, read_image
from linverse.cli.generation import grow
from linverse.cli.grids import QUESTIONS, Axis, search, simulate, whole_interval
from linverse.cli.output import RECORD, OutputFolder
from linverse.cli.pictures import decimals_for, nats, seen_picture
from linverse.cli.restoration import add_samples, one_shot, one_shot_std, psnr
from linverse.cli.show import note, open_picture, plain_warnings
from linverse.covariance import SpatialCovariance, VarianceRange
from linverse.data import load_images
from linverse.data.digits import load_digits
from linverse.data.examples import CHOSEN, FILE, load_examples, write_examples
from linverse.degradations import Box, ColouredNoise, Denoising, GaussianBlur, SuperResolution
from linverse.degradations.tasks import TASKS
from linverse.experiments.figures import MISSING
from linverse.measurement import Measurement
from linverse.models.learned import LearnedEnergy
from linverse.posterior import Posterior
from linverse.rng import keyed_generator
from tiny import tiny_energy

Run = Callable[..., None]
SHAPE = (1, 8, 8)


def digit(number: int = 0) -> Tensor:
    return load_digits("test").batch([number])


def silent(done: int, total: int) -> None:
    pass


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


def record(folder: str | Path) -> dict[str, Any]:
    return json.loads((Path(folder) / RECORD).read_text())


# --- the front door ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["demo", "restore", "score", "blind"])
def test_help_teaches_by_example_without_waiting_for_torch(name: str) -> None:
    code = f"import sys; from linverse import cli\ntry: cli.main([{name!r}, '--help'])\nfinally: print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert f"linverse {name} " in answer.stdout.partition("examples:")[2]
    assert answer.stdout.rstrip().endswith("False"), answer.stdout[-200:]


def test_help_names_every_task_and_family() -> None:
    assert all(f"{name}" in restore.HELP.partition("tasks:")[2] for name in TASKS)
    assert all(f"  {name} " in blind.HELP for name in QUESTIONS)
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
    ("restore digit.png --mask wide.png", "has shape \\(8, 12\\)"),
    ("restore digit.png --mask text.png", "the mask text.png cannot be read"),
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


# --- what is said and shown --------------------------------------------------------------------------------------------------------


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


def test_missing_pixels_are_painted() -> None:
    seen = seen_picture(Box(4).measure(digit()))
    assert seen.shape == (3, 8, 8)
    assert torch.allclose(seen[:, 4, 4], torch.tensor(MISSING))
    assert torch.equal(seen[:, 0], digit()[0, 0, 0].expand(3, -1))
    assert seen_picture(Denoising(0.1).measure(digit())).shape == SHAPE


def test_numbers_are_written_for_people() -> None:
    assert nats(-1234.4) == "−1\u2009234"
    axis = Axis("sigma", 0.1, 1, 3)
    assert [decimals_for(width, axis) for width in (0.02, 0.5, 3.0, 40.0)] == [3, 2, 1, 0]


# --- files -------------------------------------------------------------------------------------------------------------------------


def test_arrays_keep_what_pictures_cut_off(tmp_path: Path) -> None:
    x = 3 * torch.randn(SHAPE, generator=keyed_generator("array"))
    np.save(tmp_path / "x.npy", x.numpy())
    assert torch.equal(read_image(tmp_path / "x.npy", SHAPE, Console(quiet=True)), x[None])
    np.save(tmp_path / "flat.npy", np.full((8, 8), 51, np.uint8))
    assert torch.allclose(read_image(tmp_path / "flat.npy", SHAPE, Console(quiet=True)), torch.tensor(0.2))


def test_changes_to_a_picture_are_announced(tmp_path: Path) -> None:
    Image.fromarray(np.full((10, 16, 3), 51, np.uint8)).save(tmp_path / "colour.png")
    console = Console(record=True, width=120)
    x = read_image(tmp_path / "colour.png", SHAPE, console, resize=True)
    said = console.export_text()
    assert "10×16 scaled and cropped to 8×8" in said
    assert "colour to grey" in said
    assert torch.allclose(x, torch.tensor(0.2))


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


def test_bundled_pictures_are_the_test_images_they_say(tmp_path: Path) -> None:
    try:
        sets = {name: load_images(name, "test") for name in CHOSEN}
    except FileNotFoundError as error:
        pytest.skip(str(error))
    for name, images in sets.items():
        examples = load_examples(name)
        assert torch.equal(examples.images, images.images[list(CHOSEN[name])])
        assert examples.labels is not None
        assert images.labels is not None
        assert torch.equal(examples.labels, images.labels[list(CHOSEN[name])])
    write_examples(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == FILE.read_bytes()


def test_bundled_pictures_of_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="fashion-mnist, mnist"):
        load_examples("cats")
    with pytest.raises(OSError, match="install linverse again"):
        load_examples("mnist", tmp_path / "gone.safetensors")


# --- restore -----------------------------------------------------------------------------------------------------------------------


def exact_pixel_variance(energy: Any, measurement: Measurement) -> Tensor:
    posterior = Posterior(energy, measurement)
    lifted = posterior.lift(keyed_generator("lift"), random_fill=False)
    return energy.posterior(lifted.y, lifted.cov).covariance[0].diagonal().reshape(SHAPE)


def test_std_of_pixels_is_exact_for_masks_and_right_on_average_elsewhere() -> None:
    energy = digit_mixture()
    masked = Box(4, 0.05).measure(digit().double(), keyed_generator(1))
    std, source = one_shot_std(Posterior(energy, masked))
    assert source == "one-shot"
    assert torch.allclose(std.square(), exact_pixel_variance(energy, masked), rtol=1e-6)
    coarse = SuperResolution(4, 0.05).measure(digit().double(), keyed_generator(1))
    std, source = one_shot_std(Posterior(energy, coarse))
    exact = torch.nn.functional.avg_pool2d(exact_pixel_variance(energy, coarse), 4)
    assert source == "one-shot, diagonal approximation"
    assert torch.allclose(std[:, ::4, ::4].square(), exact, rtol=1e-6)


def test_std_of_a_deblurred_picture_is_the_spread_of_its_samples() -> None:
    mean = torch.full((64,), 0.5, dtype=torch.float64)
    distance = torch.cdist(
        torch.cartesian_prod(torch.arange(8.0), torch.arange(8.0)), torch.cartesian_prod(*[torch.arange(8.0)] * 2)
    )
    prior = 0.05 * torch.exp(-0.5 * distance.double() / 3)
    energy = DenseGaussian(mean, prior, SHAPE, VarianceRange(1e-6, 1e3))
    measurement = GaussianBlur(0.7, 0.05).measure(digit().double(), keyed_generator(2))
    result = one_shot(energy, measurement)
    count = 400
    add_samples(result, energy, count, 60, seed=0)
    assert result.std_from == f"the spread of {count} samples"
    ratio = result.std.square() / exact_pixel_variance(energy, measurement)
    # a variance of n samples has relative sd √(2/n); 64 pixels at 1e-4 in all: 4.9 sd; the path's own error is below 3 %
    assert float((ratio - 1).abs().max()) < 4.9 * math.sqrt(2 / count) + 0.03
    assert bool((result.log_probs.diff() <= 0).all())
    assert torch.allclose(Posterior(energy, measurement).log_prob(result.samples[3:4]), result.log_probs[3])


def test_restore_writes_what_it_says(inside: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("restore", "digit.png", "--task", "box", "--simulate", "--steps", 4, "--model", model)
    run(*command, "--samples", 3)
    out = inside / "digit-restored"
    found = record(out)
    names = {"measurement.png", "measurement.npy", "mean.png", "mean.npy", "std.png", "std.npy", "figure.png"}
    assert set(found["files"]) == names | {f"samples/0{n}.png" for n in (1, 2, 3)}
    assert {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()} == set(found["files"]) | {RECORD}
    assert found["completed"]
    assert found["evaluations_a_sample"] == 5
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
    found = record("masked")
    assert (found["free_dimensions"], found["sigma"], found["simulated"]) == (32, 1e-3, False)
    assert "truth" not in found
    save(inside / "small.png", torch.rand(2, 2, generator=keyed_generator(3)))
    run("restore", "small.png", "--task", "superres", "--samples", 0, "--model", model, "--sigma", 0.02)
    assert record("small-restored")["sigma"] == 0.02
    assert np.load(inside / "small-restored/mean.npy").shape == SHAPE


def test_an_interrupted_restoration_leaves_what_there_is(
    inside: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(self: Watcher, task: str, done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    command = ("restore", "digit.png", "--task", "half", "--simulate", "--model", model, "--samples", 2, "--steps", 4)
    with monkeypatch.context() as patch:
        patch.setattr(Watcher, "__call__", interrupt)
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


def test_impossible_uncertainty_is_doubted(inside: Path) -> None:
    prior = SpatialCovariance(torch.full((1, 1, 8, 8), math.log(4.0), dtype=torch.float64))
    wild = one_shot(DiagonalGaussian(prior, limits=VarianceRange(1e-6, 1e3)), Box(4, 0.1).measure(digit().double()))
    assert "do not trust" in restore.doubts(wild)[0]
    assert restore.doubts(one_shot(digit_mixture(), Box(4, 0.1).measure(digit()))) == []


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
        x = read_image(inside / row["image"], SHAPE, Console(quiet=True))
        noise = torch.randn(1, *SHAPE, generator=keyed_generator(0, "score")) * math.sqrt(energy.range.minimum)
        assert float(row["log_density_nats"]) == pytest.approx(-energy(x + noise, cov).item(), abs=1e-3)
        assert float(row["bits_per_dim"]) == pytest.approx(-float(row["log_density_nats"]) / 64 / math.log(2), abs=1e-4)
    assert record("folder/scores")["smallest_variance"] == energy.range.minimum
    run(
        "score", "folder", "flat.png", "--model", model, "--out", "folder/scores"
    )  # its own gallery is no picture to score
    assert len(record("folder/scores")["scores"]) == 4


def test_interrupted_scores_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = [(Path(f"{n}.png"), digit(n)) for n in range(5)]
    monkeypatch.setattr(score, "CHUNK", 2)

    def interrupt(done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    kept = score.score(digit_mixture(), pictures, 0, interrupt)
    assert {one.path.name for one in kept} == {f"{n}.png" for n in range(4)}
    whole = score.score(digit_mixture(), pictures, 0, silent)
    assert next(one for one in whole if one.path.name != "4.png").log_density == kept[0].log_density


def test_hidden_order_of_many_scores() -> None:
    many = [score.Scored(Path(f"{n}.png"), torch.zeros(SHAPE), -float(n)) for n in range(30)]
    kept, gap = score.ends(many, 10)
    assert gap
    assert [int(-one.log_density) for one in kept] == [0, 1, 2, 3, 4, 25, 26, 27, 28, 29]
    assert expand_paths([Path("a.png")]) == [Path("a.png")]


# --- blind -------------------------------------------------------------------------------------------------------------------------


def test_a_search_zooms_in_to_the_posterior_of_a_dense_grid() -> None:
    energy = digit_mixture()
    raw = Denoising(0.2).measure(digit(4), keyed_generator(5)).raw
    axes = QUESTIONS["noise"].axes((8, 8))
    found = search(energy, raw, UnknownNoise(), axes, progress=silent)
    dense = estimate(energy, raw, UnknownNoise(), {"sigma": torch.logspace(-1.2, -0.3, 800)})
    low, high = dense.interval("sigma")
    assert len(found.rounds) > 1
    assert found.interval(found.axes[0]) == pytest.approx((low, high), abs=0.02 * (high - low))
    assert found.value(found.axes[0]) == pytest.approx(dense.refined("sigma"), rel=1e-3)
    assert found.at_edge() == []


def test_a_search_says_when_its_grid_is_too_short() -> None:
    raw = Denoising(0.2).measure(digit(4), keyed_generator(5)).raw
    found = search(digit_mixture(), raw, UnknownNoise(), (Axis("sigma", 0.5, 2, 9, "log"),), progress=silent)
    assert [axis.name for axis in found.at_edge()] == ["sigma"]


def test_angles_are_found_across_the_end_of_their_axis() -> None:
    energy = digit_mixture()
    family, axes = UnknownLineBlur(0.02), QUESTIONS["line-blur"].axes((8, 8))
    theta = {"angle": math.radians(178.0), "length": 3.0}
    raw = simulate(family, digit(2), theta, keyed_generator(6))
    found = search(energy, raw, family, axes, progress=silent)
    angle, length = found.axes
    away = (found.value(angle) - 178.0 + 90) % 180 - 90
    assert abs(away) < 10
    assert abs(found.value(length) - 3.0) < 0.5
    low, high = found.interval(angle)
    assert low < found.value(angle) < high
    assert high - low < 40


def test_periodic_axes_do_not_repeat_their_end() -> None:
    axis = Axis("angle", 0, 180, 6, periodic=True)
    assert axis.values().tolist() == [0, 30, 60, 90, 120, 150]
    narrowed = axis.narrowed(torch.tensor([0.0, -50, -50, -50, -50, -3]), 5)
    assert (narrowed.low, narrowed.high, narrowed.periodic) == (-60, 60, False)
    assert Axis("side", 2, 7, 3, "whole").values().tolist() == [2, 3, 4, 5, 6, 7]


def test_intervals_of_whole_numbers_hold_what_they_say() -> None:
    values = torch.arange(2.0, 8.0)
    assert whole_interval(values, torch.tensor([0.0, 0, 1, 0, 0, 0]), 0.9) == (4, 4)
    assert whole_interval(values, torch.tensor([0.04, 0.06, 0.8, 0.06, 0.04, 0]), 0.9) == (3, 5)


def test_simulations_are_those_of_the_degradations() -> None:
    x = digit(1).double()
    blurred = simulate(UnknownGaussianBlur(1e-9), x, {"std": 0.7}, keyed_generator(0))
    assert torch.allclose(blurred, GaussianBlur(0.7).operator(x), atol=2e-4)  # taps beyond four std
    noisy = simulate(UnknownNoiseBox(0.01), x, {"side": 4.0, "sigma": 0.5}, keyed_generator(0)) - x
    levels = torch.full((1, 1, 8, 8), 0.01, dtype=torch.float64)
    levels[:, :, 2:6, 2:6] = 0.5
    white = noisy / levels
    expected = ColouredNoise(SpatialCovariance(2 * levels.log())).measure(x, keyed_generator(0)).raw - x
    assert torch.allclose(white, expected / levels)


def test_blind_finds_the_noise_of_a_file(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    energy = digit_mixture()
    monkeypatch.setattr(linverse.store.hub, "load", lambda name, device="cpu": energy)
    noisy = Denoising(0.15).measure(digit(3), keyed_generator(7)).raw
    np.save(inside / "noisy.npy", noisy[0].numpy())
    run("blind", "noisy.npy", "--family", "noise")
    found = record("noisy-blind")["estimates"]["sigma"]
    direct = search(energy, noisy, UnknownNoise(), QUESTIONS["noise"].axes((8, 8)), progress=silent)
    assert found["value"] == pytest.approx(direct.value(direct.axes[0]))
    assert found["low"] < found["value"] < found["high"]
    assert abs(math.log(found["value"] / 0.15)) < 4.5 * math.sqrt(1 / 128) * 1.5  # half the pixels' worth, at 1e-5
    assert found["prior"] == "uniform in log sigma"
    assert "truth" not in found
    restored = torch.from_numpy(np.load(inside / "noisy-blind/restored.npy"))
    assert psnr(restored, digit(3)[0]) > psnr(noisy[0], digit(3)[0]) + 1
    rows = list(csv.DictReader((inside / "noisy-blind/evidence.csv").open()))
    assert len(rows) == sum(result.log_evidence.numel() for _, result in direct.rounds)
    assert float(rows[0]["sigma"]) == pytest.approx(3e-3)


def test_blind_warns_of_cut_noise_and_short_grids(
    inside: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(linverse.store.hub, "load", lambda name, device="cpu": digit_mixture())
    run("blind", "digit.png", "--family", "noise", "--grid", 1, 2, 5)
    said = capsys.readouterr().out
    assert "black or white" in said
    assert "edge of the grid of sigma" in said
    run(
        "blind", "digit.png", "--family", "noise-box", "--simulate", "side=4,sigma=0.6", "--sigma", 0.05, "--out", "box"
    )
    found = record("box")["estimates"]
    assert found["side"]["truth"] == 4
    assert "edge" not in capsys.readouterr().out
    assert found["side"]["low"] <= 4 <= found["side"]["high"]


# --- demo --------------------------------------------------------------------------------------------------------------------------


def test_images_grow_patch_by_patch() -> None:
    grown = grow(digit_mixture(), 2, "reading", patch=4, levels=6, stops=4, seed=0, progress=silent)
    assert [int(waiting.sum()) for _, waiting in grown.stages] == [48, 32, 16, 0]
    assert not grown.stages[0][1][0, :4, :4].any()  # the first patch is done
    first, second = grown.stages[0][0], grown.stages[1][0]
    assert torch.equal(first[:, :, :4, :4], second[:, :, :4, :4])  # and stays
    assert not torch.equal(first[:, :, :4, 4:], second[:, :, :4, 4:])
    other = grow(digit_mixture(), 2, "reversed", patch=4, levels=6, stops=4, seed=0, progress=silent)
    assert not other.stages[0][1][0, 4:, 4:].any()  # here the last patch comes first
    again = grow(digit_mixture(), 2, "reading", patch=4, levels=6, stops=4, seed=0, progress=silent)
    assert torch.equal(again.images, grown.images)


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


def test_the_exact_energy_is_a_good_one() -> None:
    energy, x = digit_mixture(), load_digits("test").batch(torch.arange(297)).double()
    cov = SpatialCovariance(torch.zeros(1, 1, 8, 8, dtype=torch.float64)).isotropic(energy.range.minimum)
    mean, spread = energy.moments()
    plain = DenseGaussian(mean, spread + 1e-3 * torch.eye(64), SHAPE)
    assert float(energy(x, cov).mean()) < float(plain(x, cov).mean()) - 10  # nats an image, held out

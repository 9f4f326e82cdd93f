"""What the page's buttons do, without a browser and without gradio: the library's calls, streamed, stopped, repeated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import linverse as lv
from linverse.data.examples import load_examples
from linverse.posterior import Posterior
from linverse.question import ask
from linverse.restoration import one_shot, pixel_marginal, stream_samples
from linverse.studio import markup, work
from linverse.studio.kinds import KINDS, damage_of
from linverse.studio.models import Models, StudioModel
from linverse.studio.pack import zip_bytes
from linverse.studio.uploads import MOST_PIXELS, open_picture, reduced
from linverse.studio.visitors import Answer, Visitors

NOISE, PAINTED, BOX, HALF = (
    "noise of a known level",
    "painted: what I painted over is missing",
    "a missing square",
    "half the resolution (×2)",
)


@pytest.fixture(scope="module")
def model() -> StudioModel:
    return Models(["mnist"]).get("mnist")


@pytest.fixture(scope="module")
def garments() -> StudioModel:
    return Models(["fashion-mnist"]).get("fashion-mnist")


@pytest.fixture(scope="module")
def energy(model):
    return model.energy


@pytest.fixture(scope="module")
def digit():
    return lv.Picture(load_examples("mnist").batch(torch.tensor([1])), "two.png", depth=8)


def hole() -> torch.Tensor:
    mask = torch.ones(1, 1, 28, 28, dtype=torch.bool)
    mask[..., 10:16, 10:16] = False
    return mask


def question(energy, digit, kind=PAINTED, **words):
    said = {"strength": 8, "sigma": 0.05, "mask": hole(), "simulate": True} | words
    return ask(energy, digit, damage_of(kind, **said), resize=True, tell=lambda text: None)


# --- questions -----------------------------------------------------------------------------------------------------------------


def test_what_is_painted_is_missing_and_nothing_else(energy, digit) -> None:
    seen = question(energy, digit).measurement
    assert bool((seen.measured[0, 0] == hole()[0, 0]).all())


@pytest.mark.parametrize("kind", [kind for kind, what in KINDS.items() if not what.auto])
def test_every_kind_is_a_measurement_that_the_model_takes(energy, digit, kind) -> None:
    words = {"strength": KINDS[kind].default, "sigma": KINDS[kind].sigma}
    assert Posterior(energy, question(energy, digit, kind, **words).measurement, check=False).covariance.size == (
        28,
        28,
    )


def test_a_damaged_picture_of_low_resolution_is_taken_as_it_is(energy, digit) -> None:
    small = digit.resized((14, 14))
    found = question(energy, small, HALF, simulate=False)
    assert found.truth is None
    assert torch.equal(found.measurement.raw, small.pixels)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"mask": None}, "nothing is painted"),
        ({"mask": torch.zeros(1, 1, 28, 28, dtype=torch.bool)}, "all of the picture"),
        ({"sigma": -1.0}, "between 0 and 3"),
        ({"sigma": float("nan")}, "between 0 and 3"),
        ({"kind": "magic"}, "choose what happened"),
        ({"kind": BOX, "strength": 1e9}, "side is between"),
        ({"kind": "noise, find its level (auto)"}, "damaged picture"),
    ],
)
def test_nonsense_is_refused_in_words(energy, digit, words, said) -> None:
    with pytest.raises(ValueError, match=said):
        question(energy, digit, **words)


def test_a_large_picture_is_reduced_with_a_notice() -> None:
    told: list[str] = []
    small = reduced(lv.Picture(torch.zeros(1, 1, 400, 1600), "long.png"), told.append)
    assert small.size[0] * small.size[1] <= MOST_PIXELS
    assert abs(small.size[1] / small.size[0] - 4) < 0.05
    assert "reduced to" in told[0]


def test_hostile_files_get_a_line_that_names_no_path(tmp_path: Path) -> None:
    png = BytesIO()
    Image.new("RGB", (64, 64)).save(png, "PNG")
    files = {
        "cut.png": png.getvalue()[:60],
        "empty.png": b"",
        "page.svg": b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>",
        "text.jpg": b"#!/bin/sh\nrm -rf nothing\n",
        "bomb.zip": b"PK\x03\x04" + bytes(1000),
        "huge.png": png.getvalue()[:16] + (60000).to_bytes(4, "big") * 2 + png.getvalue()[24:],
    }
    for name, content in files.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(ValueError, match="this picture") as caught:
            open_picture(path, lambda text: None)
        assert str(tmp_path) not in str(caught.value), name


# --- restorations --------------------------------------------------------------------------------------------------------------


def test_the_first_answer_comes_before_any_sample_and_samples_one_by_one(model, energy, digit) -> None:
    seen = [
        len(result.samples) for result, _ in work.restored(model, question(energy, digit), samples=2, steps=3, seed=0)
    ]
    assert seen == [0, 0, 1, 2]


def test_samples_are_sorted_and_number_one_does_not_depend_on_how_many_follow(energy, digit) -> None:
    post = Posterior(energy, question(energy, digit).measurement, check=False)
    first = one_shot(post, compare=False)
    *_, three = stream_samples(first, post, 3, 3, seed=1)
    one = next(iter(stream_samples(first, post, 1, 3, seed=1)))
    assert bool((three.log_probs.diff() <= 0).all())
    assert any(torch.equal(one.samples[0], sample) for sample in three.samples)
    assert torch.allclose(post.rank(three.samples[:, None])[1][:, 0], three.log_probs)


def test_stop_keeps_what_is_finished(model, energy, digit) -> None:
    flag, last = threading.Event(), None
    for last in work.restored(model, question(energy, digit), samples=4, steps=3, seed=0, progress=work.watched(flag)):
        if len(last[0].samples) == 1:
            flag.set()
    assert last is not None
    assert len(last[0].samples) == 1
    assert not last[0].completed
    assert "stopped" in last[1][-1]


def test_stop_reaches_only_its_own_visitor(tmp_path: Path) -> None:
    visitors = Visitors(tmp_path)
    mine, theirs = visitors.begin("me"), visitors.begin("them")
    visitors.stop("me")
    assert mine.is_set()
    assert not theirs.is_set()
    visitors.leave("them")
    assert theirs.is_set()
    assert "them" not in visitors.flags


def test_stop_reaches_work_that_still_waits_and_not_what_is_asked_next(tmp_path: Path) -> None:
    visitors = Visitors(tmp_path)
    visitors.press("me")
    visitors.stop("me")
    assert visitors.begin("me").is_set()
    visitors.press("me")
    running = visitors.begin("me")
    assert not running.is_set()
    visitors.press("me")  # again, before the first is done
    assert running.is_set()
    assert not visitors.begin("me").is_set()


def test_answers_that_are_kept_are_bounded_and_the_oldest_goes(energy, digit, tmp_path: Path) -> None:
    asked = question(energy, digit)
    result = one_shot(Posterior(energy, asked.measurement, check=False), compare=False)
    answer = Answer(asked, result, "mnist", steps=2, seed=0)
    visitors = Visitors(tmp_path, most_bytes=2 * answer.nbytes)
    for name in ("a", "b"):
        visitors.keep(name, answer)
    assert visitors.answer("a") is answer  # used: now b is the oldest
    visitors.keep("c", answer)
    assert set(visitors.answers) == {"a", "c"}
    with pytest.raises(ValueError, match="no longer kept"):
        visitors.answer("b")


def test_visitors_at_the_same_time_get_their_own_answers(model, energy, digit) -> None:
    def answer(seed: int) -> torch.Tensor:
        *_, (result, _) = work.restored(model, question(energy, digit), samples=1, steps=2, seed=seed)
        return result.samples

    alone = [answer(seed) for seed in range(2)]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(answer, range(2)))
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(alone, together, strict=True))
    assert not torch.allclose(alone[0], alone[1], atol=1e-3)


def test_too_much_work_is_refused_before_it_begins(model, energy, digit) -> None:
    with pytest.raises(ValueError, match="0 to 32 samples"):
        work.check_work(10_000, 50)
    slow = StudioModel("slow", energy, pace=1.0)  # a second for a pixel: 13 minutes for a digit
    asked = question(energy, digit)
    with pytest.raises(ValueError, match="41 evaluations of 28×28 pixels would take about 536 minutes"):
        next(work.restored(slow, asked, samples=1, steps=40, seed=0))
    for refused in (
        lambda: work.filmed(slow, asked, "clamped", steps=40, seed=0),
        lambda: work.compared(slow, asked, "ours", steps=40, seed=0),
        lambda: work.blind(slow, digit, "line-blur"),
    ):
        with pytest.raises(ValueError, match="minutes here"):
            refused()
    slowish = StudioModel("slowish", energy, pace=200 / 784 / 3)  # a sample of two steps takes 200 seconds
    *_, (result, notes) = work.restored(slowish, asked, samples=5, steps=2, seed=0)
    assert len(result.samples) == 3
    assert "there is time for 3 of the 5 samples of 28×28 pixels" in notes


def test_a_film_that_would_fill_the_memory_is_refused(model) -> None:
    work.check_film(model, (28, 28), work.MOST_STEPS)
    with pytest.raises(ValueError, match="take at most 127 steps, or a smaller picture"):
        work.check_film(model, (512, 512), 200)  # 2 MB of grey pictures at every level


def test_stop_ends_a_method_that_reports_no_progress(model, energy, digit) -> None:
    flag, seen = threading.Event(), []

    def count(task: str, done: int, total: int) -> None:
        seen.append((task, done, total))
        if done == 3:
            flag.set()

    with pytest.raises(KeyboardInterrupt):
        work.compared(model, question(energy, digit), "diffpir", steps=50, seed=0, progress=work.watched(flag, count))
    assert seen == [("diffpir", 1, 50), ("diffpir", 2, 50), ("diffpir", 3, 50)]


def test_a_pixel_has_the_interval_of_its_samples(energy, digit) -> None:
    post = Posterior(energy, question(energy, digit).measurement, check=False)
    result = one_shot(post, compare=False)
    row, column = divmod(int(result.std[0].argmax()), 28)
    gaussian = pixel_marginal(result, row, column)
    assert float(gaussian.high - gaussian.low) == pytest.approx(2 * 1.6449 * float(result.std.max()), rel=1e-3)
    samples = torch.arange(1.0, 20.0).reshape(19, 1, 1, 1).expand(19, 1, 28, 28)
    counted = pixel_marginal(replace(result, samples=samples), 12, 12)
    assert (float(counted.low), float(counted.high)) == (1.0, 19.0)  # 19 samples leave 5 % beyond either end
    few = pixel_marginal(replace(result, samples=samples[:2]), 12, 12)  # 1 and 2: t = 6.314, std² = ½
    assert float(few.high - few.low) == pytest.approx(2 * 6.3138 * (0.5 * 1.5) ** 0.5, rel=1e-4)
    assert few.interval_from == "Student's law of 2 samples"
    with pytest.raises(ValueError, match="28×28"):
        pixel_marginal(result, 28, 0)


def test_the_zip_holds_the_lines_that_repeat_it(model, energy, digit, tmp_path: Path) -> None:
    asked = question(energy, digit, simulate=False)
    *_, (result, _) = work.restored(model, asked, samples=1, steps=2, seed=5)
    with zipfile.ZipFile(BytesIO(zip_bytes(Answer(asked, result, "mnist", 2, 5), energy))) as archive:
        archive.extractall(tmp_path)
    record = json.loads((tmp_path / "result.json").read_text())
    assert record["seed"] == 5
    assert {"mean.png", "samples/01.png", "mask.png", "repeat.py"} <= set(record["files"])
    more = "\nnp.save('again.npy', result.samples.numpy())\n"
    code = (tmp_path / "repeat.py").read_text() + more
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, env=environment)
    assert np.allclose(np.load(tmp_path / "again.npy"), result.samples.numpy(), atol=1e-5)


# --- blind, films, comparisons ---------------------------------------------------------------------------------------------------


def test_blind_finds_the_noise_that_was_added(model, energy, digit) -> None:
    found = work.blind(model, digit, "noise", truth={"sigma": 0.2}).search
    low, high = found.interval(found.axes[0])
    assert 0.15 < low < high < 0.25


def test_blind_leaves_out_what_is_painted_over(model, digit) -> None:
    """A patch of noise three times as strong, painted over: what is left has the noise of the rest."""
    generator, mask = torch.Generator().manual_seed(0), torch.ones(1, 1, 28, 28, dtype=torch.bool)
    mask[..., :10] = False
    noise = 0.1 * torch.randn(digit.pixels.shape, generator=generator)
    noisy = replace(digit, pixels=digit.pixels + torch.where(mask, noise, 5 * noise), depth=None, step=None)

    def interval(mask: torch.Tensor | None) -> tuple[float, float]:
        found = work.blind(model, noisy, "noise", mask=mask).search
        return found.interval(found.axes[0])

    low, high = interval(mask)
    assert low < 0.1 < high
    assert interval(None)[0] > 0.15


@pytest.mark.parametrize(
    ("truth", "said"), [({"sigma": 0.0}, "no noise to look for"), ({"sigma": float("nan")}, "sigma is a number")]
)
def test_blind_refuses_to_simulate_nonsense(model, digit, truth, said) -> None:
    with pytest.raises(ValueError, match=said):
        work.blind(model, digit, "noise", truth=truth)


@pytest.mark.parametrize("name", list(work.PATHS))
def test_a_film_goes_from_the_measurement_to_the_floor(model, energy, digit, name) -> None:
    film = work.filmed(model, question(energy, digit), name, steps=16, seed=0, clicked=[5, 3])
    levels = film.path.log_variance
    assert len(film.images) == len(levels) == film.path.steps + 1
    assert float(levels[-1].max()) == pytest.approx(np.log(energy.range.minimum), abs=1e-3)


def test_the_order_that_was_clicked_is_the_order_in_which_patches_fall(model, energy, digit) -> None:
    everything = torch.zeros(1, 1, 28, 28, dtype=torch.bool)
    everything[..., 0, 0] = True
    asked = question(energy, digit, mask=everything)
    film = work.filmed(model, asked, "any order", steps=32, seed=0, clicked=[5, 3])
    first = film.path.log_variance[work.FEWEST_LEVELS, 0, 0]
    fallen = first < film.path.log_variance[0, 0, 0]
    assert bool(fallen[7:14, 7:14].all())
    assert int(fallen.sum()) == 49


def test_a_film_is_the_run_that_draw_makes(energy, digit) -> None:
    post = Posterior(energy, question(energy, digit).measurement, check=False)
    film = post.film(3, generator=torch.Generator().manual_seed(0))
    drawn = post.draw(1, 3, generator=torch.Generator().manual_seed(0), finish="floor")
    assert torch.equal(film.images[-1], drawn.samples[0])


def test_two_methods_are_compared_on_the_same_data(model, energy, digit) -> None:
    asked = question(energy, digit, NOISE, sigma=0.3)
    mean, inverse = (
        work.compared(model, asked, name, steps=5, seed=0) for name in ("posterior-mean", "pseudo-inverse")
    )
    assert mean.metrics["PSNR (dB)"] > inverse.metrics["PSNR (dB)"] + 3
    assert torch.allclose(inverse.image, asked.measurement.raw[0])


def test_a_model_that_does_not_know_blurs_says_so(model, energy, digit) -> None:
    (said,) = work.extrapolation(model, question(energy, digit, "Gaussian blur", strength=1))
    assert "the answer is an extrapolation" in said


@pytest.mark.parametrize("name", list(work.COMPARED))
def test_every_method_that_is_offered_works(garments, digit, name) -> None:
    asked = question(garments.energy, digit, "Gaussian blur", strength=1)
    assert work.extrapolation(garments, asked) == []
    assert work.compared(garments, asked, name, steps=5, seed=0).image.shape == (1, 28, 28)


# --- words and pictures ------------------------------------------------------------------------------------------------------------


def test_nothing_that_a_visitor_says_is_markup() -> None:
    assert "<script>" not in markup.notes(["<script>alert(1)</script>"])
    assert "<script>" not in markup.table(("a",), [("<script>",)])
    assert '"><' not in markup.img(b"", '"><script>')


def test_pictures_have_words(model, energy, digit) -> None:
    *_, (result, _) = work.restored(model, question(energy, digit), samples=1, steps=2, seed=0)
    assert 'alt="sample 1, log-density' in markup.samples(result)
    assert markup.picture(result.mean).shape == (336, 336, 3)

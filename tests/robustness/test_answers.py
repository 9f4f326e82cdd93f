"""Never a wrong answer without a word: interrupted spreads, images in every form that people have, and what is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import linverse as lv
from linverse.energy import log_prob
from linverse.experiments.demo import exact_digits
from linverse.posterior import Posterior
from linverse.restoration import restore
from linverse.sampling import autoregressive, sampler
from linverse.typicality import score_images
from robustness.models import saved_model
from small import SHAPE, digit


def interrupted_at(task_steps: int) -> Callable[[str, int, int], None]:
    def progress(task: str, done: int, total: int) -> None:
        if done >= task_steps:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize(("after", "finished"), [(3, 0), (13, 20)])
def test_the_spread_of_an_interrupted_run_is_that_of_what_was_finished(
    after: int, finished: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty samples in four parts of five steps: in the first part there is none, in the third there are twenty."""
    monkeypatch.setattr(sampler, "CHUNK_PIXELS", 10 * 64)
    posterior = Posterior(exact_digits(), lv.GaussianBlur(0.8, 0.1).measure(digit(), torch.Generator().manual_seed(0)))
    whole = restore(posterior, samples=40, path=5)
    cut = restore(posterior, samples=40, path=5, progress=interrupted_at(after))
    assert not cut.completed
    assert len(cut.samples) == finished
    assert cut.std_from == (f"the spread of {finished} samples" if finished else "one-shot, diagonal approximation")
    if finished:
        assert torch.equal(cut.std, cut.samples.std(dim=0))
    assert 0.5 < float(cut.std.mean() / whole.std.mean()) < 2


def test_patches_are_generated_in_enough_levels() -> None:
    cov = lv.SpatialCovariance(torch.zeros(1, 1, 4, 4))
    assert autoregressive(cov, 1e-3, patch=2).steps == 4 * 25  # 10 would be off by 0.13 in the covariance, 25 by 0.05


# --- images in every form ------------------------------------------------------------------------------------------------------------


def asked(x: Any) -> dict[str, Callable[[], Tensor]]:
    """Every question that takes an image."""
    energy = lv.load(saved_model())
    post = lv.Posterior(
        energy,
        lv.Denoising(0.1).measure(torch.full((1, *SHAPE), 0.5), torch.Generator().manual_seed(0)),
        check=False,
    )
    cov = lv.SpatialCovariance(torch.full((1, 1, 8, 8), -3.0))
    return {
        "log_prob": lambda: log_prob(energy, x),
        "score": lambda: score_images(energy, x).log_density,
        "evaluate": lambda: lv.evaluate(energy, x, cov).mean,
        "posterior.log_prob": lambda: post.log_prob(x),
        "measure": lambda: lv.Posterior(energy, lv.Denoising(0.1).from_raw(x), check=False).mean(),
    }


FORMS: dict[str, Callable[[Tensor], Any]] = {
    "numpy": lambda x: x.numpy(),
    "fortran": lambda x: np.asfortranarray(x.numpy()),
    "lists": lambda x: x.tolist(),
    "float64": lambda x: x.double(),
    "not contiguous": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "every second": lambda x: x.repeat_interleave(2, dim=3)[..., ::2],
}


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_an_image_does_not_matter(form: str) -> None:
    x = torch.rand(2, *SHAPE, generator=torch.Generator().manual_seed(1))
    for name, question in asked(FORMS[form](x)).items():
        torch.testing.assert_close(question().double(), asked(x)[name]().double(), rtol=1e-5, atol=1e-4)


def test_half_precision_is_taken_as_it_is_rounded() -> None:
    x = torch.rand(2, *SHAPE, generator=torch.Generator().manual_seed(1)).half()
    for name, question in asked(x).items():
        torch.testing.assert_close(question(), asked(x.float())[name]())


NO_IMAGES: dict[str, tuple[Any, str]] = {
    "none": (None, "None"),
    "word": ("x", "give a tensor"),
    "empty": (torch.zeros(0, *SHAPE), "nothing in it|at least one"),
    "one dimension short": (torch.zeros(SHAPE), "batch"),
    "bytes": (torch.zeros(1, *SHAPE, dtype=torch.uint8), "divide 8-bit values by 255"),
    "nan": (torch.full((1, *SHAPE), float("nan")), "NaN or infinite"),
    "infinite": (torch.full((1, *SHAPE), float("inf")), "NaN or infinite"),
    "channels": (torch.zeros(1, 3, 8, 8), "3"),
    "size": (torch.zeros(1, 1, 8, 9), "9"),
    "ragged": ([[1.0], [1.0, 2.0]], "not an array of numbers"),
    "objects": (np.array([None]), "give a tensor"),
    "sparse": (torch.zeros(1, *SHAPE).to_sparse(), "sparse"),
}


@pytest.mark.parametrize("name", NO_IMAGES)
def test_what_is_no_image_is_refused_in_words(name: str) -> None:
    given, complaint = NO_IMAGES[name]
    for question in asked(given).values():
        with pytest.raises((ValueError, TypeError), match=complaint):
            question()


def test_an_energy_is_asked_in_its_own_precision() -> None:
    energy = lv.load(saved_model())
    with pytest.raises(TypeError, match=r"y is torch.float64 and the model torch.float32"):
        energy(torch.zeros(1, *SHAPE).double(), lv.SpatialCovariance(torch.zeros(1, 1, 8, 8).double()))
    with pytest.raises(TypeError, match="energy is None"):
        log_prob(None, torch.zeros(1, *SHAPE))  # type: ignore[arg-type]


# --- pictures and their masks --------------------------------------------------------------------------------------------------------


def test_a_mask_is_turned_as_its_picture_is(tmp_path: Path) -> None:
    pixels = np.zeros((4, 6), np.uint8)
    pixels[0, 0] = 255
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in ("picture.png", "mask.png"):
        Image.fromarray(pixels).save(tmp_path / name, exif=exif)
    picture, mask = lv.read(tmp_path / "picture.png"), lv.read_mask(tmp_path / "mask.png")
    assert picture.size == (6, 4)
    assert torch.equal(picture.pixels > 0.5, mask)

"""Pillow's pictures are taken wherever images are, on the scale that their mode says; whatever would be a guess is refused."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import linverse as lv
from linverse.analytic import DiagonalGaussian
from linverse.covariance import identity
from linverse.degradations import as_image, as_tensor
from linverse.energy import evaluate, log_prob

RED, GREY = (255, 51, 0), 102


@pytest.mark.parametrize(
    ("image", "wanted"),
    [
        (Image.new("RGB", (3, 2), RED), [1.0, 0.2, 0.0]),
        (Image.new("L", (3, 2), GREY), [0.4]),
        (Image.new("1", (3, 2), 1), [1.0]),
        (Image.new("F", (3, 2), 0.25), [0.25]),
        (Image.new("I;16", (3, 2), 13107), [0.2]),
    ],
    ids=["RGB", "L", "1", "F", "I;16"],
)
def test_the_mode_says_what_is_white(image: Any, wanted: list[float]) -> None:
    found = as_image(image)
    assert found.shape == (1, len(wanted), 2, 3)  # Pillow's sizes are width × height
    torch.testing.assert_close(found, torch.tensor(wanted).reshape(1, -1, 1, 1).expand_as(found))


def test_pixels_stand_where_they_stood() -> None:
    values = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    torch.testing.assert_close(as_tensor(Image.fromarray(values))[0, 1, 0, 2] * 255, torch.tensor(7.0))


def test_a_list_of_pictures_is_a_batch() -> None:
    pair = [Image.new("L", (4, 4), 0), Image.new("L", (4, 4), 255)]
    assert as_tensor(pair).flatten(1).mean(dim=1).tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="several kinds: 1×4×4, 3×4×4"):
        as_tensor([pair[0], Image.new("RGB", (4, 4))])


def clear(mode: str) -> Any:
    image = Image.new(mode, (2, 2))
    image.info["transparency"] = 0
    return image


@pytest.mark.parametrize(
    "image",
    [*(Image.new(mode, (2, 2)) for mode in ("RGBA", "LA", "P", "CMYK", "YCbCr", "HSV", "I")), clear("L"), clear("RGB")],
    ids=lambda image: image.mode,
)
def test_what_would_be_a_guess_is_refused(image: Any) -> None:
    with pytest.raises(ValueError, match=f"Pillow picture of mode {image.mode}.*linverse.read"):
        as_tensor(image)


def saved(image: Any, **options: Any) -> Any:
    file = io.BytesIO()
    image.save(file, **options)
    return Image.open(file)


def test_frames_and_turned_pictures_are_not_passed_over() -> None:
    frames = [Image.new("L", (2, 2), value) for value in (0, 255)]
    with pytest.raises(ValueError, match=r"2 frames; give one of them: image\.copy"):
        as_tensor(saved(frames[0], format="TIFF", save_all=True, append_images=frames[1:]))
    exif = Image.Exif()
    exif[0x0112] = 6
    with pytest.warns(UserWarning, match="exif_transpose"):
        as_tensor(saved(Image.new("RGB", (4, 2)), format="JPEG", exif=exif))


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, bool])
def test_integer_arrays_are_refused_with_a_way_out(dtype: Any) -> None:
    with pytest.raises(ValueError, match=r"divide 8-bit values by 255.*or give the Pillow picture"):
        as_tensor(np.zeros((1, 1, 2, 2), dtype=dtype))


def test_they_go_wherever_tensors_go() -> None:
    picture = Image.fromarray(np.arange(16, dtype=np.uint8).reshape(4, 4) * 17)
    x = as_tensor(picture)
    energy = DiagonalGaussian(identity("spatial", (1, 4, 4)).isotropic(0.04), limits=lv.VarianceRange(1e-6, 1e3))
    cov = identity("spatial", (1, 4, 4)).isotropic(0.01)
    assert torch.equal(evaluate(energy, picture, cov).mean, evaluate(energy, x, cov).mean)
    assert torch.equal(log_prob(energy, picture), log_prob(energy, x))
    post, same = (lv.Posterior(energy, lv.Denoising(sigma=0.1).from_raw(given)) for given in (picture, x))
    assert torch.equal(post.mean(), same.mean())
    assert torch.equal(post.log_prob(picture), same.log_prob(x))


@pytest.mark.parametrize("mode", ["1", "L", "RGB", "RGBA", "LA"])
def test_masks_may_be_pictures(mode: str) -> None:
    wanted = torch.ones(4, 5, dtype=torch.bool)
    wanted[:2] = False
    picture = Image.fromarray(wanted.numpy()).convert("L").convert(mode)
    assert torch.equal(lv.Inpainting(picture).mask_for((4, 5)).amin(dim=1)[0], wanted)


def test_a_palette_is_no_mask() -> None:
    with pytest.raises(TypeError, match="a Pillow picture of mode 1, L, LA, RGB, RGBA will do"):
        lv.Inpainting(Image.new("P", (4, 4)))

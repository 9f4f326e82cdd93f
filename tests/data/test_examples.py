"""The pictures that come with the package are the test images they say."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from linverse.data import load_images
from linverse.data.examples import CHOSEN, FILE, load_examples, write_examples


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

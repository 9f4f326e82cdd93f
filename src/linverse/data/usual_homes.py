"""Where data sets lie on people's machines already: torchvision's folders, and the caches of the Hugging Face hub and its `datasets`.

torchvision keeps MNIST/raw and FashionMNIST/raw (idx files) and cifar-10-batches-py (pickles) below a root that everybody chooses; `data`,
`~/data` and `~/datasets` are looked into. The hub keeps parquet files, `datasets` Arrow files: columns `image` (or `img`), a file's
bytes, and `label`, in the order of the originals. Parquet and Arrow need pyarrow (`pip install 'linverse[datasets]'`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linverse.extras import require

TORCHVISION_ROOTS = ("data", "~/data", "~/datasets")
ENDINGS = (".parquet", ".arrow")
IMAGE_COLUMNS = ("image", "img")
LABEL_COLUMNS = ("label", "labels", "fine_label")

Bytes = NDArray[np.uint8]


def torchvision_roots() -> list[Path]:
    """The folders that people give torchvision as `root`."""
    return [Path(root).expanduser() for root in TORCHVISION_ROOTS]


def cached_tables(ids: Sequence[str], split: str) -> list[Path]:
    """The parquet or Arrow files of one split of a data set of the hub (`owner/name`), as the hub's or `datasets`' cache has them."""
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    library = Path(os.environ.get("HF_DATASETS_CACHE") or home / "datasets").expanduser()
    for name in ids:
        snapshots = hub / f"datasets--{name.replace('/', '--')}" / "snapshots"
        for folder in (*sorted(snapshots.glob("*")), library / name.replace("/", "___")):
            found = split_tables(folder, split)
            if found:
                return found
    return []


def split_tables(folder: Path, split: str) -> list[Path]:
    """Tables below a folder that speak of a split in their own name or their folder's, in order: train-00000-of-00001.parquet, test/…"""
    every = [file for file in folder.rglob("*") if file.suffix in ENDINGS and file.is_file()]
    named = [file for file in every if split in file.name or file.parent.name == split]
    folders = sorted({file.parent for file in named})
    return sorted(file for file in named if file.parent == folders[-1]) if folders else []


def read_tables(files: Sequence[Path]) -> tuple[list[Bytes], NDArray[np.int64] | None]:
    """Pictures [H, W] or [H, W, 3], and their labels where there are some."""
    pictures: list[Bytes] = []
    labels: list[int] = []
    for file in files:
        for image, label in _rows(file):
            pictures.append(_decode(image, file))
            if label is not None:
                labels.append(int(label))
    return pictures, np.array(labels, dtype=np.int64) if len(labels) == len(pictures) else None


def _rows(file: Path) -> Iterator[tuple[Any, Any]]:
    table = _open(file)
    image = next((name for name in IMAGE_COLUMNS if name in table.column_names), None)
    if image is None:
        columns = ", ".join(table.column_names)
        raise ValueError(f"{file} has the columns {columns}; pictures are looked for in {' or '.join(IMAGE_COLUMNS)}")
    label = next((name for name in LABEL_COLUMNS if name in table.column_names), None)
    labels = table.column(label) if label else None
    for number, value in enumerate(
        table.column(image)
    ):  # one row after the other: a set need not fit twice into memory
        yield value.as_py(), None if labels is None else labels[number].as_py()


def _open(file: Path) -> Any:
    try:
        if file.suffix == ".parquet":
            return require("pyarrow.parquet", "datasets").read_table(file)
        return require("pyarrow.ipc", "datasets").open_stream(file).read_all()
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise ValueError(f"{file} cannot be read: {error}") from error


def _decode(value: Any, file: Path) -> Bytes:
    from PIL import Image

    content = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(content, bytes):
        raise ValueError(f"{file} does not hold its pictures' bytes (only paths?)")
    try:
        with Image.open(BytesIO(content)) as picture:
            return np.asarray(picture.convert("L" if picture.mode in ("L", "1", "I;16") else "RGB"))
    except Exception as error:  # Pillow's decoders raise a dozen kinds
        raise ValueError(f"{file} holds a picture that cannot be read: {error}") from error

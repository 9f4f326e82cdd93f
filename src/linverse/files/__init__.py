"""Files on disk: written whole or not at all.

A file is written beside its place, flushed to the disk and renamed: nobody ever sees half of it, several processes may write at once (the
last one wins), and a crash or a full disk leaves the old file where it was.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A stream whose content becomes the file `path` when the block ends, and is forgotten if it ends in an error."""
    partial = path.with_name(f"{path.name}.{uuid4().hex}.partial")
    try:
        with partial.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())  # or a power cut could leave an empty file of that name
        partial.replace(path)
    except OSError as error:
        raise OSError(f"cannot write {path}: {error}") from error
    finally:
        partial.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """A file of these bytes."""
    with replacing(path) as stream:
        stream.write(content)


def write_together(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Several files of one folder: all are on the disk before the first takes its place, so that a full disk leaves the old ones."""
    with ExitStack() as stack:
        streams = [stack.enter_context(replacing(folder / name)) for name in contents]
        for stream, content in zip(streams, contents.values(), strict=True):
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        # leaving the stack renames them, one after the other


def json_bytes(content: Any, indent: int = 2) -> bytes:
    """JSON for people: indented, with letters as they are, and no number that JSON does not know."""
    text = json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode(errors="backslashreplace")  # names of files that are no text: \\udcff is JSON's own spelling


def write_json(path: Path, content: Any, indent: int = 2) -> None:
    """A file of JSON; the same content gives the same bytes."""
    write_whole(path, json_bytes(content, indent))


def read_object(path: Path, error_type: type[ValueError] = ValueError, remedy: str = "") -> dict[str, Any]:
    """A file that holds one JSON object; anything else is an error that names the file and says what to do."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise error_type(f"{path} cannot be read ({error}){remedy}") from error
    if not isinstance(content, dict):
        raise error_type(f"{path} holds no JSON object{remedy}")
    return content


def make_folder(folder: Path) -> None:
    """A folder for results, or an error that says why there is none."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"cannot make the folder {folder} for the results: {error}; give another --out") from error


def cache_directory() -> Path:
    """$LINVERSE_DATA, else ~/.cache/linverse."""
    return Path(os.environ.get("LINVERSE_DATA") or "~/.cache/linverse").expanduser()


def file_digest(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()

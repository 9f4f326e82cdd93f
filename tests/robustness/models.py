"""Model folders that somebody damaged or forged: refused by name, or the model that was saved; never another one without a word."""

from __future__ import annotations

import json
import random
import shutil
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch

from linverse.files.saving import CARD, CONFIG, MANIFEST, REFERENCE, WEIGHTS, ModelFileError, hash_weights
from linverse.store.card import Card, card_of
from linverse.store.hub import load
from linverse.store.references import References
from robustness.cases import Wrong
from small import SHAPE, write_manifest
from tiny import tiny_energy

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 10**9, 10**7, 10**30, 0.5, -0.0, 1e308, float("nan"), float("inf")),
    *("", "x", "32", "group", [], [1], [1, 2], [0], [-1], ["x"], [1] * 50, [[1]], {}, {"a": 1}, [10**9], [None] * 3),
)


@lru_cache(maxsize=1)
def saved_model() -> Path:
    """A whole model of a few hundred weights, with a card and held-out images."""
    folder = Path(mkdtemp(prefix="linverse-fuzz-"))
    energy = tiny_energy(SHAPE, bases=("spatial", "fourier", "block-dct-4")).float()
    Card(name="tiny", about="a model", tests=(("a", "1", "b"),), held_out={"loss": 1.0}).attach_to(energy)
    pixels = torch.randint(0, 255, (24, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    energy.attach(REFERENCE, References(pixels).encode())
    energy.save_pretrained(folder)
    return folder


@lru_cache(maxsize=1)
def saved_hash() -> str:
    return hash_weights(load(saved_model()))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON object, from the root down."""
    found = [path] if path else []
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        found += places(inner, (*path, key))
    return found


def change(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The object with another value at one place."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = change(copy[path[0]], path[1:], new)
    return copy


def forged_object(dice: random.Random, folder: Path) -> str:
    """A config, manifest or card with one to three other values, and a manifest that agrees."""
    shutil.copytree(saved_model(), folder, dirs_exist_ok=True)
    name = dice.choice((CONFIG, CONFIG, CONFIG, MANIFEST, CARD))
    content = json.loads((folder / name).read_text())
    for _ in range(dice.choice((1, 1, 2, 3))):
        there = places(content)
        if there:
            content = change(content, dice.choice(there), dice.choice(VALUES))
    if dice.random() < 0.1:
        content = dice.choice(([], None, 1, "x", {}, [content]))
    (folder / name).write_text(json.dumps(content))
    if name != MANIFEST:
        write_manifest(folder)
    return opened(folder, f"{name}: {json.dumps(content):.300}")


def damaged_file(dice: random.Random, folder: Path) -> str:
    """A file of the model with a flipped bit, cut short, emptied, grown or gone; the manifest knows what it was."""
    shutil.copytree(saved_model(), folder, dirs_exist_ok=True)
    path = folder / dice.choice((WEIGHTS, CONFIG, MANIFEST, REFERENCE, CARD))
    content = bytearray(path.read_bytes())
    place = dice.randrange(len(content))
    how = dice.choice(("flip", "flip", "cut", "grow", "empty", "gone"))
    if how == "gone":
        path.unlink()
    else:
        content[place] ^= 1 << dice.randrange(8) if how == "flip" else 0
        cut = {"cut": content[:place], "empty": b"", "grow": content + b"x"}.get(how, content)
        path.write_bytes(bytes(cut))
    result = opened(folder, f"{how} {path.name} at {place}")
    deciding = path.name in (WEIGHTS, REFERENCE)
    if deciding and how != "gone" and result == "loaded":
        raise Wrong(f"a damaged {path.name} was loaded ({how} at {place})")
    return result


def damaged_header(dice: random.Random, folder: Path) -> str:
    """Weights with other bytes at the beginning, and a manifest that agrees: a forged file."""
    shutil.copytree(saved_model(), folder, dirs_exist_ok=True)
    path = folder / dice.choice((WEIGHTS, REFERENCE))
    content = bytearray(path.read_bytes())
    for _ in range(dice.choice((1, 2, 8))):
        content[dice.randrange(min(len(content), 2000))] = dice.randrange(256)
    path.write_bytes(bytes(content))
    write_manifest(folder)
    return opened(folder, f"a forged {path.name}")


def opened(folder: Path, what: str) -> str:
    """Whether the model opens; the only errors are those that name the file."""
    try:
        model = load(folder)
        card_of(model)
    except (ModelFileError, MemoryError) as error:
        if not str(error).strip():
            raise Wrong(f"{what}: an error without a word") from error
        return "refused"
    except Exception as error:
        raise Wrong(f"{what}: {type(error).__name__}: {error}") from error
    return "loaded"

"""Training and held-out images where the data do not say which are which: one in twenty, chosen by a hash of its name.

A name's place depends on nothing else, so that it is the same on every machine and stays the same when images are added.
"""

from __future__ import annotations

from linverse.rng import keyed_seed

SPLITS = ("train", "test")
ONE_IN = 20


def check_split(split: str) -> None:
    """Refuse what is neither "train" nor "test"."""
    if split not in SPLITS:
        raise ValueError(f'split is "train" or "test"; got {split!r}')


def belongs(key: str, split: str) -> bool:
    """Whether the image of this name is in the split."""
    held_out = keyed_seed("linverse held-out images", key) % ONE_IN == 0
    return held_out == (split == "test")


def refuse_empty(count: int, split: str, where: object, advice: str) -> None:
    """An empty split is an error that says what to do."""
    if count == 0:
        raise ValueError(f"{where} has no images in its {split!r} split; {advice}")

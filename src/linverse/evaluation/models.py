"""Which models an experiment asks, and which images it shows them.

A model is the name of a bundled one, a folder, or an id of the hub (`store.hub`). Images are held out: drawn once and for all from the
test split of a data set, in an order of our own (the test set of MNIST comes sorted: its first half was written more tidily).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.data import load_images
from linverse.energy import Energy, Evaluation, evaluate
from linverse.files.saving import ModelFileError
from linverse.models.classifier import DigitClassifier
from linverse.models.energies.learned import LearnedEnergy
from linverse.rng import keyed_generator
from linverse.store.hub import find_model, load

CHUNK = 128  # images of 28×28 evaluated at once: enough to keep a CPU busy, and little memory


@dataclass(frozen=True)
class PairOptions:
    """An energy, and the one without the covariance score to compare it with."""

    model: str = "fashion-mnist"
    """the energy: a bundled name or a folder"""
    single_model: str | None = "fashion-mnist-single"
    """the energy without the covariance score (None: leave it out); `linverse train fashion-mnist-single` trains one"""
    data: str = "fashion-mnist"
    """whose test images"""


def load_energy(name: str, option: str = "--model") -> LearnedEnergy:
    """An energy; if there is none of that name, an error that says how to get one."""
    try:
        return load(name)
    except ModelFileError as error:
        raise ModelFileError(f"{str(error).rstrip('.')}. {_remedy(name, option)}") from error


def load_companion(name: str | None, option: str = "--single-model") -> LearnedEnergy | None:
    """The energy to compare with, or None where the comparison is left out."""
    return None if name is None else load_energy(name, option)


def load_classifier(name: str, option: str = "--classifier") -> DigitClassifier:
    """The classifier that judges digits."""
    try:
        return DigitClassifier.from_folder(find_model(name))
    except ModelFileError as error:
        raise ModelFileError(f"{str(error).rstrip('.')}. {_remedy(name, option)}") from error


def _remedy(name: str, option: str) -> str:
    return f"`linverse train {name.rpartition('/')[2]}` trains one; {option} FOLDER takes one from elsewhere"


@dataclass(frozen=True)
class HeldOut:
    """Images [N, C, H, W] in [0, 1], and their labels [N] if they have any."""

    x: Tensor
    labels: Tensor | None


def held_out(data: str, count: int, shape: tuple[int, int, int], split: str = "test") -> HeldOut:
    """The first `count` test images of a data set, in our own order, for a model of the given shape.

    What has parameters to choose chooses them on the other split, "train".
    """
    channels, height, width = shape
    images = load_images(data, split, size=(height, width), channels=channels)
    if count < 1:
        raise ValueError(f"{count} images were asked for; at least one is needed")
    if count > len(images):
        raise ValueError(f"{data} has {len(images)} {split} images; {count} are needed")
    order = torch.randperm(len(images), generator=keyed_generator("held-out", data))[:count]
    return HeldOut(images.batch(order), None if images.labels is None else images.labels[order])


def chunks(count: int, size: int = CHUNK) -> Iterator[slice]:
    """0 … count in slices."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def evaluate_many(energy: Energy, y: Tensor, cov: Covariance, size: int = CHUNK) -> Evaluation:
    """`evaluate` of many images with little memory."""
    cov = cov.expand(len(y)) if cov.batch == 1 else cov
    parts = [evaluate(energy, y[rows], cov[rows]).tensors() for rows in chunks(len(y), size)]
    return Evaluation(cov, *(torch.cat(group) for group in zip(*parts, strict=True)))

"""A finished training run becomes one of the models that come with the package: `linverse bundle RUN NAME`.

The run's model is loaded (so that what cannot be loaded is not bundled), given its name, a licence and its card, and saved among the
weights with a manifest. Nobody ever sees half of it: the folder is made beside its place and renamed.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from linverse.files import read_object
from linverse.files.saving import CONFIG, LICENCE, HubModel, ModelFileError, check_manifest
from linverse.models.classifier import DigitClassifier
from linverse.models.denoiser import Denoiser
from linverse.models.energies.learned import LearnedEnergy
from linverse.store.card import Card, card_of
from linverse.store.hub import WEIGHTS_FOLDER, find_model

KINDS: tuple[type[HubModel], ...] = (LearnedEnergy, Denoiser, DigitClassifier)


def licence_text(card: Card) -> str:
    """What may be done with the weights, and whose data they learned from."""
    source = f"{card.title or card.data or 'unnamed data'} ({card.licence or 'licence not stated'})"
    return (
        f"The weights of {card.name} are part of linverse and are distributed under its licence (MIT).\n\n"
        f"They were trained on: {source}.\n"
    )


def open_any(folder: Path) -> HubModel:
    """The model of a folder, of whatever kind it says it is."""
    check_manifest(folder)
    kind = read_object(folder / CONFIG, ModelFileError).get("kind")
    for cls in KINDS:
        if cls.config_type.kind == kind:
            return cls.from_folder(folder)
    raise ModelFileError(f"{folder} holds a model of the kind {kind!r}, which cannot be bundled")


def bundle(run: str | Path, name: str, root: Path = WEIGHTS_FOLDER, *, replace: bool = False) -> Path:
    """Put the model of a finished run (its folder, or that of its model) among the bundled ones; returns its new folder."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name):
        raise ValueError(f"a bundled model has a name of small letters, digits, dots and dashes; got {name!r}")
    target, partial = root / name, root / f".{name}.partial"
    if target.exists() and not replace:
        raise ValueError(f"there is a bundled model {name!r} already; --replace puts this one in its place")
    model = open_any(find_model(run))
    card = card_of(model)
    if card is None:
        raise ModelFileError(f"the model of {run} has no card: only a run that came to its end can be bundled")
    card = card.renamed(name)
    card.attach_to(model)
    model.attach(LICENCE, licence_text(card).encode())
    shutil.rmtree(partial, ignore_errors=True)
    model.save_pretrained(partial)
    shutil.rmtree(target, ignore_errors=True)
    return partial.rename(target)

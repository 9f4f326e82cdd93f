"""`load(name)`: a model by the name of a bundled one, by its folder, or by its id on the Hugging Face hub.

Bundled models need no network. A name without a slash means a bundled model first; `./NAME` means the folder. An id of the hub is looked
for in the hub's cache; only if it is not there is the network asked, and that is said (by the logger "linverse", on stderr). A name that
looks like a mistyped path is refused. A file that was cut short, changed, or belongs to another kind of model is refused too
(files/saving.py).
"""

from __future__ import annotations

import difflib
import logging
from pathlib import Path
from typing import TypeVar

import torch

from linverse.devices import check_device
from linverse.files.saving import MANIFEST, HubModel, ModelFileError, download
from linverse.models.classifier import DigitClassifier
from linverse.models.denoiser import Denoiser
from linverse.models.energies.learned import LearnedEnergy
from linverse.store.references import references_of

WEIGHTS_FOLDER = Path(__file__).parents[1] / "weights"
Model = TypeVar("Model", bound=HubModel)


def load(name: str | Path, device: str | torch.device = "cpu") -> LearnedEnergy:
    """The energy of a name: bundled, a folder (of a model or of a training run), or `owner/name` on the hub; on a `device` that is there.

    Measurements are moved to where the energy is; the answers stay there.

    >>> energy = load("fashion-mnist")
    >>> energy.shape
    (1, 28, 28)
    """
    return _load(LearnedEnergy, name, device)


def load_denoiser(name: str | Path, device: str | torch.device = "cpu") -> Denoiser:
    """The same for a denoiser."""
    return _load(Denoiser, name, device)


def load_classifier(name: str | Path, device: str | torch.device = "cpu") -> DigitClassifier:
    """The same for the classifier of digits."""
    return _load(DigitClassifier, name, device)


def _load(kind: type[Model], name: str | Path, device: str | torch.device) -> Model:
    place = check_device(device)  # before anything is read
    model = kind.from_folder(find_model(name), str(place))
    references_of(model)  # a foreign file of them is refused now, not when they are asked for
    return model


def bundled(root: Path = WEIGHTS_FOLDER) -> list[str]:
    """Names of the models that come with the package."""
    return sorted(path.parent.name for path in root.glob(f"*/{MANIFEST}"))


def find_model(name: str | Path, root: Path = WEIGHTS_FOLDER) -> Path:
    """The folder that a name means; a hub id is downloaded."""
    if str(name) in bundled(root):
        return root / str(name)
    folder = Path(name).expanduser()
    if folder.is_dir():
        run = folder / "model"  # a training run keeps its model here
        return run if not (folder / MANIFEST).exists() and run.is_dir() else folder
    if isinstance(name, Path) or folder.is_absolute() or name.count("/") != 1 or name.startswith("."):
        raise ModelFileError(_no_such_model(str(name), bundled(root)))
    if folder.parent.is_dir():
        raise ModelFileError(_mistyped(folder))
    try:
        return download(name, local_files_only=True)
    except ModelFileError:
        logging.getLogger("linverse").warning("there is no folder %r: asking the Hugging Face hub for it", name)
        return download(name)


def _mistyped(folder: Path) -> str:
    """Who has a folder `runs` and asks for `runs/fashon` means a folder, not somebody's model on the hub."""
    near = difflib.get_close_matches(folder.name, [path.name for path in folder.parent.iterdir()])
    hint = f"; there is {', '.join(str(folder.parent / name) for name in near)}" if near else ""
    return f"there is no folder {str(folder)!r} in {str(folder.parent)!r}{hint} (`from_pretrained` takes it for an id of the hub)"


def _no_such_model(name: str, names: list[str]) -> str:
    said = f"there is no model {name!r}: no folder of that name, and the bundled ones are {', '.join(names) or 'none'}"
    if not any(name.startswith(f"{main}-") for main in names):
        return said
    return f"{said}. Score networks and other companions of a model are in the repository's src/linverse/weights, not in the package"

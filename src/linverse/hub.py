"""`load(name)`: a model by the name of a bundled one, by its folder, or by its id on the Hugging Face hub.

Bundled models need no network. A name without a slash means a bundled model first; `./NAME` means the folder. A file that was cut
short, changed, or belongs to another kind of model is refused (models/saving.py).
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from linverse.models.denoiser import Denoiser
from linverse.models.learned import LearnedEnergy
from linverse.models.saving import MANIFEST, ModelFileError, check_manifest, download, folder_references

WEIGHTS_FOLDER = Path(__file__).parent / "weights"


def load(name: str | Path) -> LearnedEnergy:
    """The energy of a name: bundled, a folder (of a model or of a training run), or `owner/name` on the hub."""
    return LearnedEnergy.from_folder(find_model(name))


def load_denoiser(name: str | Path) -> Denoiser:
    """The same for a denoiser."""
    return Denoiser.from_folder(find_model(name))


def reference_images(name: str | Path) -> Tensor | None:
    """Held-out images [n, C, H, W] in [0, 1] that travel with a model, or None; a loaded one has `reference_images()` itself."""
    folder = find_model(name)
    check_manifest(folder)
    references = folder_references(folder)
    return None if references is None else references.images()


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
        names = ", ".join(bundled(root)) or "none"
        raise ModelFileError(
            f"there is no model {str(name)!r}: no folder of that name, and the bundled ones are {names}"
        )
    return download(name)

"""A handful of held-out pictures that come with the package: eight garments and eight digits, for the demo and for trying things.

They are test images of Fashion-MNIST (MIT licence) and of MNIST, by their numbers there; no model has seen them. `write_examples` makes the
file from the data sets, byte for byte.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch

from linverse.data.images import ImageSet
from linverse.data.loading import load_images

FILE = Path(__file__).parents[1] / "weights" / "images.safetensors"
CHOSEN = {
    # boot, bag, plaid shirt, sneaker, dress, high heel, striped T-shirt, pullover
    "fashion-mnist": (28, 30, 7, 36, 29, 82, 35, 54),
    # 7, 2, 3, 4, 5, 6, 8, 9
    "mnist": (0, 1, 30, 27, 15, 21, 61, 12),
}
LICENCES = {"fashion-mnist": "MIT (Zalando SE)", "mnist": "the usual MNIST terms (LeCun, Cortes, Burges)"}


def load_examples(name: str, file: Path = FILE) -> ImageSet:
    """The bundled test images of a data set, with their labels."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if name not in CHOSEN:
        raise ValueError(f"there are no bundled images of {name!r}; there are {', '.join(CHOSEN)}")
    try:
        tensors = load_file(file)
        images, labels = tensors[f"{name}.images"], tensors[f"{name}.labels"]
    except (OSError, SafetensorError, KeyError) as error:
        raise OSError(f"the bundled images in {file} cannot be read: {error}; install linverse again") from error
    return ImageSet(name, images, labels, "test", notes=(f"test images {CHOSEN[name]}, {LICENCES[name]}",))


def write_examples(file: Path = FILE) -> None:
    """Make the file from the data sets on this machine."""
    from safetensors.torch import save_file

    tensors = {}
    for name, numbers in CHOSEN.items():
        chosen = load_images(name, "test").subset(numbers)
        assert chosen.labels is not None
        tensors[f"{name}.images"] = chosen.images.contiguous()
        tensors[f"{name}.labels"] = chosen.labels.to(torch.int64)
    file.parent.mkdir(parents=True, exist_ok=True)
    about = json.dumps({"licences": LICENCES, "test images": CHOSEN})  # one entry: several would come in any order
    save_file(tensors, file, metadata={"about": about})
    file.chmod(0o644)

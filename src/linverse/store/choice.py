"""Which bundled model a picture asks for, where none is named: `photographs` for colour, `photographs-grey` for grey.

A grey picture is not shown to the colour model as three equal channels: that model takes the noise of three channels to be independent,
would read three copies of one noise as three measurements, and be too sure by a factor of √3.
"""

from __future__ import annotations

from pathlib import Path

from linverse.files.saving import ModelFileError
from linverse.store.hub import WEIGHTS_FOLDER, bundled

MODELS = {3: "photographs", 1: "photographs-grey"}
SMALL = ("fashion-mnist", "mnist")


def model_for(channels: int, root: Path = WEIGHTS_FOLDER) -> str:
    """The bundled model for pictures of so many channels, or an error that says what there is."""
    kind = {1: "grey", 3: "colour"}.get(channels)
    if kind is None:
        raise ModelFileError(f"no bundled model takes pictures of {channels} channels; name one with --model")
    name, there = MODELS[channels], bundled(root)
    if name not in there:
        raise ModelFileError(
            f"the model for {kind} pictures of any size, {name}, is not bundled here; name another with --model ({', '.join(there)})"
        )
    return name


def main_models(root: Path = WEIGHTS_FOLDER) -> list[str]:
    """The bundled models that are for looking at pictures (not their companions): those for photographs first, where they are there.

    >>> main_models()[-2:]
    ['fashion-mnist', 'mnist']
    """
    there = bundled(root)
    return [name for name in (*MODELS.values(), *SMALL) if name in there]

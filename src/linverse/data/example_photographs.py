"""Three photographs that come with the package, for the demo and for trying things: held out from training, free to be shown.

They are parts of pictures of `linverse data photographs` that are in the public domain or CC0, cut out and reduced to 128×128;
`write_photographs` makes the file from the gathered ones. Who made them stands in the file and in `Photograph.credit`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from linverse.data.photographs import photographs_home, read_index
from linverse.data.reading import read

FILE = Path(__file__).parents[1] / "weights" / "photographs.safetensors"
SIDE = 128
CHOSEN = {  # name → file, top, left and side of the part
    "lemur": ("gcompris-qt-data/explore_world_animals-lemur.png", 110, 210, 256),
    "crab": ("gcompris-qt-data/erase-crab.png", 130, 400, 512),
    "lionfish": ("krank/unera-backgrounds-level-11.png", 60, 60, 512),
}


@dataclass(frozen=True, eq=False)
class Photograph:
    """A picture [1, 3, 128, 128] in [0, 1], and who made it under which licence."""

    name: str
    pixels: Tensor
    credit: str


def load_photographs(file: Path = FILE) -> dict[str, Photograph]:
    """The bundled photographs by name.

    >>> from linverse.data.example_photographs import load_photographs
    >>> photographs = load_photographs()
    >>> {name: tuple(one.pixels.shape) for name, one in photographs.items()}
    {'lemur': (1, 3, 128, 128), 'crab': (1, 3, 128, 128), 'lionfish': (1, 3, 128, 128)}
    >>> photographs["lemur"].credit
    'Mathias Appel, CC0-1.0'
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as content:
            credits = json.loads((content.metadata() or {})["credits"])
            return {
                name: Photograph(name, content.get_tensor(name)[None].float() / 255, credits[name]) for name in CHOSEN
            }
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise OSError(f"the bundled photographs in {file} cannot be read: {error}; install linverse again") from error


def write_photographs(file: Path = FILE) -> None:
    """Make the file from the photographs gathered on this machine."""
    from safetensors.torch import save_file

    home = photographs_home()
    index = {entry.file: entry for entry in read_index(home).pictures}
    tensors, credits = {}, {}
    for name, (source, top, left, side) in CHOSEN.items():
        entry = index[source]
        if entry.split != "test" or not entry.may_be_shown:
            raise ValueError(f"{source} was trained on, or may not be shown")
        part = read(home / source).pixels[..., top : top + side, left : left + side]
        small = torch.nn.functional.avg_pool2d(part, side // SIDE)[0]
        tensors[name] = (small * 255).round().to(torch.uint8).contiguous()
        credits[name] = f"{entry.author}, {entry.licence}"
    save_file(tensors, file, metadata={"credits": json.dumps(credits)})
    file.chmod(0o644)

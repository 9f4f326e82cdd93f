"""The models that a page offers: loaded when they are first asked for, each with its card, its examples and its pace."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from linverse.covariance import identity
from linverse.data.example_photographs import load_photographs
from linverse.data.examples import CHOSEN, load_examples
from linverse.data.picture import Picture
from linverse.energy import evaluate
from linverse.files.saving import PAGE
from linverse.models.energies.learned import LearnedEnergy
from linverse.store.choice import MODELS
from linverse.store.hub import find_model, load

EXAMPLES = 8
TRIAL_SIDE = 64  # of the picture on which the pace of a model for any size is taken


@dataclass(frozen=True, eq=False)
class StudioModel:
    """A model by its name, and the seconds that it takes to evaluate a pixel of one picture."""

    name: str
    energy: LearnedEnergy
    pace: float

    def seconds(self, pixels: int, evaluations: int) -> float:
        """What so many evaluations of a picture take, about: known before any of them is made."""
        return self.pace * pixels * evaluations

    def card(self) -> str:
        """What its makers say of it, without the hub's YAML at the top."""
        page = find_model(self.name) / PAGE
        if not page.is_file():
            return "This model has no card."
        text = page.read_text(encoding="utf-8")
        return text.split("---\n", 2)[-1] if text.startswith("---\n") else text

    def examples(self) -> dict[str, Picture]:
        """Bundled pictures, licence-clear, of the kind that the model knows."""
        if None in self.energy.shape:
            photographs = load_photographs().values()
            return {f"{one.name} ({one.credit})": Picture(one.pixels, f"{one.name}.png", 8) for one in photographs}
        known = [name for name in CHOSEN if name in Path(self.name).name] or list(CHOSEN)
        return {
            f"{name} {i + 1}": Picture(load_examples(name).batch(torch.tensor([i])), f"{name}-{i + 1}.png", 8)
            for name in known
            for i in range(EXAMPLES)
        }


def measured_pace(energy: LearnedEnergy) -> float:
    """Seconds per pixel of one evaluation with its derivatives; the first one, which warms up, is not counted."""
    channels, height, width = energy.shape
    shape = channels, height or TRIAL_SIDE, width or TRIAL_SIDE
    cov = identity("spatial", shape).isotropic(0.1)
    for _ in range(2):
        begun = time.perf_counter()
        evaluate(energy, torch.full((1, *shape), 0.5), cov)
    return (time.perf_counter() - begun) / (shape[1] * shape[2])


class Models:
    """Names, the first of which a visitor sees first; for photographs, colour and grey have each their own."""

    def __init__(self, names: list[str], device: str = "cpu") -> None:
        self.names, self.device = list(dict.fromkeys(names)), device
        self._loaded: dict[str, StudioModel] = {}
        self._lock = threading.Lock()

    def get(self, name: str) -> StudioModel:
        """The model of a name that is offered."""
        if name not in self.names:
            raise ValueError(f"there is no model {name!r} here; there are {', '.join(self.names)}")
        with self._lock:
            if name not in self._loaded:
                energy = load(name, self.device)
                self._loaded[name] = StudioModel(name, energy, measured_pace(energy))
            return self._loaded[name]

    def fitting(self, name: str, picture: Picture) -> str:
        """The model for a picture: a grey one does not go to the model for colour photographs, nor the other way round."""
        other = MODELS.get(picture.channels)
        return other if name in MODELS.values() and other in self.names else name

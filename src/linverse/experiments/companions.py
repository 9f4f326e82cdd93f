"""The networks of the other methods beside an energy: the isotropic one and the conditional ones that are bundled under its name.

An energy of one's own (a folder) has none; `companions` then names the bundled model whose networks are to be taken.
"""

from __future__ import annotations

from linverse.evaluation.defaults import BUNDLED_PALETTES, load_models
from linverse.evaluation.networks import Models
from linverse.store.hub import bundled


def load_with_companions(model: str, companions: str = "") -> Models:
    """An energy, and the score and Palette networks of `companions` (by default its own)."""
    name, there = companions or model, bundled()
    score = f"{name}-score" if f"{name}-score" in there else ""
    palettes = [f"{task}={name}-{kind}" for task, kind in BUNDLED_PALETTES.items() if f"{name}-{kind}" in there]
    return load_models(model, score, palettes)

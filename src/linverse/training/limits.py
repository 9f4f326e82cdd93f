"""What a user must not expect of a model: a sentence for its card."""

from __future__ import annotations

from linverse.models.energies.learned import EnergyConfig
from linverse.training.config import TrainConfig


def limits(config: TrainConfig) -> str:
    """What a user must not expect, in one sentence or two."""
    channels, height, width = config.model.shape
    colours = {1: "grey", 3: "colour"}.get(channels, f"{channels}-channel")
    size = "any size" if height is None else f"{height}×{width}"
    noises = ", ".join(dict.fromkeys(str(c.distribution.kind).replace("-", " ") for c in config.covariances.components))
    knows = (
        f"knows {colours} images of {size} like those of {config.data}, and noise variances from {config.model.minimum:g} "
        f"to {config.model.maximum:g} of the kinds it was trained with ({noises}); of anything else its certainty means little: "
        "compare with what is typical (`linverse score`)"
    )
    if config.loss.objective == "single" and isinstance(config.model, EnergyConfig):
        knows += (
            ". Nothing in its training tied noise levels together: it is for means and samples, and for comparison; "
            "its densities, evidence and standard deviations mean nothing"
        )
    return knows

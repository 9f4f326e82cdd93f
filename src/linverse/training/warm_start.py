"""A run that starts from the weights of another model: fine-tuning, and models of other colours.

Weights are taken over by name and shape. Where the two models differ in their number of colours only, the layers that touch the picture are
folded: the network's inputs and outputs are groups of one entry per channel, and a grey picture is a colour one with equal channels, so
    colour → grey:   inputs Σ_c W_c,  outputs mean_c W_c          grey → colour:   inputs W/C in each channel,  outputs W in each.
With these R_grey(x) = R_colour(x, x, x)/3 at first: the same correction of every pixel.

What was fitted to images (the Gaussian base) is kept with the weights unless asked otherwise or unless its shape differs; all that does
not fit starts afresh, and is named.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from linverse.files.saving import MANIFEST, HubModel
from linverse.models.denoiser import Denoiser
from linverse.models.energies.learned import LearnedEnergy
from linverse.store.card import card_of
from linverse.store.hub import bundled, load, load_denoiser
from linverse.training.checkpoint import read_state
from linverse.training.config import TrainConfig

NOT_TAKEN = "constant"  # found at the end of every run


@dataclass(frozen=True)
class TakenOver:
    """What a run took from another model: names of weights, as in a state dict."""

    same: tuple[str, ...]
    folded: tuple[str, ...]
    afresh: tuple[str, ...]
    base_kept: bool

    def describe(self, source: str) -> str:
        """One line for a person."""
        text = f"starts from {source}: {len(self.same)} tensors as they are"
        if self.folded:
            text += f", {', '.join(self.folded)} folded to other colours"
        if self.afresh:
            text += f", {', '.join(self.afresh)} afresh"
        return text + ("; its Gaussian base is kept" if self.base_kept else "; the Gaussian base is fitted to the data")


def source_model(name: str, kind: type[HubModel]) -> LearnedEnergy | Denoiser:
    """The model of a name: bundled, a folder, a finished run, or the averaged weights of an unfinished one."""
    folder = Path(name).expanduser()
    finished = (folder / MANIFEST).exists() or (folder / "model").is_dir()
    if name not in bundled() and folder.is_dir() and not finished and (state := read_state(folder)) is not None:
        model = TrainConfig.from_json(state.config).model.build()
        weights = {key.removeprefix("module."): value for key, value in state.ema.items() if key != "n_averaged"}
        model.load_state_dict(weights)
        return model
    return load_denoiser(name) if issubclass(kind, Denoiser) else load(name)


def fine_tuning(name: str) -> TrainConfig:
    """The training of a model as its card has it, made shorter and gentler: a tenth of the steps at a third of the rates, largest crops."""
    card = card_of(load(name))
    try:
        config = TrainConfig.from_dict({} if card is None else card.training)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"the card of {name} does not say how it was trained in terms of this version; name a preset: "
            f"linverse train PRESET --from {name}"
        ) from error
    optimiser = replace(config.optimiser, rate=config.optimiser.rate / 3, muon_rate=config.optimiser.muon_rate / 3)
    return replace(
        config,
        start_from=name,
        isotropic_first=0,
        crops=config.crops[-1:],
        steps=max(1, config.steps // 10),
        optimiser=optimiser,
    )


@torch.no_grad()
def take_over(model: LearnedEnergy | Denoiser, source: LearnedEnergy | Denoiser, *, refit: bool = False) -> TakenOver:
    """Copy into `model` (built, and fitted to its data) whatever of `source` fits."""
    theirs, channels = source.state_dict(), (source.config.shape[0], model.config.shape[0])
    same: list[str] = []
    folded: list[str] = []
    afresh: list[str] = []
    for name, mine in model.named_parameters():
        given = theirs.get(name)
        fitting = None if given is None else fold(given, mine.shape, *channels)
        if fitting is None:
            afresh.append(name)
            continue
        mine.copy_(fitting)
        (same if given is not None and given.shape == mine.shape else folded).append(name)
    if not same:
        raise ValueError("no weight of the model to start from fits this one: their networks differ")
    base = {name: b for name, b in model.state_dict().items() if name not in dict(model.named_parameters())}
    base.pop(NOT_TAKEN, None)
    keep = bool(base) and not refit and all(n in theirs and theirs[n].shape == b.shape for n, b in base.items())
    if keep:
        for name, buffer in base.items():
            buffer.copy_(theirs[name])
    return TakenOver(tuple(same), tuple(folded), tuple(afresh), keep)


def fold(given: Tensor, shape: torch.Size, old: int, new: int) -> Tensor | None:
    """Weights of a layer for pictures of `old` colours as one for `new`; None if they do not fit.

    Outputs are along dimension 0, inputs along dimension 1, both in groups of one entry per colour.
    """
    if given.shape == shape:
        return given
    if given.ndim != len(shape) or 1 not in (old, new):
        return None
    for dim, length in enumerate(shape):
        if given.shape[dim] == length:
            continue
        if dim > 1 or given.shape[dim] * new != length * old:
            return None
        groups = given.unflatten(dim, (-1, old))
        merged = groups.sum(dim + 1, keepdim=True) / (new if dim == 1 else old)
        given = merged.repeat_interleave(new, dim + 1).flatten(dim, dim + 1)
    return given

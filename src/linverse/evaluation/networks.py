"""The networks that methods run on: the energy, an isotropic denoiser, conditional ones; which of them a method gets on a task.

A network of another kind or for other images is refused when they are put together, before anybody works with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from linverse.baselines import EnergyDenoiser
from linverse.degradations import Degradation
from linverse.degradations.tasks import TASKS
from linverse.energy import Energy, fixed_shape
from linverse.evaluation.contenders import Contender
from linverse.files.saving import hash_weights

AS_DENOISER = "energy as denoiser"


@dataclass(frozen=True)
class PaletteModel:
    """A conditional network; if `task` is given for that one only, with its options: it was trained for no other."""

    network: Any
    task: str | None = None


@dataclass(frozen=True)
class Choice:
    """The network that a method uses, what it is (`kind`), and if there is none that fits: why, and what to do."""

    network: Any
    kind: str
    reason: str | None = None


@dataclass(frozen=True)
class Models:
    """The energy that judges and, where there are any, the companions of the other methods.

    Without an isotropic score network its methods use the energy itself, at Σ = λI; the table says so.
    """

    energy: Energy
    score: Any = None
    palettes: tuple[PaletteModel, ...] = ()

    def __post_init__(self) -> None:
        """Refuse networks of another kind or for other images, before anybody works with them."""
        check_companion("the score network", self.score, fixed_shape(self.energy), conditional=False)
        for palette in self.palettes:
            name = "the Palette network" + (f" for {palette.task}" if palette.task else "")
            check_companion(name, palette.network, fixed_shape(self.energy), conditional=True)
            if palette.task is not None and palette.task.partition(":")[0] not in TASKS:
                raise ValueError(f"{name}: there is no such task; there are {', '.join(TASKS)}")

    @property
    def denoiser(self) -> Any:
        """The isotropic network, or the energy at isotropic noise where there is none."""
        return self.score if self.score is not None else EnergyDenoiser(self.energy)

    def weights(self) -> dict[str, str]:
        """What tells energy and score network from others, for a record (`identity`)."""
        named = {"model": self.energy, "score": self.score}
        return {name: identity(model) for name, model in named.items() if model is not None}

    def choose(self, contender: Contender, task: str, degradation: Degradation) -> Choice:
        """The network for a method on a task."""
        if contender.needs == "nothing":
            return Choice(None, "none")
        if contender.needs == "energy":
            return Choice(self.energy, "energy")
        if contender.needs == "palette":
            return self._choose_palette(task, degradation)
        denoiser = self.denoiser
        return Choice(denoiser, AS_DENOISER if isinstance(denoiser, EnergyDenoiser) else "score")

    def _choose_palette(self, task: str, degradation: Degradation) -> Choice:
        name = task.partition(":")[0]
        own = [p.network for p in self.palettes if p.task == task]
        candidates = own or [p.network for p in self.palettes if p.task is None]
        for network in candidates:
            if fits(network, degradation):
                return Choice(network, "palette")
        reason = MISFIT_PALETTE if candidates else MISSING_PALETTE
        return Choice(
            None,
            "palette",
            reason.format(task=name, label=task, shown=degradation.condition_channels(self.energy.shape[0])),
        )


MISSING_PALETTE = (
    "it needs a conditional network that was trained for {task}: --palette-model {label}=FOLDER "
    "(`linverse train fashion-mnist-palette-inpainting` trains one for box, fashion-mnist-palette-deblurring one for gauss)"
)
MISFIT_PALETTE = (
    "none of the conditional networks fits {task}, which shows {shown} channels (pixels, and the mask where there is one): "
    "--palette-model {label}=FOLDER takes one that was trained for it"
)


def check_companion(name: str, network: Any, shape: tuple[int, int, int], conditional: bool) -> None:
    """Refuse a network of other images, or one that sees (does not see) a measurement."""
    if network is None:
        return
    theirs = getattr(network, "shape", shape)
    if tuple(theirs) != tuple(shape):
        raise ValueError(f"{name} takes images of {tuple(theirs)}; the energy takes {tuple(shape)}")
    channels = getattr(getattr(network, "config", None), "condition_channels", int(conditional))
    if conditional and not channels:
        raise ValueError(f"{name} is not conditional: it sees no measurement. Is it the isotropic one (--score-model)?")
    if channels and not conditional:
        raise ValueError(f"{name} is conditional: it was trained to see a measurement. Is it a --palette-model?")


def fits(network: Any, degradation: Degradation) -> bool:
    """Whether a conditional network sees as many channels as this degradation shows."""
    wanted = degradation.condition_channels(network.shape[0])
    config = getattr(network, "config", None)
    return getattr(config, "condition_channels", wanted) == wanted


def identity(model: Any) -> str:
    """What tells one model from another: the hash of its weights, or the name of its class."""
    return hash_weights(model) if isinstance(model, nn.Module) else type(model).__qualname__

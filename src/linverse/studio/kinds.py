"""What may have happened to a visitor's picture: kinds of damage with their options, and what the controls say as a `Damage`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import Tensor

from linverse.data.mask_files import resized_mask
from linverse.question import Damage, Size


@dataclass(frozen=True)
class Kind:
    """Something that may have happened: a task and the option that a visitor sets, with its words, default and range."""

    task: str | None  # None: the painted mask
    option: str | None = None
    words: str = ""
    default: float = 0.0
    lowest: float = 0.0
    highest: float = 1.0
    sigma: float = 0.01
    auto: bool = False


KINDS: dict[str, Kind] = {
    "painted: what I painted over is missing": Kind(None, sigma=1e-3),
    "noise of a known level": Kind("denoise", sigma=0.1),
    "noise, find its level (auto)": Kind("denoise", auto=True),
    "a missing square": Kind("box", "side", "side of the square, in pixels", 14, 1, 256, 1e-3),
    "missing pixels, at random": Kind(
        "random-pixels", "missing", "share that is missing, 0.05 to 0.95", 0.7, 0.05, 0.95, 1e-3
    ),
    "Gaussian blur": Kind("gauss", "std", "width of the blur (standard deviation), in pixels", 1.0, 0.3, 4.0),
    "Gaussian blur, find width and noise (auto)": Kind("gauss", auto=True),
    "motion blur (camera shake)": Kind("motion", "size", "size of the shake, in pixels", 7, 3, 31, 2e-3),
    "half the resolution (×2)": Kind("sr2"),
    "a quarter of the resolution (×4)": Kind("sr4"),
}
FRACTIONS = ("std", "missing")  # options that are no whole numbers
PAINTED = next(iter(KINDS))


def damage_of(kind: str, strength: float, sigma: float, *, simulate: bool, mask: Tensor | None = None) -> Damage:
    """What the controls say; a mask [1, 1, H, W] is True where the brush did not go."""
    if kind not in KINDS:
        raise ValueError(f"choose what happened to the picture: {'; '.join(KINDS)}")
    what = KINDS[kind]
    if what.auto and simulate:
        raise ValueError(
            "auto finds out what happened to a damaged picture: choose “this is the damaged picture”, or a known level"
        )
    if what.auto:
        return Damage(what.task or "", auto=True)
    if not 0 <= sigma <= 3:
        raise ValueError(f"the noise level is a standard deviation between 0 and 3 (white is 1); got {sigma:g}")
    if what.task is None:
        return Damage(sigma=sigma, mask=partial(painted_mask, mask), simulate=simulate)
    return Damage(what.task + option_text(what, strength), sigma, simulate=simulate)


def option_text(what: Kind, strength: float) -> str:
    """`:std=1.5`, or nothing where a kind has no option."""
    if what.option is None:
        return ""
    if not what.lowest <= strength <= what.highest:
        raise ValueError(f"{what.option} is between {what.lowest:g} and {what.highest:g}; got {strength:g}")
    return f":{what.option}={strength if what.option in FRACTIONS else round(strength):g}"


def painted_mask(mask: Tensor | None, size: Size) -> Tensor:
    """The mask for images of a size; a pixel counts as measured only if none of it was painted over."""
    if mask is None or bool(mask.all()):
        raise ValueError(
            "nothing is painted: paint over what is missing with the brush, or choose something else that happened"
        )
    mask = mask if tuple(mask.shape[2:]) == size else resized_mask(mask, size)
    if not bool(mask.any()):
        raise ValueError("all of the picture is painted over: nothing is left to go by")
    return mask

"""What the demo opens with: three photographs, one noisy by an unknown amount, one scratched, one blurred by a known width.

Each goes through a file of 8 bits, as a user's would, and is restored with what was found out: an estimate, a map of errors, samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from linverse.blind import find_degradation
from linverse.data.example_photographs import Photograph, load_photographs
from linverse.data.picture import Picture
from linverse.degradations import Denoising, GaussianBlur, Inpainting
from linverse.energy import Energy
from linverse.measurement import Measurement
from linverse.posterior import Posterior
from linverse.progress import Progress, named, silent
from linverse.restoration import Restoration, restore
from linverse.rng import keyed_generator

NOISE, BLUR, BLUR_NOISE, SCRATCH_NOISE = 0.1, 1.2, 0.01, 2e-3


@dataclass(frozen=True)
class PhotographAnswer:
    """One photograph: what was done to it, what was found out (name → value, low, high, truth), and the restoration."""

    title: str
    credit: str
    found: dict[str, tuple[float, float, float, float]]
    result: Restoration

    def record(self) -> dict[str, Any]:
        """The numbers."""
        names = ("value", "low", "high", "truth")
        found = {name: dict(zip(names, values, strict=True)) for name, values in self.found.items()}
        return {"credit": self.credit, "found": found, **self.result.record()}


def as_file(raw: Tensor) -> Picture:
    """Clipped and rounded to 8 bits."""
    return Picture((raw.clamp(0, 1) * 255).round() / 255, depth=8)


def scratches(side: int, seed: int = 0) -> Tensor:
    """[1, 1, side, side], True where measured: a dozen scratches, about 5 % of the picture."""
    generator = keyed_generator("scratches", seed)
    rows, columns = torch.meshgrid(torch.arange(float(side)), torch.arange(float(side)), indexing="ij")
    missing = torch.zeros(side, side, dtype=torch.bool)
    for place, angle, length in torch.rand(12, 3, generator=generator)[:, [0, 1, 2]].tolist():
        turn = math.pi * angle
        centre = side * torch.rand(2, generator=generator)
        along = (rows - centre[0]) * math.sin(turn) + (columns - centre[1]) * math.cos(turn)
        across = (rows - centre[0]) * math.cos(turn) - (columns - centre[1]) * math.sin(turn)
        bent = across + 6 * place * torch.sin(along / 15)
        missing |= (bent.abs() < 0.006 * side) & (along.abs() < side * (0.15 + 0.3 * length))
    return ~missing[None, None]


def ask_photographs(
    energy: Energy, samples: int = 4, path: int = 15, seed: int = 0, progress: Progress = silent
) -> tuple[PhotographAnswer, ...]:
    """The three photographs, degraded, found out and restored."""
    photographs = load_photographs()
    return (
        _noisy(energy, photographs["lemur"], samples, path, seed, progress),
        _scratched(energy, photographs["crab"], samples, path, seed, progress),
        _blurred(energy, photographs["lionfish"], samples, path, seed, progress),
    )


def _scratched(
    energy: Energy, photograph: Photograph, samples: int, path: int, seed: int, progress: Progress
) -> PhotographAnswer:
    degradation = Inpainting(scratches(photograph.pixels.shape[-1]), SCRATCH_NOISE)
    raw = degradation.measure(photograph.pixels, keyed_generator(seed, "scratched")).raw
    measurement = degradation.from_raw(as_file(raw).pixels).rounded(1 / 255)
    share = 100 * (1 - float(degradation.mask.double().mean()))
    watch = named(progress, "photographs, scratched")
    result = _restored(energy, measurement, photograph, samples, path, seed, watch)
    return PhotographAnswer(f"scratched: {share:.0f} % missing", photograph.credit, {}, result)


def _noisy(
    energy: Energy, photograph: Photograph, samples: int, path: int, seed: int, progress: Progress
) -> PhotographAnswer:
    watch = named(progress, "photographs, noisy")
    picture = as_file(Denoising(NOISE).measure(photograph.pixels, keyed_generator(seed, "photograph", 0)).raw)
    answer = find_degradation(energy, picture, seed=seed, progress=watch)
    measurement = answer.degradation.from_raw(picture.pixels).rounded(1 / 255)
    result = _restored(energy, measurement, photograph, samples, path, seed, watch)
    found = {name: (one["value"], one["low"], one["high"], NOISE) for name, one in answer.record().items()}
    return PhotographAnswer("noisy by an unknown amount", photograph.credit, found, result)


def _blurred(
    energy: Energy, photograph: Photograph, samples: int, path: int, seed: int, progress: Progress
) -> PhotographAnswer:
    degradation = GaussianBlur(BLUR, BLUR_NOISE, "reflecting")
    raw = degradation.measure(photograph.pixels, keyed_generator(seed, "photograph", 1)).raw
    measurement = degradation.from_raw(as_file(raw).pixels).rounded(1 / 255)
    watch = named(progress, "photographs, blurred")
    result = _restored(energy, measurement, photograph, samples, path, seed, watch)
    return PhotographAnswer(f"blurred: std {BLUR:g} pixels", photograph.credit, {}, result)


def _restored(
    energy: Energy,
    measurement: Measurement,
    photograph: Photograph,
    samples: int,
    path: int,
    seed: int,
    progress: Progress,
) -> Restoration:
    truth = photograph.pixels[0]
    result = restore(
        Posterior(energy, measurement), samples=samples, path=path, seed=seed, truth=truth, progress=progress
    )
    if not result.completed:
        raise KeyboardInterrupt
    return result

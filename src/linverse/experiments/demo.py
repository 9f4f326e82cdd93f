"""One model, every question: held-out pictures degraded and restored, degradations found out, digits drawn in any order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import linverse
from linverse.analytic import GaussianMixture
from linverse.analytic.digits import digit_mixture
from linverse.blind import FAMILIES, Axis, simulate
from linverse.data.digits import load_digits
from linverse.data.examples import load_examples
from linverse.degradations.tasks import parse_task
from linverse.energy import Energy, fixed_shape
from linverse.posterior import Posterior
from linverse.progress import Progress, named, silent
from linverse.restoration import BlindRestoration, Restoration, restore, restore_blindly
from linverse.rng import keyed_generator
from linverse.sampling import prior_start
from linverse.sampling.generation import GenerationStage, generate_patches
from linverse.store import hub

ORDERS = ("reading", "reversed", "centre-out")


@dataclass(frozen=True)
class DemoTask:
    """A task of the demo: what is said of it, its name for `linverse restore`, and the number of the bundled picture."""

    title: str
    task: str
    picture: int


@dataclass(frozen=True)
class Stage:
    """An energy, pictures that it has not seen [N, C, H, W], and what to do with them."""

    name: str
    energy: Energy
    pictures: Tensor
    tasks: tuple[DemoTask, ...]
    noise: tuple[int, float]  # the number of a picture, and the noise on it that is to be found out
    blur: tuple[int, float, float]  # likewise: picture, std, noise
    patch: int


@dataclass(frozen=True)
class BlindAnswer:
    """What was found out about a degradation, and what is true of it."""

    found: BlindRestoration
    truth: float

    @property
    def axis(self) -> Axis:
        return self.found.search.axes[0]


@dataclass(frozen=True)
class Generation:
    """Images drawn in one order of patches, at the stops on the way."""

    order: str
    stages: tuple[GenerationStage, ...]


@dataclass(frozen=True)
class Demo:
    """All answers."""

    stage: Stage
    drawing: Stage
    restorations: tuple[Restoration, ...]
    blind: tuple[BlindAnswer, ...]
    generations: tuple[Generation, ...]

    def record(self) -> dict[str, Any]:
        """The numbers."""
        restored = zip(self.stage.tasks, self.restorations, strict=True)
        return {
            "linverse": linverse.__version__,
            "model": self.stage.name,
            "digits_model": self.drawing.name,
            "restorations": {task.task: result.record() for task, result in restored},
            "blind": {
                blind.axis.name: {
                    "value": blind.found.search.value(blind.axis),
                    "interval_90": blind.found.search.interval(blind.axis),
                    "truth": blind.truth,
                }
                for blind in self.blind
            },
        }


# --- who plays ---------------------------------------------------------------------------------------------------------------------


def choose_stages(model: str | None = None, digits_model: str | None = None) -> tuple[Stage, Stage, list[str]]:
    """Who restores and who draws: trained models, or an exact energy where there is none; and which bundled ones are missing."""
    wanted, stages, missing = {"fashion-mnist": model, "mnist": digits_model}, [], []
    for pictures, given in wanted.items():
        name = given or (pictures if pictures in hub.bundled() else None)
        if name is None:
            missing.append(pictures)
        stages.append(exact_stage() if name is None else trained_stage(name, hub.load(name), pictures))
    return stages[0], stages[1], missing


def trained_stage(name: str, energy: Energy, pictures: str) -> Stage:
    """A learned energy with the bundled pictures."""
    examples = load_examples(pictures)
    if energy.shape != examples.shape:
        given, wanted = ("×".join(map(str, shape)) for shape in (energy.shape, examples.shape))
        raise ValueError(
            f"the demo's pictures are {wanted}; the model {name} takes {given} (`linverse restore` takes your own)"
        )
    tasks = (
        DemoTask("20×20 pixels missing", "box", 0),
        DemoTask("Gaussian blur, std 1.5", "gauss:std=1.5,sigma=0.02", 5),
        DemoTask("×4 super-resolution", "superres:sigma=0.01", 1),
    )
    x = examples.batch(torch.arange(len(examples)))
    return Stage(Path(name).name, energy, x, tasks, (3, 0.15), (4, 1.2, 0.02), patch=7)


def exact_stage() -> Stage:
    """The exact energy of small digits with held-out ones."""
    tasks = (
        DemoTask("5×5 pixels missing", "box:side=5,sigma=0.05", 3),
        DemoTask("Gaussian blur, std 0.7", "gauss:std=0.7,sigma=0.05", 1),
        DemoTask("×2 super-resolution", "superres:factor=2,sigma=0.05", 2),
    )
    x = load_digits("test").batch(torch.arange(8))
    return Stage("exact mixture of 8×8 digits", exact_digits(), x, tasks, (4, 0.2), (5, 0.8, 0.05), patch=2)


def exact_digits() -> GaussianMixture:
    """The exact energy of scikit-learn's 8×8 digits."""
    digits = load_digits("train")
    assert digits.labels is not None
    return digit_mixture(digits.batch(torch.arange(len(digits))), digits.labels)


# --- the questions -----------------------------------------------------------------------------------------------------------------


def ask_everything(
    stage: Stage, drawing: Stage, samples: int = 12, path: int = 50, seed: int = 0, progress: Progress = silent
) -> Demo:
    """The restorations, the blind estimates, the digits."""
    restorations = tuple(restored(stage, task, samples, path, seed, progress) for task in stage.tasks)
    (noisy, sigma), (blurred, std, noise) = stage.noise, stage.blur
    blind = (
        find_out(stage, "noise", 0.0, noisy, sigma, seed, progress),
        find_out(stage, "gaussian-blur", noise, blurred, std, seed, progress),
    )
    return Demo(stage, drawing, restorations, blind, tuple(drawn(drawing, order, seed, progress) for order in ORDERS))


def restored(stage: Stage, task: DemoTask, samples: int, path: int, seed: int, progress: Progress) -> Restoration:
    """One picture degraded and restored."""
    x = stage.pictures[task.picture]
    degradation = parse_task(task.task, fixed_shape(stage.energy)[1:])
    measurement = degradation.measure(x[None], keyed_generator(seed, "demo", task.task))
    posterior, watch = Posterior(stage.energy, measurement, check=False), named(progress, task.title)
    result = restore(posterior, samples=samples, path=path, seed=seed, truth=x, progress=watch)
    if not result.completed:
        raise KeyboardInterrupt
    return result


def find_out(
    stage: Stage, name: str, sigma: float, number: int, truth: float, seed: int, progress: Progress
) -> BlindAnswer:
    """A family of one parameter: simulate, search, restore."""
    preset = FAMILIES[name]
    family, axes = preset.build(sigma), preset.axes(fixed_shape(stage.energy)[1:])
    x = stage.pictures[number : number + 1]
    raw = simulate(family, x, {axes[0].name: truth}, keyed_generator(seed, "demo", name))
    watch = named(progress, f"blind, {name}")
    return BlindAnswer(restore_blindly(stage.energy, raw, family, axes, seed=seed, progress=watch), truth)


def drawn(stage: Stage, order: str, seed: int, progress: Progress) -> Generation:
    """Digits drawn patch by patch."""
    generator = keyed_generator(seed, "grow")
    stages = generate_patches(
        stage.energy,
        prior_start(stage.energy, 4, generator),
        order,
        patch=stage.patch,
        levels=20,  # with 12 one digit in fourteen has a patch of speckles
        stops=4,
        generator=generator,
        progress=named(progress, f"digits, {order}"),
    )
    return Generation(order, stages)

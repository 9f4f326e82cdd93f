"""What the page's buttons do: the library's own calls, streamed, watched and stopped when asked.

A visitor's Stop, or the end of the time that one answer may take, raises KeyboardInterrupt out of the progress that the library reports:
it then keeps what is finished, as it does on Ctrl-C.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from torch import Tensor, nn

from linverse.baselines import METHODS, EnergyDenoiser
from linverse.blind import FAMILIES, UnknownNoise, check_truth, reflecting, search_family, simulate
from linverse.covariance import Covariance, identity
from linverse.data.picture import Picture
from linverse.energy import Evaluation
from linverse.evaluation.contenders import default_settings
from linverse.extras import MissingExtra
from linverse.metrics import psnr, ssim
from linverse.models.energies.learned import LearnedEnergy
from linverse.posterior import Posterior
from linverse.progress import Progress, silent
from linverse.question import Question
from linverse.restoration import (
    BlindRestoration,
    Restoration,
    compare_with_references,
    one_shot,
    restore_found,
    stream_samples,
)
from linverse.rng import keyed_generator
from linverse.sampling import Film, MirrorStep, Path, Rule, VarianceStep, autoregressive, clamped, geometric
from linverse.studio.models import StudioModel

LONGEST = 600.0  # seconds of one answer
MOST_SAMPLES = 32
MOST_STEPS = 200
MOST_FILM = 256 * 2**20  # bytes


def watched(flag: threading.Event, report: Progress = silent, seconds: float = LONGEST) -> Progress:
    """Progress that ends the work once the flag is up or the time is over."""
    end = time.monotonic() + seconds

    def progress(task: str, done: int, total: int) -> None:
        if flag.is_set() or time.monotonic() > end:
            raise KeyboardInterrupt
        report(task, done, total)

    return progress


# --- restore -----------------------------------------------------------------------------------------------------------------------


def check_work(samples: int, steps: int) -> None:
    """Refuse what takes too long here, whatever the picture."""
    if not 0 <= samples <= MOST_SAMPLES or not 1 <= steps <= MOST_STEPS:
        raise ValueError(
            f"0 to {MOST_SAMPLES} samples of 1 to {MOST_STEPS} steps each are drawn here; got {samples} of {steps}"
        )


def check_time(model: StudioModel, size: tuple[int, int], evaluations: int, remedy: str) -> None:
    """Refuse, before it begins, what would take longer than one answer may, by the picture's size."""
    seconds = model.seconds(size[0] * size[1], evaluations)
    if seconds > LONGEST:
        raise ValueError(
            f"{evaluations:,} evaluations of {size[0]}×{size[1]} pixels would take about {seconds / 60:.0f} minutes here, and "
            f"{LONGEST / 60:.0f} are given: {remedy}"
        )


def posterior_of(model: StudioModel, question: Question) -> Posterior:
    """Where the model's weights are; what lies outside of its range is said in a note, not warned of."""
    device = next(model.energy.parameters()).device
    return Posterior(model.energy, question.measurement.to(str(device)), check=False)


def extrapolation(model: StudioModel, question: Question) -> list[str]:
    """A note where Σ lies beyond what the model knows: levels, or a basis."""
    outside = model.energy.range.excess(posterior_of(model, question).covariance)
    return [f"Σ has {outside}: the answer is an extrapolation"] if outside else []


def affordable(model: StudioModel, size: tuple[int, int], samples: int, steps: int) -> int:
    """How many of the samples there is time for, by the picture's size; at least one."""
    return min(samples, max(1, int(LONGEST / max(1e-9, model.seconds(size[0] * size[1], steps + 1)))))


def restored(
    model: StudioModel, question: Question, *, samples: int, steps: int, seed: int, progress: Progress = silent
) -> Iterator[tuple[Restoration, list[str]]]:
    """The one-shot answer at once, then judged by held-out images, then after each sample; with notes for the visitor."""
    check_work(samples, steps)
    size = question.measurement.template.size
    check_time(model, size, 1 + steps * min(samples, 1), "take fewer steps or a smaller picture")
    fewer = affordable(model, size, samples, steps)
    posterior = posterior_of(model, question)
    notes = [*question.found, *extrapolation(model, question)]
    if fewer < samples:
        notes.append(f"there is time for {fewer} of the {samples} samples of {size[0]}×{size[1]} pixels")
    result = one_shot(posterior, question.truth, compare=False)
    yield result, notes
    typicality, judged = compare_with_references(posterior)
    result = replace(result, typicality=typicality, calibration=judged)
    yield result, [*notes, *result.doubts()]
    for seen in stream_samples(result, posterior, fewer, steps, seed=seed, progress=progress):
        stopped = [] if seen.completed else [f"stopped: {len(seen.samples)} samples were finished"]
        yield seen, [*notes, *seen.doubts(), *stopped]  # what one shot was unsure of, samples may know


# --- blind -------------------------------------------------------------------------------------------------------------------------


def blind(
    model: StudioModel,
    picture: Picture,
    family_name: str,
    *,
    truth: dict[str, float] | None = None,
    mask: Tensor | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> BlindRestoration:
    """Which degradation of a family made this picture (or, with a `truth`, would have made it of the clean one)?

    A mask [1, 1, H, W] says which pixels were measured at all (noise only: a blur mixes them).
    """
    if family_name not in FAMILIES:
        raise ValueError(f"there is no family {family_name!r}; there are {', '.join(FAMILIES)}")
    energy, preset = model.energy, FAMILIES[family_name]
    axes, family = preset.axes(picture.size), preset.build(preset.sigma or 0.0)
    if len(axes) > 1 or mask is not None:  # a grid of whole pictures; the others are asked about bounded parts
        points = math.prod(len(axis.values()) for axis in axes)
        check_time(model, picture.size, 2 * points, "take a smaller picture, or a family of one parameter")
    family = reflecting(family) if None in energy.shape else family
    if truth is not None:
        check_truth(truth, axes)
        theta = {axis.name: truth[axis.name] * axis.scale for axis in axes}
        raw = simulate(family, picture.pixels, theta, keyed_generator(seed, "measure"))
        picture = replace(picture, pixels=raw, depth=None, step=None)
    if mask is not None and isinstance(family, UnknownNoise):
        family = replace(family, mask=mask)
    found = search_family(energy, picture, family, axes, seed=seed, progress=progress)
    return restore_found(energy, picture.pixels, family, found, seed=seed)


# --- path --------------------------------------------------------------------------------------------------------------------------

PATCHES = 4  # of an order, down and across
FEWEST_LEVELS = 6  # of a patch in an order
ANY_ORDER = "any order"
PATHS: dict[str, str] = {
    "clamped": "what was measured well waits until the rest is as certain",
    "geometric": "every coefficient at a rate of its own; all arrive together",
    ANY_ORDER: "patch after patch, in the order that you click",
    "energy-guided (mirror step)": "the covariance score decides how fast each coefficient goes",
    "energy-guided (variance step)": "fast where the model is sure",
}


def full_order(clicked: list[int]) -> list[int]:
    """The patches that were clicked, then the others in reading order."""
    return [*clicked, *(number for number in range(PATCHES**2) if number not in clicked)]


def free_patches(log_variance: Tensor, floor: float) -> int:
    """How many patches have something to be drawn: the others take no steps."""
    side = log_variance.shape[-1] // PATCHES
    top = log_variance.amax(dim=(0, 1)).unfold(0, side, side).unfold(1, side, side).amax(dim=(2, 3))
    return int((top > math.log(floor) + 1e-4).sum())


def path_named(name: str, posterior: Posterior, steps: int, clicked: list[int]) -> Path | Rule:
    """A path or a rule by the name that the page gives it."""
    cov, floor = posterior.covariance, posterior.energy.range.minimum
    if name == ANY_ORDER:
        side = cov.size[0]
        if side % PATCHES or cov.size[0] != cov.size[1]:
            raise ValueError(
                f"an order of patches needs a square picture whose side is a multiple of {PATCHES}; got {cov.size}"
            )
        levels = max(FEWEST_LEVELS, steps // max(1, free_patches(cov.log_variance, floor)))
        return autoregressive(cov, floor, side // PATCHES, full_order(clicked), levels)
    made: dict[str, Callable[[], Path | Rule]] = {
        "clamped": lambda: clamped(cov, floor, steps),
        "geometric": lambda: geometric(cov, floor, steps),
        "energy-guided (mirror step)": lambda: MirrorStep(*rates(cov.log_variance, floor, steps)),
        "energy-guided (variance step)": lambda: VarianceStep(*rates(cov.log_variance, floor, steps)),
    }
    if name not in made:
        raise ValueError(f"there is no path {name!r}; there are {', '.join(PATHS)}")
    return made[name]()


def rates(log_variance: Tensor, floor: float, steps: int) -> tuple[float, float]:
    """The slowest and fastest rate of a guided path, so that it needs no more than so many steps."""
    slowest = max(0.05, (float(log_variance.max()) - math.log(floor)) / steps)
    return slowest, max(1.0, slowest)


def check_film(model: StudioModel, size: tuple[int, int], steps: int) -> None:
    """Refuse, before it begins, a film whose pictures (the sample and its mean at every level) take too much memory."""
    level = 2 * 4 * model.energy.shape[0] * size[0] * size[1]
    if level * (steps + 1) > MOST_FILM:
        raise ValueError(
            f"a film of {steps} steps of {size[0]}×{size[1]} pixels takes too much memory here: take at most "
            f"{MOST_FILM // level - 1} steps, or a smaller picture"
        )


def filmed(
    model: StudioModel,
    question: Question,
    name: str,
    *,
    steps: int,
    seed: int,
    clicked: list[int] | None = None,
    progress: Progress = silent,
) -> Film:
    """The way of one sample."""
    check_work(1, steps)
    posterior = posterior_of(model, question)
    path = path_named(name, posterior, steps, clicked or [])
    levels = path.steps if isinstance(path, Path) else steps
    check_time(model, question.measurement.template.size, levels, "take fewer steps or a smaller picture")
    check_film(model, question.measurement.template.size, levels)
    return posterior.film(path, generator=keyed_generator(seed, "film"), progress=progress)


# --- compare -----------------------------------------------------------------------------------------------------------------------

COMPARED = {name: method.description for name, method in METHODS.items() if method.needs != "palette"}


@dataclass(frozen=True)
class Compared:
    """One method's restoration [C, H, W], its cost, and metrics where the truth is known."""

    name: str
    image: Tensor
    evaluations: int
    seconds: float
    metrics: dict[str, float]


class WatchedEnergy(nn.Module):
    """The energy as solvers take it, with a look at the progress (and so at Stop) before each evaluation: they have none of their own."""

    def __init__(self, energy: LearnedEnergy, progress: Progress, name: str, expected: int) -> None:
        super().__init__()
        self.energy, self.progress, self.name, self.expected, self.count = energy, progress, name, expected, 0
        self.range, self.shape, self.gaussian = energy.range, energy.shape, energy.gaussian

    def _look(self) -> None:
        self.count += 1
        self.progress(self.name, self.count, max(self.count, self.expected))

    def forward(self, y: Tensor, cov: Covariance) -> Tensor:
        """U(y, Σ)."""
        self._look()
        return self.energy(y, cov)

    def evaluate_in_basis(self, z: Tensor, cov: Covariance, *, create_graph: bool = False) -> Evaluation:
        """U and its derivatives at y = Qz."""
        self._look()
        return self.energy.evaluate_in_basis(z, cov, create_graph=create_graph)


def compared(
    model: StudioModel, question: Question, name: str, *, steps: int, seed: int, progress: Progress = silent
) -> Compared:
    """A method on the measurement of a question; those that take a denoiser get the energy as one."""
    if name not in COMPARED:
        raise ValueError(f"there is no method {name!r}; there are {', '.join(COMPARED)}")
    check_work(1, steps)
    method, seen = METHODS[name], question.measurement
    check_time(model, seen.template.size, 2 * steps, "take fewer steps or a smaller picture")
    energy = WatchedEnergy(model.energy, progress, name, steps)
    shape = (seen.template.channels, *seen.template.size)
    taken = EnergyDenoiser(energy, identity("spatial", shape)) if method.needs == "score" else energy
    chosen = {"steps": steps} if "steps" in default_settings(method.solve)[0] else {}
    solution = method.solve(taken, question.degradation, seen.raw, keyed_generator(seed, "compare", name), **chosen)
    if len(solution.samples) == 0:
        raise KeyboardInterrupt
    found = scored(solution.samples, question.truth)
    return Compared(name, solution.samples[0].detach(), solution.evaluations, solution.seconds, found)


def scored(images: Tensor, truth: Tensor | None) -> dict[str, float]:
    """PSNR and, where its package is there and the picture is large enough, SSIM."""
    if truth is None:
        return {}
    out = {"PSNR (dB)": float(psnr(images.clamp(0, 1), truth[None])[0])}
    try:
        out["SSIM"] = float(ssim(images.clamp(0, 1), truth[None])[0])
    except (MissingExtra, ValueError):
        return out
    return out

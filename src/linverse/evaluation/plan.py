"""What an evaluation is: images, tasks, contenders, and the same measurements and seeds for all of them.

A unit of work is (task, method, batch of images). Everything random in it is keyed:
    the noise of image i in a task      (seed, "measurement", task, i)      whatever the batch size or the number of processes
    a solver on batch k of a task       (seed, "solver", task, k)           the same stream for every method
    its samples for the coverage        (seed, "spread", task, i)
    the floor's noise of the audit      (seed, "audit", i)
so that methods see identical measurements, and a result depends on nothing but its own unit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from linverse.baselines import EnergyDenoiser
from linverse.degradations import Degradation
from linverse.degradations.tasks import Options, parse_task, task_options
from linverse.energy import Energy, fixed_shape
from linverse.evaluation.contenders import TRUTH, Contender
from linverse.evaluation.networks import Choice, Models, identity
from linverse.metrics import METRICS, available_metrics
from linverse.rng import keyed_generator, normal_like

STANDARD_METRICS = ("PSNR", "SSIM", "LPIPS-Alex", "DISTS")
FEATURES = ("auto", "vgg16", "alexnet", "pixels")
LEAST_SAMPLES = 19  # whose least and greatest bound an interval of 90 %
MOST_SAMPLES = 10_000  # of one image, solved at once
FLOOR_FACTOR = 10.0  # the audit measures with σ² at least so many times λ_min (mathematics §3)


def standard_metrics() -> tuple[str, ...]:
    """Those of the paper's tables that run here."""
    return tuple(name for name in STANDARD_METRICS if name in available_metrics())


@dataclass(frozen=True)
class EvaluationSetting:
    """What must not change between two parts of one evaluation."""

    data: str = ""
    batch: int = 16
    seed: int = 0
    metrics: tuple[str, ...] = field(default_factory=standard_metrics)
    features: str = "auto"  # of the Fréchet distance: one of FEATURES, or "package.module:function"
    coverage: int = 0  # samples of each of the first `coverage_images` images, for that of 90 % intervals; 0: none
    coverage_images: int = 8

    def __post_init__(self) -> None:
        if self.coverage and not LEAST_SAMPLES <= self.coverage <= MOST_SAMPLES:
            raise ValueError(
                f"the coverage of 90 % intervals takes {LEAST_SAMPLES} samples or more, at most {MOST_SAMPLES:,}; "
                f"got {self.coverage} (0: none)"
            )
        if self.coverage_images < 1:
            raise ValueError(f"coverage is that of at least one image; got {self.coverage_images}")
        if self.batch < 1:
            raise ValueError(f"a batch has at least one image; got {self.batch}")
        unknown = [name for name in self.metrics if name not in METRICS]
        if unknown:
            raise ValueError(f"there is no metric {', '.join(unknown)}; there are {', '.join(METRICS)}")
        if self.features not in FEATURES and ":" not in self.features:
            raise ValueError(f"features are {', '.join(FEATURES)} or package.module:function; got {self.features!r}")


@dataclass(frozen=True)
class Task:
    """A named degradation with all of its options, and the same with the noise that the audit wants."""

    label: str
    degradation: Degradation
    audited: Degradation
    options: Options = field(default_factory=dict)

    @staticmethod
    def of(label: str, energy: Energy) -> Task:
        size = fixed_shape(energy)[1:]
        degradation, options = parse_task(label, size), task_options(label, size)
        degradation.operator(
            torch.zeros(1, *fixed_shape(energy))
        )  # a box or a kernel that does not fit the images says so now
        sigma = max(degradation.sigma, (FLOOR_FACTOR * energy.range.minimum) ** 0.5)
        audited = parse_task(label, size, sigma=sigma)
        return Task(label, degradation, audited, options)

    def digest(self, shape: tuple[int, int, int]) -> str:
        """What the operator does to one fixed image, hashed: tells two operators of one name apart."""
        probe = torch.rand(1, *shape, generator=keyed_generator("probe"))
        return hashlib.sha256(self.degradation.operator(probe).contiguous().numpy().tobytes()).hexdigest()


@dataclass(frozen=True)
class Unit:
    """One batch of one pair."""

    task: Task
    contender: Contender | None  # None: the truth itself, for the audit
    batch: int

    @property
    def label(self) -> str:
        return TRUTH if self.contender is None else self.contender.label


@dataclass(frozen=True)
class Plan:
    """All of an evaluation. `truth` [N, C, H, W] in [0, 1]."""

    models: Models
    truth: Tensor
    tasks: tuple[Task, ...]
    contenders: tuple[Contender, ...]
    setting: EvaluationSetting
    device: str = "cpu"  # where the models are

    def __post_init__(self) -> None:
        if not len(self.truth):
            raise ValueError("there are no images: at least one is needed")
        if tuple(self.truth.shape[1:]) != self.models.energy.shape:
            raise ValueError(f"images are {tuple(self.truth.shape[1:])}; the model takes {self.models.energy.shape}")
        for kind, labels in (("task", [t.label for t in self.tasks]), ("method", [c.label for c in self.contenders])):
            if not labels or len(set(labels)) < len(labels):
                raise ValueError(f"give at least one {kind}, and each one once; got {', '.join(labels) or 'none'}")

    @cached_property
    def batches(self) -> list[range]:
        """The images of each batch."""
        size, count = self.setting.batch, len(self.truth)
        return [range(start, min(start + size, count)) for start in range(0, count, size)]

    def skipped(self) -> dict[tuple[str, str], str]:
        """(task, method) → why it cannot be run, and what to do."""
        out = {}
        for task in self.tasks:
            for contender in self.contenders:
                reason = self.choose(task, contender).reason
                if reason:
                    out[task.label, contender.label] = reason
        return out

    def choose(self, task: Task, contender: Contender) -> Choice:
        """The network of a pair."""
        return self.models.choose(contender, task.label, task.degradation)

    def units(self) -> list[Unit]:
        """All the work, batch by batch of one pair after another, the truth first."""
        skipped, out = self.skipped(), []
        for task in self.tasks:
            wanted: list[Contender | None] = [None]
            wanted += [c for c in self.contenders if (task.label, c.label) not in skipped]
            out += [Unit(task, contender, k) for contender in wanted for k in range(len(self.batches))]
        return out

    # --- what a unit works on --------------------------------------------------------------------------------------------

    def images(self, unit: Unit) -> Tensor:
        rows = self.batches[unit.batch]
        return self.truth[rows.start : rows.stop]

    def raw(self, unit: Unit) -> Tensor:
        """The measurement of a batch, image by image."""
        return self._each(unit, lambda x, i: unit.task.degradation.measure(x, self._key("measurement", unit, i)).raw)

    def audit_raw(self, unit: Unit, raw: Tensor) -> Tensor:
        """The same measurement with noise added up to what the audit wants."""
        extra = unit.task.audited.sigma**2 - unit.task.degradation.sigma**2
        noise = self._each(
            unit, lambda x, i: normal_like(unit.task.degradation.operator(x), self._key("more", unit, i))
        )
        return raw + max(extra, 0.0) ** 0.5 * noise

    def audit_noise(self, unit: Unit) -> Tensor:
        """White noise for the floor: of an image, not of a task or a method."""
        return self._each(unit, lambda x, i: normal_like(x, keyed_generator(self.setting.seed, "audit", i)))

    def solver_generator(self, unit: Unit) -> torch.Generator:
        return keyed_generator(self.setting.seed, "solver", unit.task.label, unit.batch)

    def spread_generator(self, unit: Unit, image: int) -> torch.Generator:
        return keyed_generator(self.setting.seed, "spread", unit.task.label, image)

    def _key(self, purpose: str, unit: Unit, image: int) -> torch.Generator:
        return keyed_generator(self.setting.seed, purpose, unit.task.label, image)

    def _each(self, unit: Unit, make: Callable[[Tensor, int], Tensor]) -> Tensor:
        return torch.cat([make(self.truth[i : i + 1], i) for i in self.batches[unit.batch]])

    # --- what tells one plan from another ------------------------------------------------------------------------------------

    @cached_property
    def configuration(self) -> dict[str, Any]:
        """What all units of a folder share."""
        digest = hashlib.sha256(self.truth.contiguous().numpy().tobytes()).hexdigest()
        shared = asdict(self.setting) | {"metrics": list(self.setting.metrics)}
        if not self.setting.coverage:  # an evaluation without it is the same as before there was any
            shared = {key: value for key, value in shared.items() if not key.startswith("coverage")}
        limits = self.models.energy.range
        return shared | {
            "images": len(self.truth),
            "images_sha256": digest,
            "model": self._identity(self.models.energy),
            "floor": limits.minimum,
        }

    @cached_property
    def _identities(self) -> dict[int, str]:
        networks = [self.models.energy, self.models.score, *(palette.network for palette in self.models.palettes)]
        return {id(n): identity(n) for n in networks if n is not None and not isinstance(n, EnergyDenoiser)}

    def _identity(self, network: object) -> str:
        if isinstance(network, EnergyDenoiser):
            return f"energy {self._identity(network.energy)}"
        return "none" if network is None else self._identities[id(network)]

    def pair_configuration(self, task: Task, contender: Contender | None) -> dict[str, Any]:
        """What all batches of a pair share."""
        out: dict[str, Any] = {
            "task": task.label,
            "operator": task.digest(fixed_shape(self.models.energy)),
            "sigma": task.degradation.sigma,
            "audit_sigma": task.audited.sigma,
            "method": TRUTH if contender is None else contender.label,
        }
        if contender is None:
            return out
        network = self._identity(self.choose(task, contender).network)
        out |= {"function": contender.function, "settings": plain(contender.settings), "network": network}
        return out if contender.source is None else out | {"source": contender.source}


def plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as JSON keeps them."""
    return {k: v if isinstance(v, bool | int | float | str | None) else repr(v) for k, v in sorted(settings.items())}


def make_plan(
    models: Models,
    truth: Tensor,
    tasks: Sequence[str],
    contenders: Sequence[Contender],
    setting: EvaluationSetting,
    device: str = "cpu",
) -> Plan:
    """A plan from the names of its tasks."""
    chosen = tuple(Task.of(label, models.energy) for label in tasks)
    return Plan(models, truth, chosen, tuple(contenders), setting, device)

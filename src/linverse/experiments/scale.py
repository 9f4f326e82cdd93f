"""What training costs here, and at the paper's scale (paper, appendix C; the arithmetic is shown).

Measured, on one thread: processor seconds and operations F of a training step per image, and its peak memory at two batches, hence the
memory of an image. The whole training has F·batch·steps operations. A device with a peak of P operations per second that works at the
share s of it at which this thread works (operations of a step per second, over those of a matrix product) takes
    F·batch·steps / (s·P)   seconds of one device,
divided by the number of devices. P is that of an A100 in TF32, 156·10¹² per second; the paper's GPUs are not named. Memory of a device is
the fixed part and that of its share of the batch. 192×192 is not measured: it has nine times the pixels of 64×64, and no attention.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from linverse.experiments.cache import Cache
from linverse.experiments.framework import ExperimentResult
from linverse.experiments.tables import ResultTable
from linverse.progress import Progress
from linverse.training.presets import PRESETS

A100 = 156e12  # operations per second, TF32, published
DAY = 86_400.0


@dataclass(frozen=True)
class Training:
    """A data set of the paper: preset, how it is launched, devices, and from which measured preset it is scaled by how much."""

    preset: str
    devices: int
    data: str
    measured: str = ""
    factor: float = 1.0

    def command(self) -> str:
        launch = "linverse" if self.devices == 1 else f"accelerate launch --num_processes {self.devices} -m linverse"
        return f"{launch} train {self.preset} --data {self.data}"


TRAININGS = (
    Training("celeba-64", 6, "folder:celeba"),
    Training("celeba-64-ours", 6, "folder:celeba"),
    Training("imagenet-64", 6, "npz:imagenet64", "celeba-64"),
    Training("imagenet-64-ours", 6, "npz:imagenet64", "celeba-64-ours"),
    Training("afhq-192", 8, "folder:afhq", "celeba-64", 9.0),
    Training("mnist-paper", 1, "mnist"),
    Training("cifar10", 1, "cifar10"),
)


@dataclass(frozen=True)
class ScaleSetting:
    """Presets that are measured, at which batches, and steps of each."""

    presets: tuple[str, ...] = ("cifar10", "celeba-64", "celeba-64-ours", "mnist-paper")
    batches: tuple[int, int] = (1, 3)
    steps: int = 2


FULL = ScaleSetting()
QUICK = replace(FULL, presets=("digits",), batches=(1, 2), steps=1)


@dataclass(frozen=True)
class Cost:
    """Of a preset: parameters; per image and step, processor seconds, operations and megabytes; megabytes that are always needed; share."""

    parameters: int
    seconds: float
    operations: float
    megabytes: float
    fixed_megabytes: float
    share: float


def in_its_own_process(preset: str, batch: int, steps: int) -> dict[str, Any]:
    """`scale_step.measure` of a preset."""
    command = [sys.executable, "-m", "linverse.experiments.scale_step", preset, str(batch), str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"a training step of {preset} failed: {done.stderr.strip()[-500:]}")
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def cost_of(preset: str, setting: ScaleSetting) -> Cost:
    """From two batches: what grows with the batch, and what does not."""
    small, large = setting.batches
    few, many = (in_its_own_process(preset, batch, setting.steps) for batch in setting.batches)
    each = (many["megabytes"] - few["megabytes"]) / (large - small)
    rate = many["operations"] / many["seconds"]
    return Cost(
        many["parameters"],
        many["seconds"] / large,
        many["operations"] / large,
        max(each, 0.0),
        few["megabytes"] - small * max(each, 0.0),
        rate / many["product"],
    )


def run(out: Path, quick: bool, progress: Progress) -> ExperimentResult:
    """Measure, then reckon."""
    setting = QUICK if quick else FULL
    cache = Cache.of("scale", out, Cost)
    costs: dict[str, Cost] = {}
    for number, preset in enumerate(setting.presets):
        costs[preset] = cache.get(preset, asdict(setting), partial(cost_of, preset, setting))
        progress("presets", number + 1, len(setting.presets))
    metrics = {
        f"{preset}: {name}": float(value) for preset, cost in costs.items() for name, value in asdict(cost).items()
    }
    reckoned = [(t, extrapolate(t, costs)) for t in TRAININGS if (t.measured or t.preset) in costs]
    for training, numbers in reckoned:
        metrics |= {f"{training.preset}: {name}": value for name, value in numbers.items()}
    paper = {
        "source": "appendix C, training hyperparameters",
        "claims": [],
        "figures": {"GPUs, CelebA and ImageNet64": 6, "GPUs, AFHQ": 8, "steps": 400_000, "batch": 128},
        "departures": ["one thread of a processor; the GPU's peak is the published one"],
    }
    tables = measured_table(costs), reckoned_table(reckoned, costs), command_table()
    return ExperimentResult(metrics, paper, (costs, reckoned), asdict(setting), {}, {}, (), tables)


def extrapolate(training: Training, costs: dict[str, Cost]) -> dict[str, float]:
    """Operations of the whole training, days of all devices together and of the run, gigabytes of a device."""
    config, cost = PRESETS[training.preset][1], costs[training.measured or training.preset]
    operations = cost.operations * training.factor * config.batch * config.steps
    device_days = operations / (cost.share * A100) / DAY
    each = config.batch / training.devices
    return {
        "operations of the training": operations,
        "device days": device_days,
        "days on its devices": device_days / training.devices,
        "gigabytes of a device": (cost.fixed_megabytes + cost.megabytes * training.factor * each) / 1024,
        "processor days here": cost.seconds * training.factor * config.batch * config.steps / DAY,
    }


def measured_table(costs: dict[str, Cost]) -> ResultTable:
    """What was measured."""
    columns = (
        "preset",
        "parameters",
        "s per image and step",
        "10⁹ operations",
        "MB per image",
        "MB fixed",
        "share of a matrix product",
    )
    rows = tuple(
        (name, c.parameters, c.seconds, c.operations / 1e9, c.megabytes, c.fixed_megabytes, c.share)
        for name, c in costs.items()
    )
    return ResultTable("A training step on one thread", columns, rows)


def reckoned_table(reckoned: list[tuple[Training, dict[str, float]]], costs: dict[str, Cost]) -> ResultTable:
    """The arithmetic, line by line."""
    columns = (
        "preset",
        "images × steps",
        "operations",
        "÷ (share × 156·10¹²/s) = A100 days",
        "GPUs",
        "days",
        "GB of each",
        "days of this thread",
    )
    rows = []
    for training, numbers in reckoned:
        config, cost = PRESETS[training.preset][1], costs[training.measured or training.preset]
        times = f" × {training.factor:g}" if training.factor != 1 else ""
        total = f"{cost.operations:.3g}{times} × {config.batch} × {config.steps:,} = {numbers['operations of the training']:.3g}"
        days = f"{numbers['device days']:.3g} (share {cost.share:.2f})"
        rest = numbers["days on its devices"], numbers["gigabytes of a device"], numbers["processor days here"]
        rows.append((training.preset, f"{config.batch} × {config.steps:,}", total, days, training.devices, *rest))
    return ResultTable("The whole training, by arithmetic", columns, tuple(rows))


def command_table() -> ResultTable:
    """The exact command of every data set."""
    rows = tuple((t.preset, PRESETS[t.preset][0], f"`{t.command()}`") for t in TRAININGS)
    return ResultTable("Commands", ("preset", "what it is", "command"), rows)

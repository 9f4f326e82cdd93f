"""`linverse train PRESET`: train a model; the same command resumes it. (The digit classifier takes minutes: it starts afresh.)

`linverse train CONFIG.yaml` trains what a file says (`linverse train PRESET --write CONFIG.yaml` writes one), covariances included.
`linverse train --from MODEL --data folder:MINE` goes on with a model on other pictures: the training that its card
describes, shorter and gentler.
`linverse train PRESET --from MODEL --steps 0` trains nothing: the weights of a model in the form of the preset, with constant, self-tests
and card made anew.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import tyro
from rich.console import Console

from linverse.data import load_images
from linverse.devices import use_threads
from linverse.report.card import show_self_test
from linverse.report.console import ProgressBars, note, plain_warnings
from linverse.training.classifier import train_classifier
from linverse.training.config import TrainConfig
from linverse.training.config_file import is_config_file, read_config, write_config
from linverse.training.loop import Trainer, parameter_count
from linverse.training.presets import PRESETS
from linverse.training.run import TrainingStopped, describe_start, go_on, start
from linverse.training.sources import load_sources
from linverse.training.warm_start import fine_tuning

ALSO = "--out DIR, --dry-run, --write CONFIG.yaml, --device NAME, --threads N, --no-tensorboard, --track NAME …, --other-data"
CLASSIFIER = "mnist-classifier"
CLASSIFIER_DESCRIPTION = "the classifier that judges restored digits (three convolutions), in minutes"


@dataclasses.dataclass(frozen=True)
class ClassifierOptions:
    """How the classifier is trained. It is no energy: none of the other presets' options apply."""

    out: Path | None = None
    """folder of the run (default: runs/mnist-classifier)"""
    data: str = "mnist"
    epochs: int = 6
    batch: int = 128
    seed: int = 0
    threads: int | None = None
    """CPU threads"""


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Where a run lives and how it is shown."""

    out: Path | None = None
    """folder of the run (default: runs/PRESET)"""
    dry_run: bool = False
    """say what would be trained, take one step, and stop"""
    device: str = ""
    """cpu, cuda, cuda:1, mps, …; by default the machine's GPUs if it has any (several: `accelerate launch`)"""
    write: Path | None = None
    """write the configuration into a file (.yaml or .json) that `linverse train FILE` reads, and stop"""
    threads: int | None = None
    """CPU threads"""
    tensorboard: bool = True
    track: tuple[str, ...] = ()
    """also tell these trackers (wandb, mlflow, … as accelerate names them)"""
    other_data: bool = False
    """go on with other training images than those with which the run began"""


def main(arguments: list[str]) -> None:
    """Parse and run."""
    described = {name: text for name, (text, _) in PRESETS.items()} | {CLASSIFIER: CLASSIFIER_DESCRIPTION}
    if not arguments or arguments[0] in ("-h", "--help"):
        lines = [f"  {name:<34} {text}" for name, text in described.items()]
        ways = ("PRESET [options]", "CONFIG.yaml [options]", "--from MODEL --data folder:MINE [options]")
        print("usage: " + "\n       ".join(f"linverse train {way}" for way in ways))
        print("\npresets:\n" + "\n".join(lines))
        print("\nlinverse train PRESET --help lists the options. Rerun the same command to resume a run.")
        return
    if arguments[0].startswith("--from"):
        fine_tune(arguments)
        return
    preset, *rest = arguments
    if is_config_file(preset):
        name = Path(preset).stem
        options, config = parse(name, f"The training of {preset}", read_config(Path(preset)), rest)
        train(name, options, config)
        return
    if preset not in described:
        raise ValueError(f"there is no preset {preset!r}; there are {', '.join(described)}, or a CONFIG.yaml")
    if preset == CLASSIFIER:
        train_digit_classifier(rest)
        return
    description, default = PRESETS[preset]
    options, config = parse(preset, description, default, rest)
    train(preset, options, config)


def parse(preset: str, description: str, default: TrainConfig, rest: list[str]) -> tuple[RunOptions, TrainConfig]:
    """Options of the run, and the preset with its overrides."""
    run, unknown = tyro.cli(
        RunOptions, args=rest, return_unknown_args=True, add_help=False, prog=f"linverse train {preset}"
    )
    config = tyro.cli(
        TrainConfig,
        default=default,
        args=unknown,
        prog=f"linverse train {preset}",
        description=f"{description}. Also: {ALSO}. Rerun the same command to resume.",
    )
    return run, config


def fine_tune(arguments: list[str]) -> None:
    """`--from MODEL …`: no preset, but the model's own training."""
    given = arguments[0].partition("=")[2] or (arguments[1] if len(arguments) > 1 else "")
    if not given:
        raise ValueError("--from wants a model: a bundled name, its folder, or a run")
    name = f"{Path(given).name}-tuned"
    options, config = parse(name, f"Go on with {given} on other pictures", fine_tuning(given), arguments)
    train(name, options, config)


def train(preset: str, options: RunOptions, config: TrainConfig) -> None:
    """Train to the end, then normalise, test and save."""
    if config.steps < 1 and not config.start_from:
        raise ValueError(
            "--steps is at least 1, or 0 with --from MODEL, whose constant, card and tests are then made anew"
        )
    if options.threads:
        use_threads(options.threads)
    folder = options.out or Path("runs") / preset
    console = Console()
    if options.write is not None:
        write_config(config, options.write)
        note(console, f"wrote {options.write}; `linverse train {options.write}` trains it")
        return
    if options.dry_run:
        dry_run(preset, folder, config, console, options.device)
        return
    try:
        with (
            plain_warnings(console),
            ProgressBars(console) as bars,
            start(config, folder, other_data=options.other_data, device=options.device) as trainer,
        ):
            if trainer.accelerator.is_main_process:
                note(console, describe_start(trainer, preset))
            card = go_on(trainer, preset, tensorboard=options.tensorboard, track=options.track, progress=bars)
    except TrainingStopped as stopped:
        print(f"\n{stopped}", file=sys.stderr)
        raise SystemExit(130) from None
    if card is not None:
        show_self_test(console, card)
        note(console, f"model saved in {folder / 'model'}")


def dry_run(preset: str, folder: Path, config: TrainConfig, console: Console, device: str = "") -> None:
    """Say what would be trained, and take one step."""
    steps, config = config.steps, dataclasses.replace(config, steps=1, evaluation_images=0)
    train_images, held_out = load_sources(config)
    trainer = Trainer(config, train_images, held_out, Path("/nonexistent"), device=device)
    shape = "×".join(map(str, config.sample_shape))
    console.print(
        f"{preset}: {parameter_count(trainer.model):,} parameters; {len(train_images):,} images; {shape} a sample"
    )
    if trainer.taken_over is not None:
        console.print(trainer.taken_over.describe(config.start_from))
    console.print(f"{steps:,} steps of {config.batch} images → {folder}")
    console.print({key: round(value, 4) for key, value in trainer.train_step().items()})


def train_digit_classifier(arguments: list[str]) -> None:
    """Train the classifier and save it as OUT/model."""
    options = tyro.cli(
        ClassifierOptions, args=arguments, prog=f"linverse train {CLASSIFIER}", description=CLASSIFIER_DESCRIPTION
    )
    if min(options.epochs, options.batch) < 1:
        raise ValueError(f"--epochs and --batch are at least 1; got {options.epochs} and {options.batch}")
    if options.threads:
        use_threads(options.threads)
    folder = (options.out or Path("runs") / CLASSIFIER) / "model"
    console = Console()
    images, held_out = (load_images(options.data, split) for split in ("train", "test"))
    settings = {"epochs": options.epochs, "batch": options.batch, "seed": options.seed}
    train_classifier(images, held_out, folder, **settings, report=console.print)
    note(console, f"model saved in {folder}")

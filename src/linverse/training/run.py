"""*The* training: images to a finished model with its card, whoever asks for it. The same call resumes a run.

run(config, folder) → folder/model (weights, self-tests, card), folder/log.jsonl, folder/samples, folder/state.pt
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from linverse.files import write_whole
from linverse.files.lock import FolderLock
from linverse.progress import Progress, silent
from linverse.store.card import Card
from linverse.training.checkpoint import STATE
from linverse.training.config import TrainConfig
from linverse.training.finish import finish
from linverse.training.interruption import StopRequest
from linverse.training.loop import Trainer, make_accelerator, parameter_count
from linverse.training.preview import preview
from linverse.training.progress import Reporter
from linverse.training.sources import load_sources


class TrainingStopped(KeyboardInterrupt):
    """A run was asked to stop; its state is saved, and the same call goes on from there."""


def run(
    config: TrainConfig,
    folder: Path,
    *,
    name: str = "",
    tensorboard: bool = True,
    other_data: bool = False,
    device: str = "",
) -> Card | None:
    """Train to the last step, or on from where the run in this folder stopped; then normalise, test and save as folder/model.

    Returns the model's card; None on all but the main process. Ctrl-C (or SIGTERM, or SIGHUP) ends it after the step under way with
    the state saved, and raises `TrainingStopped`. A run goes on with the images that it began with; `other_data` admits others.
    `device`: cpu, cuda, …; by default the machine's GPUs if it has any.
    """
    with start(config, folder, other_data=other_data, device=device) as trainer:
        return go_on(trainer, name or folder.name, tensorboard=tensorboard)


def go_on(
    trainer: Trainer, name: str, *, tensorboard: bool = True, track: Sequence[str] = (), progress: Progress = silent
) -> Card | None:
    """The rest of a run that was started: all steps that are left, then normalise, test and save (whose `progress` is told)."""
    _loop(trainer, tensorboard, track)
    trainer.accelerator.wait_for_everyone()
    if not trainer.accelerator.is_main_process:
        return None
    return finish(trainer, trainer.folder / "model", name, progress)


@contextmanager
def start(config: TrainConfig, folder: Path, *, other_data: bool = False, device: str = "") -> Iterator[Trainer]:
    """A run in a folder, at its first step or where it stopped; nobody else may train there until the block ends."""
    main = make_accelerator(device).is_main_process
    train, held_out = load_sources(config)
    folder.mkdir(parents=True, exist_ok=True)
    with FolderLock(folder) if main else nullcontext():
        trainer = Trainer(config, train, held_out, folder, other_data=other_data, device=device)
        if main:
            for remains in folder.glob(f"{STATE}.*.partial"):  # of a run that was killed while it wrote
                remains.unlink()
            write_whole(folder / "config.json", (config.to_json() + "\n").encode())
        yield trainer


def describe_start(trainer: Trainer, name: str) -> str:
    """One line: what is trained, from where on, by how many processes."""
    state = f"resuming at step {trainer.step}" if trainer.step else "starting"
    if trainer.taken_over is not None:
        state = trainer.taken_over.describe(trainer.config.start_from)
    if trainer.accelerator.num_processes > 1:
        state += f" on {trainer.accelerator.num_processes} processes"
    return f"{name}: {parameter_count(trainer.model):,} parameters, {state}; folder {trainer.folder}"


def _loop(trainer: Trainer, tensorboard: bool, track: Sequence[str]) -> None:
    main, config = trainer.accelerator.is_main_process, trainer.config
    with (
        Reporter(trainer.folder, config.steps, trainer.step, main, tensorboard, track, config.to_dict()) as reporter,
        StopRequest() as stop,
    ):

        def show(trainer: Trainer) -> None:
            if main:
                seen = preview(trainer)
                seen.save(trainer.folder / "samples" / f"step-{trainer.step:06d}.png")
                reporter.preview(trainer.step, trainer.seconds, seen.sheet(), seen.numbers())

        trainer.run(reporter, stop, show)
        if trainer.step < trainer.config.steps:
            trainer.save()
    if trainer.step < trainer.config.steps:
        raise TrainingStopped(f"stopped at step {trainer.step}; rerun the same command to go on")

"""What a training run says: a progress bar on a terminal, a line a minute elsewhere, a JSON-lines log and TensorBoard always,
and the trackers that are asked for (trackers.py)."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor

from linverse.extras import require
from linverse.training.trackers import open_trackers


class Reporter:
    """Shows and logs the course of a run; silent on all but the main process."""

    def __init__(
        self,
        folder: Path,
        steps: int,
        start: int,
        main: bool = True,
        tensorboard: bool = True,
        track: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder, self.steps, self.main = folder, steps, main
        self.console = Console()
        self.bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[losses]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            disable=not (main and self.console.is_terminal),
        )
        self.task = self.bar.add_task("training", total=steps, completed=start, losses="")
        self.last_line = time.monotonic()
        self.moments = deque([self.last_line], maxlen=200)  # of the latest steps: how fast it goes now, on this machine
        self.smooth: dict[str, float] = {}
        self._tensorboard, self._track, self._config = tensorboard, tuple(track), config or {}
        self.trackers: list[Any] = []
        self.log: TextIO | None = None
        self.writer: Any = None

    def __enter__(self) -> Self:
        if self.main:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.log = (self.folder / "log.jsonl").open("a", encoding="utf-8")
            self.trackers = open_trackers(self._track, self.folder, self._config)
            if self._tensorboard:
                require("tensorboard", "train")
                from torch.utils.tensorboard import SummaryWriter

                self.writer = SummaryWriter(str(self.folder / "tensorboard"))
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()
        if self.log is not None:
            self.log.close()
        if self.writer is not None:
            self.writer.close()
        for tracker in self.trackers:
            tracker.finish()

    def step(self, step: int, seconds: float, metrics: dict[str, float]) -> None:
        """After every step."""
        if not self.main:
            return
        for key, value in metrics.items():
            self.smooth[key] = 0.98 * self.smooth.get(key, value) + 0.02 * value
        losses = "  ".join(f"{key} {self.smooth[key]:.4f}" for key in ("dsm", "csm") if key in self.smooth)
        self.moments.append(time.monotonic())
        rate = (len(self.moments) - 1) / max(self.moments[-1] - self.moments[0], 1e-9)
        self.bar.update(self.task, completed=step, losses=f"{losses}  {rate:.2f} steps/s")
        if not self.console.is_terminal and time.monotonic() - self.last_line > 60:
            left = (self.steps - step) / rate / 60
            self.console.print(
                f"step {step}/{self.steps}  {losses}  {rate:.2f} steps/s  {left:.0f} min left", highlight=False
            )
            self.last_line = time.monotonic()
        if step % 20 == 0:
            self._write("train", step, seconds, metrics)

    def evaluation(self, step: int, seconds: float, metrics: dict[str, float]) -> None:
        """After an evaluation on held-out images."""
        if not self.main:
            return
        text = "  ".join(f"{key} {value:.4f}" for key, value in metrics.items())
        self.console.print(f"step {step}: held out {text}  ({seconds / 60:.1f} min)", highlight=False)
        self._write("held out", step, seconds, metrics)

    def preview(self, step: int, seconds: float, sheet: Tensor, self_test: dict[str, float]) -> None:
        """After a look: a sheet of pictures [C, H, W] and the self-tests."""
        if self.writer is not None:
            self.writer.add_image("samples", sheet, step)
        if self_test:
            text = "  ".join(f"{key} {value:.4f}" for key, value in self_test.items())
            self.console.print(f"step {step}: self-test {text}", highlight=False)
            self._write("self-test", step, seconds, self_test)

    def _write(self, kind: str, step: int, seconds: float, metrics: dict[str, float]) -> None:
        if self.log is not None:
            self.log.write(json.dumps({"kind": kind, "step": step, "seconds": round(seconds, 2), **metrics}) + "\n")
            self.log.flush()
        if self.writer is not None:
            for key, value in metrics.items():
                self.writer.add_scalar(f"{kind}/{key}", value, step)
        for tracker in self.trackers:
            tracker.log({f"{kind}/{key}": value for key, value in metrics.items()}, step=step)

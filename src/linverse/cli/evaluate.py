"""`linverse evaluate --model M --task box20 --method ours --method dps …`: compare solvers on the same measurements.

The same command resumes. `accelerate launch -m linverse evaluate …` deals the work out to several processes or devices.
"""

from __future__ import annotations

import datetime
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column, Table

from linverse.baselines import METHODS, EnergyDenoiser
from linverse.cli.show import note
from linverse.experiments.harness import (
    Clock,
    Models,
    PaletteModel,
    Plan,
    Setting,
    Store,
    conclude,
    make_plan,
    parse_contender,
    run_units,
    standard_metrics,
)
from linverse.experiments.harness.contenders import TRUTH, Contender, default_settings, named_entry_points
from linverse.experiments.harness.tables import metric_names
from linverse.experiments.models import held_out, load_energy
from linverse.hub import find_model, load_denoiser
from linverse.models.saving import CARD
from linverse.tasks import TASKS

DEFAULT_TASKS = ("box20", "gauss", "sr4")
DEFAULT_METHODS = {"energy": ("pseudo-inverse", "posterior-mean", "ours"), "score": ("dps", "red-diff", "daps")}
PATIENCE = datetime.timedelta(days=30)  # for the slowest process: gloo's own 30 minutes would end a long evaluation
LINE_EVERY = 30.0  # seconds, where there is no terminal

Several = Annotated[tuple[str, ...], tyro.conf.UseAppendAction]


@dataclass(frozen=True)
class Options:
    """Compare solvers on identical measurements: results.json, table.md, table.csv, timings.json, grid-TASK.png, audit-TASK.png.

    Rerun the same command to go on where it stopped; add tasks and methods at will. Several processes or devices:
    accelerate launch -m linverse evaluate …
    """

    model: str = ""
    """the energy: a bundled name, a folder, or an id of the hub"""
    score_model: str = ""
    """the isotropic denoiser of DPS, RED-Diff, DAPS, ΠGDM, DiffPIR; "energy": the energy itself at isotropic noise"""
    palette_model: Several = ()
    """a conditional denoiser for Palette, FOLDER or TASK=FOLDER"""
    task: Several = ()
    """name or name:option=value,… (--list shows them; default: box20, gauss, sr4)"""
    method: Several = ()
    """name or name:setting=value,…, or your own as package.module:function (default: those whose models are given)"""
    images: int = 400
    """how many test images"""
    data: str = ""
    """the data set whose test images are used (default: the one that the model was trained on)"""
    out: Path = Path("evaluation")
    """folder of the results"""
    batch: int = 16
    """images solved at once"""
    seed: int = 0
    """of the measurements and of the solvers"""
    metric: Several = ()
    """PSNR, SSIM, LPIPS-Alex, LPIPS-VGG, DISTS (default: all but LPIPS-VGG, where the weights are installed)"""
    features: str = "auto"
    """of the Fréchet distance: vgg16, alexnet, pixels"""
    pictures: int = 8
    """images in a picture grid; 0 for no pictures"""
    threads: int | None = None
    """CPU threads"""
    list: bool = False
    """name the tasks and methods and stop"""


def main(arguments: list[str]) -> None:
    """Parse and run."""
    options = tyro.cli(Options, args=arguments, prog="linverse evaluate")
    console = Console()
    if options.list:
        show_list(console)
        return
    if not options.model:
        raise ValueError(
            "--model is missing: a bundled name, a folder, or an id of the hub (--list shows tasks and methods)"
        )
    if options.threads:
        torch.set_num_threads(options.threads)
    evaluate(options, console)


def evaluate(options: Options, console: Console) -> None:
    """This process's share of the work; the main process reports."""
    from accelerate import PartialState

    state = PartialState(timeout=PATIENCE)
    plan = build_plan(options, str(state.device))
    store = Store(options.out, plan)
    try:
        with Watcher(console, state.process_index, state.num_processes) as watcher:
            run_units(plan, store, state.process_index, state.num_processes, watcher)
    except KeyboardInterrupt:
        print("\nstopped; rerun the same command to go on", file=sys.stderr)
        raise SystemExit(130) from None
    state.wait_for_everyone()
    if state.is_main_process:
        report = conclude(plan, store, options.pictures)
        show_report(console, report, options.out)
        if failures(report):
            raise SystemExit(1)


# --- what was asked for ----------------------------------------------------------------------------------------------------------


def build_plan(options: Options, device: str) -> Plan:
    """Models, images, tasks and methods of the options."""
    models = load_models(options, device)
    data = options.data or trained_on(options.model)
    truth = held_out(data, options.images, models.energy.shape).x
    setting = Setting(data, options.batch, options.seed, options.metric or standard_metrics(), options.features)
    contenders = [parse_contender(text) for text in options.method] or default_contenders(models)
    return make_plan(models, truth, options.task or DEFAULT_TASKS, contenders, setting, device)


def load_models(options: Options, device: str) -> Models:
    """The energy and the companions that were named."""
    energy = load_energy(options.model).to(device)
    score: Any = None
    if options.score_model == "energy":
        score = EnergyDenoiser(energy)
    elif options.score_model:
        score = load_denoiser(options.score_model).to(device)
    palettes = []
    for text in options.palette_model:
        name, equals, folder = text.rpartition("=")
        palettes.append(PaletteModel(load_denoiser(folder).to(device), name if equals else None))
    return Models(energy, score, tuple(palettes))


def trained_on(model: str) -> str:
    """The data set of a model's card."""
    path = find_model(model) / CARD
    name = json.loads(path.read_text()).get("data") if path.exists() else None
    if not name:
        raise ValueError(f"the model {model} does not say what it was trained on: give --data NAME")
    return str(name)


def default_contenders(models: Models) -> list[Contender]:
    """The paper's methods whose models are there."""
    names = [*DEFAULT_METHODS["energy"]]
    names += DEFAULT_METHODS["score"] if models.score is not None else ()
    names += ["palette"] if models.palettes else []
    return [parse_contender(name) for name in names]


# --- what is shown ---------------------------------------------------------------------------------------------------------------


def show_list(console: Console) -> None:
    """Tasks with their options for 28×28 images, and methods with their settings."""
    tasks = Table("task", "what it is", "options (28×28)", box=None)
    for name, task in TASKS.items():
        tasks.add_row(name, task.description, ", ".join(f"{k}={v:g}" for k, v in task.defaults((28, 28)).items()))
    methods = Table("method", "needs", "what it is", "settings", box=None)
    for name, method in METHODS.items():
        settings = ", ".join(f"{k}={v}" for k, v in default_settings(method.solve)[0].items())
        methods.add_row(name, method.needs, escape(method.description), escape(settings))
    for name in named_entry_points():
        methods.add_row(name, "", "from an installed package", "")
    console.print(tasks)
    console.print()
    console.print(methods)
    console.print("\n--task gauss:std=1.2 changes an option, --method dps:weight=0.5 a setting;", highlight=False)
    console.print("--method package.module:function takes a solver of your own.", highlight=False)


class Watcher:
    """Units and remaining time: a bar on a terminal, elsewhere a line now and then."""

    def __init__(self, console: Console, rank: int = 0, world: int = 1) -> None:
        self.console, self.prefix = console, f"[{rank + 1}/{world}] " if world > 1 else ""
        self.shown = time.monotonic()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[eta]}"),
        )
        visible = console.is_terminal and rank == 0
        self.bar = Progress(*columns, console=console, disable=not visible)
        self.row = self.bar.add_task("", total=None, eta="")

    def __enter__(self) -> Watcher:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def __call__(self, clock: Clock, text: str) -> None:
        eta = "" if clock.remaining is None else f"{clock_text(clock.remaining)} left"
        self.bar.update(self.row, description=text, completed=clock.done, total=clock.total, eta=eta)
        if not self.console.is_terminal and time.monotonic() - self.shown > LINE_EVERY:
            self.console.print(f"{self.prefix}{clock.done}/{clock.total} {text} {eta}", highlight=False, markup=False)
            self.shown = time.monotonic()


def clock_text(seconds: float) -> str:
    """3725 → 1:02:05."""
    return str(datetime.timedelta(seconds=round(seconds)))


def failures(report: dict[str, Any]) -> list[str]:
    """Methods that broke, with their reasons."""
    return [
        f"{method} on {task}: {record['reason']}"
        for task, content in report["tasks"].items()
        for method, record in content["methods"].items()
        if record["status"] in ("failed", "unfinished")
    ]


def show_report(console: Console, report: dict[str, Any], out: Path) -> None:
    """The means, what was left out, and where the files are."""
    names = metric_names(report)
    for label, task in report["tasks"].items():
        columns = [Column(name, overflow="fold") for name in (*names, "evaluations")]
        table = Table(Column("method", no_wrap=True), *columns, title=label, title_justify="left", box=None)
        for name, method in task["methods"].items():
            if method["status"] == "done":
                summary, cost = method["summary"], method["evaluations"]
                cells = [f"{summary[metric]['estimate']:.4g}" if metric in summary else "" for metric in names]
                table.add_row(escape(name), *cells, "" if cost is None or name == TRUTH else str(cost))
        console.print(table)
        for name, method in task["methods"].items():
            if method["status"] != "done":
                note(console, f"{name} {method['status']}: {method['reason']}")
        console.print()
    note(console, f"{out}: table.md and table.csv (with 95 % intervals), results.json (every image), pictures")

"""`linverse evaluate --model M --task box --method ours --method dps …`: compare solvers on the same measurements.

The same command resumes. `accelerate launch -m linverse evaluate …` deals the work out to several processes or devices.
"""

from __future__ import annotations

import datetime
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from rich.console import Console

from linverse.baselines import EnergyDenoiser
from linverse.cli.parsing import parse
from linverse.evaluation import (
    EvaluationFolder,
    EvaluationSetting,
    Models,
    PaletteModel,
    Plan,
    check_measures,
    make_plan,
    parse_contender,
    run_units,
    standard_metrics,
)
from linverse.evaluation.contenders import Contender
from linverse.evaluation.models import held_out, load_energy
from linverse.files.saving import CARD, ModelFileError
from linverse.models.denoiser import Denoiser
from linverse.report.console import ProgressBars, note
from linverse.report.evaluation import announce, show_list, show_report, write_report
from linverse.store.card import Card
from linverse.store.hub import bundled, find_model, load_denoiser

DEFAULT_TASKS = ("box", "gauss", "superres")
DEFAULT_METHODS = {
    "energy": ("pseudo-inverse", "posterior-mean", "ours"),
    "score": ("dps", "pigdm", "red-diff", "daps", "diffpir"),
}
BUNDLED_PALETTES = {"box": "palette-inpainting", "gauss": "palette-deblurring"}
PATIENCE = datetime.timedelta(days=30)  # for the slowest process: gloo's own 30 minutes would end a long evaluation
HELP = """Compare solvers on identical measurements and seeds. Writes table.md, table.csv, grid-TASK.png, audit-TASK.png,
results.json (every image) and timings.json into --out.

Rerun the same command to go on where it stopped; add tasks and methods at will.

examples:
  linverse evaluate --list
  linverse evaluate --model fashion-mnist --images 16
  linverse evaluate --model fashion-mnist --task box --task gauss:std=1.2 --method ours --method dps:steps=50
  linverse evaluate --model fashion-mnist --method ours --method my_file:my_solver
  accelerate launch -m linverse evaluate …         several processes or devices

docs/evaluation.md explains every column and how to add a solver of your own."""


def _several(metavar: str, hint: str) -> Any:
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(repeatable; default: {hint})")


@dataclass(frozen=True)
class EvaluateOptions:
    """What to compare, on what, and where to put it."""

    model: Annotated[str, tyro.conf.arg(metavar="NAME", help_behavior_hint="(required)")] = ""
    """the energy: a bundled name, a folder, or an id of the hub. Its density judges all methods"""
    score_model: Annotated[
        str,
        tyro.conf.arg(
            metavar="NAME", help_behavior_hint="(default: the bundled MODEL-score; without one, the energy itself)"
        ),
    ] = ""
    """the isotropic denoiser of DPS, ΠGDM, RED-Diff, DAPS and DiffPIR; "energy": the energy itself, at isotropic noise"""
    palette_model: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, _several("[TASK=]NAME", "the bundled MODEL-palette-…")
    ] = ()
    """a conditional denoiser for Palette"""
    task: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, _several("NAME[:OPTION=VALUE,…]", "box, gauss, superres")
    ] = ()
    """a degradation; --list names them"""
    method: Annotated[
        tuple[str, ...],
        tyro.conf.UseAppendAction,
        _several("NAME[:SETTING=VALUE,…]", "those whose models are given"),
    ] = ()
    """a solver; --list names them. package.module:function is one of your own"""
    images: int = 400
    """how many test images"""
    data: Annotated[
        str, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: that on which the model was trained)")
    ] = ""
    """the data set whose test images are used"""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("evaluation")
    """folder of the results"""
    batch: int = 16
    """images solved at once"""
    seed: int = 0
    """of the measurements and of the solvers"""
    metric: Annotated[
        tuple[str, ...],
        tyro.conf.UseAppendAction,
        _several("NAME", "all but LPIPS-VGG, where the weights are installed"),
    ] = ()
    """PSNR, SSIM, LPIPS-Alex, LPIPS-VGG, DISTS"""
    features: Annotated[str, tyro.conf.arg(metavar="NAME")] = "auto"
    """of the Fréchet distance: vgg16, alexnet, pixels, or package.module:function"""
    pictures: int = 8
    """images in a picture grid; 0 for no pictures"""
    threads: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: torch's)")] = None
    """CPU threads"""
    list: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False
    """name the tasks, methods and metrics, and stop (with --model: for the size of its images)"""


def main(arguments: list[str]) -> None:
    """Parse and run."""
    options = parse(EvaluateOptions, arguments, "evaluate", HELP)
    console = Console()
    if options.list:
        show_list(console, load_energy(options.model).shape[1:] if options.model else (28, 28))
        return
    if not options.model:
        raise ValueError(
            "--model is missing: a bundled name, a folder, or an id of the hub (--list shows tasks and methods)"
        )
    check_numbers(options)
    if options.threads:
        torch.set_num_threads(options.threads)
    evaluate(options, console)


def check_numbers(options: EvaluateOptions) -> None:
    """Refuse numbers that make no sense."""
    for name, least in (("images", 1), ("batch", 1), ("pictures", 0), ("threads", 1)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise ValueError(f"--{name} is {value}; it must be at least {least}")


def evaluate(options: EvaluateOptions, console: Console) -> None:
    """This process's share of the work; the main process reports."""
    from accelerate import PartialState

    # without a GPU it must be told of CPUs, or each of several processes would do all of the work
    state = PartialState(cpu=not torch.accelerator.is_available(), timeout=PATIENCE)
    plan = build_plan(options, str(state.device))
    check_measures(plan)
    store = EvaluationFolder(options.out, plan)
    if state.is_main_process:
        announce(console, plan, sum(not store.done(unit) for unit in plan.units()))
    try:
        prefix = f"[{state.process_index + 1}/{state.num_processes}] " if state.num_processes > 1 else ""
        with ProgressBars(console, prefix, state.is_main_process) as progress:
            tell = partial(tell_failure, console, prefix)
            run_units(plan, store, state.process_index, state.num_processes, progress, tell)
    except KeyboardInterrupt:
        print("\nstopped; rerun the same command to go on", file=sys.stderr)
        raise SystemExit(130) from None
    state.wait_for_everyone()
    if state.is_main_process:
        report, timings = write_report(plan, store, options.pictures)
        show_report(console, report, timings, options.out)
        if failures(report):
            raise SystemExit(1)


def tell_failure(console: Console, prefix: str, text: str) -> None:
    """A method that failed, with the number of the process that met it."""
    note(console, f"{prefix}{text}")


def failures(report: dict[str, Any]) -> list[str]:
    """Methods that broke, with their reasons."""
    return [
        f"{method} on {task}: {record['reason']}"
        for task, content in report["tasks"].items()
        for method, record in content["methods"].items()
        if record["status"] in ("failed", "unfinished")
    ]


# --- what was asked for ----------------------------------------------------------------------------------------------------------


def build_plan(options: EvaluateOptions, device: str) -> Plan:
    """Models, images, tasks and methods of the options."""
    asked = [parse_contender(text) for text in options.method]
    models = load_models(options, device)
    metrics = options.metric or standard_metrics()
    data = options.data or trained_on(options.model)
    setting = EvaluationSetting(data, options.batch, options.seed, metrics, options.features)
    truth = held_out(data, options.images, models.energy.shape).x
    contenders = asked or default_contenders(models)
    return possible(make_plan(models, truth, options.task or DEFAULT_TASKS, contenders, setting, device))


def possible(plan: Plan) -> Plan:
    """The plan itself; a method that was asked for and can be run on no task at all is refused before the work."""
    skipped = plan.skipped()
    for contender in plan.contenders:
        reasons = [skipped.get((task.label, contender.label)) for task in plan.tasks]
        if all(reasons):
            raise ValueError(f"{contender.label} cannot be run: {reasons[0]}. Or leave it out")
    return plan


def load_models(options: EvaluateOptions, device: str) -> Models:
    """The energy and the companions that were named, or else are bundled with it."""
    energy = load_energy(options.model).to(device)
    name, there = f"{options.model}-score", bundled()
    score_model = options.score_model or (name if name in there else "")
    score: Any = None
    if score_model == "energy":
        score = EnergyDenoiser(energy)
    elif score_model:
        score = load_companion("--score-model", score_model).to(device)
    beside = {task: f"{options.model}-{name}" for task, name in BUNDLED_PALETTES.items()}
    palettes = []
    for text in options.palette_model or [f"{task}={name}" for task, name in beside.items() if name in there]:
        name, equals, folder = text.rpartition("=")
        palettes.append(PaletteModel(load_companion("--palette-model", folder).to(device), name if equals else None))
    return Models(energy, score, tuple(palettes))


def load_companion(option: str, name: str) -> Denoiser:
    """A denoiser; an error says which option asked for it."""
    try:
        return load_denoiser(name)
    except ModelFileError as error:
        raise ModelFileError(f"{option} {name}: {error}") from error


def trained_on(model: str) -> str:
    """The data set of a model's card."""
    path = find_model(model) / CARD
    name = Card.decode(path.read_bytes()).data if path.is_file() else ""
    if not name:
        raise ValueError(f"the model {model} does not say what it was trained on: give --data NAME")
    return name


def default_contenders(models: Models) -> list[Contender]:
    """The paper's methods whose models are there."""
    names = [*DEFAULT_METHODS["energy"]]
    names += DEFAULT_METHODS["score"] if models.score is not None else ()
    names += ["palette"] if models.palettes else []
    return [parse_contender(name) for name in names]

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

from linverse.cli.parsing import parse
from linverse.devices import use_threads
from linverse.energy import fixed_shape
from linverse.evaluation import (
    EvaluationFolder,
    EvaluationSetting,
    Plan,
    check_measures,
    make_plan,
    parse_contender,
    run_units,
    standard_metrics,
)
from linverse.evaluation.defaults import DEFAULT_TASKS, default_contenders, load_models, possible, trained_on
from linverse.evaluation.models import held_out, load_energy
from linverse.extras import require
from linverse.report.console import ProgressBars, note
from linverse.report.evaluation import announce, show_list, show_report, write_report

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
    coverage: int = 0
    """samples of each of the first --coverage-images images (19 or more), for the coverage of 90 % intervals; 0: none"""
    coverage_images: int = 8
    """how many images the coverage is measured on"""
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
        show_list(console, fixed_shape(load_energy(options.model))[1:] if options.model else (28, 28))
        return
    if not options.model:
        raise ValueError(
            "--model is missing: a bundled name, a folder, or an id of the hub (--list shows tasks and methods)"
        )
    check_numbers(options)
    if options.threads:
        use_threads(options.threads)
    evaluate(options, console)


def check_numbers(options: EvaluateOptions) -> None:
    """Refuse numbers that make no sense."""
    for name, least in (("images", 1), ("batch", 1), ("pictures", 0), ("threads", 1)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise ValueError(f"--{name} is {value}; it must be at least {least}")


def evaluate(options: EvaluateOptions, console: Console) -> None:
    """This process's share of the work; the main process reports."""
    # without a GPU it must be told of CPUs, or each of several processes would do all of the work
    state = require("accelerate", "evaluate").PartialState(cpu=not torch.accelerator.is_available(), timeout=PATIENCE)
    plan = build_plan(options, str(state.device))
    check_measures(plan)
    store = EvaluationFolder(options.out, plan)
    if state.is_main_process:
        announce(console, plan, sum(not store.done(unit) for unit in plan.units()))
    try:
        prefix = f"[{state.process_index + 1}/{state.num_processes}] " if state.num_processes > 1 else ""
        with ProgressBars(console, prefix, state.is_main_process) as progress:
            tell = partial(note, console, prefix=prefix)
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
    models = load_models(options.model, options.score_model, options.palette_model, device)
    metrics = options.metric or standard_metrics()
    data = options.data or trained_on(options.model)
    setting = EvaluationSetting(
        data, options.batch, options.seed, metrics, options.features, options.coverage, options.coverage_images
    )
    truth = held_out(data, options.images, fixed_shape(models.energy)).x
    contenders = asked or default_contenders(models)
    return possible(make_plan(models, truth, options.task or DEFAULT_TASKS, contenders, setting, device))

"""What `linverse evaluate` shows: the list of tasks and methods, what is about to be done, how far it is, and the result."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from linverse.baselines import METHODS
from linverse.degradations.tasks import TASKS
from linverse.evaluation import EvaluationFolder, Plan, conclude
from linverse.evaluation.audit import POSTERIOR, PRIOR
from linverse.evaluation.contenders import TRUTH, default_settings, named_entry_points
from linverse.evaluation.networks import AS_DENOISER
from linverse.evaluation.plan import FEATURES
from linverse.files import write_json, write_whole
from linverse.metrics import METRICS, available_metrics
from linverse.report.comparison import write_pictures
from linverse.report.console import note
from linverse.report.tables import Record, best_methods, csv_text, markdown, metric_names, options_text

LEGEND = """
  energy   needs --model
  score    needs an isotropic denoiser: --score-model, or without one the energy itself at isotropic noise
  palette  needs --palette-model, a conditional network trained for the task
  nothing  needs no network"""

# --- before ----------------------------------------------------------------------------------------------------------------------


def show_list(console: Console, size: tuple[int, int]) -> None:
    """Tasks with their options for images of a size, methods with what they need and their settings, metrics."""
    console.print(f"[bold]Tasks[/bold]: --task NAME or NAME:option=value,…  (options for {size[0]}×{size[1]} images)\n")
    tasks = Table(Column(no_wrap=True), "", box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, task in TASKS.items():
        tasks.add_row(f"  {name}", f"{escape(task.description)}\n[dim]{options_text(task.defaults(size))}[/dim]")
    console.print(tasks, highlight=False)
    console.print("\n[bold]Methods[/bold]: --method NAME or NAME:setting=value,…\n")
    methods = Table(Column(no_wrap=True), Column(no_wrap=True), "", box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, method in METHODS.items():
        settings = ", ".join(f"{k}={v}" for k, v in default_settings(method.solve)[0].items())
        lines = [escape(method.description), *([f"[dim]{escape(settings)}[/dim]"] if settings else [])]
        methods.add_row(f"  {name}", method.needs, "\n".join(lines))
    for name in named_entry_points():
        methods.add_row(f"  {name}", "", "from an installed package")
    methods.add_row("  MODULE:FUNCTION", "", "a solver of your own, in ten lines: docs/evaluation.md")
    console.print(methods, highlight=False)
    console.print(LEGEND, highlight=False, soft_wrap=True)
    there, absent = available_metrics(), [name for name in METRICS if name not in available_metrics()]
    console.print(f"\n[bold]Metrics[/bold]: --metric NAME: {', '.join(there)}", highlight=False)
    if absent:
        console.print(f"  not installed here: {', '.join(absent)} (`linverse data perceptual` fetches their weights)")
    console.print(f"[bold]Features[/bold]: --features {', '.join(FEATURES)}, or MODULE:FUNCTION", highlight=False)


def announce(console: Console, plan: Plan, left: int) -> None:
    """What is about to be done, what is left out and why, and which network stands in for another."""
    counts = [f"{n} {what}{'s' if n != 1 else ''}" for n, what in sizes(plan)]
    note(console, f"{', '.join(counts)}: {left} of {len(plan.units())} batches to do")
    for label, reasons in left_out(plan).items():
        for reason, tasks in reasons.items():
            note(console, f"note: {label} is left out on {', '.join(tasks)}: {reason}")
    lent = [c.label for c in plan.contenders if plan.choose(plan.tasks[0], c).kind == AS_DENOISER]
    if lent:
        which = "its isotropic denoiser" if len(lent) == 1 else "their isotropic denoiser"
        verb = "uses" if len(lent) == 1 else "use"
        note(
            console, f"note: {', '.join(lent)} {verb} the energy itself as {which} (--score-model FOLDER gives another)"
        )


def sizes(plan: Plan) -> list[tuple[int, str]]:
    """How many of what."""
    return [(len(plan.truth), "image"), (len(plan.tasks), "task"), (len(plan.contenders), "method")]


def left_out(plan: Plan) -> dict[str, dict[str, list[str]]]:
    """Method → reason → the tasks on which it cannot be run."""
    out: dict[str, dict[str, list[str]]] = {}
    for (task, method), reason in plan.skipped().items():
        out.setdefault(method, {}).setdefault(reason, []).append(task)
    return out


# --- afterwards ------------------------------------------------------------------------------------------------------------------


def write_report(plan: Plan, store: EvaluationFolder, pictures: int = 8) -> tuple[Record, Record]:
    """results.json, timings.json, table.md, table.csv and the pictures; returns what the first two hold."""
    if pictures < 0:
        raise ValueError(f"pictures is the number of images in a grid, 0 for none; got {pictures}")
    begun = time.perf_counter()
    report, timings = conclude(plan, store)
    write_whole(store.folder / "table.md", markdown(report, timings).encode())
    write_whole(store.folder / "table.csv", csv_text(report, timings).encode())
    if pictures:
        write_pictures(store.folder, plan, store, report, pictures)
    timings["spent"]["tables and pictures"] = time.perf_counter() - begun
    write_json(store.folder / "timings.json", timings, 1)
    return report, timings


def show_report(console: Console, report: dict[str, Any], timings: dict[str, Any], out: Path) -> None:
    """The means, what was left out, where the time went, and where the files are."""
    for label, task in report["tasks"].items():
        console.print(f"\n[bold]{escape(label)}[/bold] ({options_text(task['options'])})", highlight=False)
        console.print(means_table(task["methods"], metric_names(report)))
        for name, method in task["methods"].items():
            if method["status"] != "done":
                note(console, f"{name} {method['status']}: {method['reason']}")
    note(console, f"\ntime: {time_text(timings['spent'])}")
    note(console, f"{out}: table.md and table.csv (with 95 % intervals), results.json (every image), pictures")


def means_table(methods: dict[str, Any], names: list[str]) -> Table:
    """One line per method; the best of a column is bold. It fits 80 columns: only the methods' names may be folded."""
    columns = [Column(heading(name), justify="right", no_wrap=True) for name in (*names, "evaluations")]
    table = Table(Column("method", overflow="fold"), *columns, box=None, padding=(0, 1, 0, 0))
    best = best_methods(methods, names)
    for label, method in methods.items():
        if method["status"] == "done":
            cells = [bold(number(name, method["summary"].get(name)), best.get(name) == label) for name in names]
            cost = method["evaluations"]
            table.add_row(escape(label), *cells, "" if cost is None or label == TRUTH else str(cost))
    return table


def heading(name: str) -> str:
    """A column's name on two lines, if it is long."""
    if name == "evaluations":
        return "evalu-\nations"
    return name.replace("-", "-\n", 1) if "-" in name else name.replace(" ", "\n", 1)


def number(name: str, summary: dict[str, float] | None) -> str:
    """As many digits as are worth reading."""
    if summary is None:
        return ""
    digits = {"PSNR": ".2f", PRIOR: ".1f", POSTERIOR: ".1f"}.get(name, ".3f")
    return f"{summary['estimate']:{'.3g' if name.startswith(('Fréchet', 'FID')) else digits}}"


def bold(text: str, wanted: bool) -> str:
    """Marked, if wanted."""
    return f"[bold]{text}[/bold]" if wanted else text


def time_text(spent: dict[str, float]) -> str:
    """solving 93 %, metrics 5 %, … of 412 s."""
    total = sum(spent.values())
    shares = ", ".join(f"{name} {100 * value / total:.1f} %" for name, value in spent.items()) if total else "nothing"
    return f"{shares} of {total:.3g} s"

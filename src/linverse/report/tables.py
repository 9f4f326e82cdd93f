"""The result as a table: Markdown to read, CSV to compute with. Seconds stand last: they are all that differs between two equal runs."""

from __future__ import annotations

import csv
from io import StringIO
from typing import Any

from linverse.evaluation.audit import POSTERIOR, PRIOR
from linverse.evaluation.contenders import TRUTH
from linverse.metrics import METRICS

Record = dict[str, Any]


def metric_names(report: Record) -> list[str]:
    """The metrics of a report, in the order in which they were asked for, Fréchet before the densities."""
    found: dict[str, None] = {}
    for task in report["tasks"].values():
        for method in task["methods"].values():
            found |= dict.fromkeys(method.get("summary", {}))
    densities = [name for name in (PRIOR, POSTERIOR) if name in found]
    return [name for name in found if name not in densities] + densities


def better(name: str) -> str | None:
    """Which way a metric is better; a density is best where the truth's is."""
    if name.startswith("Fréchet") or name == "FID":
        return "lower"
    base = name.partition("@")[0]
    return METRICS[base].better if base in METRICS else None


def best_methods(methods: Record, names: list[str]) -> dict[str, str]:
    """Metric → the method that has the best mean in it."""
    out = {}
    for name in names:
        way = better(name)
        scores = {label: m["summary"][name]["estimate"] for label, m in methods.items() if name in m.get("summary", {})}
        if way and len(scores) > 1:
            out[name] = (max if way == "higher" else min)(scores, key=lambda label: scores[label])
    return out


# --- Markdown ------------------------------------------------------------------------------------------------------------------


def markdown(report: Record, timings: Record) -> str:
    """A table per task, with 95 % intervals, and the audit below it."""
    settings = report["configuration"]
    lines = [
        f"# {settings['images']} images of {settings['data'] or 'the given set'}, seed {settings['seed']}",
        "",
        "Means with 95 % bootstrap intervals over images; the best is bold. Densities in nats, of x̂ + N(0, λ_min), "
        f"λ_min = {settings['floor']:g}; seconds and evaluations are those of one image.",
        "",
    ]
    for label, task in report["tasks"].items():
        lines += task_lines(label, task, timings["tasks"].get(label, {}), metric_names(report))
    return "\n".join(lines)


def task_lines(label: str, task: Record, timings: Record, names: list[str]) -> list[str]:
    """The section of one task."""
    methods = task["methods"]
    best = best_methods(methods, names)
    head = ["method", "network", *(f"{name}{arrow(name)}" for name in names), "evaluations", "gradients", "seconds"]
    lines = [f"## {label} ({options_text(task['options'])})", "", row(head), row(["---"] * len(head))]
    for name, method in methods.items():
        if method["status"] == "done":
            cells = [cell(method["summary"].get(metric), best.get(metric) == name) for metric in names]
            seconds = timings.get(name, {}).get("per_image")
            costs = [count(method[key]) if name != TRUTH else "" for key in ("evaluations", "gradients")]
            network = method["network"] if name != TRUTH else ""
            lines.append(row([name, network, *cells, *costs, "" if seconds is None else f"{seconds:.3g}"]))
    lines += ["", *remarks(methods), *audit_lines(task)]
    return lines


def options_text(options: Record) -> str:
    """side=20, sigma=0.001."""
    return ", ".join(f"{name}={value:g}" for name, value in options.items())


def row(cells: list[str]) -> str:
    """A line of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def arrow(name: str) -> str:
    """Which way a column is better."""
    return {"higher": " ↑", "lower": " ↓"}.get(better(name) or "", "")


def count(value: int | None) -> str:
    """A number, or a dash where it is not known."""
    return "–" if value is None else str(value)


def cell(value: Record | None, bold: bool = False) -> str:
    """mean [low, high]."""
    if value is None:
        return ""
    mean = f"**{value['estimate']:.4g}**" if bold else f"{value['estimate']:.4g}"
    return mean if value["low"] is None else f"{mean} [{value['low']:.4g}, {value['high']:.4g}]"


def remarks(methods: Record) -> list[str]:
    """What was left out, what failed, and what was warned of."""
    lines = [f"- {name} {m['status']}: {m['reason']}" for name, m in methods.items() if m["status"] != "done"]
    notes = [f"- {name}: {note}" for name, m in methods.items() for note in m.get("warnings", [])]
    return [*lines, *notes, ""] if lines or notes else []


def audit_lines(task: Record) -> list[str]:
    """How much more or less probable than the truth each method's images are."""
    methods = {name: m for name, m in task["methods"].items() if m.get("audit")}
    if not methods:
        return []
    names = list(next(iter(methods.values()))["audit"])
    lines = [
        f"Audit: log-density less the truth's, image by image (nats; measured with σ = {task['audit_sigma']:.3g}); "
        "exact samples have 0.",
        "",
        row(["method", *names]),
        row(["---"] * (len(names) + 1)),
    ]
    lines += [row([name, *(cell(m["audit"][key]) for key in names)]) for name, m in methods.items()]
    return [*lines, ""]


# --- CSV -----------------------------------------------------------------------------------------------------------------------


def csv_text(report: Record, timings: Record) -> str:
    """One line per pair: estimate, low and high of each metric; seconds per image in the last column."""
    names = metric_names(report)
    columns = [f"{name}{end}" for name in names for end in ("", " low", " high")]
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["task", "method", "status", "network", *columns, "evaluations", "gradients", "reason", "seconds"])
    for label, task in report["tasks"].items():
        for name, method in task["methods"].items():
            summary = method.get("summary", {})
            values = [summary.get(metric, {}).get(key) for metric in names for key in ("estimate", "low", "high")]
            costs = [method.get("evaluations"), method.get("gradients"), method.get("reason")]
            seconds = timings["tasks"].get(label, {}).get(name, {}).get("per_image")
            writer.writerow([label, name, method["status"], method.get("network"), *values, *costs, seconds])
    return out.getvalue()

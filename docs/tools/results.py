"""The page of results: what `linverse experiment` and `linverse evaluate` wrote into results/, read when the site is built.

A number on it that belongs to other weights than those that come with the package is marked, so that none outlives its model.
"""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from linverse.files.saving import hash_tensors

ROOT = Path(__file__).parents[2]
RESULTS, WEIGHTS = ROOT / "results", ROOT / "src" / "linverse" / "weights"
FRAMEWORK = ROOT / "src" / "linverse" / "experiments" / "framework.py"


def descriptions() -> dict[str, str]:
    """What each experiment asks, in the order of `linverse experiment --help`."""
    for node in ast.parse(FRAMEWORK.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EXPERIMENTS":
            return dict(ast.literal_eval(node.value))
    raise LookupError(f"{FRAMEWORK} has no EXPERIMENTS")


@cache
def weights_hash(name: str) -> str:
    """That of a bundled model's weights; empty if there is no such model."""
    file = WEIGHTS / name / "model.safetensors"
    return hash_tensors(load_file(file)) if file.exists() else ""


def outdated(weights: dict[str, str]) -> list[str]:
    """Names of bundled models whose weights are others by now."""
    return [name for name, known in weights.items() if weights_hash(name) not in ("", known)]


def provenance(found: dict[str, Any]) -> str:
    """By what a record was made."""
    made = found["provenance"]
    models = ", ".join(f"`{name}` ({known[:8]})" for name, known in made["weights"].items())
    line = f"Made by linverse {made['linverse']}, revision {made['revision'][:8]}, in {made['seconds']:.0f} s"
    return f"{line}; weights: {models}." if models else f"{line}."


def warning(weights: dict[str, str]) -> list[str]:
    """A box that says that the weights have changed, if they have."""
    old = outdated(weights)
    if not old:
        return []
    return [
        '!!! warning "Other weights"',
        f"    The bundled weights of {', '.join(old)} have changed since this was measured.",
        "",
    ]


def number(value: object) -> str:
    """Four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def record_of(name: str, found: dict[str, Any]) -> list[str]:
    """One record: the paper's claims, the picture, what was aimed at, and all its numbers."""
    paper = found["paper"]
    lines = [f"`{name}` ({paper.get('source', 'not in the paper')}).", ""]
    lines += warning(found["provenance"]["weights"])
    lines += [*(f"- The paper says: {claim}." for claim in paper.get("claims", [])), "", f"![{name}]({name}.png)", ""]
    lines += ['??? note "All numbers, and what was aimed at"', "    | | |", "    |---|---|"]
    lines += [f"    | aim: `{key}` | {value} |" for key, value in paper.get("targets", {}).items()]
    lines += [f"    | `{key}` | {number(value)} |" for key, value in found["metrics"].items()]
    return [*lines, "", provenance(found), ""]


def comparison() -> list[str]:
    """The tables of `linverse evaluate`, their headings one level lower."""
    table = RESULTS / "evaluation" / "table.md"
    if not table.exists():
        return []
    text = re.sub(r"^## ", "### ", re.sub(r"\A# (.*)\n", r"\1.\n", table.read_text()), flags=re.MULTILINE)
    known = json.loads((table.parent / "results.json").read_text())["configuration"]
    pictures = [
        f"![{path.stem}](evaluation-{path.name})" for path in sorted((RESULTS / "evaluation").glob("grid-*.png"))
    ]
    grids = [f"{picture}\n" for picture in pictures]
    return ["## Comparison with other solvers", "", *warning({known["data"]: known["model"]}), text, "", *grids]


def pictures() -> dict[str, Path]:
    """Name in the site's folder → file."""
    grids = {f"evaluation-{path.name}": path for path in (RESULTS / "evaluation").glob("grid-*.png")}
    return {path.name: path for path in RESULTS.glob("*.png")} | grids


def page() -> str:
    """All of them."""
    lines = [
        "# Results",
        "",
        "What the experiments and comparisons of this version gave, read from `results/` when this page was built. How they are made: "
        "[The paper](../paper.md), [Evaluation](../evaluation.md).",
        "",
    ]
    records = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    for name, about in descriptions().items():
        mine = {stem: found for stem, found in records.items() if found["experiment"] == name}  # one, or one a table
        if mine:
            lines += [f"## {name}", "", f"{about[0].upper()}{about[1:]}. `linverse experiment {name}`.", ""]
        for stem, found in mine.items():
            lines += record_of(stem, found)
    return "\n".join([*lines, *comparison()])

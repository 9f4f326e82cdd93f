"""`docs/paper.md`: every table and figure of the paper beside ours, from the records alone, and the runs that make them.

Nothing on the page is written by hand but its first lines: what an item is called comes from `experiments.paper`, all else from its
record, and whether the weights are still those that it was made of. The same records and weights give the same page.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linverse.experiments.claims import CONFIRMED, NOT_JUDGED, REFUTED, UNTESTABLE
from linverse.experiments.paper import ITEMS, PaperItem, has_present_weights, is_current, missing_models
from linverse.files import make_folder, read_object, write_whole
from linverse.progress import Progress, silent
from linverse.report.experiments import write_experiment
from linverse.store.card import markdown_table

ORDER = (CONFIRMED, REFUTED, UNTESTABLE, NOT_JUDGED)
INTRODUCTION = """# The paper, table by table and figure by figure

*Learning Normalized Energy Models for Linear Inverse Problems* (Zilberstein, Segarra, Simoncelli, Guth; ICML 2026), repeated at a
scale that two cores can train, with the code that a cluster would run at full scale. This page is made by `linverse paper` from the
records in `results/`; nothing on it is written by hand.

Each claim is judged by a rule that was written into the code before the run: *confirmed* if the 95 % intervals of all that it compares
lie on the claimed side, *refuted* if one lies on the other side, *not testable here* if neither. Images, networks and training are
smaller than the paper's, so that numbers are to be compared down a column, not with the paper's own, which stand beside them.
"""


@dataclass(frozen=True)
class Outcome:
    """What became of an item: its record, or why there is none; `earlier`: its record is of weights that have changed since."""

    item: PaperItem
    record: dict[str, Any] | None
    reason: str = ""
    earlier: bool = False

    @property
    def verdict(self) -> str:
        """In a few words."""
        if self.record is None:
            return self.reason
        return self._counted(self.record) + " (of earlier weights)" * self.earlier

    def _counted(self, record: dict[str, Any]) -> str:
        counts = Counter(verdict["verdict"] for verdict in record["verdicts"])
        if not counts:
            return "shown"
        if len(counts) == 1:
            (only,) = counts
            return only if sum(counts.values()) == 1 else f"{counts[only]} claims: {only}"
        return ", ".join(f"{counts[name]} {name}" for name in ORDER if counts[name])


# --- running -----------------------------------------------------------------------------------------------------------------------


def read_record(item: PaperItem, out: Path) -> dict[str, Any] | None:
    """The record of an item, if there is one that has verdicts."""
    path = out / f"{item.name}.json"
    record = read_object(path) if path.is_file() else None
    return record if record is not None and "verdicts" in record else None


def run_item(
    item: PaperItem,
    out: Path,
    quick: bool,
    progress: Progress = silent,
    instead: dict[str, str] | None = None,
    again: bool = False,
) -> Outcome:
    """Run an item if its models are there and its record is not current (or `again`)."""
    options = item.chosen(instead or {})
    missing = missing_models(options)
    if missing:
        return Outcome(item, None, f"left out: the model {', '.join(missing)} is not there")
    record = read_record(item, out)
    if again or record is None or not is_current(record, options, quick):
        record = write_experiment(item.experiment, out, quick, progress, options, item.name)
    return Outcome(item, record)


def run_items(
    items: list[PaperItem],
    out: Path,
    quick: bool,
    progress: Progress = silent,
    instead: dict[str, str] | None = None,
    tell: Callable[[str], None] = lambda text: None,
    again: bool = False,
) -> list[Outcome]:
    """All items; one that fails is told, and the others go on."""
    outcomes = []
    for number, item in enumerate(items):
        tell(f"[{number + 1}/{len(items)}] {item.name}: {item.title}")
        try:
            outcomes.append(run_item(item, out, quick, progress, instead, again))
        except (ValueError, OSError, RuntimeError, ImportError, FloatingPointError) as error:
            outcomes.append(Outcome(item, None, f"failed: {error}"))
        tell(f"    {outcomes[-1].verdict}")
    return outcomes


def stored(out: Path) -> list[Outcome]:
    """What the records of a folder say, and which items have none."""
    found = []
    for item in ITEMS:
        record = read_record(item, out)
        options = item.chosen({})
        if record is not None:
            found.append(Outcome(item, record, earlier=not has_present_weights(record, options)))
            continue
        missing = missing_models(options)
        found.append(
            Outcome(item, None, f"left out: the model {', '.join(missing)} is not bundled" if missing else "not run")
        )
    return found


# --- the page ------------------------------------------------------------------------------------------------------------------------


def write_page(out: Path, page: Path) -> None:
    """The page of a folder of records; pictures are named as they lie from the page."""
    make_folder(page.parent)
    write_whole(page, render_page(out, os.path.relpath(out, page.parent)).encode())


def render_page(out: Path, folder: str) -> str:
    """The page's text; `folder` is how it names the folder of the records."""
    outcomes = stored(out)
    rows = [(linked(o), o.item.source, o.verdict, f"`{o.item.command()}`") for o in outcomes]
    parts = [INTRODUCTION, table_text(("item", "in the paper", "verdict", "command"), rows)]
    parts += [render_item(outcome, folder) for outcome in outcomes if outcome.record is not None]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def table_text(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table; a bar in a cell (log p(x|y)) does not end it."""
    escaped = [tuple(cell.replace("|", "\\|") for cell in row) for row in (head, *rows)]
    return "\n".join(markdown_table(escaped[0], escaped[1:])).rstrip("\n")


def linked(outcome: Outcome) -> str:
    """The title, leading to the item where the page has it."""
    title = outcome.item.title
    return title if outcome.record is None else f"[{title}](#{outcome.item.name})"


def render_item(outcome: Outcome, folder: str) -> str:
    """One item: claims and verdicts, the picture, the numbers, where we depart, and where it all comes from."""
    item, record = outcome.item, outcome.record
    assert record is not None
    parts = [f'<a id="{item.name}"></a>\n## {item.title}', f"*{capital(item.source)}.*"]
    if record["provenance"]["quick"]:
        parts.append("**A quick run: not judged.**")
    verdicts = [(v["claim"], f"**{v['verdict']}**", v["because"]) for v in record["verdicts"]]
    if verdicts:
        parts.append(table_text(("claim", "verdict", "because"), verdicts))
    parts.append(f"![{item.title}]({folder}/{item.name}.png)")
    for table in record["tables"]:
        body = [tuple(cell_text(cell) for cell in row) for row in table["rows"]]
        parts.append(f"**{table['title']}**\n\n" + table_text(tuple(table["columns"]), body))
    departures = record["paper"].get("departures", [])
    if departures:
        parts.append("Where we depart from the paper: " + "; ".join(departures) + ".")
    parts.append(origin(outcome, record))
    return "\n\n".join(parts)


def origin(outcome: Outcome, record: dict[str, Any]) -> str:
    """Command, weights, revision and seconds of a record."""
    made = record["provenance"]
    weights = [f"{name} {digest[:12]}" for name, digest in made["weights"].items()]
    facts = [
        f"`{outcome.item.command()}`",
        f"version {made['linverse']}",
        f"{made['processor_seconds']:.0f} processor seconds",
    ]
    facts += [f"weights {', '.join(weights)}"] if weights else []
    facts += ["the weights have changed since"] if outcome.earlier else []
    return "<sub>" + " · ".join(facts) + "</sub>"


def cell_text(cell: Any) -> str:
    """A cell as the page shows it: numbers with their intervals."""
    if cell is None:
        return ""
    if isinstance(cell, dict):
        return f"{number_text(cell['value'])} [{number_text(cell['low'])}, {number_text(cell['high'])}]"
    return number_text(cell) if isinstance(cell, float | int) else str(cell)


def number_text(value: float) -> str:
    """Whole numbers as they are, others to four digits that count."""
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e6):
        return f"{int(value):,}".replace(",", " ").replace("-", "−")
    return f"{value:.4g}".replace("-", "−")


def capital(text: str) -> str:
    """The same with a capital letter."""
    return text[:1].upper() + text[1:]

"""A table of a record: words, numbers, and numbers with their intervals; whoever shows it decides how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from linverse.metrics import Interval

Cell = str | float | int | None | Interval


@dataclass(frozen=True)
class ResultTable:
    """Rows under columns; None is a cell with nothing in it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.title!r} has {len(self.columns)} columns; a row has {len(row)}: {row}")

    def to_record(self) -> dict[str, Any]:
        """As JSON keeps it."""
        return {
            "title": self.title,
            "columns": list(self.columns),
            "rows": [[_plain(cell) for cell in row] for row in self.rows],
        }


def _plain(cell: Cell) -> Any:
    if isinstance(cell, Interval):
        return {"value": cell.estimate, "low": cell.low, "high": cell.high}
    return cell

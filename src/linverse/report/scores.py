"""Scored pictures as a table, a gallery and a file."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from linverse.report.console import note
from linverse.report.output import OutputFolder
from linverse.report.style import GREY, INK, caption, draw_cell, figure_bytes, nats, set_gaps
from linverse.typicality import Scores
from linverse.units import bits_per_dim

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN, LISTED = 40, 20


@dataclass(frozen=True)
class ScoredPicture:
    """A picture, its log-density in nats, and where that lies among those of held-out images (of a model that carries some)."""

    path: Path
    image: Tensor
    log_density: float
    typicality: dict[str, Any] | None = None
    code_bits: float | None = None
    """bits per dimension that it takes as bytes, at most (`linverse.code_length`); None of a picture that is no bytes"""

    @property
    def bits(self) -> float:
        """−log₂ p per dimension."""
        return float(bits_per_dim(torch.tensor(self.log_density, dtype=torch.float64), self.image.numel()))


def ranked(
    paths: list[Path], x: Sequence[Tensor], scores: Scores, code_bits: Sequence[float | None]
) -> list[ScoredPicture]:
    """The pictures that were scored, most probable first (by dimension: they may differ in size)."""
    values = scores.log_density.tolist()
    records = [None] * len(values) if scores.typicality is None else scores.typicality.records()
    pictures = [image[0] if image.ndim == 4 else image for image in x]
    scored = [ScoredPicture(*one) for one in zip(paths, pictures, values, records, code_bits, strict=False)]
    return sorted(scored, key=lambda one: one.bits)


def ends(scored: list[ScoredPicture], most: int) -> tuple[list[ScoredPicture], bool]:
    """All, or the first and the last of too many."""
    if len(scored) <= most:
        return scored, False
    return scored[: most // 2] + scored[-(most // 2) :], True


def rows(scored: list[ScoredPicture]) -> list[dict[str, Any]]:
    """The numbers, for files."""
    return [
        {
            "rank": rank,
            "image": str(one.path),
            "log_density_nats": round(one.log_density, 4),
            "bits_per_dim": round(one.bits, 5),
            "code_bits_per_dim": None if one.code_bits is None else round(one.code_bits, 4),
            **{key: one.typicality[key] for key in ("p", "z", "unusual") if one.typicality is not None},
        }
        for rank, one in enumerate(scored, start=1)
    ]


def write(out: OutputFolder, scored: list[ScoredPicture], settings: dict[str, Any], *, completed: bool) -> None:
    """scores.csv, gallery.png, result.json."""
    table, text = rows(scored), io.StringIO()
    writer = csv.DictWriter(text, list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    out.write("scores.csv", text.getvalue().encode(errors="replace"))
    kept, gap = ends(scored, SHOWN)
    floor, model = settings["smallest_variance"], Path(settings["model"]).name
    heading = f"log p(x + N(0, {floor:.0e})) in nats, most probable first · model {model}"
    heading += f" · the first and last {SHOWN // 2} of {len(scored)}" if gap else ""
    labels = [nats(one.log_density) for one in kept]
    out.write("gallery.png", figure_bytes(lambda: gallery_figure([one.image for one in kept], labels, heading)))
    compared = scored[0].typicality
    references = 0 if compared is None else compared["reference_images"]
    out.finish({"completed": completed, **settings, "reference_images": references, "scores": table})


def show(console: Console, scored: list[ScoredPicture], floor: float, out: OutputFolder) -> None:
    """The sorted table."""
    compared = scored[0].typicality
    columns = ["", "picture", "log p (nats)", "density (bits/dim)", "as bytes (bits/dim)"]
    table = Table(*columns, *(["typical?"] if compared else []), box=None)
    kept, gap = ends(scored, LISTED)
    for place, one in enumerate(kept):
        rank = place + 1 if not gap or place < LISTED // 2 else len(scored) - len(kept) + place + 1
        if gap and place == LISTED // 2:
            table.add_row("…")
        row = [str(rank), one.path.name.replace("[", r"\["), f"{one.log_density:.1f}", f"{one.bits:.3f}"]
        row.append("" if one.code_bits is None else f"{one.code_bits:.3f}")
        table.add_row(*row, *([one.typicality["verdict"]] if one.typicality else []))
    console.print(table)
    against = f"; compared with {compared['reference_images']} held-out images of the model" if compared else ""
    note(console, f"log p(x + N(0, λ_min)), λ_min = {floor:g}; most probable first{against}")
    if any(one.code_bits is not None for one in scored):
        note(
            console,
            "as bytes: at most so many bits would each value take, if the model's density is normalised; PNG can be compared",
        )
    note(console, f"wrote {out.folder}/: gallery.png, scores.csv, result.json")


def gallery_figure(images: Sequence[Tensor], below: Sequence[str], title: str, across: int = 10) -> Figure:
    """Pictures in reading order, each with a word below it."""
    from matplotlib.figure import Figure

    rows = math.ceil(len(images) / across)
    across = min(across, len(images))
    figure = Figure(figsize=(max(1.1 * across, 4.5), 1.3 * rows + 0.5), layout="constrained")
    set_gaps(figure, 0.02, 0.03)
    for number, axes in enumerate(figure.subplots(rows, across, squeeze=False).flat):
        draw_cell(axes, images[number] if number < len(images) else None, None)
        if number < len(images):
            caption(axes, below=below[number], size=7.5, colour=INK if below[number] else GREY)
    figure.suptitle(title, fontsize=10, fontweight="bold", x=0.01, ha="left", parse_math=False)
    return figure

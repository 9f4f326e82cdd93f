"""The card of a model: what it is, what it learned from, how it did, what it cannot do. JSON for programs, Markdown for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from linverse.data import describe
from linverse.models.denoiser import DenoiserConfig
from linverse.models.saving import CARD
from linverse.training.config import TrainConfig
from linverse.training.normalise import SelfTest

MARKDOWN = "README.md"

SHOWN = ("data", "title", "licence", "parameters", "steps", "epochs", "batch")

HEADER = """---
library_name: linverse
tags:
- inverse-problems
- energy-based-model
---
"""


def data_facts(data: str) -> dict[str, str]:
    """Title and licence of a data set that is known by name; nothing of a user's own."""
    known = {d.name: d for d in describe()}.get(data)
    return {} if known is None else {"title": f"{known.title}, {known.counts[0]} images", "licence": known.licence}


def limits(config: TrainConfig) -> str:
    """What a user must not expect, in one sentence or two."""
    channels, height, width = config.model.shape
    colours = {1: "grey", 3: "colour"}.get(channels, f"{channels}-channel")
    noises = ", ".join(dict.fromkeys(str(c.distribution.kind).replace("-", " ") for c in config.covariances.components))
    knows = (
        f"knows {colours} images of {height}×{width} like those of {config.data}, and noise variances from {config.model.minimum:g} "
        f"to {config.model.maximum:g} of the kinds it was trained with ({noises}); of anything else its certainty means little: "
        "compare with what is typical (`linverse score`)"
    )
    if config.loss.objective == "single" and not isinstance(config.model, DenoiserConfig):
        knows += (
            ". Nothing in its training tied noise levels together: it is for means and samples, and for comparison; "
            "its densities, evidence and standard deviations mean nothing"
        )
    return knows


def write_card(folder: Path, card: dict[str, Any]) -> None:
    """`card.json` and `README.md` of a saved model."""
    (folder / CARD).write_text(json.dumps(card, indent=2) + "\n")
    (folder / MARKDOWN).write_text(markdown(card))


def markdown(card: dict[str, Any]) -> str:
    """The card as a page: use, training, losses on held-out images, self-tests, limits; whatever of it there is."""
    lines = [f"{HEADER}\n# {card['name']}", ""]
    if "about" in card:
        lines += [f"{card['about']}.", ""]
    if "self_test" in card:
        lines += ["```python", "import linverse as lv", "", f'energy = lv.load("{card["name"]}")', "```", ""]
    rows: list[tuple[str, Any]] = [(key, card[key]) for key in SHOWN if key in card]
    if "seconds" in card:
        rows.append(("time", f"{card['seconds'] / 3600:.1f} hours"))
    rows += [(f"held-out {key}", f"{value:.4f}") for key, value in card.get("held_out", {}).items()]
    rows += [("test error", f"{100 * card['test_error']:.2f} %")] if "test_error" in card else []
    lines += table(("training", ""), rows)
    if "self_test" in card:
        lines += table(("self-test", "value", "meaning"), SelfTest(**card["self_test"]).table())
    if "limits" in card:
        lines += [f"**Limits.** It {card['limits']}.", ""]
    return "\n".join(lines)


def table(head: tuple[str, ...], rows: list[Any]) -> list[str]:
    """A Markdown table and the blank line after it."""
    every = [head, tuple("---" for _ in head), *rows]
    return ["| " + " | ".join(str(cell) for cell in row) + " |" for row in every] + [""]

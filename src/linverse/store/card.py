"""The card of a model: what it is, what it learned from, how it did, what it cannot do. JSON for programs, a page for people.

Card and page travel with the weights (files/saving.py): saving, loading and pushing to the hub keep them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from linverse.data import describe
from linverse.data.photographs import NAME, attributions, photographs_home, read_index
from linverse.files import json_bytes
from linverse.files.saving import CARD, PAGE, HubModel, ModelFileError
from linverse.models.config import known_fields

HEADER = """---
library_name: linverse
tags:
- inverse-problems
- energy-based-model
---
"""


BANDS_HEAD = ("noise", "coefficients", "mean of κ (0)", "slope (1)", "squared error ÷ its variance (1)")
BANDS_EXPLAINED = (
    "The covariance score κ on held-out images with known noise, by kind of noise and by its size λ against the images' own variance C: "
    "what a model is sure of (means near 0, slopes near 1) and what it is not. *Unseen* noise was not trained on."
)


@dataclass(frozen=True)
class Card:
    """All that is told of a model; what does not apply to one is left empty and is not written.

    `self_test` holds the numbers, `tests` their rows (test, value, meaning) as a person reads them, `bands` the rows of the covariance
    score by kind of noise and band (noise, group, mean, slope, variance), `credits` whose pictures it learned from.
    """

    name: str
    about: str = ""
    data: str = ""
    title: str = ""
    licence: str = ""
    parameters: int = 0
    steps: int | None = None
    started_from: str = ""
    epochs: int | None = None
    batch: int | None = None
    seed: int | None = None
    seconds: int | None = None
    held_out: dict[str, float] = field(default_factory=dict)
    test_error: float | None = None
    constant: float | None = None
    self_test: dict[str, Any] = field(default_factory=dict)
    tests: tuple[tuple[str, str, str], ...] = ()
    bands: tuple[tuple[str, str, str, str, str], ...] = ()
    reference_images: int | None = None
    limits: str = ""
    training: dict[str, Any] = field(default_factory=dict)
    credits: tuple[str, ...] = ()

    # --- on disk ---------------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """What there is of it."""
        return {key: value for key, value in asdict(self).items() if value not in (None, "", {}, ())}

    @classmethod
    def decode(cls, content: bytes) -> Self:
        """A card from its JSON."""
        try:
            data = json.loads(content)
            if not isinstance(data, dict):
                raise ValueError(f"it is a {type(data).__name__}, not an object")
            return cls(**known_fields(data, cls))
        except (ValueError, TypeError, RecursionError) as error:
            raise ModelFileError(f"{CARD} holds no card of this version of linverse: {error}") from error

    def attach_to(self, model: HubModel) -> None:
        """Let card and page travel with a model."""
        model.attach(CARD, json_bytes(self.to_dict()))
        model.attach(PAGE, self.page().encode())

    def renamed(self, name: str) -> Card:
        """The same card under another name."""
        return replace(self, name=name)

    # --- for people ------------------------------------------------------------------------------------------------------

    def rows(self) -> list[tuple[str, str]]:
        """Data, effort and results, as a person reads them."""
        plain = ("data", "title", "licence", "parameters", "started_from", "steps", "epochs", "batch")
        rows = [
            (key.replace("_", " "), str(value)) for key in plain if (value := getattr(self, key)) not in (None, "", 0)
        ]
        if self.seconds is not None:
            rows.append(("time", f"{self.seconds / 3600:.1f} hours"))
        rows += [(f"held-out {key}", f"{value:.4f}") for key, value in self.held_out.items()]
        if self.test_error is not None:
            rows.append(("test error", f"{100 * self.test_error:.2f} %"))
        return rows

    def page(self) -> str:
        """The card as Markdown: use, training, losses on held-out images, self-tests, limits; whatever of it there is."""
        lines = [f"{HEADER}\n# {self.name}", ""]
        if self.about:
            lines += [f"{self.about}.", ""]
        if self.tests:
            lines += ["```python", "import linverse as lv", "", f'energy = lv.load("{self.name}")', "```", ""]
        lines += markdown_table(("training", ""), self.rows())
        if self.tests:
            lines += markdown_table(("self-test", "value", "meaning"), list(self.tests))
        if self.bands:
            lines += [BANDS_EXPLAINED, "", *markdown_table(BANDS_HEAD, list(self.bands))]
        if self.limits:
            lines += [f"**Limits.** It {self.limits}.", ""]
        if self.credits:
            lines += [
                "## Credits",
                "",
                "It learned from pictures by:",
                "",
                *(f"- {credit}" for credit in self.credits),
                "",
            ]
        return "\n".join(lines)


def card_of(model: object) -> Card | None:
    """The card that a model carries, if it has one."""
    content = getattr(model, "attachments", {}).get(CARD)
    return None if content is None else Card.decode(content)


def data_facts(data: str) -> tuple[str, str]:
    """Title and licence of a data set that is known by name; nothing of a user's own."""
    known = {d.name: d for d in describe()}.get(data)
    return ("", "") if known is None else (f"{known.title}, {known.training} images", known.licence)


def data_credits(data: str) -> tuple[str, ...]:
    """Whose pictures a data set holds, where each has an author and a licence of its own."""
    return tuple(attributions(read_index(photographs_home()))) if data == NAME else ()


def markdown_table(head: tuple[str, ...], rows: list[Any]) -> list[str]:
    """A Markdown table and the blank line after it."""
    every = [head, tuple("---" for _ in head), *rows]
    return ["| " + " | ".join(str(cell) for cell in row) + " |" for row in every] + [""]

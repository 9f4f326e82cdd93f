"""The figure of the energy-guided experiment: errors against the number of measured pixels, and what was restored in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from linverse.experiments.energy_guided import PAPER, GuidedFindings
from linverse.report.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS: dict[str, dict[str, Any]] = {
    "geometric": {"color": BLUE, "marker": "s"},
    "mirror": {"color": VERMILION, "marker": "o"},
    "magnitude": {"color": ORANGE, "marker": "D", "ls": (0, (4, 2))},
    "variance": {"color": GREEN, "marker": "^", "ls": (0, (2, 1.5))},
    "mean": {"color": PURPLE, "marker": "v", "ls": ":"},
}
LABELS = {"mean": "one-shot mean"}


def draw(found: GuidedFindings) -> Figure:
    """Curves at the left, the digits of the fewest pixels at the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 5.4), layout="constrained")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[1.0, 1.2]).flat
    axes = left.subplots()
    draw_errors(axes, found.metrics, [gallery.keep for gallery in found.galleries], PAPER["figures"])
    gallery = found.galleries[0]
    rows = gallery.images | {"order": gallery.order}
    grid = right.subplots(len(rows), len(gallery.order), squeeze=False, gridspec_kw={"wspace": 0.03, "hspace": 0.03})
    for row, (name, images) in enumerate(rows.items()):
        text = f"guided\n({name})" if name == found.guided else LABELS.get(name, name)
        grid[row, 0].set_ylabel(text, fontsize=9, rotation=0, ha="right", va="center")
        for cell, image in zip(grid[row], images, strict=True):
            draw_digit(cell, image, name == "order")
    right.suptitle(f"From {gallery.keep} pixels; order: dark pixels settle first", fontsize=11, fontweight="bold")
    return figure


def draw_digit(axes: Axes, image: Tensor, is_order: bool) -> None:
    """A digit, or the order of its pixels; NaN is blue-grey."""
    from matplotlib import colormaps

    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    picture = image.detach().squeeze().double().numpy()
    colours = colormaps["viridis" if is_order else "gray"].with_extremes(bad="#5B7083")
    axes.imshow(picture, cmap=colours, vmin=None if is_order else 0, vmax=None if is_order else 1)


def draw_errors(axes: Axes, metrics: dict[str, float], keeps: list[int], theirs: dict[str, Any]) -> None:
    """Errors in per cent with two standard errors; the authors' in the background."""
    for number, (method, look) in enumerate(LOOKS.items()):
        beside = [keep + 2.5 * (number - 2) for keep in keeps]  # so that error bars do not hide each other
        error, spread = (
            [100 * metrics[f"{method}_{what}_{keep}"] for keep in keeps] for what in ("error", "error_standard_error")
        )
        axes.errorbar(beside, error, [2 * s for s in spread], ms=5, capsize=2, label=LABELS.get(method, method), **look)
    for name, marker in (("geometric_error", "s"), ("guided_error", "o")):
        values = [100 * value for value in theirs[name]]
        label = f"authors', {name.removesuffix('_error')}"
        axes.plot(theirs["measurements"], values, marker, ms=8, mfc="none", color=GREY, alpha=0.7, label=label)
    axes.axhline(100 * metrics["clean_error"], color=INK, lw=1, ls=":")
    axes.annotate(
        "clean images", (keeps[-1], 100 * metrics["clean_error"]), (0, 3), textcoords="offset points", ha="right"
    )
    axes.set_yscale("symlog", linthresh=1)
    ticks = (0, 1, 2, 5, 10, 20, 50)
    axes.set_yticks(ticks, [f"{tick} %" for tick in ticks])
    axes.set(ylim=(0, 90), xlabel="measured pixels of 784", ylabel="classification error")
    axes.set_xticks(keeps)
    axes.set_title("Digits from a few pixels")
    axes.legend(loc="upper right")

"""How figures look: one style, one palette, equal panels, and pictures in cells.

Colours are Okabe & Ito's (2008), which stay apart for the colour-blind; every curve also has its own dash, so that they stay apart
in grey. Figures are made without pyplot: no window, no global list of figures to forget to close.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, VERMILION, GREEN, ORANGE, SKY, PURPLE, YELLOW, BLACK = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#E69F00",
    "#56B4E9",
    "#CC79A7",
    "#F0E442",
    "#000000",
)
PALETTE = (BLUE, VERMILION, GREEN, ORANGE, SKY, PURPLE, YELLOW, BLACK)
GREY, INK = "#8A8F98", "#22262B"
MISSING = (0.16, 0.30, 0.52)  # of pixels that were not measured: a colour that no grey picture has

STYLE: dict[str, Any] = {
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "savefig.facecolor": "white",
    "font.size": 10,
    "font.family": "DejaVu Sans",
    "text.color": INK,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlepad": 10,
    "xtick.color": GREY,
    "xtick.labelcolor": INK,
    "xtick.labelsize": 9,
    "ytick.color": GREY,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 9,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 2.0,
    "lines.solid_capstyle": "round",
    "image.cmap": "gray",
    "image.interpolation": "nearest",
}


ONE_AT_A_TIME = (
    threading.RLock()
)  # matplotlib's settings belong to the process: figures of several threads wait for each other


@contextmanager
def style() -> Iterator[None]:
    """The shared style, for as long as the context lasts."""
    import matplotlib
    from cycler import cycler

    settings: Any = STYLE | {"axes.prop_cycle": cycler(color=PALETTE)}
    with ONE_AT_A_TIME, matplotlib.rc_context(settings):
        yield


def set_gaps(figure: Figure, width: float, height: float, columns: float = 0.0, rows: float = 0.0) -> None:
    """Room around the panels of a constrained figure, in inches, and between columns and rows, as shares of the figure."""
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.set(w_pad=width, h_pad=height, wspace=columns, hspace=rows)  # type: ignore[call-arg]


def panels(columns: int, rows: int = 1, *, width: float = 4.6, height: float = 3.6) -> tuple[Figure, list[Axes]]:
    """A figure of equal panels, row by row; sizes in inches a panel."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    set_gaps(figure, 0.08, 0.08, 0.04, 0.06)
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def as_picture(image: Tensor) -> Any:
    """[C, H, W] or [H, W] → what imshow takes: [H, W] for grey, [H, W, 3] for colour, in [0, 1]."""
    if image.ndim == 3 and image.shape[0] in (1, 3):
        image = image[0] if image.shape[0] == 1 else image.permute(1, 2, 0)
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[-1] != 3):
        raise ValueError(f"image has shape {tuple(image.shape)}; a picture is [H, W], [1, H, W] or [3, H, W]")
    return image.detach().cpu().to(torch.float32).clamp(0, 1).numpy()


def painted(image: Tensor, missing: Tensor) -> Tensor:
    """[C, H, W] and a boolean [1 or C, H, W] → [3, H, W] with the missing pixels in their colour."""
    colour = image.new_tensor(MISSING).reshape(3, 1, 1)
    return torch.where(missing.any(dim=0, keepdim=True), colour, image.detach().clamp(0, 1).expand(3, -1, -1))


def draw_cell(axes: Axes, image: Tensor | None, colours: tuple[str, float, float] | None) -> None:
    """One image without ticks or frame."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    if image is None:
        return
    if colours is None:
        axes.imshow(as_picture(image), vmin=0, vmax=1)
    else:
        name, low, high = colours
        axes.imshow(image.detach().cpu().squeeze().numpy(), cmap=name, vmin=low, vmax=high)


def caption(axes: Axes, title: str = "", below: str = "", *, size: float = 8.5, colour: str = INK) -> None:
    """Words above and below a picture."""
    if title:
        axes.set_title(title, fontsize=size, fontweight="normal", loc="center", pad=4, color=colour)
    if below:
        axes.set_xlabel(below, fontsize=size, labelpad=3, color=colour)


def nats(value: float) -> str:
    """A log-density as it stands under a picture."""
    return f"{value:+,.0f}".replace(",", "\u2009").replace("-", "−")


def figure_bytes(draw: Callable[[], Figure], dpi: float | None = None) -> bytes:
    """A figure as a PNG file, drawn in the shared style (and, by default, its resolution)."""
    buffer = BytesIO()
    with style():
        draw().savefig(buffer, format="png", dpi=dpi or STYLE["savefig.dpi"])
    return buffer.getvalue()

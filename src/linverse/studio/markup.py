"""What the page shows: pictures as arrays that a browser enlarges no further, figures with words for who cannot see them, clear notes."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from linverse.files.png import png_bytes
from linverse.report.film import as_colour, enlarged
from linverse.report.restoration import STD_COLOURS, smoothed
from linverse.report.style import figure_bytes, nats
from linverse.restoration import Restoration
from linverse.studio.work import Compared

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIDE = 336  # a small picture is shown at least about so wide
THUMBNAIL = 112
FILM = 760  # three pictures side by side
QUARTER = 184  # of four side by side


def scale_for(image: Tensor, side: int = SIDE) -> int:
    """How many pixels of the screen a pixel of the picture gets."""
    return max(1, side // max(image.shape[-2:]))


def picture(image: Tensor, side: int = SIDE) -> Any:
    """[C, H, W] → bytes [H, W, 3], small pictures enlarged with square pixels."""
    return enlarged(as_colour(image), scale_for(image, side))


def img(content: bytes, alt: str, kind: str = "png", least: int = 0, usual: int = 0) -> str:
    """A picture inside of the page itself: nothing is fetched, nothing is left in a file.

    `least` pixels wide, else it is scrolled; `usual` ones where there is room, with square pixels.
    """
    data = base64.b64encode(content).decode()
    width = f"max-width:max(100%,{least}px);min-width:{least}px"
    width += f";width:{usual}px;image-rendering:pixelated" if usual else ""
    return f'<img alt="{html.escape(alt, quote=True)}" src="data:image/{kind};base64,{data}" style="{width}">'


def figure(draw: Callable[[], Figure], alt: str, least: int = 0) -> str:
    """A drawing with its words; a white background in the dark, too; on a phone a wide one is scrolled rather than shrunk."""
    return f"<figure style='margin:0;overflow-x:auto'>{img(figure_bytes(draw, 110), alt, least=least)}</figure>"


def error_maps(result: Restoration) -> str:
    """How wrong the mean is expected to be everywhere and, where the truth is known, how wrong it is; with one scale, in levels of 255."""
    maps = [("expected error (posterior std)", smoothed(result.std))]
    if result.truth is not None:
        maps.append(("actual error", smoothed((result.mean - result.truth).abs())))
    top = max(float(values.flatten().quantile(0.995)) for _, values in maps)
    cells = []
    for title, values in maps:
        typical = f"typically {255 * float(values.square().mean().sqrt()):.1f} of 255"
        shown = png_bytes(coloured(values / max(top, 1e-9)), scale_for(values))
        cells.append(captioned(img(shown, f"{title}, {typical}"), f"{title}: {typical}", SIDE))
    stops = ", ".join(f"rgb({r},{g},{b})" for r, g, b in (coloured(torch.linspace(0, 1, 9)[None])[:, 0].T * 255).int())
    scale = (
        f"<div style='width:min(100%,{SIDE}px)'><div style='height:12px;background:linear-gradient(to right,{stops})'></div>"
        f"<div style='display:flex;justify-content:space-between;font-size:.8em'><span>0</span><span>levels of 255</span>"
        f"<span>{255 * top:.0f}</span></div></div>"
    )
    return f"<div style='display:flex;flex-wrap:wrap;gap:12px'>{''.join(cells)}</div>{scale}"


def coloured(values: Tensor) -> Tensor:
    """[H, W] in [0, 1] → [3, H, W] in the colours of standard deviations."""
    import matplotlib

    colours = matplotlib.colormaps[STD_COLOURS](values.detach().cpu().clamp(0, 1).numpy())[..., :3]
    return torch.from_numpy(colours).float().permute(2, 0, 1)


def captioned(content: str, words: str, width: int) -> str:
    """A picture with words below it."""
    return (
        f"<figure style='margin:0;width:min(100%,{width}px)'>{content}"
        f"<figcaption style='font-size:.8em'>{html.escape(words)}</figcaption></figure>"
    )


def samples(result: Restoration) -> str:
    """The samples, most probable first, each with its log-density."""
    cells = []
    for number, (sample, log_prob) in enumerate(zip(result.samples, result.log_probs.tolist(), strict=True), start=1):
        shown = png_bytes(sample, scale_for(sample, THUMBNAIL))
        alt = f"sample {number}, log-density {log_prob:.0f} nats"
        cells.append(captioned(img(shown, alt), nats(log_prob), THUMBNAIL))
    if not cells:
        return ""
    words = "Samples, most probable first; log p(x|y) in nats below each. They differ where the data say nothing."
    return f"<p>{words}</p><div style='display:flex;flex-wrap:wrap;gap:8px'>{''.join(cells)}</div>"


def notes(lines: Iterable[str]) -> str:
    """Things to know, one below the other; nothing in them is taken for markup."""
    return "".join(f"<p style='margin:.2em 0'>{html.escape(line)}</p>" for line in lines)


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A plain table."""
    look = "text-align:left;padding:4px 16px 4px 0;border:none"
    top = "".join(f"<th scope='col' style='{look}'>{html.escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td style='{look}'>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table style='margin-top:12px;border:none'><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def order_board(image: Tensor, clicked: list[int], patches: int) -> Any:
    """The picture with its patches, and the turn of those that were clicked."""
    import numpy as np
    from PIL import Image, ImageDraw, ImageFont

    board = Image.fromarray(picture(image))
    draw = ImageDraw.Draw(board)
    width, height = board.width / patches, board.height / patches
    font = ImageFont.load_default(size=max(10, height / 3))
    for number in range(patches**2):
        left, top = number % patches * width, number // patches * height
        draw.rectangle((left, top, left + width, top + height), outline=(86, 180, 233), width=2)
        if number in clicked:
            draw.text((left + 6, top + 4), str(clicked.index(number) + 1), fill=(230, 159, 0), font=font)
    return np.asarray(board)


def comparison(found: list[Compared], known: Sequence[tuple[str, Tensor]] = ()) -> str:
    """Pictures in a row, those that are known (measurement, truth) first, and a table of costs and metrics."""
    cells = []
    shown = [(name, image, name) for name, image in known]
    for name, image, words in [*shown, *((one.name, one.image, f"restored by {one.name}") for one in found)]:
        content = png_bytes(image, scale_for(image, QUARTER))
        cells.append(captioned(img(content, words), name, QUARTER))
    names = list(found[0].metrics)
    rows = [
        (one.name, str(one.evaluations), f"{one.seconds:.1f}", *(f"{one.metrics[name]:.3f}" for name in names))
        for one in found
    ]
    numbers = table(("method", "evaluations", "seconds", *names), rows)
    hint = "" if names else notes(["the truth is not known: there is nothing to measure against"])
    return f"<div style='display:flex;flex-wrap:wrap;gap:12px'>{''.join(cells)}</div>{numbers}{hint}"

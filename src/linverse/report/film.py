"""The way of one sample as an animated picture: x_t, the mean E[x|x_t], and the map of noise levels log₁₀ λ_t, side by side."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from linverse.report.restoration import STD_COLOURS
from linverse.sampling import Film

if TYPE_CHECKING:
    from numpy.typing import NDArray

FRAMES = 60  # at most
MILLISECONDS = 80  # of each; the last one stays
LAST = 1500


def film_bytes(film: Film, width: int = 224) -> bytes:
    """An animated GIF of at most `FRAMES` levels, evenly spread; each panel at least `width` pixels wide."""
    from PIL import Image

    count = len(film.images)
    chosen = torch.linspace(0, count - 1, min(count, FRAMES)).round().long()
    scale = max(1, width // film.images.shape[-1])
    maps = noise_maps(film)
    frames = []
    for i in chosen.tolist():
        panels = [as_colour(film.images[i]), as_colour(film.means[i]), maps[i]]
        gap = torch.ones(3, panels[0].shape[1], max(1, 4 // scale))
        row = torch.cat([panels[0], gap, panels[1], gap, panels[2]], dim=2)
        frames.append(Image.fromarray(enlarged(row, scale)))
    buffer = BytesIO()
    times = [MILLISECONDS] * (len(frames) - 1) + [LAST]
    frames[0].save(buffer, format="GIF", save_all=True, append_images=frames[1:], duration=times, loop=0)
    return buffer.getvalue()


def noise_maps(film: Film) -> Tensor:
    """log λ_t of every level as colours [T+1, 3, H, W] on one scale: black at the floor, bright at the most noise.

    In pixels where Σ is diagonal there, else in the order of its own coefficients.
    """
    import matplotlib

    levels = film.path.log_variance[:, 0].mean(dim=1)
    low, high = levels.aminmax()
    shares = (levels - low) / (high - low).clamp_min(1e-9)
    colours = matplotlib.colormaps[STD_COLOURS](shares.detach().cpu().numpy())[..., :3]
    return torch.from_numpy(colours).float().permute(0, 3, 1, 2)


def as_colour(image: Tensor) -> Tensor:
    """[C, H, W] → [3, H, W] in [0, 1]."""
    return image.detach().cpu().float().clamp(0, 1).expand(3, -1, -1)


def enlarged(image: Tensor, scale: int) -> NDArray[Any]:
    """[3, H, W] → bytes [scale·H, scale·W, 3], every pixel a square."""
    pixels = (image.clamp(0, 1) * 255).round().to(torch.uint8)
    return pixels.repeat_interleave(scale, 1).repeat_interleave(scale, 2).permute(1, 2, 0).contiguous().numpy()

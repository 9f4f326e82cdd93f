"""Plain PNG files: an image, or images side by side, pixel for pixel. (Figures with words in them are drawn in `report`.)"""

from __future__ import annotations

from io import BytesIO

import torch
from torch import Tensor


def sheet(rows: Tensor) -> Tensor:
    """Rows of images [rows, n, C, H, W] as one image [C, rows·H, n·W]."""
    return torch.cat([torch.cat(list(row), dim=2) for row in rows], dim=1)


def png_bytes(x: Tensor, scale: int = 1) -> bytes:
    """[C, H, W] in [0, 1] as an 8-bit PNG file, each pixel `scale` pixels wide."""
    from PIL import Image

    pixels = (x.detach().cpu().clamp(0, 1) * 255).round().to(torch.uint8)
    pixels = pixels.repeat_interleave(scale, dim=1).repeat_interleave(scale, dim=2)
    buffer = BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).squeeze(2).numpy()).save(buffer, format="PNG")
    return buffer.getvalue()

"""How strong each frequency is in pictures of any size: a table of log power over octaves and angles, for every opponent colour.

Between its entries the table is bilinear in log frequency and angle; it is fitted to mean squares of DCT coefficients by Whittle's
likelihood.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from linverse.covariance.dct import dct_frequencies

OCTAVES = torch.arange(-11.0, 0.01, 0.5)  # log₂ of the radial frequencies at which the spectrum is tabulated
ANGLES = 3  # horizontal, diagonal, vertical
FAINT = 0.3  # weight of the wishes for f⁻² and equal angles, see `faint_wishes`
MEAN_RADIUS = 0.18  # the mean of a picture of N pixels a side counts as a wave of this many cycles per N pixels


@lru_cache(maxsize=8)
def table_positions(height: int, width: int) -> tuple[Tensor, Tensor]:
    """Where each DCT coefficient lies in the table, [H, W] each: in octaves' and in angles' entries, float64."""
    vertical, horizontal = dct_frequencies(height, width, torch.zeros((), dtype=torch.float64))
    radius = torch.hypot(vertical, horizontal)
    radius[0, 0] = MEAN_RADIUS / math.sqrt(height * width)
    octave = ((radius.log2() - float(OCTAVES[0])) / 0.5).clamp(0, len(OCTAVES) - 1)
    angle = torch.atan2(vertical, horizontal.clamp_min(1e-12)) / (0.5 * math.pi) * (ANGLES - 1)
    return octave, angle


@lru_cache(maxsize=16)
def knot_weights(height: int, width: int) -> Tensor:
    """[octaves·angles, H, W]: how much each entry of the table counts for each DCT coefficient; they add up to one."""
    octave, angle = table_positions(height, width)
    radial, turning = (
        (1 - (position[None] - torch.arange(count, dtype=torch.float64)[:, None, None]).abs()).clamp_min(0)
        for position, count in ((octave, len(OCTAVES)), (angle, ANGLES))
    )
    return (radial[:, None] * turning[None]).flatten(0, 1)


def faint_wishes() -> tuple[Tensor, Tensor]:
    """The precision [K, K] and its product with the mean [K] of the table where nothing is known.

    Straight lines alone carry a slope of the coarsest two coefficients on through ten octaves: e¹³² from crops of 16 pixels.
    """
    count, double = len(OCTAVES), torch.float64
    first = torch.diff(torch.eye(count, dtype=double), dim=0)
    second = torch.diff(first, dim=0)
    turned = torch.diff(torch.eye(ANGLES, dtype=double), dim=0)
    radial = torch.kron(second.mT @ second + FAINT * first.mT @ first, torch.eye(ANGLES, dtype=double))
    angular = torch.kron(torch.eye(count, dtype=double), turned.mT @ turned)
    falling = first.mT @ torch.full(
        (count - 1,), -math.log(2.0), dtype=double
    )  # of f⁻² from one half octave to the next
    return radial + FAINT * angular, FAINT * falling.repeat_interleave(ANGLES)


def fitted_table(squares: list[Tensor], weights: list[Tensor], counts: list[int], rounds: int = 30) -> Tensor:
    """The table of log power under which mean squares are most probable (Whittle's likelihood), by Fisher scoring.

    Each of several sizes gives mean squares [n], the weights of the table's entries [K, n], and the number of pictures. Faint wishes decide
    entries that no coefficient speaks of: straight lines in log frequency, the 1/f² of photographs, all angles alike.
    """
    smooth, wished = faint_wishes()
    level = sum(float(q.sum()) for q in squares) / sum(q.numel() for q in squares)
    table = torch.full((len(weights[0]),), math.log(level), dtype=torch.float64)
    normal = smooth + sum(n * (w @ w.mT) for w, n in zip(weights, counts, strict=True))
    for _ in range(rounds):
        excess = sum(
            n * (w @ (q * torch.exp(-table @ w) - 1).clamp_max(4.0))
            for q, w, n in zip(squares, weights, counts, strict=True)
        )
        table = table + torch.linalg.solve(normal, excess + wished - smooth @ table)
    return table


def read_table(table: Tensor, size: tuple[int, int]) -> Tensor:
    """The table [C, octaves·angles] at the DCT coefficients of a picture, [C, H, W], bilinearly (see `knot_weights`)."""
    octave, angle = table_positions(*size)
    entries = table.unflatten(1, (len(OCTAVES), ANGLES))
    total = table.new_zeros(len(table), *size)
    for up in (0, 1):
        row = (octave.floor() + up).clamp_max(len(OCTAVES) - 1)
        for turned in (0, 1):
            column = (angle.floor() + turned).clamp_max(ANGLES - 1)
            down = (1 - (octave - octave.floor() - up).abs()) * (1 - (angle - angle.floor() - turned).abs())
            rows, columns = row.long().to(table.device), column.long().to(table.device)
            total += entries[:, rows, columns] * down.to(table)
    return total

"""The identity matrix in a named basis: where every covariance of that basis begins (`identity("dct", shape).isotropic(0.01)`)."""

from __future__ import annotations

import torch
from torch import Tensor

from linverse.covariance.base import Covariance
from linverse.covariance.dct import BlockDCTCovariance, DCTCovariance
from linverse.covariance.fourier import FourierCovariance
from linverse.covariance.spatial import SpatialCovariance

FAMILIES: dict[str, type[Covariance]] = {
    "spatial": SpatialCovariance,
    "fourier": FourierCovariance,
    "dct": DCTCovariance,
}


def identity(basis: str, shape: tuple[int, ...], like: Tensor | None = None) -> Covariance:
    """I for images of `shape` (…, C, H, W), one λ for all channels, in the basis of that name; precision and device as `like`.

    >>> identity("fourier", (3, 8, 8)).logdet()
    tensor([0.], dtype=torch.float64)
    """
    channels, height, width = shape[-3:]
    blank = torch.zeros(1, 1, height, width) if like is None else like.new_zeros(1, 1, height, width)
    if basis.startswith("block-dct-"):
        return BlockDCTCovariance(blank, channels, int(basis.removeprefix("block-dct-")))
    if basis not in FAMILIES:
        raise ValueError(f"there is no basis {basis!r}; there are {', '.join(FAMILIES)} and block-dct-SIDE")
    return FAMILIES[basis](blank, channels)

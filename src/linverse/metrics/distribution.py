"""Distances of two sets of vectors (features of images, samples of a posterior) that see more than two moments.

    energy distance  E = 2 E‖X−Y‖ − E‖X−X'‖ − E‖Y−Y'‖                      (Székely & Rizzo 2013),
    MMD²             M = E k(X,X') + E k(Y,Y') − 2 E k(X,Y)                 (Gretton et al., JMLR 2012).
Both are ≥ 0 and 0 only for equal distributions (with the cubic kernel, KID's: for equal moments up to the third). Means over all
pairs (V-statistics) keep that for samples and are biased upwards by O(1/N); `unbiased` leaves out the pairs of a vector with itself,
has mean 0 for equal distributions and may be negative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from linverse.metrics.features import FeatureDistance, Features, in_chunks

Kernel = Callable[[Tensor, Tensor], Tensor]  # [n, D], [m, D] → [n, m]
KernelName = Literal["gaussian", "cubic"]
ROWS = 256  # rows of the table of pairs that are held at once


def distances(x: Tensor, y: Tensor) -> Tensor:
    """‖x_i − y_j‖, [n, m], from differences: the shortcut by scalar products gives ‖x − x‖ ≈ 1e-8‖x‖."""
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")


def cubic_kernel(x: Tensor, y: Tensor) -> Tensor:
    """(⟨x, y⟩/D + 1)³, the kernel of KID (Bińkowski et al., ICLR 2018)."""
    return (x @ y.mT / x.shape[1] + 1) ** 3


def gaussian_kernel(bandwidth: float) -> Kernel:
    """exp(−‖x − y‖²/(2h²))."""
    if not bandwidth > 0:
        raise ValueError(f"bandwidth must be positive; got {bandwidth}")
    return lambda x, y: torch.exp(-0.5 * (distances(x, y) / bandwidth).square())


def median_distance(x: Tensor, y: Tensor, limit: int = 1000) -> float:
    """The median distance between members of the pooled sets (the first `limit` of each): the usual bandwidth."""
    pooled = torch.cat([x[:limit], y[:limit]]).double()
    return float(torch.nn.functional.pdist(pooled).median())


def _mean_pairs(kernel: Kernel, x: Tensor, y: Tensor) -> Tensor:
    """Mean of k(x_i, y_j) over all i, j."""
    rows = [kernel(x[part], y).sum() for part in in_chunks(len(x), ROWS)]
    return torch.stack(rows).sum() / (len(x) * len(y))


def _mean_within(kernel: Kernel, x: Tensor, unbiased: bool) -> Tensor:
    """Mean of k(x_i, x_j), over i ≠ j if `unbiased`."""
    mean = _mean_pairs(kernel, x, x)
    if not unbiased:
        return mean
    own = torch.cat([kernel(x[part], x[part]).diagonal() for part in in_chunks(len(x), ROWS)]).mean()
    return (len(x) * mean - own) / (len(x) - 1)


def _check(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors [N, D] in float64."""
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or min(len(x), len(y)) < 2:
        raise ValueError(
            f"sets have shapes {tuple(x.shape)} and {tuple(y.shape)}; needed are [N, D] and [M, D], N, M ≥ 2"
        )
    return x.double(), y.double()


def energy_distance(x: Tensor, y: Tensor, *, unbiased: bool = False) -> Tensor:
    """E of two sets of vectors [N, D], [M, D]; a scalar, float64."""
    x, y = _check(x, y)
    within = _mean_within(distances, x, unbiased) + _mean_within(distances, y, unbiased)
    return 2 * _mean_pairs(distances, x, y) - within


def squared_mmd(x: Tensor, y: Tensor, kernel: Kernel, *, unbiased: bool = False) -> Tensor:
    """MMD² of two sets of vectors [N, D], [M, D]; a scalar, float64."""
    x, y = _check(x, y)
    within = _mean_within(kernel, x, unbiased) + _mean_within(kernel, y, unbiased)
    return within - 2 * _mean_pairs(kernel, x, y)


def image_energy_distance(
    x: Tensor, reference: Tensor, features: Features, *, unbiased: bool = False
) -> FeatureDistance:
    """Energy distance of two sets of images [N, C, H, W] in [0, 1] under given features; named e.g. "Energy-VGG16"."""
    vectors, other = features(x), features(reference)
    value = float(energy_distance(vectors, other, unbiased=unbiased))
    return FeatureDistance(f"Energy-{features.name}", value, (len(x), len(reference)), vectors.shape[1])


def image_mmd(
    x: Tensor, reference: Tensor, features: Features, kernel: KernelName = "gaussian", *, unbiased: bool = False
) -> FeatureDistance:
    """MMD² of two sets of images under given features; named e.g. "MMD²-gaussian-VGG16". Gaussian bandwidth: the median distance."""
    vectors, other = features(x), features(reference)
    chosen = cubic_kernel if kernel == "cubic" else gaussian_kernel(median_distance(vectors, other))
    value = float(squared_mmd(vectors, other, chosen, unbiased=unbiased))
    return FeatureDistance(f"MMD²-{kernel}-{features.name}", value, (len(x), len(reference)), vectors.shape[1])

"""How good is a restoration? Metrics of single images, distances between sets of images, calibration, and confidence intervals.

`METRICS` maps a name to a function of (x, reference), both [B, C, H, W] in [0, 1], that gives one value per image, [B], and says
which way is better.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from torch import Tensor

from linverse.metrics.bootstrap import Interval, bootstrap_mean, bootstrap_statistic, bootstrap_two_samples
from linverse.metrics.calibration import (
    CoverageCurve,
    coverage,
    coverage_curve,
    credible_interval,
    gaussian_interval,
    interval_width,
    rank_histogram,
    rank_statistics,
    student_interval,
)
from linverse.metrics.distribution import energy_distance, image_energy_distance, image_mmd, squared_mmd
from linverse.metrics.features import FeatureDistance, Features, network_features, pixel_features
from linverse.metrics.frechet import (
    SmallSampleWarning,
    fid,
    frechet_distance,
    frechet_from_features,
    frechet_from_moments,
)
from linverse.metrics.images import check_images, check_pair
from linverse.metrics.perceptual import (
    Against,
    dists,
    dists_against,
    lpips,
    lpips_against,
    lpips_alex,
    lpips_name,
    lpips_vgg,
)
from linverse.metrics.pixel import psnr, ssim
from linverse.metrics.weights import MissingWeights, has_weights

Better = Literal["higher", "lower"]


class Metric(NamedTuple):
    """A function of (x, reference) to one value per image, and which way is better."""

    function: Callable[[Tensor, Tensor], Tensor]
    better: Better


METRICS: dict[str, Metric] = {
    "PSNR": Metric(psnr, "higher"),
    "SSIM": Metric(ssim, "higher"),
    "LPIPS-Alex": Metric(lpips_alex, "lower"),
    "LPIPS-VGG": Metric(lpips_vgg, "lower"),
    "DISTS": Metric(dists, "lower"),
}


PREPARED: dict[str, Callable[[Tensor], Against]] = {
    "LPIPS-Alex": lambda reference: lpips_against(reference, "Alex"),
    "LPIPS-VGG": lambda reference: lpips_against(reference, "VGG"),
    "DISTS": dists_against,
}
"""Metrics that can keep what they make of the reference, for when many restorations of the same images are compared with it."""


def available_metrics() -> list[str]:
    """Names in `METRICS` that run here: all, or PSNR and SSIM where the weights of the perceptual ones are not installed."""
    return list(METRICS) if has_weights() else ["PSNR", "SSIM"]


def metric_label(name: str, size: tuple[int, int]) -> str:
    """The name to print for images of this size (H, W): "LPIPS-Alex@56" if 28×28 images are enlarged for it."""
    if name not in METRICS:
        raise ValueError(f"there is no metric {name!r}; there are {', '.join(METRICS)}")
    if name == "LPIPS-Alex":
        return lpips_name("Alex", size)
    return lpips_name("VGG", size) if name == "LPIPS-VGG" else name


__all__ = [
    "METRICS",
    "PREPARED",
    "Against",
    "CoverageCurve",
    "FeatureDistance",
    "Features",
    "Interval",
    "Metric",
    "MissingWeights",
    "SmallSampleWarning",
    "available_metrics",
    "bootstrap_mean",
    "bootstrap_statistic",
    "bootstrap_two_samples",
    "check_images",
    "check_pair",
    "coverage",
    "coverage_curve",
    "credible_interval",
    "dists",
    "dists_against",
    "energy_distance",
    "fid",
    "frechet_distance",
    "frechet_from_features",
    "frechet_from_moments",
    "gaussian_interval",
    "has_weights",
    "image_energy_distance",
    "image_mmd",
    "interval_width",
    "lpips",
    "lpips_against",
    "lpips_alex",
    "lpips_name",
    "lpips_vgg",
    "metric_label",
    "network_features",
    "pixel_features",
    "psnr",
    "rank_histogram",
    "rank_statistics",
    "squared_mmd",
    "ssim",
    "student_interval",
]

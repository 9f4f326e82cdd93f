"""log p of all test images: is it distributed as Gumbel's? (paper, appendix D.4, figures gumbel and gumbel_imgs)

log p(x) = −U(x + n, λ_min I), n ~ N(0, λ_min I), in decibels per dimension, 10 log₁₀ p / d. Gumbel's distribution (of either sign, the
likelier) and a normal one are fitted by maximum likelihood. How good is the fit: the Kolmogorov–Smirnov distance sup|F_N − F| (0.05: no
share of the images is off by more than five in a hundred), and the mean log-likelihood beside the normal's, image by image.
Simple images should be the probable ones: Spearman's correlation of log p with the total variation of an image.
Grey images have equal channels; the paper finds them in a second mode of high probability.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linverse.data.catalogue import may_be_shown
from linverse.energy import Energy, fixed_shape, log_prob
from linverse.evaluation.models import chunks, held_out, load_energy
from linverse.experiments.cache import Cache
from linverse.experiments.claims import Claim, Condition, correlation, interval_metrics, interval_of, mean_interval
from linverse.experiments.framework import ExperimentResult
from linverse.experiments.tables import ResultTable
from linverse.extras import require
from linverse.files.saving import hash_weights
from linverse.metrics import bootstrap_statistic
from linverse.progress import Progress
from linverse.rng import keyed_generator, normal_like
from linverse.units import decibels_per_dim

CLOSE = 0.05  # of the Kolmogorov–Smirnov distance
GREY = 1.5 / 255  # largest difference of channels of a grey image


@dataclass(frozen=True)
class GumbelOptions:
    """The model and the images."""

    model: str = "fashion-mnist"
    """the energy: a bundled name or a folder"""
    data: str = "fashion-mnist"
    """whose test images"""


@dataclass(frozen=True)
class GumbelSetting:
    """How many images, and how many of them are shown."""

    images: int = 10_000
    shown: int = 60
    seed: int = 0


FULL = GumbelSetting()
QUICK = replace(FULL, images=64, shown=24)


@dataclass(frozen=True)
class GumbelFit:
    """`side` 1: a tail of probable images (Gumbel of the maximum), −1: of improbable ones; where it lies and how wide it is."""

    side: int
    location: float
    scale: float

    def log_density(self, values: Tensor) -> Tensor:
        z = self.side * (values - self.location) / self.scale
        return -(z + torch.exp(-z)) - torch.log(torch.tensor(self.scale, dtype=torch.float64))

    def distribution(self, values: Tensor) -> Tensor:
        """P(X ≤ value)."""
        share = torch.exp(-torch.exp(-self.side * (values - self.location) / self.scale))
        return share if self.side > 0 else 1 - share


@dataclass(frozen=True)
class GumbelFound:
    """What the figure shows: log p in dB/dim, the fit, images from low to high (none that may not be shown), and which of all are grey."""

    values: Tensor
    fit: GumbelFit
    images: Tensor
    grey: Tensor


@torch.no_grad()
def densities(energy: Energy, x: Tensor, seed: int, progress: Progress) -> Tensor:
    """log p of each image at the floor, nats, [N]."""
    out = []
    for rows in chunks(len(x)):
        noise = normal_like(x[rows], keyed_generator(seed, "gumbel", rows.start))
        out.append(log_prob(energy, x[rows] + energy.range.minimum**0.5 * noise))
        progress("images", rows.stop, len(x))
    return torch.cat(out)


def fit_gumbel(values: Tensor) -> GumbelFit:
    """Maximum likelihood, of either sign."""
    stats = require("scipy.stats", "evaluate")
    fits = []
    for side in (1, -1):
        location, scale = stats.gumbel_r.fit((side * values).numpy())
        fits.append(GumbelFit(side, side * float(location), float(scale)))
    return max(fits, key=lambda fit: float(fit.log_density(values).mean()))


def distance(values: Tensor, fit: GumbelFit) -> Tensor:
    """Kolmogorov and Smirnov's sup|F_N − F|."""
    share = fit.distribution(values.sort().values)
    steps = torch.arange(len(values) + 1, dtype=torch.float64) / len(values)
    return torch.maximum((share - steps[:-1]).abs().max(), (share - steps[1:]).abs().max())


def total_variation(x: Tensor) -> Tensor:
    """Mean absolute difference of neighbours, [N]: what a picture has of edges and texture."""
    down, right = x.diff(dim=2).abs().mean(dim=(1, 2, 3)), x.diff(dim=3).abs().mean(dim=(1, 2, 3))
    return down + right


def grey_images(x: Tensor) -> Tensor:
    """Which images have equal channels; none of a data set that has but one."""
    if x.shape[1] == 1:
        return torch.zeros(len(x), dtype=torch.bool)
    return (x.amax(dim=1) - x.amin(dim=1)).flatten(1).amax(dim=1) <= GREY


def claims_of(grey: Tensor, channels: int) -> tuple[Claim, ...]:
    """The last can be tested only where some images are grey and others are not."""
    few = f"{int(grey.sum())} of {len(grey)} images are grey" if channels > 1 else "all images of this set are grey"
    second = Claim("grey images form a mode of higher probability", (Condition("grey less colour, dB/dim", "above"),))
    return (
        Claim(
            "log p is well fitted by Gumbel's distribution",
            (
                Condition("Kolmogorov–Smirnov distance of Gumbel", "below", CLOSE),
                Condition("log-likelihood of Gumbel less normal", "above"),
            ),
        ),
        Claim("simple images are the more probable ones", (Condition("correlation with total variation", "below"),)),
        second if int(grey.sum()) >= 20 else replace(second, rule=(), untestable=few),
    )


def metrics_of(values: Tensor, x: Tensor, fit: GumbelFit, grey: Tensor) -> dict[str, float]:
    """How good the fit is, and what goes with probability."""
    normal = torch.distributions.Normal(values.mean(), values.std(correction=0))
    out = {
        "location": fit.location,
        "scale": fit.scale,
        "side": float(fit.side),
        "grey share": float(grey.double().mean()),
    }
    out |= interval_metrics("mean log p, dB/dim", mean_interval(values))
    out |= interval_metrics(
        "Kolmogorov–Smirnov distance of Gumbel",
        bootstrap_statistic(values, lambda v: distance(v, fit), resamples=200, method="basic"),
    )
    gain = fit.log_density(values) - normal.log_prob(values)
    out |= interval_metrics("log-likelihood of Gumbel less normal", mean_interval(gain))
    pairs = torch.stack([values, total_variation(x).double()], dim=1)
    out |= interval_metrics("correlation with total variation", bootstrap_statistic(pairs, correlation, resamples=200))
    if int(grey.sum()) >= 2:
        shifted = values[grey] - values[~grey].mean()
        out |= interval_metrics("grey less colour, dB/dim", mean_interval(shifted))
    return out


def run(out: Path, quick: bool, progress: Progress, options: GumbelOptions) -> ExperimentResult:
    """All test images."""
    setting = QUICK if quick else FULL
    energy = load_energy(options.model)
    x = held_out(options.data, setting.images, fixed_shape(energy)).x
    weights = {"model": hash_weights(energy)}
    cache = Cache.of("gumbel", out)
    nats = cache.get(
        "densities", weights | asdict(setting) | asdict(options), partial(densities, energy, x, setting.seed, progress)
    )
    values = decibels_per_dim(nats, x[0].numel()).double()
    fit, grey = fit_gumbel(values), grey_images(x)
    metrics = metrics_of(values, x, fit, grey)
    claims = claims_of(grey, x.shape[1])
    order = values.argsort()[torch.linspace(0, len(x) - 1, setting.shown).round().long()]
    paper: dict[str, Any] = {
        "source": "appendix, Recovering the Gumbel distribution; figures gumbel and gumbel_imgs",
        "claims": [claim.text for claim in claims],
        "figures": {"second mode (grey images), dB/dim": 38.0},
        "departures": [f"{options.data}, {setting.images} test images (paper: 50 000 of ImageNet64)"],
    }
    rows = tuple((name, interval_of(metrics, name)) for name in metrics if f"{name}_low" in metrics)
    tail = "probable" if fit.side > 0 else "improbable"
    words = (("its tail is of images that are", tail), ("grey images", metrics["grey share"]))
    tables = (ResultTable("Log-probabilities of the test images", ("quantity", "ours"), (*rows, *words)),)
    found = GumbelFound(values, fit, x[order] if may_be_shown(options.data) else x[:0], grey)
    return ExperimentResult(metrics, paper, found, asdict(setting), weights, {"seed": setting.seed}, claims, tables)

"""Every answer to one measurement: what a picture was, how sure we are, what else it could have been, and whether to trust that.

One `Posterior` serves all of it, and U(y, Σ) is evaluated once. Under noise that is diagonal in pixels (white, maps of levels, masks) one
evaluation is the answer. Elsewhere (blurs, super-resolution) it is a first one: mean and standard deviation are those of the samples where
there are enough of them. Samples are taken at the floor λ_min, where the energy knows their density: log p(x|y) ranks them, in nats.
A model that carries held-out images says whether the picture is like them, and whether it is calibrated for this noise (typicality.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from linverse.any_posterior import in_unit
from linverse.blind import Axis, Family, Search, integrated_mean, search_family
from linverse.data.picture import Picture
from linverse.energy import Energy, in_precision_of
from linverse.measurement import Measurement
from linverse.metrics.calibration import credible_interval, gaussian_interval, student_interval
from linverse.metrics.pixel import decibels
from linverse.posterior import Posterior
from linverse.progress import Progress, shifted, silent
from linverse.rng import keyed_generator
from linverse.typicality import Calibration, Typicality, calibration, measurement_typicality, reference_images

FEWEST_FOR_SPREAD = 4  # samples; a spread of fewer says nothing
LARGEST_STD = 0.5  # of anything between 0 and 1
INTEGRATED_PIXELS = 2**14  # of images whose unknown parameters are integrated out


@dataclass(frozen=True)
class Restoration:
    """The answers about one image; all pictures are [C, H, W], log-densities in nats of images at the floor λ_min.

    `samples` [n, C, H, W] come most probable first, with `log_probs` [n] (empty after an interruption, when there is no density to
    rank by); `evaluations` counts those of the energy for one sample. `typicality` and `calibration` are None for a model without
    held-out images.
    """

    measurement: Measurement
    mean: Tensor
    std: Tensor
    std_from: str
    evidence: float
    dim: int
    free: int
    truth: Tensor | None = None
    mean_from: str = "one network evaluation"
    samples: Tensor = field(default_factory=lambda: torch.empty(0))
    log_probs: Tensor = field(default_factory=lambda: torch.empty(0))
    log_prob_mean: float | None = None
    log_prob_truth: float | None = None
    evaluations: int = 1
    completed: bool = True
    typicality: Typicality | None = None
    calibration: Calibration | None = None

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.mean.shape))
        largest = f"std up to {float(self.std.max()):.2g} ({self.std_from})"
        return f"Restoration({shape}, {len(self.samples)} samples, {largest}, log p(y) = {self.evidence:.1f} nats)"

    @property
    def psnr(self) -> float | None:
        """Of the mean, in dB, where the truth is known."""
        # not clamped to [0, 1], unlike that of the metrics: it is the mean that was asked for
        return None if self.truth is None else float(decibels((self.mean - self.truth).double().square().mean()))

    def density(self, log_prob: float) -> dict[str, float]:
        """A log-density in nats and in bits per dimension."""
        bits = in_unit(torch.tensor(log_prob, dtype=torch.float64), self.dim, "bits/dim")
        return {"log_density_nats": log_prob, "bits_per_dim": float(bits)}

    def doubts(self) -> list[str]:
        """Reasons not to trust the answer, for a user to read (that Σ lies outside of the model's range is warned of where it is used)."""
        out = []
        if self.typicality is not None and bool(self.typicality.unusual()[0]):
            out.append(f"this picture is {self.typicality.describe()[0]}")
        if self.calibration is not None and (doubt := self.calibration.doubt()):
            out.append(doubt)
        largest = float(self.std.max())
        if largest > 1.1 * LARGEST_STD:
            out.append(
                f"the model says that a pixel has std {largest:.2f}, where {LARGEST_STD} is the most possible: do not trust it here"
            )
        return out

    def record(self) -> dict[str, Any]:
        """The numbers, for a JSON file."""
        values: dict[str, Any] = {
            "dimensions": self.dim,
            "free_dimensions": self.free,
            "log_evidence_nats": self.evidence,
            "mean_from": self.mean_from,
            "std_from": self.std_from,
            "largest_std": float(self.std.max()),
            "evaluations_per_sample": self.evaluations,
            "samples": [self.density(value) for value in self.log_probs.tolist()],
        }
        for name, value in (("mean", self.log_prob_mean), ("truth", self.log_prob_truth)):
            if value is not None:
                values[name] = self.density(value)
        if self.psnr is not None:
            values["psnr_of_mean_db"] = self.psnr
        if self.typicality is not None:
            values["typicality"] = self.typicality.records()[0]
        if self.calibration is not None:
            values["calibration"] = asdict(self.calibration)
        return values


def restore(
    posterior: Posterior,
    *,
    samples: int = 8,
    path: int = 50,
    seed: int = 0,
    truth: Tensor | None = None,
    progress: Progress = silent,
) -> Restoration:
    """All answers about one measurement (a batch of one): in one shot, against held-out images, and by posterior samples.

    >>> import torch, linverse as lv
    >>> from linverse.data.examples import load_examples
    >>> boot = load_examples("fashion-mnist").batch(torch.tensor([0]))
    >>> measurement = lv.Box(14, sigma=0.01).measure(boot, torch.Generator().manual_seed(0))
    >>> result = restore(lv.Posterior(lv.load("fashion-mnist"), measurement), samples=2, path=5)
    >>> result.mean.shape, result.samples.shape, result.std_from
    (torch.Size([1, 28, 28]), torch.Size([2, 1, 28, 28]), 'one-shot')
    >>> bool(result.log_probs[0] >= result.log_probs[1])  # most probable first
    True
    """
    result = one_shot(posterior, truth)
    return add_samples(result, posterior, samples, path, seed=seed, progress=progress)


def one_shot(posterior: Posterior, truth: Tensor | None = None, *, compare: bool = True) -> Restoration:
    """What a single evaluation tells about one measurement and (`compare`) how that looks beside the model's held-out images."""
    cov, energy = posterior.covariance, posterior.energy
    if cov.batch != 1:
        raise ValueError(
            f"a restoration is of one measurement; got {cov.batch}: take them one by one, measurement[i : i + 1]"
        )
    free = int((cov.log_variance > math.log(energy.range.minimum) + 1e-4).sum()) * cov.multiplicity
    by_pixel = cov.basis == "spatial" or posterior.evaluate().pixel_variance is not None
    source = "one-shot" if by_pixel else "one-shot, diagonal approximation"
    typicality, judged = compare_with_references(posterior) if compare else (None, None)
    return Restoration(
        posterior.measurement,
        posterior.mean()[0],
        posterior.std()[0],
        source,
        float(posterior.evidence()[0]),
        cov.dim,
        free,
        truth,
        typicality=typicality,
        calibration=judged,
    )


def compare_with_references(posterior: Posterior) -> tuple[Typicality | None, Calibration | None]:
    """Is the picture like the held-out images, and is the model calibrated for its noise? An evaluation of each of them for either."""
    energy, cov = posterior.energy, posterior.covariance
    reference = reference_images(energy)
    if reference is None or reference.shape[1:] != (
        cov.channels,
        *cov.size,
    ):  # a picture of another size has another energy
        return None, None
    key, observed = keyed_generator("typicality"), posterior.evaluate().energy
    typicality = measurement_typicality(energy, posterior.measurement, reference, key, observed=observed)
    reference = reference.to(cov.log_variance)
    return typicality, calibration(energy, cov, reference, keyed_generator("calibration"))


def add_samples(
    result: Restoration, posterior: Posterior, samples: int, path: int, *, seed: int, progress: Progress = silent
) -> Restoration:
    """The same with posterior samples, ranked and scored; an interrupted run keeps those that were finished, unranked."""
    if samples < 1:
        return result
    drawn = posterior.draw(samples, path, generator=keyed_generator(seed, "restore"), finish="floor", progress=progress)
    result = replace(result, samples=drawn.samples, evaluations=drawn.evaluations, completed=drawn.completed)
    result = with_spread(result, posterior, drawn.average)
    return with_densities(result, posterior) if drawn.completed else result


def stream_samples(
    result: Restoration, posterior: Posterior, samples: int, path: int, *, seed: int, progress: Progress = silent
) -> Iterator[Restoration]:
    """The same restoration after each sample, ranked so far: for who watches. Sample n is the same however many are asked for.

    An interruption (Ctrl-C, or a `progress` that raises KeyboardInterrupt) ends it with those that were finished.

    >>> import torch, linverse as lv
    >>> from linverse.data.examples import load_examples
    >>> boot = load_examples("fashion-mnist").batch(torch.tensor([0]))
    >>> post = lv.Posterior(lv.load("fashion-mnist"), lv.Box(14, sigma=0.01).measure(boot), check=False)
    >>> [len(seen.samples) for seen in stream_samples(one_shot(post), post, 2, 3, seed=0)]
    [1, 2]
    """
    images, log_probs = result.mean.new_empty(0, *result.mean.shape), torch.empty(0, dtype=torch.float64)
    averages = images
    for number in range(samples):
        key, part = keyed_generator(seed, "stream", number), shifted(progress, number * path, samples * path)
        drawn = posterior.draw(1, path, generator=key, finish="floor", progress=part)
        if not drawn.completed:
            yield replace(result, completed=False)
            return
        log_prob = posterior.rank(drawn.samples[:, None])[1][:, 0]
        order = torch.cat([log_probs, log_prob.to(log_probs)]).argsort(descending=True, stable=True)
        images = torch.cat([images, drawn.samples])[order]
        averages = averages if drawn.average is None else torch.cat([averages, drawn.average])
        log_probs = torch.cat([log_probs, log_prob.to(log_probs)])[order]
        result = replace(result, samples=images, log_probs=log_probs, evaluations=drawn.evaluations)
        result = with_spread(result, posterior, averages)
        yield result


def with_spread(result: Restoration, posterior: Posterior, averages: Tensor | None) -> Restoration:
    """The same with mean and standard deviation of the samples, where there are enough of them and one shot is not the answer.

    Noise that differs from pixel to pixel only leaves to the network what was measured as it is: then one evaluation is better.
    `averages`: what each of the samples gives for the mean (`SampleResult.average`).
    """
    if len(result.samples) < FEWEST_FOR_SPREAD or posterior.covariance.basis == "spatial":
        return result
    centres = result.samples if averages is None else averages
    mean, std, number = centres.mean(dim=0), result.samples.std(dim=0), f"{len(result.samples)} samples"
    return replace(result, mean=mean, std=std, mean_from=f"of {number}", std_from=f"the spread of {number}")


@torch.no_grad()
def with_densities(result: Restoration, posterior: Posterior) -> Restoration:
    """The same with log p(x|y) of the samples (sorted by it), of the mean and of the truth, if it is known."""
    ranked, log_probs = posterior.rank(result.samples[:, None])
    if not bool(torch.isfinite(log_probs).all()):
        raise RuntimeError("the log-density of a sample is not finite: the model cannot be trusted at this measurement")

    def floored(x: Tensor) -> float:  # clean images get the floor's noise: the density is of x + N(0, λ_min)
        return float(posterior.log_prob(x[None], floor_noise=True)[0])

    truth = None if result.truth is None else floored(result.truth)
    return replace(
        result,
        samples=ranked[:, 0],
        log_probs=log_probs[:, 0],
        log_prob_mean=floored(result.mean),
        log_prob_truth=truth,
    )


# --- one pixel ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PixelMarginal:
    """What is known of one pixel: its samples [n, C], mean, std and the ends of the 90 % interval [C], and what that is made of."""

    row: int
    column: int
    samples: Tensor
    mean: Tensor
    std: Tensor
    low: Tensor
    high: Tensor
    interval_from: str
    truth: Tensor | None = None


def pixel_marginal(result: Restoration, row: int, column: int, level: float = 0.9) -> PixelMarginal:
    """The posterior of one pixel: by its samples, if few by Student's law, else of a Gaussian of its mean and std.

    >>> from linverse.restoration import pixel_marginal, restore
    >>> import torch, linverse as lv
    >>> from linverse.data.examples import load_examples
    >>> boot = load_examples("fashion-mnist").batch(torch.tensor([0]))
    >>> seen = lv.Box(14, sigma=0.01).measure(boot, torch.Generator().manual_seed(0))
    >>> pixel = pixel_marginal(restore(lv.Posterior(lv.load("fashion-mnist"), seen), samples=0), 14, 14)
    >>> bool(pixel.low < pixel.mean < pixel.high), pixel.interval_from
    (True, 'a Gaussian of its mean and std')
    """
    height, width = result.mean.shape[1:]
    if not (0 <= row < height and 0 <= column < width):
        raise ValueError(
            f"the picture is {height}×{width}: rows are 0 to {height - 1}, columns 0 to {width - 1}; got {row}, {column}"
        )
    mean, std = result.mean[:, row, column], result.std[:, row, column]
    samples = result.samples[:, :, row, column] if len(result.samples) else mean.new_empty(0, len(mean))
    if len(samples) >= 2 / (1 - level) - 1 - 1e-9:
        low, high = (end[0] for end in credible_interval(samples[None], level))
        source = f"{len(samples)} samples"
    elif len(samples) > 1:
        low, high = (end[0] for end in student_interval(samples[None], level))
        source = f"Student's law of {len(samples)} samples"
    else:
        low, high = gaussian_interval(mean, std, level)
        source = "a Gaussian of its mean and std"
    truth = None if result.truth is None else result.truth[:, row, column]
    return PixelMarginal(row, column, samples, mean, std, low, high, source, truth)


# --- blind -------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BlindRestoration:
    """What was found out about a degradation, the picture [C, H, W] with it integrated out, and how it compares with held-out images."""

    search: Search
    mean: Tensor
    typicality: Typicality | None = None

    def __repr__(self) -> str:
        return f"BlindRestoration({self.search})"

    @property
    def raw(self) -> Tensor:
        """The data, [C, H, W]."""
        return self.search.final.raw[0]


def restore_blindly(
    energy: Energy,
    raw: Tensor,
    family: Family,
    axes: tuple[Axis, ...],
    *,
    seed: int = 0,
    progress: Progress = silent,
) -> BlindRestoration:
    """Which degradation made this image [1, C, H, W], and what was it? Its parameters (`search_family`), then integrated out.

    >>> import torch, linverse as lv
    >>> from linverse.blind import FAMILIES
    >>> from linverse.data.examples import load_examples
    >>> boot = load_examples("fashion-mnist").batch(torch.tensor([0]))
    >>> raw = boot + 0.2 * torch.randn(boot.shape, generator=torch.Generator().manual_seed(0))
    >>> noise = FAMILIES["noise"]
    >>> found = restore_blindly(lv.load("fashion-mnist"), raw, noise.build(0.0), noise.axes((28, 28))).search
    >>> low, high = found.interval(found.axes[0])
    >>> 0.17 < low < high < 0.23
    True
    """
    found = search_family(energy, Picture(raw), family, axes, seed=seed, progress=progress)
    return restore_found(energy, raw, family, found, seed=seed)


def restore_found(energy: Energy, raw: Tensor, family: Family, found: Search, *, seed: int = 0) -> BlindRestoration:
    """The image with what a search found integrated out; a large one, whose parameters are known to a percent, with the best plugged in."""
    final = replace(found.final, raw=in_precision_of(energy, raw))
    mean = integrated_mean(energy, final, integrate=raw[0, 0].numel() <= INTEGRATED_PIXELS, seed=seed)[0]
    found = replace(found, rounds=(*found.rounds[:-1], (found.axes, final)))
    reference = reference_images(energy)
    if reference is None or reference.shape[1:] != raw.shape[1:]:
        return BlindRestoration(found, mean)
    theta = {name: raw.new_tensor([value]) for name, value in found.final.best.items()}
    measurement = family.measurement(raw, theta)
    return BlindRestoration(
        found, mean, measurement_typicality(energy, measurement, reference, keyed_generator("typicality"))
    )

"""Every answer to one measurement, gathered for a picture and a table.

The one-shot mean and standard deviation come from a single evaluation at (y, Σ). For masks and noise maps Σ is diagonal in pixels, and so
is the one-shot variance; for blurs and super-resolution it lives in another basis. A map in pixels is then the spread of posterior
samples, or, without enough of them, the diagonal of Q diag(Var) Qᵀ averaged over each block of Q (the diagonal approximation).

Samples are taken at the floor λ_min, where the energy knows their density: log p(x|y) ranks them, in nats.

A model that carries held-out images says whether the picture is like them, and whether it is calibrated for this noise (typicality.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from linverse.energy import Energy
from linverse.measurement import Measurement
from linverse.posterior import Posterior, in_unit
from linverse.rng import keyed_generator
from linverse.typicality import Calibration, Typicality, calibration, measurement_typicality, reference_images

Report = Callable[[int, int], None]
FEWEST_FOR_SPREAD = 4  # samples; a spread of fewer says nothing


@dataclass
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
    samples: Tensor = field(default_factory=lambda: torch.empty(0))
    log_probs: Tensor = field(default_factory=lambda: torch.empty(0))
    log_prob_mean: float | None = None
    log_prob_truth: float | None = None
    evaluations: int = 1
    completed: bool = True
    typicality: Typicality | None = None
    calibration: Calibration | None = None

    def record(self) -> dict[str, Any]:
        """The numbers, for a JSON file."""
        values: dict[str, Any] = {
            "dimensions": self.dim,
            "free_dimensions": self.free,
            "log_evidence_nats": self.evidence,
            "std_from": self.std_from,
            "largest_std": float(self.std.max()),
            "evaluations_a_sample": self.evaluations,
            "samples": [self.density(value) for value in self.log_probs.tolist()],
        }
        for name, value in (("mean", self.log_prob_mean), ("truth", self.log_prob_truth)):
            if value is not None:
                values[name] = self.density(value)
        if self.truth is not None:
            values["psnr_of_mean_db"] = psnr(self.mean, self.truth)
        if self.typicality is not None:
            values["typicality"] = self.typicality.records()[0]
        if self.calibration is not None:
            values["calibration"] = asdict(self.calibration)
        return values

    def density(self, log_prob: float) -> dict[str, float]:
        """A log-density in nats and in bits a dimension."""
        bits = in_unit(torch.tensor(log_prob, dtype=torch.float64), self.dim, "bits/dim")
        return {"log_density_nats": log_prob, "bits_per_dim": float(bits)}


def psnr(x: Tensor, truth: Tensor) -> float:
    """−10 log₁₀ mean((x − truth)²) in dB; written out because the metrics package takes seconds to import."""
    error = float((x - truth).double().square().mean())
    return -10 * math.log10(error) if error > 0 else math.inf


def one_shot(energy: Energy, measurement: Measurement, truth: Tensor | None = None) -> Restoration:
    """What a single evaluation tells about one measurement (a batch of one)."""
    posterior = Posterior(energy, measurement)
    std, source = one_shot_std(posterior)
    cov = posterior.covariance
    free = int((cov.log_variance > math.log(energy.range.minimum) + 1e-4).sum()) * cov.multiplicity
    return Restoration(
        measurement, posterior.mean()[0], std, source, float(posterior.evidence()[0]), cov.dim, free, truth
    )


def one_shot_std(posterior: Posterior) -> tuple[Tensor, str]:
    """A map [C, H, W] of standard deviations in pixels, and where it comes from."""
    cov, variance = posterior.covariance, posterior.evaluate().variance
    source = "one-shot" if cov.basis == "spatial" else "one-shot, diagonal approximation"
    return cov.full(cov.pool(variance)).sqrt()[0], source


def judge(result: Restoration, energy: Energy) -> None:
    """Compare with the held-out images that the model carries, if any: one evaluation of each to judge the picture, one the noise."""
    reference = reference_images(energy)
    if reference is None:
        return
    measurement = result.measurement
    result.typicality = measurement_typicality(energy, measurement, reference, keyed_generator("typicality"))
    cov = measurement.covariance(energy.range)
    result.calibration = calibration(energy, cov, reference.to(cov.log_variance), keyed_generator("calibration"))


def add_samples(
    result: Restoration, energy: Energy, samples: int, steps: int, *, seed: int, progress: Report | None = None
) -> None:
    """Draw, rank and score posterior samples; an interrupted run keeps what it had begun, unranked."""
    if samples < 1:
        return
    posterior = Posterior(energy, result.measurement)
    generator = keyed_generator(seed, "restore")
    drawn = posterior.draw(
        samples,
        steps,
        generator=generator,
        finish="floor",
        progress=lambda task, done, total: progress(done, total) if progress else None,
    )
    result.samples, result.evaluations, result.completed = drawn.samples, drawn.evaluations, drawn.completed
    if result.std_from != "one-shot" and len(drawn.samples) >= FEWEST_FOR_SPREAD:
        result.std, result.std_from = drawn.samples.std(dim=0), f"the spread of {len(drawn.samples)} samples"
    if drawn.completed:
        score(result, posterior)


@torch.no_grad()
def score(result: Restoration, posterior: Posterior) -> None:
    """log p(x|y) of the samples (and sort them by it), of the mean and of the truth, if it is known."""
    ranked, log_probs = posterior.rank(result.samples[:, None])
    if not bool(torch.isfinite(log_probs).all()):
        raise RuntimeError("the log-density of a sample is not finite: the model cannot be trusted at this measurement")
    result.samples, result.log_probs = ranked[:, 0], log_probs[:, 0]
    # clean images get the floor's noise: the density is of x + N(0, λ_min)
    result.log_prob_mean = float(posterior.log_prob(result.mean[None], floor_noise=True)[0])
    if result.truth is not None:
        result.log_prob_truth = float(posterior.log_prob(result.truth[None], floor_noise=True)[0])

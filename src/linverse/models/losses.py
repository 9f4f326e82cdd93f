"""Dual score matching: both derivatives of the energy against the noise that was drawn (paper, §3.2 and appendix A).

    ℓ = mean_i ω_i (e_i − ε_i)²  +  w·mean_g (κ_g/|g| − mean_{i∈g} ½(1−ε_i²))²  +  w'·d·(mean_i [κ_i − ½(1−ε_i²)])²
         A-DSM                       A-CSM                                          A-CSM averaged over the image
      + v·mean_i (1−φ_i)(r_i − (x_i−x̂_i)²/V_i)²/max(1, |r_i|)²,   r_i = λ_i(1 − 2κ_i − e_i²)/V_i
         posterior variance
e = Σ^{1/2}∇_yU and κ = λ∂U/∂λ live in Σ's eigenbasis, so spectra are compared coefficient by coefficient. Where g shares one λ (the
channels of a colour image) ∂U/∂log λ_g is the *sum* over the group and is divided by |g|. The paper's 1/d² on a sum of squares is
w = 1/d on this mean. ω = (1 + λ/C)^p: any weight that depends on Σ alone keeps the minimiser; p = 1 counts the error of the
mean against the Gaussian posterior variance. ε is the noise as drawn: recomputing it from y − x loses digits at small λ.

The last term is the covariance score where λ ≫ C. There κ is ½(1−ε²) up to terms of size C/λ, which hold the posterior variance; A-CSM
counts them (C/λ)², that is not at all, and the one-shot variance of what was not measured stays untrained (a model without the term
gave standard deviations of 6 to pixels in [0, 1]). With x̂ held fixed (x−x̂)² is an estimate of λ(1−2κ−e²) with the same mean as
the A-CSM's and without its noise e(ε−e), so that all λ can be counted against V = λC/(C+λ). The denominator, also held fixed, is for
coefficients that vary far more than C, such as the mean grey value, and keeps the term bounded while r is far off (without it training
diverged); a weight that depends on y and Σ alone keeps the minimiser.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from linverse.covariance import Covariance, SpatialCovariance
from linverse.energy import group_mean
from linverse.models.energies.scores import Pair, Scores


@dataclass(frozen=True)
class LossConfig:
    """Which derivatives are matched and how they are weighed.

    `objective`: "dual" (both), "single" (A-DSM only, the paper's ablation).
    """

    objective: Literal["dual", "single"] = "dual"
    cov_weight: float | None = 1.0
    """w; None is the paper's 1/d"""
    image_weight: float = 0.0
    """w'"""
    final_image_weight: float | None = None
    """w' at the end, reached over the last third: a large weight slows the rest at first, and makes densities right at last"""
    image_outliers: float | None = None
    """where √d·(mean error of κ) is counted by its size instead of its square; None: never"""
    mean_power: float = 0.0
    """p"""
    variance_floor: float = 0.0
    """share of the block's mean variance that is added to each V: coefficients that the base is too sure of count less"""
    variance_weight: float = 0.0
    """v"""
    pixel_weight: float = 0.0
    """of the network's own estimate of its squared errors, where it makes one"""
    learned_weight: float = 0.0
    """of the squared errors of the mean by pixel, counted against that estimate: errors in small holes are small, and count"""
    outliers: float | None = None
    """from which value on a term of one image counts by its logarithm; None: never. A network that has seen little of a kind of noise errs
    by hundreds there, and its shortest way out is to fall silent everywhere"""


@dataclass
class NoisyBatch:
    """One basis' share of a batch: clean images, Σ, and white noise in the eigenbasis."""

    x: Tensor
    cov: Covariance
    noise: Tensor
    condition: Tensor | None = None

    def noisy(self) -> Tensor:
        """y = x + Σ^{1/2}ε."""
        return self.x + self.cov.colour(self.noise)

    def noisy_coefficients(self) -> Tensor:
        """Qᵀy = Qᵀx + λ^{1/2}ε."""
        return self.cov.analysis(self.x) + self.noise * torch.exp(0.5 * self.cov.log_variance)

    def to(self, device: torch.device | str) -> NoisyBatch:
        condition = None if self.condition is None else self.condition.to(device)
        return NoisyBatch(self.x.to(device), self.cov.to(device), self.noise.to(device), condition)


def score_errors(scores: Scores, cov: Covariance, noise: Tensor) -> tuple[Tensor, Tensor]:
    """e − ε [B, C, H, W] and κ_g/|g| − mean_g ½(1−ε²), of log λ's shape."""
    target = group_mean(0.5 * (1 - noise.square()), cov)
    return scores.e - noise, scores.kappa - target


def relative_noise(scores: Scores, cov: Covariance, floor: float = 0.0) -> Tensor:
    """λ/V ≥ 1: the noise against the posterior variance of the Gaussian base (1 + λ/C where that is diagonal)."""
    variance = scores.base_variance
    if floor:
        variance = variance + floor * cov.pool(variance)
    return (cov.variance / variance).clamp_min(1.0)


def huber(x: Tensor, width: float | None) -> Tensor:
    """x² up to |x| = width, then the line that continues it: the minimum stays where the target's noise is within the width."""
    if width is None:
        return x.square()
    size = x.abs()
    return torch.where(size <= width, x.square(), width * (2 * size - width))


def tamed(x: Tensor, most: float | None) -> Tensor:
    """x up to `most`, then most·(1 + log x/most): few images that are far off shall not outweigh all others."""
    if most is None:
        return x
    return torch.where(x <= most, x, most * (1 + (x.clamp_min(most) / most).log()))


def variance_errors(scores: Scores, cov: Covariance, noise: Tensor) -> Tensor:
    """(1−V/λ)(r − (x−x̂)²/V)²/max(1, |r|)², of log λ's shape; the mean, and with it e, is held fixed."""
    e = scores.e.detach()
    relative = group_mean(relative_noise(scores, cov).expand_as(e), cov)
    ratio = relative * (1 - 2 * scores.kappa - group_mean(e.square(), cov))
    actual = relative * group_mean((noise - e).square(), cov)
    return (1 - 1 / relative) * ((ratio - actual) / ratio.detach().abs().clamp_min(1.0)).square()


def pixel_errors(scores: Scores, cov: Covariance, noise: Tensor) -> tuple[Tensor, Tensor]:
    """½(v + (x−x̂)²/eᵛ) with x̂ held fixed, and (x−x̂)²/eᵛ with v held fixed, by pixel [B, C, H, W], v the network's log-variance.

    The first is least where eᵛ = E[(x−x̂)²|y]; the second where x̂ is the mean, because a weight that depends on y and Σ alone keeps
    the minimiser.
    """
    v = scores.log_pixel_variance
    if v is None:
        return torch.zeros_like(noise), torch.zeros_like(noise)
    squares = cov.synthesis((noise - scores.e) * torch.exp(0.5 * cov.log_variance)).square()
    return 0.5 * (v + squares.detach() * torch.exp(-v)), squares * torch.exp(-v.detach())


def denoiser_weight(variance: Tensor, log_prior: Tensor, power: float) -> Tensor:
    """(1 + λ/C)^p."""
    return torch.exp(power * F.softplus(variance.log() - log_prior))


class ScoreModel(Protocol):
    """What dual score matching trains: an energy that gives both of its scores."""

    def scores(self, pairs: list[Pair], create_graph: bool = True) -> list[Scores]: ...


class DenoisingModel(Protocol):
    """What a first-order loss trains: x̂ from y under isotropic noise, optionally given a measurement."""

    log_prior: Tensor

    def __call__(self, y: Tensor, variance: Tensor | float, condition: Tensor | None = None) -> Tensor: ...


class DualLoss(nn.Module):
    """The loss as the forward pass of a module, so that the inner gradients live inside what DDP wraps."""

    def __init__(self, energy: ScoreModel, config: LossConfig) -> None:
        super().__init__()
        self.energy, self.config = energy, config

    def forward(
        self, parts: list[NoisyBatch], create_graph: bool = True, progress: float = 1.0
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The scalar loss and its detached terms, averaged over the batch; `progress` is the share of training that is done."""
        scores = self.energy.scores([(part.noisy_coefficients(), part.cov) for part in parts], create_graph)
        terms = [self._terms(s, part) for s, part in zip(scores, parts, strict=True)]
        named = {name: torch.cat([each[name] for each in terms]) for name in terms[0]}
        weights = self._weights(parts[0].cov.dim, progress)
        most = dict.fromkeys(weights, self.config.outliers) | {"image_csm": None}  # which has a rule of its own
        counted = [weight * tamed(named[name], most[name]).mean() for name, weight in weights.items()]
        return torch.stack(counted).sum(), {name: term.detach().mean() for name, term in named.items()}

    def _weights(self, dim: int, progress: float) -> dict[str, float]:
        """What each term counts."""
        config = self.config
        weights = {"relative_dsm": 1.0, "pixels": config.pixel_weight, "learned_dsm": config.learned_weight}
        if config.objective == "dual":
            weights |= {"csm": self._cov_weight(dim), "image_csm": self._image_weight(progress)}
            weights["variance"] = config.variance_weight
        return {name: weight for name, weight in weights.items() if weight}

    def _image_weight(self, progress: float) -> float:
        first, last = self.config.image_weight, self.config.final_image_weight
        return first if last is None else first + (last - first) * min(1.0, max(0.0, 3 * progress - 2))

    def _cov_weight(self, dim: int) -> float:
        return 1 / dim if self.config.cov_weight is None else self.config.cov_weight

    def _terms(self, scores: Scores, part: NoisyBatch) -> dict[str, Tensor]:
        """Every term for every image, [B]."""
        data, covariance = score_errors(scores, part.cov, part.noise)
        squares = data.square()
        likelihood, learned = pixel_errors(scores, part.cov, part.noise)
        means = {
            "dsm": squares,
            "relative_dsm": squares
            * relative_noise(scores, part.cov, self.config.variance_floor) ** self.config.mean_power,
            "csm": covariance.square(),
            "variance": variance_errors(scores, part.cov, part.noise),
            "pixels": likelihood,
            "learned_dsm": learned,
        }
        image = huber(covariance.mean(dim=(1, 2, 3)) * part.cov.dim**0.5, self.config.image_outliers)
        return {"image_csm": image, **{name: values.mean(dim=(1, 2, 3)) for name, values in means.items()}}


def isotropic_variance(cov: Covariance) -> Tensor:
    """λ of Σ = λI, [B, 1, 1, 1]; any other Σ is refused."""
    if not isinstance(cov, SpatialCovariance):
        raise ValueError(f"a denoiser is trained with isotropic noise; got a {cov.basis} covariance")
    level = cov.log_variance[:, :1, :1, :1]
    if not torch.equal(level.expand_as(cov.log_variance), cov.log_variance):
        raise ValueError("a denoiser is trained with isotropic noise; got variances that differ between pixels")
    return level.exp()


class DenoiserLoss(nn.Module):
    """The A-DSM of a first-order network under isotropic noise: (x̂ − x)²/λ·(1 + λ/C)^p."""

    def __init__(self, denoiser: DenoisingModel, config: LossConfig) -> None:
        super().__init__()
        self.energy, self.config = denoiser, config

    def forward(
        self, parts: list[NoisyBatch], create_graph: bool = True, progress: float = 1.0
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The scalar loss and its detached terms, averaged over the batch."""
        errors, weights = [], []
        for part in parts:
            variance = isotropic_variance(part.cov)
            estimate = self.energy(part.noisy(), variance, part.condition)
            errors.append(((estimate - part.x).square() / variance).mean(dim=(1, 2, 3)))
            weights.append(denoiser_weight(variance, self.energy.log_prior, self.config.mean_power)[:, 0, 0, 0])
        error, weight = torch.cat(errors), torch.cat(weights)
        return (error * weight).mean(), {"dsm": error.mean().detach()}

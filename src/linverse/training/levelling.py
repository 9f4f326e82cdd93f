"""The mean of the covariance score, brought to zero when the network has learned what it can.

E[κ] = 0 for every Σ makes densities right (mathematics §3, §15): an error of 0.03 in every coefficient, over nine units of log λ, is 0.3
nats per dimension at the smallest noise. Training sees it in single images, whose noise hides it, and a large weight there spoils the
means. What is needed hangs on Σ alone: c(Σ) (`network_residual`), fitted here to the errors δ_i = κ_i − ½(1−ε_i²) of the averaged weights,
    min_c  Σ_v E[ (Σ_i v_i δ_i + ∂_v c)²/|v|² ],   ∂_v c = (c(λe^{hv}) − c(λe^{−hv}))/2h,
along three directions in log λ: all λ alike (v = 1), the contrast between them (v = log λ less its mean), which is how a blur grows wider
or a mask fades, and one frequency band of the embedding, another for each image: with the first two alone the few coarse waves of a blur
were given what the many fine ones needed (photographs: a mean κ of −0.3 where λ < 10⁻³C). Isotropic noise of all levels counts `ISOTROPIC`
times: along it the constant comes from the loudest noise to the floor, and what one small c has to give to all kinds of noise at once
left 0.005 in every coefficient there, 0.07 nats per dimension at the floor (garments; 0.01 with the weight). The network is at rest: δ and
all that c is made of are computed once. No mean and no sample changes: c does not hang on y.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.models.embeddings.space_frequency import band_weights
from linverse.models.energies.learned import LearnedEnergy
from linverse.models.energies.network_residual import NetworkResidual, sum_pixels
from linverse.models.losses import NoisyBatch, ScoreModel, huber, score_errors
from linverse.progress import Progress, silent
from linverse.rng import keyed_generator

RATE = 1e-2
STEP = 0.1  # h
FLATTEST = 0.1  # contrast of log λ below which there is none
ISOTROPIC = 10.0  # weight of v = 1 at isotropic noise
OUTLIERS = 5.0  # from where on an image's error is counted by its size: a few pictures are like no others


@dataclass(frozen=True)
class LevelSample:
    """Images of one basis and a direction v: Σ_i v_iδ_i/|v| [B], what c is made of at λe^{hv} and λe^{−hv}, |v|, what each counts.

    |v| = 0 where there is no such direction.
    """

    error: Tensor
    louder: tuple[Tensor, Tensor]
    fainter: tuple[Tensor, Tensor]
    length: Tensor
    weight: Tensor

    def left(self, form: NetworkResidual) -> Tensor:
        """(Σ_i v_iδ_i + ∂_v c)/|v|, [B]."""
        change = sum_pixels(form.level_term(*self.louder)) - sum_pixels(form.level_term(*self.fainter))
        return torch.where(self.length > 0, self.error + change / (2 * STEP * self.length.clamp_min(1)), 0.0)


def directions(cov: Covariance, bands: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """v of log λ's shape: all alike, the contrast of mean square one (0 where all λ are alike), and one of the bands, of peak one.

    `bands` are their weights on a block, [K, bh, bw]; noise by pixel has no frequencies, and 0 for the last.
    """
    log_variance = cov.log_variance
    contrast = log_variance - log_variance.mean(dim=(1, 2, 3), keepdim=True)
    size = contrast.square().mean(dim=(1, 2, 3), keepdim=True).sqrt()
    contrast = torch.where(size > FLATTEST, contrast / size.clamp_min(FLATTEST), 0.0)
    return torch.ones_like(log_variance), contrast, _one_band(cov, bands, generator)


def _one_band(cov: Covariance, bands: Tensor, generator: torch.Generator) -> Tensor:
    (height, width), (tall, wide) = cov.size, bands.shape[1:]
    if tall == wide == 1:
        return torch.zeros_like(cov.log_variance)
    peaks = bands / bands.amax(dim=(1, 2), keepdim=True)
    chosen = peaks[torch.randint(len(bands), (cov.batch,), generator=generator).to(bands.device)]
    return chosen[:, None].repeat(1, 1, height // tall, width // wide).expand_as(cov.log_variance)


@torch.no_grad()
def level_samples(
    form: NetworkResidual, model: ScoreModel, part: NoisyBatch, generator: torch.Generator
) -> list[LevelSample]:
    """What c(Σ) has to make up for in some images, and what it is made of."""
    cov = part.cov
    (scores,) = model.scores([(part.noisy_coefficients(), cov)], create_graph=False)
    errors = cov.multiplicity * score_errors(scores, cov, part.noise)[1].double()
    found = []
    bands = band_weights(cov.frequencies(), form.embedding.dc_width)
    flat = cov.log_variance.amax(dim=(1, 2, 3)) - cov.log_variance.amin(dim=(1, 2, 3)) < FLATTEST
    for number, v in enumerate(directions(cov, bands, generator)):
        length = (cov.multiplicity * v.double().square().sum(dim=(1, 2, 3))).sqrt()
        louder, fainter = (form.level_inputs(cov.with_log_variance(cov.log_variance + h * v)) for h in (STEP, -STEP))
        weight = torch.where(flat & (number == 0), ISOTROPIC, 1.0)
        blank = LevelSample(torch.zeros_like(length), louder, fainter, length, weight)
        error = (v * errors).sum(dim=(1, 2, 3)) / length.clamp_min(1)
        found.append(replace(blank, error=error - blank.left(form)))
    return found


def fit_level(
    energy: LearnedEnergy, batches: list[list[NoisyBatch]], epochs: int = 20, progress: Progress = silent
) -> None:
    """Fit c(Σ), where an energy has one, to batches of noisy images."""
    form = energy.form
    if not isinstance(form, NetworkResidual) or form.level is None:
        return
    samples, generator = [], keyed_generator("level")
    for done, batch in enumerate(batches):
        samples.append([sample for part in batch for sample in level_samples(form, energy, part, generator)])
        progress("covariance scores", done + 1, len(batches))
    trained = next(form.network.parameters()).requires_grad
    form.level.requires_grad_(True)
    parameters, steps = list(form.level.parameters()), epochs * len(samples)
    optimiser = torch.optim.Adam(parameters, RATE, betas=(0.9, 0.99))
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = RATE * (1 - step / steps)
        optimiser.zero_grad()
        here = samples[step % len(samples)]
        torch.cat([sample.weight * huber(sample.left(form), OUTLIERS) for sample in here]).mean().backward()
        optimiser.step()
        progress("mean covariance score", step + 1, steps)
    optimiser.zero_grad()
    form.level.requires_grad_(trained)

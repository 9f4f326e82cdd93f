"""The mean of the covariance score, brought to zero when the network has learned what it can.

E[κ] = 0 for every Σ makes densities right (mathematics §3, §15): an error of 0.03 in every coefficient, over nine units of log λ, is 0.3
nats per dimension at the smallest noise. Training sees it in single images, whose noise hides it, and a large weight there spoils the
means. What is needed hangs on Σ alone: c(Σ) (`network_residual`), fitted here to the errors δ_i = κ_i − ½(1−ε_i²) of the averaged weights,
    min_c  E[ d·(mean_i δ_i + c'/d)² ],   c' = (c(e^hΣ) − c(e^{−h}Σ))/2h,
with the network at rest: δ and all that c is made of are computed once. No mean and no sample changes: c does not hang on y.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from linverse.covariance import Covariance
from linverse.models.energies.learned import LearnedEnergy
from linverse.models.energies.network_residual import NetworkResidual, sum_pixels
from linverse.models.losses import NoisyBatch, ScoreModel, huber, score_errors
from linverse.progress import Progress, silent

RATE = 3e-3
STEP = 0.1  # h, in log λ
OUTLIERS = 5.0  # where √d·(mean error of κ) is counted by its size: a few pictures are like no others


@dataclass(frozen=True)
class LevelSample:
    """Images of one basis: √d·mean δ [B], and what c is made of at e^hΣ and e^{−h}Σ."""

    error: Tensor
    louder: tuple[Tensor, Tensor]
    fainter: tuple[Tensor, Tensor]

    def left(self, form: NetworkResidual) -> Tensor:
        """√d·(mean δ + c'/d), [B]."""
        gate = self.louder[0]
        change = sum_pixels(form.level_term(*self.louder)) - sum_pixels(form.level_term(*self.fainter))
        return self.error + change / (2 * STEP * gate[0].numel() ** 0.5)


@torch.no_grad()
def level_sample(form: NetworkResidual, model: ScoreModel, part: NoisyBatch) -> LevelSample:
    """What c(Σ) has to make up for in some images, and what it is made of."""
    (scores,) = model.scores([(part.noisy_coefficients(), part.cov)], create_graph=False)
    error = score_errors(scores, part.cov, part.noise)[1].mean(dim=(1, 2, 3)) * part.cov.dim**0.5

    def inputs(cov: Covariance, shift: float) -> tuple[Tensor, Tensor]:
        return form.level_inputs(cov.with_log_variance(cov.log_variance + shift))

    blank = LevelSample(torch.zeros_like(error), inputs(part.cov, STEP), inputs(part.cov, -STEP))
    return LevelSample(error - blank.left(form), blank.louder, blank.fainter)


def fit_level(
    energy: LearnedEnergy, batches: list[list[NoisyBatch]], epochs: int = 10, progress: Progress = silent
) -> None:
    """Fit c(Σ), where an energy has one, to batches of noisy images."""
    form = energy.form
    if not isinstance(form, NetworkResidual):
        return
    learning = energy.training
    energy.eval()  # c(Σ) counts
    samples = []
    for done, batch in enumerate(batches):
        samples.append([level_sample(form, energy, part) for part in batch])
        progress("covariance scores", done + 1, len(batches))
    trained = next(form.network.parameters()).requires_grad
    form.level.requires_grad_(True)
    parameters, steps = list(form.level.parameters()), epochs * len(samples)
    optimiser = torch.optim.Adam(parameters, RATE, betas=(0.9, 0.99))
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = RATE * (1 - step / steps)
        optimiser.zero_grad()
        left = torch.cat([sample.left(form) for sample in samples[step % len(samples)]])
        huber(left, OUTLIERS).mean().backward()
        optimiser.step()
        progress("mean covariance score", step + 1, steps)
    optimiser.zero_grad()
    form.level.requires_grad_(trained)
    energy.train(learning)

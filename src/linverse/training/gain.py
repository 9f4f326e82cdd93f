"""The gain of what the network says, fitted when it has learned what it can: means that go neither too far from y nor too little.

An error of the mean along y − x̂ hardly costs squared error (a step that is 5 % short, a quarter of a percent), but the density pays for it
in full: between noise levels E[U] is off by ½E⟨y−x̂, x̂−x⟩/λ, which is zero for the best mean of that length only. Noisy gradients and
decaying weights leave steps short by some percent, at faint noise most. 1 + φγ(Σ) (`network_residual`), of the noise alone, mends that by
the A-DSM of the averaged weights, with all else at rest; c(Σ) is fitted after it.
"""

from __future__ import annotations

import torch

from linverse.models.energies.learned import LearnedEnergy
from linverse.models.energies.network_residual import NetworkResidual
from linverse.models.losses import LossConfig, NoisyBatch, relative_noise, score_errors, tamed
from linverse.progress import Progress, silent

RATE = 1e-2


def fit_gain(
    energy: LearnedEnergy,
    loss: LossConfig,
    batches: list[list[NoisyBatch]],
    epochs: int = 2,
    progress: Progress = silent,
) -> None:
    """Fit γ(Σ), where an energy has one, to batches of noisy images, by the A-DSM of `loss`."""
    form = energy.form
    if not isinstance(form, NetworkResidual) or form.gain is None:
        return
    at_rest = [parameter for parameter in energy.parameters() if parameter.requires_grad]
    energy.requires_grad_(False)
    form.gain.requires_grad_(True)
    form.fitting_gain = True
    optimiser = torch.optim.Adam(form.gain.parameters(), RATE, betas=(0.9, 0.99))
    steps = epochs * len(batches)
    try:
        for step in range(steps):
            optimiser.param_groups[0]["lr"] = RATE * (1 - step / steps)
            optimiser.zero_grad()
            _loss(energy, loss, batches[step % len(batches)]).backward()
            optimiser.step()
            progress("gain", step + 1, steps)
    finally:
        form.fitting_gain = False
        optimiser.zero_grad()
        energy.requires_grad_(False)
        for parameter in at_rest:
            parameter.requires_grad_(True)


def _loss(energy: LearnedEnergy, loss: LossConfig, parts: list[NoisyBatch]) -> torch.Tensor:
    """The A-DSM of a batch."""
    found = []
    scores = energy.scores([(part.noisy_coefficients(), part.cov) for part in parts], create_graph=True)
    for each, part in zip(scores, parts, strict=True):
        weight = relative_noise(each, part.cov, loss.variance_floor) ** loss.mean_power
        found.append((weight * score_errors(each, part.cov, part.noise)[0].square()).mean(dim=(1, 2, 3)))
    return tamed(torch.cat(found), loss.outliers).mean()

"""c(Σ): fitted, it brings the mean of the covariance score to zero, and changes no mean."""

from __future__ import annotations

import pytest
import torch

from linverse.covariance import VarianceRange, identity
from linverse.models.energies.learned import EnergyConfig, LearnedEnergy
from linverse.models.losses import NoisyBatch, score_errors
from linverse.models.networks.unet import UNetConfig
from linverse.rng import keyed_generator
from linverse.training.covariances import Component, GaussianBlurs, Isotropic, Mixture, RandomPixelMasks
from linverse.training.levelling import fit_level
from tiny import Pictures, awaken

SHAPE = (1, 8, 8)
BACKBONE = UNetConfig(
    channels=4, multipliers=(1, 2), blocks=1, embedding=4, stem=1, stem_channels=4, style="compact", middle=1
)
NOISE = Mixture((Component(0.5, Isotropic()), Component(0.25, RandomPixelMasks()), Component(0.25, GaussianBlurs())))


def drifting_energy(parameterisation: str) -> LearnedEnergy:
    """An energy whose covariance score is off: random weights of the term that hangs on Σ alone, all else silent."""
    shape = SHAPE if parameterisation == "residual" else (1, None, None)
    config = EnergyConfig(
        shape,
        1e-4,
        1e2,
        (),
        parameterisation,  # type: ignore[arg-type]
        5,
        backbone=BACKBONE,
        linear_views=True,
        level=True,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        energy = LearnedEnergy(config)
    energy.fit(Pictures(64, SHAPE))
    awaken(energy.form.level, size=0.6)  # type: ignore[arg-type]
    return energy.eval()


def batches(count: int, seed: int) -> list[list[NoisyBatch]]:
    images, found = Pictures(256, SHAPE), []
    for number in range(count):
        generator = keyed_generator("levelling", seed, number)
        x = images.batch(torch.randint(256, (64,), generator=generator))
        drawn = NOISE.sample(64, SHAPE, VarianceRange(1e-4, 1e2), generator)
        noise = torch.randn(x.shape, generator=generator)
        found.append([NoisyBatch(x[rows], cov, noise[rows]) for cov, rows in drawn])
    return found


def mean_errors(energy: LearnedEnergy, seed: int) -> dict[str, float]:
    """√d·|mean error of κ| of each basis, over many images."""
    sums: dict[str, list[torch.Tensor]] = {}
    for batch in batches(16, seed):
        for part in batch:
            (scores,) = energy.scores([(part.noisy_coefficients(), part.cov)], create_graph=False)
            error = score_errors(scores, part.cov, part.noise)[1]
            sums.setdefault(part.cov.basis, []).append(error.detach().mean(dim=(1, 2, 3)) * part.cov.dim**0.5)
    return {basis: abs(float(torch.cat(errors).mean())) for basis, errors in sums.items()}


def coarse_error(energy: LearnedEnergy, seed: int) -> float:
    """|mean error of κ| of the coarsest waves under blurs, over many images."""
    found = []
    for part in (part for batch in batches(16, seed) for part in batch if part.cov.basis == "fourier"):
        (scores,) = energy.scores([(part.noisy_coefficients(), part.cov)], create_graph=False)
        error = score_errors(scores, part.cov, part.noise)[1]
        coarse = part.cov.frequencies().square().sum(0).sqrt() < 0.13
        found.append(error.detach()[..., coarse].flatten())
    return abs(float(torch.cat(found).mean()))


def test_coarse_waves_are_not_given_what_fine_ones_need() -> None:
    energy = drifting_energy("residual")
    before = coarse_error(energy, seed=1)
    fit_level(energy, batches(32, seed=0), epochs=24)
    assert coarse_error(energy, seed=1) < max(0.4 * before, 0.05)


def test_in_pictures_of_any_size_it_hardly_feels_the_few_coarse_waves() -> None:
    form = drifting_energy("spectral").form
    flat = identity("fourier", (1, 48, 48), torch.zeros(1, 1, 48, 48))
    coarse = (flat.frequencies().square().sum(0).sqrt() < 0.05).float()

    def change() -> float:
        louder = flat.with_log_variance(flat.log_variance + 0.1 * coarse)
        felt = [form.level_term(*form.level_inputs(cov)).sum() for cov in (louder, flat)]
        return abs((felt[0] - felt[1]).item())

    ours = change()
    form.level_sees = torch.ones_like(form.level_sees)
    assert 0 < ours < 0.4 * change()


@pytest.mark.parametrize("parameterisation", ["residual", "spectral"])
def test_the_fit_brings_the_mean_covariance_score_to_zero_for_new_images(parameterisation: str) -> None:
    energy = drifting_energy(parameterisation)
    before = mean_errors(energy, seed=1)
    fit_level(energy, batches(32, seed=0), epochs=24)
    after = mean_errors(energy, seed=1)
    assert max(before.values()) > 0.5
    assert all(after[basis] < max(0.25 * error, 0.15) for basis, error in before.items())  # 0.02 in a coefficient


def test_means_and_scores_stay_as_they_are() -> None:
    energy = drifting_energy("residual")
    awaken(energy.form.network, size=0.05)
    ((part, *_),) = batches(1, seed=2)
    before = energy.form.evaluation(part.noisy_coefficients(), part.cov, False)  # of the form: without the bound
    fit_level(energy, batches(4, seed=0), epochs=4)
    after = energy.form.evaluation(part.noisy_coefficients(), part.cov, False)
    assert not torch.equal(before.energy, after.energy)
    assert torch.equal(before.mean, after.mean)
    assert torch.equal(before.score, after.score)


def test_weights_of_a_model_at_rest_stay_at_rest() -> None:
    energy = drifting_energy("residual").requires_grad_(False)
    fit_level(energy, batches(2, seed=0), epochs=1)
    assert not any(parameter.requires_grad or parameter.grad is not None for parameter in energy.parameters())

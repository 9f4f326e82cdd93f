"""γ(Σ): fitted, it brings means to the length at which their errors are least, and leaves all other weights alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from linverse.covariance import VarianceRange
from linverse.models.energies.learned import EnergyConfig, LearnedEnergy
from linverse.models.energies.network_residual import LARGEST_GAIN
from linverse.models.losses import LossConfig, NoisyBatch, relative_noise, score_errors
from linverse.models.networks.unet import UNetConfig
from linverse.rng import keyed_generator
from linverse.training.covariances import Component, GaussianBlurs, Isotropic, Mixture, RandomPixelMasks
from linverse.training.gain import fit_gain
from tiny import Pictures, awaken

SHAPE = (1, 8, 8)
BACKBONE = UNetConfig(
    channels=4, multipliers=(1, 2), blocks=1, embedding=4, stem=1, stem_channels=4, style="compact", middle=1
)
NOISE = Mixture((Component(0.5, Isotropic()), Component(0.25, RandomPixelMasks()), Component(0.25, GaussianBlurs())))
LOSS = LossConfig(mean_power=1.0)


def loud_energy(parameterisation: str = "residual") -> LearnedEnergy:
    """A network of random weights: whatever it says is wrong, and the less of it the better."""
    shape = SHAPE if parameterisation == "residual" else (1, None, None)
    config = EnergyConfig(shape, 1e-4, 1e2, (), parameterisation, 5, backbone=BACKBONE, linear_views=True, gain=True)  # type: ignore[arg-type]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        energy = LearnedEnergy(config)
    energy.fit(Pictures(64, SHAPE))
    awaken(energy.form.network, size=0.1)
    return energy.eval()


def batches(count: int, seed: int) -> list[list[NoisyBatch]]:
    images, found = Pictures(256, SHAPE), []
    for number in range(count):
        generator = keyed_generator("gain", seed, number)
        x = images.batch(torch.randint(256, (32,), generator=generator))
        drawn = NOISE.sample(32, SHAPE, VarianceRange(1e-4, 1e2), generator)
        noise = torch.randn(x.shape, generator=generator)
        found.append([NoisyBatch(x[rows], cov, noise[rows]) for cov, rows in drawn])
    return found


def errors(energy: LearnedEnergy) -> float:
    """The relative A-DSM on new images."""
    found = []
    for part in (part for batch in batches(8, seed=1) for part in batch):
        (scores,) = energy.scores([(part.noisy_coefficients(), part.cov)], create_graph=False)
        squares = score_errors(scores, part.cov, part.noise)[0].square() * relative_noise(scores, part.cov)
        found.append(squares.mean(dim=(1, 2, 3)).detach())
    return float(torch.cat(found).mean())


@pytest.mark.parametrize("parameterisation", ["residual", "spectral"])
def test_what_is_said_too_loudly_is_turned_down(parameterisation: str) -> None:
    energy = loud_energy(parameterisation)
    before = errors(energy)
    fit_gain(energy, LOSS, batches(24, seed=0), epochs=4)
    part = batches(1, seed=2)[0][0]
    gains = energy.form.gains(*energy.form.level_inputs(part.cov))  # type: ignore[union-attr,operator]
    assert gains.min() >= 1 - LARGEST_GAIN
    assert gains.min() < 0.9
    assert errors(energy) < before


def test_it_is_silent_until_it_is_fitted() -> None:
    energy = loud_energy()
    plain = LearnedEnergy(replace(energy.config, gain=False)).eval()
    plain.load_state_dict(energy.state_dict(), strict=False)
    assert errors(plain) == errors(energy)
    fit_gain(plain, LOSS, batches(2, seed=0))  # has none: nothing happens
    assert errors(plain) == errors(energy)


def test_all_other_weights_stay_as_they_are_and_know_whether_they_are_trained() -> None:
    energy = loud_energy()
    energy.form.network.requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in energy.state_dict().items()}
    trained = {name: parameter.requires_grad for name, parameter in energy.named_parameters()}
    fit_gain(energy, LOSS, batches(2, seed=0), epochs=1)
    changed = {name for name, tensor in energy.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed
    assert all(name.startswith("form.gain.") for name in changed)
    assert {name: parameter.requires_grad for name, parameter in energy.named_parameters()} == trained
    assert all(parameter.grad is None for parameter in energy.parameters())

"""The registries that the shared suites run over.

Adding a covariance, an energy or a degradation = one line in `COVARIANCES`, `ENERGIES` or `DEGRADATIONS`; the suites do the rest.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator

import hypothesis
import pytest
import torch
from torch import Tensor

from linverse import degradations as dg
from linverse.analytic import DenseGaussian, DiagonalGaussian, GaussianMixture, GaussianScaleMixture
from linverse.analytic.gaussian import EVERYWHERE
from linverse.covariance import (
    BlockDCTCovariance,
    Covariance,
    DCTCovariance,
    FourierCovariance,
    SpatialCovariance,
    VarianceRange,
)
from linverse.energy import Energy, Evaluation, autograd_evaluate
from linverse.rng import keyed_generator
from oracles import Law, matrix_of, random_spd

hypothesis.settings.register_profile("linverse", deadline=None, max_examples=40, derandomize=True)
hypothesis.settings.load_profile("linverse")


@pytest.fixture(autouse=True)
def signals_are_heard() -> Iterator[None]:
    """Tests that run in the background, or under nohup, start with signals ignored: give them back their usual meaning."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    if hasattr(signal, "SIGHUP"):
        usual[signal.SIGHUP] = signal.SIG_DFL
    before = {number: signal.getsignal(number) for number in usual}
    for number, handler in usual.items():
        if before[number] is signal.SIG_IGN:
            signal.signal(number, handler)
    yield
    for number, handler in before.items():
        if handler is signal.SIG_IGN:
            signal.signal(number, handler)


Shape = tuple[int, int, int]


# --- covariances: log λ [B, 1 or C, H, W] and the number of channels → Σ ----------------------------------------------------


def _block_dct(log_variance: Tensor, channels: int) -> Covariance:
    """Blocks of the smallest side > 1 that tiles the image (1 if there is none)."""
    common = math.gcd(*log_variance.shape[2:])
    block = next((b for b in range(2, common + 1) if common % b == 0), 1)
    return BlockDCTCovariance(log_variance, channels, block)


COVARIANCES: dict[str, Callable[[Tensor, int], Covariance]] = {
    "spatial": SpatialCovariance,
    "fourier": FourierCovariance,
    "dct": DCTCovariance,
    "block-dct": _block_dct,
}


def random_covariance(
    family: str, shape: Shape, *, batch: int = 2, shared: bool = False, seed: int = 0, spread: float = 1.5
) -> Covariance:
    """A Σ with log λ ~ N(−1, spread²), float64."""
    generator = keyed_generator("covariance", family, seed)
    size = (batch, 1 if shared else shape[0], *shape[1:])
    log_variance = spread * torch.randn(size, generator=generator, dtype=torch.float64) - 1
    return COVARIANCES[family](log_variance, shape[0])


# --- energies: a Σ whose basis they must take, and limits → the energy and its exact law ------------------------------------


def _diagonal_gaussian(cov: Covariance, limits: VarianceRange) -> tuple[Energy, Law]:
    generator = keyed_generator("diagonal gaussian")
    shape = (cov.channels, *cov.size)
    spectrum = torch.randn((1, *shape), generator=generator, dtype=torch.float64) - 2
    mean = torch.rand(shape, generator=generator, dtype=torch.float64)
    prior = cov.with_log_variance(spectrum)
    basis = matrix_of(cov.synthesis, shape)
    law = Law(
        torch.zeros(1, 1).double(), mean.reshape(1, 1, -1), (basis * spectrum.exp().flatten()) @ basis.mT.unsqueeze(0)
    )
    return DiagonalGaussian(prior, mean, limits), law


def _dense_gaussian(cov: Covariance, limits: VarianceRange) -> tuple[Energy, Law]:
    generator = keyed_generator("dense gaussian")
    shape = (cov.channels, *cov.size)
    mean = torch.rand(1, 1, cov.dim, generator=generator, dtype=torch.float64)
    spread = random_spd(generator, 1, cov.dim, 0.1)
    return DenseGaussian(mean[0, 0], spread[0], shape, limits), Law(torch.zeros(1, 1).double(), mean, spread)


def _mixture(cov: Covariance, limits: VarianceRange) -> tuple[Energy, Law]:
    generator = keyed_generator("mixture")
    weights = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
    means = torch.rand(3, cov.dim, generator=generator, dtype=torch.float64)
    spread = random_spd(generator, 3, cov.dim, 0.1) * torch.tensor([0.3, 1.0, 2.0]).reshape(3, 1, 1)
    shape = (cov.channels, *cov.size)
    return GaussianMixture(weights, means, spread, shape, limits), Law(weights.log()[None], means[None], spread)


def _scale_mixture(cov: Covariance, limits: VarianceRange) -> tuple[Energy, Law]:
    weights = torch.tensor([0.3, 0.7], dtype=torch.float64)
    scales = torch.tensor([0.05, 0.6], dtype=torch.float64)
    spread = scales[:, None, None] * torch.eye(cov.dim, dtype=torch.float64)
    law = Law(weights.log()[None], torch.zeros(1, 2, cov.dim, dtype=torch.float64), spread)
    return GaussianScaleMixture(weights, scales, (cov.channels, *cov.size), limits), law


ENERGIES: dict[str, Callable[[Covariance, VarianceRange], tuple[Energy, Law]]] = {
    "diagonal-gaussian": _diagonal_gaussian,
    "dense-gaussian": _dense_gaussian,
    "mixture": _mixture,
    "scale-mixture": _scale_mixture,
}


def plain_evaluate(energy: Energy, y: Tensor, cov: Covariance) -> Evaluation:
    """An energy's derivatives by automatic differentiation, whatever better forms it knows."""
    return autograd_evaluate(energy, cov.analysis(y), cov)


def same_evaluation(actual: Evaluation, expected: Evaluation, rtol: float = 1e-8, atol: float = 1e-9) -> None:
    for a, b in zip(actual.tensors(), expected.tensors(), strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=atol)


def energy_and_law(name: str, cov: Covariance, limits: VarianceRange = EVERYWHERE) -> tuple[Energy, Law]:
    """An energy for noise in Σ's basis, and the dense mixture that it claims to be."""
    return ENERGIES[name](cov, limits)


# --- degradations of 6×6 images: σ → the degradation -----------------------------------------------------------------------

_MASK = torch.tensor(
    [[int(bit) for bit in row] for row in ("110111", "101101", "011111", "111000", "110011", "001111")]
)

DEGRADATIONS: dict[str, Callable[[float], dg.Degradation]] = {
    "denoising": dg.Denoising,
    "mask": lambda sigma: dg.Inpainting(_MASK.bool(), sigma),
    "box": lambda sigma: dg.Box(3, sigma),
    "half-bottom": lambda sigma: dg.HalfMask("bottom", None, sigma),
    "half-left": lambda sigma: dg.HalfMask("left", 2, sigma),
    "pixels": lambda sigma: dg.RandomPixels(0.5, None, sigma),
    "gaussian-periodic": lambda sigma: dg.GaussianBlur(0.7, sigma, "periodic", 5),
    "gaussian-reflecting": lambda sigma: dg.GaussianBlur(0.7, sigma, "reflecting", 5),
    "even-periodic": lambda sigma: dg.GaussianBlur(0.8, sigma, "periodic", 4),  # exact zeros at Nyquist
    "signed-reflecting": lambda sigma: dg.Blur(torch.tensor([[0.3, 0.4, 0.3]]).double(), sigma, "reflecting"),
    "defocus": lambda sigma: dg.Defocus(1.7, sigma),
    "motion": lambda sigma: dg.MotionBlur(5, 0.5, sigma),
    "super-resolution-2": lambda sigma: dg.SuperResolution(2, sigma),
    "super-resolution-3": lambda sigma: dg.SuperResolution(3, sigma),
}


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Sums in another order are other bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        yield
    torch.set_num_threads(before)

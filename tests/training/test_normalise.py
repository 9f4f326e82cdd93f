"""The normalising constant and the self-tests, on energies whose truth is known and on energies that are wrong in known ways."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from conftest import COVARIANCES, random_covariance
from linverse.analytic import DiagonalGaussian, GaussianScaleMixture
from linverse.covariance import Covariance, SpatialCovariance, VarianceRange, identity
from linverse.energy import Energy
from linverse.models.losses import NoisyBatch
from linverse.posterior import residual
from linverse.rng import keyed_generator, normal_like
from linverse.training.normalise import SelfTest, normalising_constant, self_test
from oracles import z_threshold
from tiny import FAMILIES, Shape

SHAPE: Shape = (3, 4, 4)
DIM = math.prod(SHAPE)
LIMITS = VarianceRange(1e-4, 1e3)
BASES = ("spatial", "fourier", "dct", "block-dct-2")
COUNT = 400
Offset = Callable[[Tensor, Covariance], Tensor]


class Shifted:
    """An energy plus some function of (y, Σ)."""

    def __init__(self, energy: Energy, offset: Offset) -> None:
        self.energy, self.offset = energy, offset
        self.shape, self.range = energy.shape, energy.range

    def __call__(self, y: Tensor, cov: Covariance) -> Tensor:
        return self.energy(y, cov) + self.offset(y, cov)

    def gaussian(self, cov: Covariance) -> tuple[Tensor, Tensor]:
        return self.energy.gaussian(cov)


def scale_mixture() -> GaussianScaleMixture:
    """Not Gaussian, and the same in every basis."""
    return GaussianScaleMixture(torch.tensor([0.5, 0.5]), torch.tensor([0.02, 0.15]), SHAPE, LIMITS)


def pixel_gaussian() -> DiagonalGaussian:
    generator = keyed_generator("normalise")
    spectrum = torch.randn(1, *SHAPE, generator=generator, dtype=torch.float64) - 3
    mean = torch.rand(SHAPE, generator=generator, dtype=torch.float64)
    return DiagonalGaussian(SpatialCovariance(spectrum, SHAPE[0]), mean, LIMITS)


def images(energy: GaussianScaleMixture | DiagonalGaussian, count: int = COUNT) -> Tensor:
    return energy.sample(count, keyed_generator("normalise", "x"))


def draw_parts(x: Tensor, families: tuple[str, ...] = FAMILIES, shared: bool = True) -> list[NoisyBatch]:
    parts = []
    for family in families:
        cov = random_covariance(family, SHAPE, batch=len(x), shared=shared)
        parts.append(NoisyBatch(x, cov, normal_like(x, keyed_generator("normalise", family))))
    return parts


# --- the constant ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("constant", [0.0, 7.25, -300.0])
def test_a_known_constant_is_found_exactly(constant: float) -> None:
    """For a Gaussian U_G is the energy itself: c is −constant to rounding, whatever the noise."""
    exact = pixel_gaussian()
    energy = Shifted(exact, lambda y, cov: torch.full((len(y),), constant, dtype=torch.float64))
    found = normalising_constant(energy, images(exact, 20), keyed_generator("c"), chunk=7)
    assert found == pytest.approx(-constant, abs=1e-9)


def test_the_constant_of_a_learned_like_energy_is_right_at_the_largest_noise() -> None:
    """Not Gaussian: too high by KL(p‖U_G) ≈ ‖…‖²/(4λ²), which is nothing at λ_max."""
    exact = scale_mixture()
    energy = Shifted(exact, lambda y, cov: torch.full((len(y),), 41.0, dtype=torch.float64))
    assert normalising_constant(energy, images(exact), keyed_generator("c")) == pytest.approx(-41.0, abs=1e-4)


def test_images_are_not_clamped_before_they_are_judged() -> None:
    """Noise of λ_max leaves [0, 1] far behind; a clamped y would be called far too probable."""
    seen = []
    exact = pixel_gaussian()
    energy = Shifted(exact, lambda y, cov: seen.append((y, cov)) or torch.zeros(len(y), dtype=torch.float64))  # type: ignore[func-returns-value]
    normalising_constant(energy, images(exact, 50), keyed_generator("c"))
    ((y, cov),) = seen
    torch.testing.assert_close(cov.variance, torch.full_like(cov.variance, LIMITS.maximum))
    assert float(y.std()) == pytest.approx(math.sqrt(LIMITS.maximum), rel=0.1)


@pytest.mark.parametrize("basis", BASES)
def test_templates_are_identities_like_the_images(basis: str) -> None:
    for dtype in (torch.float32, torch.float64):
        cov = identity(basis, SHAPE, torch.zeros(5, *SHAPE, dtype=dtype))
        assert (cov.basis, cov.channels, cov.size, cov.batch) == (basis, 3, (4, 4), 1)
        assert cov.log_variance.dtype == dtype
        assert not cov.log_variance.any()
    with pytest.raises(ValueError, match="there is no basis 'wavelet'"):
        identity("wavelet", SHAPE)


# --- the self-tests of the truth -----------------------------------------------------------------------------------------------------


def test_an_exact_energy_passes_every_self_test() -> None:
    exact = scale_mixture()
    x = images(exact)
    result = self_test(exact, x, draw_parts(x), BASES)
    limit = z_threshold(20, alarm=1e-5)
    # the means of κ are conditional means of those of ½(1−ε²), whose variance is ½ a coefficient
    assert max(abs(v) for v in result.bias.values()) < limit * math.sqrt(0.5 / (COUNT * DIM))
    for family, part in zip(result.slope, draw_parts(x), strict=True):
        assert abs(result.slope[family] - 1) < limit * slope_error(exact, part)
    # the exponents have a standard deviation of at most 1: E exp(2Δ) − 1 ≤ e − 1
    assert max(abs(v) for v in result.ratio.values()) < limit * math.sqrt((math.e - 1) / COUNT)
    assert result.agreement < 1e-9
    assert result.normalisation_error < 1e-3
    assert set(result.bias) == set(BASES) == set(result.slope)
    assert len(result.entropy) == 3 * len(BASES)
    assert set(result.ratio) == {"0.001", "0.01", "0.1", "1", "10"}


def slope_error(energy: Energy, part: NoisyBatch) -> float:
    """The standard error of Σκt/Σκ², whole images at a time (coefficients of one image are not independent)."""
    y = part.noisy()
    log_variance = part.cov.log_variance.clone().requires_grad_()
    u = energy(y, part.cov.with_log_variance(log_variance))
    kappa = torch.autograd.grad(u.sum(), log_variance)[0] / part.cov.multiplicity
    target = 0.5 * (1 - part.noise.square()).mean(dim=1, keepdim=True)
    terms = (kappa * (target - kappa)).sum(dim=(1, 2, 3))
    return float(terms.square().sum().sqrt() / kappa.square().sum())


def test_the_heat_equation_holds_exactly_for_a_gaussian_in_pixels() -> None:
    """Its Hessian is diagonal, so that Hutchinson's estimate has no noise."""
    exact = pixel_gaussian()
    x = images(exact, 64)
    result = self_test(exact, x, draw_parts(x, ("spatial",)), ("spatial",))
    assert set(result.heat) == {"0.01", "0.1", "1"}
    assert max(abs(v) for v in result.heat.values()) < 1e-9
    assert max(abs(v) for v in result.entropy.values()) < 1e-12


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
def test_colours_may_share_their_variances_or_not(shared: bool) -> None:
    exact = scale_mixture()
    x = images(exact)
    result = self_test(exact, x, draw_parts(x, ("fourier",), shared), ("fourier",))
    assert result.slope["fourier"] == pytest.approx(1, abs=0.1)


# --- the self-tests of what is wrong ---------------------------------------------------------------------------------------------------


def by_level(y: Tensor, cov: Covariance) -> Tensor:
    """An offset that grows with the noise: 0.02·Σ_i log(λ_i/λ_max)."""
    gap = cov.log_variance.double() - math.log(LIMITS.maximum)
    return 0.02 * gap.sum(dim=(1, 2, 3)) * cov.multiplicity


def by_basis(y: Tensor, cov: Covariance) -> Tensor:
    return torch.full((len(y),), 0.5 if cov.basis == "fourier" else 0.0, dtype=torch.float64)


def too_bold(y: Tensor, cov: Covariance) -> Tensor:
    return scale_mixture()(y, cov)


def wrong_of(offset: Offset) -> SelfTest:
    exact = scale_mixture()
    x = images(exact)
    return self_test(Shifted(exact, offset), x, draw_parts(x), BASES)


def test_an_offset_that_depends_on_the_noise_is_seen() -> None:
    result = wrong_of(by_level)
    assert result.normalisation_error == pytest.approx(0.02 * math.log(10), rel=0.05)
    assert all(v == pytest.approx(0.02, abs=0.01) for v in result.bias.values())
    # log E exp(U_A − U_B) for neighbours 0.05 apart; the exponents have a standard deviation of about 0.25
    assert all(v == pytest.approx(-0.02 * DIM * 0.05, abs=6 * 0.25 / math.sqrt(COUNT)) for v in result.ratio.values())
    assert sum(result.ratio.values()) / len(result.ratio) < -0.02
    assert all(v == pytest.approx(0.02, abs=2e-3) for v in result.heat.values())


def test_bases_that_disagree_are_seen() -> None:
    result = wrong_of(by_basis)
    assert result.agreement == pytest.approx(0.5 / DIM, rel=1e-6)
    entropies = {basis: [v for key, v in result.entropy.items() if key.startswith(f"{basis} ")] for basis in BASES}
    assert all(v == pytest.approx(0.5 / DIM, abs=1e-3) for v in entropies["fourier"])
    assert all(abs(v) < 1e-3 for v in entropies["dct"])


def test_an_energy_that_is_too_bold_is_seen() -> None:
    """2U has twice the covariance score: the slope of the target on it is ½."""
    result = wrong_of(too_bold)
    assert all(v == pytest.approx(0.5, abs=0.05) for v in result.slope.values())


# --- for people and files ------------------------------------------------------------------------------------------------------------


def test_results_survive_json_and_make_a_table() -> None:
    exact = pixel_gaussian()
    x = images(exact, 8)
    result = self_test(exact, x, draw_parts(x, ("spatial",)), ("spatial",))
    assert SelfTest(**json.loads(json.dumps(result.to_dict()))) == result
    rows = {name: value for name, value, _ in result.table()}
    assert rows["normalisation error"] == "0.0000 nats/pixel"
    assert set(rows) >= {"agreement of bases", "covariance score, slope", "ratio of neighbours", "heat equation"}


def test_levels_outside_of_the_energy_s_range_are_left_out() -> None:
    narrow = GaussianScaleMixture(torch.ones(1), torch.tensor([0.1]), SHAPE, VarianceRange(5e-2, 5.0))
    x = images(narrow, 20)
    parts = [NoisyBatch(x, identity("spatial", x.shape, x).expand(20), normal_like(x, keyed_generator("n")))]
    result = self_test(narrow, x, parts, ("spatial",))
    assert set(result.ratio) == {"0.1", "1"}
    assert set(result.heat) == {"0.1", "1"}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_residual_of_a_gaussian_is_nothing(family: str) -> None:
    cov = random_covariance(family, SHAPE, batch=4)
    prior = COVARIANCES[family](torch.randn(1, *SHAPE, generator=keyed_generator("p"), dtype=torch.float64), SHAPE[0])
    y = torch.rand(4, *SHAPE, generator=keyed_generator("y"), dtype=torch.float64)
    torch.testing.assert_close(residual(DiagonalGaussian(prior), y, cov), torch.zeros(4).double(), atol=1e-9, rtol=0)

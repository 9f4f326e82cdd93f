"""`Posterior` against exact posteriors: dense operators, dense mixtures, raw data (no eigenbasis, no fill, no floor in the oracle)."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

from conftest import COVARIANCES, DEGRADATIONS, ENERGIES, Shape, energy_and_law
from linverse.analytic import DiagonalGaussian, GaussianMixture, GaussianScaleMixture
from linverse.covariance import Covariance, VarianceRange, identity
from linverse.degradations import (
    Blur,
    Box,
    ColouredNoise,
    Degradation,
    Denoising,
    HalfMask,
    Inpainting,
    SuperResolution,
)
from linverse.energy import Energy, evaluate
from linverse.files.saving import REFERENCE
from linverse.measurement import Measurement
from linverse.models.energies.learned import LearnedEnergy
from linverse.posterior import Posterior, gaussian_energy, residual
from linverse.rng import keyed_generator
from linverse.store.references import References
from oracles import Law, matrix_of
from tiny import tiny_energy

SHAPE: Shape = (2, 6, 6)
DIM = 72
SIGMA = 0.05
# a floor under σ² and a ceiling so high that what is not measured is told apart from nothing by 1e-8 only
WIDE = VarianceRange(1e-6, 1e7)
TOLERANCE = 1e-6
# a frequency that the kernel destroys keeps its raw coefficient, pure noise at λ_max: the mean moves by O(C/√λ_max), as by a fill
TOLERANCES = {"even-periodic": 1e-3}
degradations = pytest.mark.parametrize("degradation_name", DEGRADATIONS)
energies = pytest.mark.parametrize("energy_name", ENERGIES)


def image(batch: int = 2, seed: int = 0) -> Tensor:
    return torch.rand(batch, *SHAPE, generator=keyed_generator("posterior image", seed), dtype=torch.float64)


def measured(name: str, sigma: float = SIGMA) -> tuple[Degradation, Measurement]:
    degradation = DEGRADATIONS[name](sigma)
    return degradation, degradation.measure(image(), keyed_generator("posterior noise"))


def setting(
    degradation_name: str, energy_name: str, limits: VarianceRange = WIDE, sigma: float = SIGMA
) -> tuple[Posterior, Law, Degradation]:
    degradation, measurement = measured(degradation_name, sigma)
    energy, law = energy_and_law(energy_name, measurement.template, limits)
    return Posterior(energy, measurement), law, degradation


def raw_problem(degradation: Degradation, measurement: Measurement) -> tuple[Tensor, Tensor]:
    """Rows of H that were measured, and the raw data [B, m]."""
    operator = matrix_of(degradation.operator, SHAPE)
    rows = operator.abs().sum(1) > 0
    return operator[rows], measurement.raw.flatten(1)[:, rows]


def exact(posterior: Posterior, law: Law, degradation: Degradation, sigma: float = SIGMA) -> tuple[Law, Tensor]:
    """The law of x given the raw data, and log p(raw)."""
    operator, raw = raw_problem(degradation, posterior.measurement)
    noise = sigma**2 * torch.eye(len(operator), dtype=torch.float64)
    return law.posterior(raw, operator, noise), law.through(operator, noise).log_density(raw)


# --- mean, standard deviation, evidence ------------------------------------------------------------------------------------------


@degradations
@energies
def test_mean_std_and_evidence_are_exact(degradation_name: str, energy_name: str) -> None:
    posterior, law, degradation = setting(degradation_name, energy_name)
    truth, evidence = exact(posterior, law, degradation)
    tolerance = TOLERANCES.get(degradation_name, TOLERANCE)
    torch.testing.assert_close(posterior.mean().flatten(1), truth.mean, rtol=0, atol=tolerance)
    basis = matrix_of(posterior.covariance.synthesis, SHAPE)
    variance = (basis.mT @ truth.covariance @ basis).diagonal(dim1=1, dim2=2).reshape(-1, *SHAPE)
    if posterior.covariance.multiplicity > 1:
        variance = variance.mean(1, keepdim=True)
    torch.testing.assert_close(posterior.coefficient_std(), variance.sqrt(), rtol=1e-5, atol=tolerance)
    assert posterior.std().shape == (2, *SHAPE)
    average = truth.covariance.diagonal(dim1=1, dim2=2).mean(dim=1)  # of a pixel, whatever the basis
    torch.testing.assert_close(posterior.std().square().mean(dim=(1, 2, 3)), average, rtol=1e-5, atol=tolerance)
    if posterior.covariance.basis == "spatial" and posterior.covariance.multiplicity == 1:
        exact_std = truth.covariance.diagonal(dim1=1, dim2=2).sqrt().reshape(-1, *SHAPE)
        torch.testing.assert_close(posterior.std(), exact_std, rtol=1e-5, atol=tolerance)
    torch.testing.assert_close(posterior.evidence(), evidence, rtol=0, atol=2 * tolerance)


@pytest.mark.parametrize("degradation_name", ["mask", "half-bottom", "super-resolution-3"])
@pytest.mark.parametrize("top", [1.0, 10.0, 1e3])
def test_the_error_of_a_fill_at_the_mean_is_within_its_bound(degradation_name: str, top: float) -> None:
    """log p(raw) moves by at most max(E[‖x−m‖²|raw], tr C)/(2λ_max) over what was not measured."""
    posterior, law, degradation = setting(degradation_name, "mixture", VarianceRange(1e-6, top))
    truth, evidence = exact(posterior, law, degradation)
    missing = (~posterior.measurement.measured).expand(1, *SHAPE).flatten()
    basis = matrix_of(posterior.covariance.synthesis, SHAPE)[:, missing]
    shift = (truth.mean - law.mean) @ basis
    spread = (basis.mT @ truth.covariance @ basis).diagonal(dim1=1, dim2=2)
    prior = (basis.mT @ law.covariance[0] @ basis).diagonal().sum()
    bound = torch.maximum((shift.square() + spread).sum(1), prior) / (2 * top)
    error = (posterior.evidence() - evidence).abs()
    assert bool((error <= bound).all())
    assert bool((error > 1e-9).all())


def test_evidence_counts_what_a_gain_does_to_densities() -> None:
    """U alone is not the likelihood: the widths of a blur are told apart only with Σ log h̃ (mathematics §8)."""
    posterior, law, degradation = setting("gaussian-periodic", "mixture")
    _, evidence = exact(posterior, law, degradation)
    assert float((posterior.evidence() - evidence).abs().max()) < TOLERANCE
    assert float((-posterior.evaluate().energy - evidence).abs().min()) > 1


@energies
def test_evidence_of_lifted_data_is_that_of_the_data_with_the_noise(energy_name: str) -> None:
    """λ < λ_min: the density of data to which N(0, λ_min − λ) was added."""
    limits = VarianceRange(1e-2, 1e7)
    posterior, law, _ = setting("denoising", energy_name, limits)
    lifted = posterior.lift(keyed_generator("lift"), random_fill=False)  # the reproducible lift that Posterior uses
    noisy = law.through(torch.eye(DIM, dtype=torch.float64), 1e-2 * torch.eye(DIM, dtype=torch.float64))
    torch.testing.assert_close(posterior.evidence(), noisy.log_density(lifted.y), rtol=0, atol=1e-8)


# --- log p(x|y) -------------------------------------------------------------------------------------------------------------------


def at_the_floor(law: Law, limits: VarianceRange) -> Law:
    """x + N(0, λ_min): what `log_prob` is a density of."""
    return law.through(torch.eye(DIM, dtype=torch.float64), limits.minimum * torch.eye(DIM, dtype=torch.float64))


FLOORS = {"narrow": VarianceRange(1e-3, 1e3), "wide": VarianceRange(1e-6, 1e3)}


@degradations
@energies
@pytest.mark.parametrize("limits", FLOORS.values(), ids=FLOORS)
def test_log_prob_is_the_exact_density_of_the_image_at_the_floor(
    degradation_name: str, energy_name: str, limits: VarianceRange
) -> None:
    """y = x' + N(0, Σ − λ_min) with x' = x + N(0, λ_min): the density of x' given the lifted y."""
    posterior, law, _ = setting(degradation_name, energy_name, limits)
    x = image(seed=1)
    lifted = posterior.lift(keyed_generator("lift"), random_fill=False)
    noise = (lifted.cov - lifted.cov.isotropic(limits.minimum)).dense()[0]
    truth = at_the_floor(law, limits).posterior(lifted.y, torch.eye(DIM, dtype=torch.float64), noise)
    torch.testing.assert_close(posterior.log_prob(x), truth.log_density(x), rtol=1e-8, atol=1e-6)


@degradations
@energies
def test_log_prob_equals_the_naive_formula(degradation_name: str, energy_name: str) -> None:
    """−U(x, Σ_min) + log N(y; x, Σ − Σ_min) + U(y, Σ), which cancels at large λ but is right."""
    limits = FLOORS["narrow"]
    posterior, _, _ = setting(degradation_name, energy_name, limits)
    x, lifted = image(seed=1), posterior.lift(keyed_generator("lift"), random_fill=False)
    floor = lifted.cov.isotropic(limits.minimum)
    step = lifted.cov - floor
    likelihood = -0.5 * (step.mahalanobis(lifted.y - x) + step.logdet() + DIM * math.log(2 * math.pi))
    naive = -posterior.energy(x, floor) + likelihood + posterior.energy(lifted.y, lifted.cov)
    torch.testing.assert_close(posterior.log_prob(x), naive, rtol=1e-8, atol=1e-6)


def pinned_law(law: Law, cov: Covariance, y: Tensor, limits: VarianceRange) -> tuple[Law, Tensor]:
    """The law of the free coefficients of x' given y, where those at λ_min are known exactly, and which they are."""
    basis = matrix_of(cov.synthesis, SHAPE)
    coefficients = at_the_floor(law, limits).through(basis.mT, torch.zeros(DIM, DIM, dtype=torch.float64))
    excess = (cov.full(cov.variance)[0].flatten() - limits.minimum).clamp_min(0)
    free = excess > 1e-4 * limits.minimum
    noise = torch.diag(torch.where(free, excess, 0.0))
    truth = coefficients.posterior(y.flatten(1) @ basis, torch.eye(DIM, dtype=torch.float64), noise)
    return truth.coordinates(free), free


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    "degradation_name", ["mask", "box", "gaussian-periodic", "gaussian-reflecting", "super-resolution-2"]
)
@energies
def test_coefficients_at_the_floor_leave_the_density(
    degradation_name: str, energy_name: str, dtype: torch.dtype
) -> None:
    """σ² < λ_min pins what was measured; the density is of the other coefficients, given those."""
    limits = VarianceRange(1e-3, 1e3)
    degradation = DEGRADATIONS[degradation_name](1e-2)
    measurement = degradation.measure(image().to(dtype), keyed_generator("posterior noise"))
    energy, law = energy_and_law(energy_name, measurement.template.to(torch.float64), limits)
    if energy_name == "diagonal-gaussian":
        energy.prior, energy.mean = energy.prior.to(dtype), energy.mean.to(dtype)  # type: ignore[attr-defined]
    posterior = Posterior(energy, measurement)
    lifted = posterior.lift(keyed_generator("lift"), random_fill=False)
    y = lifted.y.double()
    truth, free = pinned_law(law, lifted.cov.to(torch.float64), y, limits)
    assert 0 < int(free.sum()) < DIM
    cov = lifted.cov
    z = torch.where(
        free.reshape(SHAPE), cov.analysis(image(seed=1)), cov.analysis(y)
    )  # pinned coefficients agree with y
    expected = truth.log_density(z.flatten(1)[:, free])
    tolerance = 1e-6 if dtype == torch.float64 else 0.02
    actual = posterior.log_prob(cov.synthesis(z).to(dtype))
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


def levels_up_to(top: float, family: str, dtype: torch.dtype) -> Covariance:
    """λ from under 1e-3 to `top`, geometric, of 28×28 images."""
    log_variance = torch.linspace(math.log(1e-4), math.log(top), 784, dtype=torch.float64)
    return COVARIANCES[family](log_variance.reshape(1, 1, 28, 28).to(dtype), 1)


@pytest.mark.parametrize("top", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("family", COVARIANCES)
@pytest.mark.parametrize("kind", ["diagonal-gaussian", "scale-mixture"])
def test_densities_are_accurate_in_float32(kind: str, family: str, top: float) -> None:
    """To 1e-3 nats of 784 dimensions, of the same y, as noisy as it can be, against float64."""
    generator, limits = keyed_generator("float32", family), VarianceRange(1e-6, 1e3)
    wide = levels_up_to(top, family, torch.float32)
    found = {}
    x = torch.rand(3, 1, 28, 28, generator=generator)
    y = (x + wide.sample_noise(generator, batch=3)).contiguous()
    for dtype in (torch.float32, torch.float64):
        cov = wide.to(dtype)
        if kind == "scale-mixture":
            energy: Energy = GaussianScaleMixture(
                torch.tensor([0.3, 0.7]), torch.tensor([0.05, 0.6]), (1, 28, 28), limits
            )
        else:
            energy = DiagonalGaussian(cov.isotropic(0.1), torch.full((1, 28, 28), 0.4, dtype=dtype), limits)
        found[dtype] = Posterior(energy, ColouredNoise(wide).encode(y).to(dtype)).log_prob(x.to(dtype))
    assert float(found[torch.float64].abs().min()) > 10
    torch.testing.assert_close(found[torch.float32], found[torch.float64], rtol=0, atol=1e-3)


def test_a_wholly_pinned_posterior_has_nothing_left_to_say() -> None:
    """Denoising with σ² ≤ λ_min: x = y, and the density of no coefficient at all is 1."""
    posterior, _, _ = setting("denoising", "mixture", VarianceRange(1e-2, 1e3))
    y = posterior.lift(keyed_generator("lift"), random_fill=False).y
    torch.testing.assert_close(posterior.log_prob(y), torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-9)


# --- normalisation, by quadrature: nothing here knows how the density was computed -----------------------------------------------


def two_pixels(limits: VarianceRange) -> GaussianMixture:
    """Three correlated bumps in the plane."""
    means = torch.tensor([[0.2, 0.9], [0.8, 0.1], [0.5, 0.6]], dtype=torch.float64)
    spread = torch.tensor([[[0.02, 0.01], [0.01, 0.05]], [[0.04, -0.02], [-0.02, 0.03]], [[0.1, 0.0], [0.0, 0.01]]])
    return GaussianMixture(torch.tensor([0.5, 0.3, 0.2]), means, spread.double(), (1, 1, 2), limits)


def plane(centre: float, reach: float, n: int = 201) -> tuple[Tensor, float]:
    """Images [n², 1, 1, 2] on a square grid, and the area of a cell; smooth densities that vanish at its edge sum up exactly."""
    axis = torch.linspace(centre - reach, centre + reach, n, dtype=torch.float64)
    return torch.cartesian_prod(axis, axis).reshape(-1, 1, 1, 2), float(axis[1] - axis[0]) ** 2


@pytest.mark.parametrize("family", ["spatial", "fourier", "dct"])
@pytest.mark.parametrize("variances", [(0.05, 0.3), (0.02, 1e3)], ids=["both measured", "one hidden"])
def test_the_posterior_density_integrates_to_one(family: str, variances: tuple[float, float]) -> None:
    energy = two_pixels(VarianceRange(1e-3, 1e3))
    cov = COVARIANCES[family](torch.tensor(variances, dtype=torch.float64).log().reshape(1, 1, 1, 2), 1)
    measurement = ColouredNoise(cov).encode(torch.tensor([0.9, 0.4], dtype=torch.float64).reshape(1, 1, 1, 2))
    x, cell = plane(0.5, 4.0)
    density = Posterior(energy, measurement).log_prob(x).exp()
    assert float(density.sum()) * cell == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("family", ["spatial", "fourier"])
def test_the_density_of_what_is_not_pinned_integrates_to_one(family: str) -> None:
    """Along the line on which the pinned coefficient is that of y."""
    energy = two_pixels(VarianceRange(1e-3, 1e3))
    cov = COVARIANCES[family](torch.tensor([1e-4, 0.5], dtype=torch.float64).log().reshape(1, 1, 1, 2), 1)
    posterior = Posterior(energy, ColouredNoise(cov).encode(torch.full((1, 1, 1, 2), 0.4, dtype=torch.float64)))
    z = cov.analysis(posterior.lift(keyed_generator("lift"), random_fill=False).y).expand(2001, -1, -1, -1).clone()
    z[:, 0, 0, 1] = torch.linspace(-6, 6, 2001, dtype=torch.float64)
    assert float(posterior.log_prob(cov.synthesis(z)).exp().sum()) * 12 / 2000 == pytest.approx(1, abs=1e-9)


def measured_plane(name: str) -> tuple[Degradation, Tensor, float]:
    """A degradation of two pixels and all raw data that it may give, with the size of a cell."""
    if name == "mask":
        raw = torch.zeros(3001, 1, 1, 2, dtype=torch.float64)
        raw[:, 0, 0, 0] = torch.linspace(-5, 6, 3001, dtype=torch.float64)
        return Inpainting(torch.tensor([[True, False]]), 0.2), raw, 11 / 3000
    boundary = "periodic" if name == "blur" else "reflecting"
    kernel = torch.tensor([[0.6, 0.4]] if name == "blur" else [[0.2, 0.6, 0.2]], dtype=torch.float64)
    return Blur(kernel, 0.2, boundary), *plane(0.5, 4.0)


@pytest.mark.parametrize("name", ["blur", "reflecting blur", "mask"])
def test_the_evidence_integrates_to_one_over_all_raw_data(name: str) -> None:
    """With the gain of a blur, and without what was filled in; a fill at the mean costs C/(2λ_max) of it."""
    degradation, raw, cell = measured_plane(name)
    energy = two_pixels(VarianceRange(1e-3, 1e5))
    evidence = Posterior(energy, degradation.encode(raw)).evidence()
    assert float(evidence.exp().sum()) * cell == pytest.approx(1, abs=1e-6)


def test_floor_noise_is_added_alike_and_reproducibly() -> None:
    posterior, _, _ = setting("mask", "mixture", FLOORS["narrow"])
    x = image(seed=1)
    clean, noisy = posterior.log_prob(x), posterior.log_prob(x, floor_noise=True)
    assert torch.equal(noisy, posterior.log_prob(x, floor_noise=True))
    assert bool((clean != noisy).all())
    generator = keyed_generator("mine")
    by_hand = x + math.sqrt(1e-3) * torch.randn(x.shape, generator=generator, dtype=torch.float64)
    again = posterior.log_prob(x, floor_noise=True, generator=keyed_generator("mine"))
    torch.testing.assert_close(posterior.log_prob(by_hand), again)


def test_truth_and_a_posterior_sample_are_equally_probable() -> None:
    """Under the model the truth is one more posterior sample: the ranks of its density are uniform (a binomial here).

    The truth at the floor is drawn so that y = x' + N(0, Σ − λ_min); samples of x' come from the exact posterior.
    """
    limits, n = VarianceRange(1e-3, 1e3), 400
    template = Denoising(0.2).measure(image(1)).template
    energy, law = energy_and_law("mixture", template, limits)
    generator = keyed_generator("ranks")
    floor = template.isotropic(limits.minimum)
    step = template.isotropic(0.04 - limits.minimum)
    truth = energy.sample(n, generator) + floor.sample_noise(generator, batch=n)  # type: ignore[attr-defined]
    y = truth + step.sample_noise(generator, batch=n)
    eye = torch.eye(DIM, dtype=torch.float64)
    exact_law = at_the_floor(law, limits).posterior(y, eye, step.dense()[0])
    choice = torch.multinomial(exact_law.log_weights.exp(), 1, generator=generator)[:, 0]
    roots = torch.linalg.cholesky(exact_law.covariances)[choice]
    white = torch.randn(n, DIM, generator=generator, dtype=torch.float64)
    sample = exact_law.means[torch.arange(n), choice] + (roots @ white[..., None])[..., 0]
    posterior = Posterior(energy, Denoising(0.2).encode(y))
    wins = int((posterior.log_prob(truth) > posterior.log_prob(sample.reshape(-1, *SHAPE))).sum())
    assert abs(wins - n / 2) < 5.5 * math.sqrt(n) / 2


def test_units() -> None:
    posterior, _, _ = setting("mask", "mixture", FLOORS["narrow"])
    x = image(seed=1)
    nats = posterior.log_prob(x)
    torch.testing.assert_close(posterior.log_prob(x, unit="bits/dim"), -nats / math.log(2) / DIM)
    torch.testing.assert_close(posterior.log_prob(x, unit="dB/dim"), 10 * nats / math.log(10) / DIM)
    with pytest.raises(ValueError, match=r"'dB'.*nats"):
        posterior.log_prob(x, unit="dB")


# --- the Gaussian part ------------------------------------------------------------------------------------------------------------


@energies
@degradations
def test_residual_is_what_a_gaussian_does_not_explain(energy_name: str, degradation_name: str) -> None:
    """U_G is the energy of N(m, C + Σ) with the data's moments in the basis; R = U − U_G, 0 for a Gaussian diagonal there."""
    posterior, law, _ = setting(degradation_name, energy_name, FLOORS["narrow"])
    lifted = posterior.lift(keyed_generator("lift"))
    basis = matrix_of(lifted.cov.synthesis, SHAPE)
    variance = (basis.mT @ law.covariance[0] @ basis).diagonal() + lifted.cov.full(lifted.cov.variance)[0].flatten()
    z = (lifted.y.flatten(1) - law.mean) @ basis
    expected = 0.5 * (z.square() / variance + variance.log() + math.log(2 * math.pi)).sum(1)
    torch.testing.assert_close(gaussian_energy(posterior.energy, lifted.y, lifted.cov), expected, rtol=1e-9, atol=0)
    rest = residual(posterior.energy, lifted.y, lifted.cov)
    torch.testing.assert_close(rest, posterior.energy(lifted.y, lifted.cov) - expected, rtol=0, atol=1e-6)
    if energy_name == "diagonal-gaussian":
        assert float(rest.abs().max()) < 1e-6


# --- fills and lifts --------------------------------------------------------------------------------------------------------------


def test_every_lift_has_a_fresh_fill() -> None:
    posterior, _, _ = setting("box", "mixture")
    hidden = (~posterior.measurement.measured).expand_as(posterior.measurement.coefficients)
    generator = keyed_generator("fills")
    a, b = (posterior.lift(generator).y for _ in range(2))
    assert bool((a[hidden] != b[hidden]).all())
    assert torch.equal(a[~hidden], b[~hidden])


def test_one_fixed_fill_moves_the_mean_by_little() -> None:
    """E[x|y] at a filled pixel moves by C/√(C+λ_max), a share of about √(C/λ_max) of the prior's standard deviation."""
    n, limits = 2000, VarianceRange(1e-6, 1e3)
    measurement = Box(3, SIGMA).measure(image(1), keyed_generator("v"))
    energy, _ = energy_and_law("diagonal-gaussian", measurement.template, limits)
    lifted = Posterior(energy, measurement.repeat_interleave(n)).lift(keyed_generator("fill"))
    hidden = (~measurement.measured).expand(1, *SHAPE)[0]
    mean, variance = (t.expand(1, *SHAPE)[0][hidden] for t in energy.gaussian(measurement.template))
    shift = evaluate(energy, lifted.y, lifted.cov).mean[:, hidden] - mean
    statistic = (shift.square() * (variance + limits.maximum) / variance.square()).sum(0)
    assert float(statistic.min()) > chi2.ppf(1e-6 / len(statistic), n)
    assert float(statistic.max()) < chi2.isf(1e-6 / len(statistic), n)
    assert float((shift.std(0) / (variance / limits.maximum).sqrt() / variance.sqrt() - 1).abs().max()) < 0.2


def test_answers_are_the_same_every_time() -> None:
    for limits in (WIDE, VarianceRange(1e-2, 1e3)):
        a, b = (setting("motion", "mixture", limits)[0] for _ in range(2))
        assert torch.equal(a.mean(), b.mean())
        assert torch.equal(a.evidence(), b.evidence())
        assert torch.equal(a.log_prob(image(seed=1)), b.log_prob(image(seed=1)))


@pytest.mark.parametrize("name", ["gaussian-periodic", "super-resolution-2"])
def test_the_mean_of_samples_is_exact_and_spreads_less_than_they_do(name: str) -> None:
    posterior, _, _ = setting(name, "scale-mixture", VarianceRange(1e-6, 1e3))
    drawn = posterior.draw(300, 60, generator=keyed_generator(0))
    assert drawn.average is not None
    mine, theirs = (part.unflatten(0, (300, -1)) for part in (drawn.average, drawn.samples))
    spread = [float(part.var(0).mean()) for part in (mine, theirs)]
    assert 0 < spread[0] < 0.9 * spread[1]
    error = mine.mean(0) - posterior.mean()
    # each pixel's mean of 300 has its own standard error; some 100 pixels at 1e-4 in all: 4.9 of them, and 3 % of std for the path
    assert bool((error.abs() < 4.9 * mine.std(0) / math.sqrt(300) + 0.03 * theirs.std(0)).all())
    again = posterior.mean(300, 60, generator=keyed_generator(0))
    assert torch.equal(again, mine.mean(0))


def test_of_masked_pictures_one_evaluation_is_the_mean() -> None:
    posterior, _, _ = setting("mask", "scale-mixture", WIDE)
    torch.testing.assert_close(posterior.mean(2, 4), posterior.mean(), atol=2e-3, rtol=0)  # a fill moves it by C/√10⁷


def test_each_of_a_batch_is_answered_for_itself() -> None:
    for name in ("mask", "gaussian-periodic", "super-resolution-2"):
        posterior, _, _ = setting(name, "mixture")
        alone = Posterior(posterior.energy, posterior.measurement[1:])
        torch.testing.assert_close(posterior.mean()[1:], alone.mean())
        torch.testing.assert_close(posterior.evidence()[1:], alone.evidence())


@pytest.mark.parametrize("name", ["mask", "gaussian-periodic", "gaussian-reflecting", "super-resolution-2"])
def test_float32_measurements_are_answered_to_float32(name: str) -> None:
    limits = VarianceRange(1e-6, 1e3)
    degradation, measurement = measured(name)
    single = degradation.encode(measurement.raw.float())
    energy, _ = energy_and_law("mixture", measurement.template, limits)
    a, b = Posterior(energy, measurement), Posterior(energy, single)
    assert b.mean().dtype == torch.float32
    torch.testing.assert_close(b.mean().double(), a.mean(), rtol=0, atol=1e-4)
    torch.testing.assert_close(b.evidence(), a.evidence(), rtol=0, atol=5e-3)


# --- what is refused ----------------------------------------------------------------------------------------------------------------


def test_images_of_another_size_are_refused() -> None:
    _, measurement = measured("mask")
    energy, _ = energy_and_law("scale-mixture", SuperResolution(2).encode(torch.zeros(1, 1, 4, 4).double()).template)
    with pytest.raises(ValueError, match="measurement is of 2×6×6 images; the model takes 1×8×8"):
        Posterior(energy, measurement)
    posterior, _, _ = setting("mask", "mixture")
    with pytest.raises(ValueError, match="image has shape"):
        posterior.log_prob(torch.zeros(2, 2, 6, 5).double())


def test_an_energy_that_does_not_know_the_basis_warns() -> None:
    degradation = HalfMask("top", 2, SIGMA)
    measurement = degradation.measure(image(), keyed_generator("v"))
    limits = VarianceRange(1e-6, 1e3, ("fourier",))
    energy, _ = energy_and_law("mixture", measurement.template, limits)
    with pytest.warns(UserWarning, match="a spatial covariance; the energy knows fourier"):
        Posterior(energy, measurement).mean()


def test_the_energy_of_a_posterior_is_any_energy() -> None:
    """Only the protocol is asked for: a function with `range`, `shape` and `gaussian` will do."""

    class Unit:
        range, shape = VarianceRange(1e-6, 1e3), SHAPE

        def __call__(self, y: Tensor, cov: Covariance) -> Tensor:
            total = cov + 1.0
            return 0.5 * (total.mahalanobis(y) + total.logdet() + DIM * math.log(2 * math.pi))

        def gaussian(self, cov: Covariance) -> tuple[Tensor, Tensor]:
            return torch.zeros(1, 1, 1, 1).double(), torch.ones(1, 1, 1, 1).double()

    energy: Energy = Unit()
    _, measurement = measured("denoising")
    mean = Posterior(energy, measurement).mean()
    torch.testing.assert_close(mean, measurement.raw / (1 + SIGMA**2))


@pytest.fixture(scope="module")
def network() -> LearnedEnergy:
    return tiny_energy((1, 8, 8)).float()


def test_a_network_takes_arrays_lists_and_every_precision(network: LearnedEnergy) -> None:
    """It answers in the precision of its weights, the same to float32."""
    raw = torch.rand(1, 1, 8, 8, generator=keyed_generator("raw"), dtype=torch.float64)
    x = torch.rand(1, 1, 8, 8, generator=keyed_generator("x"), dtype=torch.float64)
    wanted = Posterior(network, Denoising(0.3).from_raw(raw.float()))
    turned = raw.transpose(2, 3).contiguous().transpose(2, 3)
    for given in (raw, raw.numpy(), raw.tolist(), turned, raw.numpy()[:, :, ::-1][:, :, ::-1]):
        posterior = Posterior(network, Denoising(0.3).from_raw(given))
        assert posterior.mean().dtype == torch.float32
        torch.testing.assert_close(posterior.mean(), wanted.mean())
    for given in (x, x.numpy(), x.tolist(), x.float(), x.transpose(2, 3).contiguous().transpose(2, 3)):
        torch.testing.assert_close(wanted.log_prob(given), wanted.log_prob(x.float()), rtol=1e-6, atol=1e-3)
    coarse = wanted.log_prob(x.half())
    torch.testing.assert_close(coarse, wanted.log_prob(x.half().float()))
    samples = wanted.sample(2, 3, finish="floor", generator=keyed_generator("s"))
    ranked, _ = wanted.rank(samples.double().numpy())
    torch.testing.assert_close(ranked.float().sort(dim=0).values, samples.sort(dim=0).values)


def test_what_is_no_image_has_no_density(network: LearnedEnergy) -> None:
    posterior = Posterior(network, Denoising(0.3).from_raw(torch.rand(1, 1, 8, 8)))
    x = torch.rand(1, 1, 8, 8)
    spoiled = x.clone()
    spoiled[0, 0, 2, 3] = math.nan
    refused: list[tuple[object, type[Exception], str]] = [
        (None, TypeError, "image is None; give a tensor, a numpy array"),
        ("x", TypeError, "image is a str"),
        ((x * 255).to(torch.uint8), ValueError, "dtype uint8.*divide 8-bit values by 255"),
        (x[:0], ValueError, "there is nothing in it"),
        (spoiled, ValueError, "1 NaN or infinite"),
        (x.expand(1, 3, -1, -1), ValueError, r"image has shape \(1, 3, 8, 8\)"),
        (x[0], ValueError, "image has shape"),
    ]
    for given, error, message in refused:
        with pytest.raises(error, match=message):
            posterior.log_prob(given)  # type: ignore[arg-type]
        if isinstance(given, Tensor) and given.ndim == 4:
            with pytest.raises(ValueError, match=r"samples ha|image has shape"):
                posterior.rank(given[None])


def test_what_is_no_measurement_has_no_posterior(network: LearnedEnergy) -> None:
    for given in (None, torch.rand(1, 1, 8, 8)):
        with pytest.raises(TypeError, match=r"measurement is a .*; make one by a degradation, e.g. lv.Denoising"):
            Posterior(network, given)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="measurement is of 3×8×8 images; the model takes 1×8×8"):
        Posterior(network, Denoising(0.3).from_raw(torch.rand(1, 3, 8, 8)))


def test_what_is_printed_of_a_posterior_is_short(network: LearnedEnergy) -> None:
    found = repr(Posterior(network, Denoising(0.3).from_raw(torch.rand(2, 1, 8, 8))))
    assert (
        found == "Posterior(LearnedEnergy, Measurement(2 of 1×8×8 in the spatial basis, 100 % measured, noise std 0.3))"
    )


def test_the_energy_of_the_measurement_is_evaluated_once() -> None:
    """Mean, spread, evidence and densities share it."""

    class Counted(GaussianMixture):
        calls = 0

        def _solve(self, y: Tensor, cov: Covariance):  # type: ignore[no-untyped-def]
            Counted.calls += 1
            return super()._solve(y, cov)

    plain, _, _ = setting("mask", "mixture", FLOORS["narrow"])
    mixture = plain.energy
    energy = Counted(mixture.log_weights.exp(), mixture.means, mixture.covariances, SHAPE, FLOORS["narrow"])  # type: ignore[attr-defined]
    posterior = Posterior(energy, plain.measurement)
    posterior.mean(), posterior.std(), posterior.coefficient_std(), posterior.evidence()
    assert Counted.calls == 1
    posterior.log_prob(image(seed=1)), posterior.log_prob(image(seed=2))
    assert Counted.calls == 3  # one more for each x


@pytest.mark.parametrize(("variance", "warns"), [(0.02, False), (0.0005, True)])
def test_a_model_that_is_not_calibrated_for_the_noise_says_so(variance: float, warns: bool) -> None:
    """Held-out pictures of variance 0.02, carried by a prior that knows it, and by one that is far too sure."""
    shape = (1, 8, 8)
    pictures = 0.5 + math.sqrt(0.02) * torch.randn(40, *shape, generator=keyed_generator("carried"))
    prior = identity("spatial", shape).isotropic(variance)
    energy: Any = DiagonalGaussian(prior, torch.full(shape, 0.5), VarianceRange(1e-6, 1e3))
    energy.attachments = {REFERENCE: References((pictures.clamp(0, 1) * 255).round().to(torch.uint8)).encode()}
    measurement = Denoising(0.1).measure(pictures[:1].clamp(0, 1), keyed_generator("measured"))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        Posterior(energy, measurement, check=False).std()
        assert not said
        posterior = Posterior(energy, measurement)
        posterior.std()
        posterior.mean()
    assert [("not calibrated" in str(one.message)) for one in said] == [True] * warns

"""Every energy against the dense mixture it claims to be: its value, its derivatives, its moments and its samples."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from scipy.stats import kstest
from torch import Tensor

from conftest import COVARIANCES, ENERGIES, Shape, energy_and_law, plain_evaluate, random_covariance
from linverse.analytic import DiagonalGaussian, GaussianMixture, GaussianScaleMixture
from linverse.covariance import Covariance, FourierCovariance, SpatialCovariance, VarianceRange
from linverse.energy import Energy, Evaluation, evaluate
from linverse.rng import keyed_generator
from oracles import Law, matrix_of, z_threshold

SHAPE: Shape = (2, 2, 6)
ALARM = 1e-6
energies = pytest.mark.parametrize("name", ENERGIES)
families = pytest.mark.parametrize("family", COVARIANCES)
sharing = pytest.mark.parametrize("shared", [False, True], ids=["per-channel", "shared"])


def graph_evaluate(energy: Energy, y: Tensor, cov: Covariance) -> Evaluation:
    return evaluate(energy, y, cov, create_graph=True)


# the energy's own forms (if it has any), the ones that training differentiates, and plain automatic differentiation
evaluations = pytest.mark.parametrize("evaluation", [evaluate, graph_evaluate, plain_evaluate])
Evaluate = Callable[[Energy, Tensor, Covariance], Evaluation]


def setting(name: str, family: str, shared: bool = False, batch: int = 3) -> tuple[Energy, Law, Tensor, Covariance]:
    cov = random_covariance(family, SHAPE, batch=batch, shared=shared)
    energy, law = energy_and_law(name, cov)
    y = torch.randn(batch, *SHAPE, generator=keyed_generator("y"), dtype=torch.float64)
    return energy, law, y, cov


def exact_posterior(law: Law, y: Tensor, cov: Covariance) -> tuple[Tensor, Tensor]:
    """Mean and covariance of x given y in Σ's eigenbasis, [B, d] and [B, d, d], sample by sample."""
    basis = matrix_of(cov.synthesis, (cov.channels, *cov.size))
    eye = torch.eye(cov.dim, dtype=torch.float64)
    laws = [law.posterior(y[i : i + 1], eye, cov[[i]].dense()[0]) for i in range(len(y))]
    means = torch.cat([each.mean for each in laws])
    return means @ basis, basis.mT @ torch.cat([each.covariance for each in laws]) @ basis


def over_channels(values: Tensor, cov: Covariance) -> Tensor:
    """[B, d] → log λ's shape, by the mean over the channels that share an entry."""
    full = values.reshape(-1, cov.channels, *cov.size)
    return full.mean(1, keepdim=True) if cov.multiplicity > 1 else full


def close(actual: Tensor, expected: Tensor, rtol: float = 1e-9, atol: float = 1e-9) -> None:
    torch.testing.assert_close(actual.detach(), expected, rtol=rtol, atol=atol)


# --- values ------------------------------------------------------------------------------------------------------------------


@energies
@families
@sharing
def test_energy_is_the_exact_density(name: str, family: str, shared: bool) -> None:
    energy, law, y, cov = setting(name, family, shared)
    eye = torch.eye(cov.dim, dtype=torch.float64)
    exact = [law.through(eye, cov[[i]].dense()[0]).log_density(y[i : i + 1]) for i in range(3)]
    u = energy(y, cov)
    assert u.dtype == torch.float64
    close(u, -torch.cat(exact))
    assert energy.shape == SHAPE


@energies
@families
def test_float32_energies_are_float64_sums(name: str, family: str) -> None:
    energy, _, y, cov = setting(name, family)
    u = energy(y.float(), cov.to(torch.float32))
    assert u.dtype == torch.float64
    close(u, energy(y, cov), rtol=1e-5, atol=1e-5)


@energies
@families
def test_gaussian_holds_the_moments_of_the_data_in_the_basis(name: str, family: str) -> None:
    energy, law, _, cov = setting(name, family)
    basis = matrix_of(cov.synthesis, SHAPE)
    mean, variance = (t.expand(1, *SHAPE).flatten() for t in energy.gaussian(cov))
    close(mean, (law.mean @ basis)[0])
    close(variance, (basis.mT @ law.covariance[0] @ basis).diagonal())


@pytest.mark.parametrize("size", [(1, 1), (1, 2)])
@energies
@families
def test_energies_are_normalised(name: str, family: str, size: tuple[int, int]) -> None:
    """∫exp(−U) dy = 1 by quadrature in one and two dimensions (the trapezoidal rule converges geometrically here)."""
    cov = random_covariance(family, (1, *size), batch=1, spread=0.5)
    energy, _ = energy_and_law(name, cov)
    axis = torch.linspace(-12, 12, 481, dtype=torch.float64)
    step = float(axis[1] - axis[0])
    points = torch.cartesian_prod(*[axis] * cov.dim).reshape(-1, 1, *size)
    density = torch.exp(-energy(points, cov.expand(len(points))))
    assert abs(float(density.sum()) * step**cov.dim - 1) < 1e-9


# --- derivatives ---------------------------------------------------------------------------------------------------------------


@energies
@families
@sharing
def test_heat_equation(name: str, family: str, shared: bool) -> None:
    """∂U/∂λ_i = ½(∂_iiU − (∂_iU)²); an entry that serves several channels has the sum over them."""
    energy, _, y, cov = setting(name, family, shared, batch=1)

    def u(z: Tensor) -> Tensor:
        return energy(cov.synthesis(z.reshape(y.shape)), cov).sum()

    z = cov.analysis(y).flatten()
    gradient = torch.autograd.functional.jacobian(u, z)
    curvature = torch.autograd.functional.hessian(u, z, vectorize=True).diagonal()
    leaf = cov.log_variance.clone().requires_grad_()
    (kappa,) = torch.autograd.grad(energy(y, cov.with_log_variance(leaf)).sum(), leaf)
    close(kappa / cov.variance / cov.multiplicity, over_channels(0.5 * (curvature - gradient**2)[None], cov))


@energies
@families
@sharing
@evaluations
def test_tweedie_covariance_score_and_variance(name: str, family: str, shared: bool, evaluation: Evaluate) -> None:
    """E[x|y], κ = E[½(1 − ε²)|y] and Var[x_i|y] against the dense posterior."""
    energy, law, y, cov = setting(name, family, shared)
    result = evaluation(energy, y, cov)
    mean, covariance = exact_posterior(law, y, cov)
    variance = covariance.diagonal(dim1=1, dim2=2)
    squares = (cov.analysis(y).flatten(1) - mean).square() + variance
    exact_kappa = 0.5 * (1 - squares / cov.full(cov.variance).flatten(1))
    close(result.energy, energy(y, cov))
    close(cov.analysis(result.mean.detach()).flatten(1), mean)
    close(result.score, cov.solve(y - result.mean.detach()))
    close(result.cov_score, over_channels(exact_kappa, cov))
    close(result.variance, over_channels(variance, cov))


@energies
@families
def test_shared_channels_sum_their_derivatives(name: str, family: str) -> None:
    energy, _, y, shared = setting(name, family, shared=True)

    def gradient(log_variance: Tensor) -> Tensor:
        leaf = log_variance.detach().clone().requires_grad_()
        return torch.autograd.grad(energy(y, shared.with_log_variance(leaf)).sum(), leaf)[0]

    full = gradient(shared.full(shared.log_variance))
    close(gradient(shared.log_variance), full.sum(1, keepdim=True))
    close(evaluate(energy, y, shared).cov_score, full.mean(1, keepdim=True))


@energies
@pytest.mark.parametrize("family", ["spatial", "fourier"])
def test_an_evaluation_can_be_differentiated_again(name: str, family: str) -> None:
    """With create_graph the scores, the mean and the variance have gradients in y and in log λ (training)."""
    energy, _, y, cov = setting(name, family, shared=True, batch=2)

    def outputs(y: Tensor, log_variance: Tensor) -> tuple[Tensor, ...]:
        result = evaluate(energy, y, cov.with_log_variance(log_variance), create_graph=True)
        return result.energy, result.score, result.cov_score, result.mean, result.variance

    leaves = (y.clone().requires_grad_(), cov.log_variance.clone().requires_grad_())
    assert torch.autograd.gradcheck(outputs, leaves, fast_mode=True, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("family", COVARIANCES)
def test_second_derivatives_of_a_gaussian(family: str) -> None:
    """∇⟨∇U, v⟩ = (S + Σ)⁻¹v."""
    energy, law, y, cov = setting("dense-gaussian", family, batch=1)
    leaf = y.clone().requires_grad_()
    v = torch.randn(y.shape, generator=keyed_generator("v"), dtype=torch.float64)
    score = evaluate(energy, leaf, cov, create_graph=True).score
    (product,) = torch.autograd.grad((score * v).sum(), leaf)
    close(product.flatten(), torch.linalg.solve(law.covariances[0] + cov.dense()[0], v.flatten()))


@energies
def test_without_a_graph_nothing_is_kept(name: str) -> None:
    energy, _, y, cov = setting(name, "spatial")
    leaf = cov.with_log_variance(cov.log_variance.clone().requires_grad_())
    leaf_y = y.clone().requires_grad_()
    result = evaluate(energy, leaf_y, leaf)
    assert not any(
        getattr(result, field).requires_grad for field in ("energy", "score", "cov_score", "mean", "variance")
    )
    assert leaf_y.grad is None
    assert leaf.log_variance.grad is None
    with torch.no_grad():
        close(evaluate(energy, y, cov).score, result.score)


@energies
@families
@pytest.mark.parametrize("evaluation", [evaluate, graph_evaluate])
def test_one_covariance_serves_a_batch_and_one_image_many_covariances(
    name: str, family: str, evaluation: Evaluate
) -> None:
    """Each pair has its own κ: derivatives are not added up over the batch."""
    energy, _, y, cov = setting(name, family)
    for few, many in [
        ((y, cov[:1]), (y, cov[:1].repeat_interleave(3))),
        ((y[:1], cov), (y[:1].repeat(3, 1, 1, 1), cov)),
    ]:
        a, b = evaluation(energy, *few), evaluation(energy, *many)
        for field in ("energy", "score", "cov_score", "mean", "variance"):
            close(getattr(a, field), getattr(b, field).detach())


@families
def test_expected_covariance_score_vanishes(family: str) -> None:
    """E_{p(y|Σ)}[κ_i] = 0 and κ ≤ ½."""
    n, cov = 3000, random_covariance(family, SHAPE, batch=1)
    energy, _ = energy_and_law("scale-mixture", cov)
    assert isinstance(energy, GaussianScaleMixture)
    generator = keyed_generator("kappa", family)
    y = energy.sample(n, generator) + cov.sample_noise(generator, batch=n)
    kappa = evaluate(energy, y, cov.expand(n)).cov_score.flatten(1)
    assert float(kappa.max()) <= 0.5
    z = kappa.mean(0) / (kappa.std(0) / math.sqrt(n))
    assert float(z.abs().max()) < 1.2 * z_threshold(cov.dim)  # skewed terms


def test_posterior_variance_may_exceed_the_noise() -> None:
    """Prior ±1, y = 0, λ = 0.1: the variance is 1 (mathematics §3)."""
    spread = torch.full((2, 1, 1), 1e-8, dtype=torch.float64)
    energy = GaussianMixture(torch.ones(2), torch.tensor([[1.0], [-1.0]]), spread, (1, 1, 1))
    cov = SpatialCovariance(torch.full((1, 1, 1, 1), math.log(0.1), dtype=torch.float64))
    y = torch.zeros(1, 1, 1, 1, dtype=torch.float64)
    for result in (evaluate(energy, y, cov), plain_evaluate(energy, y, cov)):
        assert float(result.variance) == pytest.approx(1.0, abs=1e-6)


# --- high dimensions -----------------------------------------------------------------------------------------------------------


@families
@pytest.mark.parametrize("variance", [1e-9, 1e-3, 1.0, 1e3])
def test_scale_mixture_is_stable_in_a_thousand_dimensions(family: str, variance: float) -> None:
    """The paper's d = 1000: densities of e^±10000 and no overflow, by the radial formula in plain Python."""
    shape: Shape = (1, 25, 40)
    weights, scales = torch.tensor([0.2, 0.3, 0.5]), torch.tensor([1e-4, 1.0, 1e2])
    energy = GaussianScaleMixture(weights, scales, shape)
    cov = COVARIANCES[family](torch.full((1, 1, *shape[1:]), math.log(variance), dtype=torch.float64), 1)
    y = energy.sample(5, keyed_generator("thousand"))
    for i, radius in enumerate(y.square().flatten(1).sum(1).tolist()):
        exponents = [
            math.log(w) - 0.5 * (radius / (s + variance) + 1000 * math.log(2 * math.pi * (s + variance)))
            for w, s in zip((0.2, 0.3, 0.5), scales.double().tolist(), strict=True)
        ]
        top = max(exponents)
        exact = -top - math.log(sum(math.exp(e - top) for e in exponents))
        assert float(energy(y[i : i + 1], cov)) == pytest.approx(exact, rel=1e-6)
    result = evaluate(energy, y, cov.expand(5))
    for field in ("energy", "score", "cov_score", "mean", "variance"):
        assert bool(torch.isfinite(getattr(result, field)).all())


@families
def test_mutual_information_of_a_gaussian(family: str) -> None:
    """I(x;y) = E[U] − ½ log det(2πeΣ) by Monte Carlo, against ½Σ log1p(C/λ)."""
    shape: Shape = (2, 4, 6)
    n, cov = 4000, random_covariance(family, shape, batch=1)
    energy, _ = energy_and_law("diagonal-gaussian", cov)
    assert isinstance(energy, DiagonalGaussian)
    generator = keyed_generator("information", family)
    y = energy.sample(n, generator) + cov.sample_noise(generator, batch=n)
    noise_entropy = 0.5 * (float(cov.logdet()) + cov.dim * math.log(2 * math.pi * math.e))
    samples = energy(y, cov.expand(n)) - noise_entropy
    exact = 0.5 * float(torch.log1p(energy.prior.variance / cov.variance).sum())
    error = math.sqrt(cov.dim / 2 / n)  # U is ½χ²_d and a constant
    assert abs(float(samples.mean()) - exact) < z_threshold(len(COVARIANCES)) * error
    assert error < 0.01 * exact


# --- samples -----------------------------------------------------------------------------------------------------------------------


def assert_samples(x: Tensor, law: Law) -> None:
    """Kolmogorov–Smirnov on six projections: four pixels' worth of random directions, one pixel and the sum."""
    dim = law.means.shape[-1]
    directions = torch.randn(4, dim, generator=keyed_generator("directions"), dtype=torch.float64)
    directions = torch.cat([directions, torch.eye(dim)[:1], torch.ones(1, dim)])
    for direction in directions:
        projected = (x.double().flatten(1) @ direction).numpy()
        assert kstest(projected, law.projected_cdf(direction)).pvalue > ALARM


@energies
@families
def test_samples_follow_the_prior(name: str, family: str) -> None:
    energy, law, _, _ = setting(name, family)
    a, b = (energy.sample(3000, keyed_generator("prior")) for _ in range(2))  # type: ignore[attr-defined]
    assert torch.equal(a, b)
    assert a.shape == (3000, *SHAPE)
    assert_samples(a, law)


@energies
@families
def test_posterior_samples_follow_the_posterior(name: str, family: str) -> None:
    energy, law, y, cov = setting(name, family, batch=1)
    exact = law.posterior(y, torch.eye(cov.dim, dtype=torch.float64), cov.dense()[0])
    generator = keyed_generator("posterior", family)
    if isinstance(energy, GaussianMixture):
        samples = energy.posterior(y, cov).sample(3000, generator)[0]
    else:
        samples = energy.sample_posterior(y.expand(3000, -1, -1, -1), cov.expand(3000), generator)  # type: ignore[attr-defined]
    assert_samples(samples, exact)


@pytest.mark.parametrize("name", ["dense-gaussian", "mixture"])
@families
def test_mixture_posteriors_are_exact(name: str, family: str) -> None:
    energy, law, y, cov = setting(name, family)
    assert isinstance(energy, GaussianMixture)
    posterior = energy.posterior(y, cov)
    x = torch.rand(3, *SHAPE, generator=keyed_generator("x"), dtype=torch.float64)
    eye = torch.eye(cov.dim, dtype=torch.float64)
    for i in range(3):
        exact = law.posterior(y[i : i + 1], eye, cov[[i]].dense()[0])
        close(posterior.mean[i].flatten(), exact.mean[0])
        close(posterior.covariance[i], exact.covariance[0])
        close(posterior.log_prob(x)[i], exact.log_density(x[i : i + 1])[0])


@families
@sharing
def test_wiener_posterior_is_exact(family: str, shared: bool) -> None:
    energy, law, y, cov = setting("diagonal-gaussian", family, shared)
    assert isinstance(energy, DiagonalGaussian)
    mean, covariance = energy.posterior(y, cov)
    expected_mean, expected_covariance = exact_posterior(law, y, cov)
    close(cov.analysis(mean).flatten(1), expected_mean)
    basis = matrix_of(cov.synthesis, SHAPE)
    close(covariance.dense(), basis @ expected_covariance @ basis.mT)


# --- what is refused, and what is warned of ------------------------------------------------------------------------------------------


def test_covariances_outside_the_range_are_named() -> None:
    cov = SpatialCovariance(torch.zeros(1, 1, 2, 2).double())
    limits = VarianceRange(1e-4, 10.0)
    energy = GaussianScaleMixture(torch.ones(1), torch.ones(1), (1, 2, 2), limits)
    y = torch.zeros(1, 1, 2, 2).double()
    for variance in (1e-6, 1e3):
        with pytest.warns(UserWarning, match=r"\[0\.0001, 10\].*extrapolation"):
            evaluate(energy, y, cov.isotropic(variance))


def test_bases_outside_the_range_are_named() -> None:
    limits = VarianceRange(1e-4, 10.0, ("spatial",))
    energy = GaussianScaleMixture(torch.ones(1), torch.ones(1), (1, 2, 2), limits)
    with pytest.warns(UserWarning, match="a fourier covariance; the energy knows spatial"):
        evaluate(energy, torch.zeros(1, 1, 2, 2).double(), FourierCovariance(torch.zeros(1, 1, 2, 2).double()))


@pytest.mark.filterwarnings("error")
def test_covariances_inside_the_range_are_silent() -> None:
    limits = VarianceRange(1e-4, 10.0, ("spatial",))
    energy = GaussianScaleMixture(torch.ones(1), torch.ones(1), (1, 2, 2), limits)
    cov = SpatialCovariance(torch.zeros(1, 1, 2, 2))
    for variance in (1e-4, 1.0, 10.0):  # the ends too, in float32
        evaluate(energy, torch.zeros(1, 1, 2, 2), cov.isotropic(variance))


@energies
def test_shapes_that_do_not_fit_are_refused(name: str) -> None:
    energy, _, y, cov = setting(name, "spatial")
    with pytest.raises(ValueError, match=r"image has shape \(3, 2, 2, 5\)"):
        evaluate(energy, y[..., :5], cov)
    with pytest.raises(ValueError, match="the covariance is for 2×2×5 images; the energy takes 2×2×6"):
        evaluate(energy, y[..., :5], SpatialCovariance(cov.log_variance[..., :5], 2))
    with pytest.raises(ValueError, match="3 images and 2 covariances"):
        evaluate(energy, y, cov[:2])


def test_priors_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="batch of 2"):
        DiagonalGaussian(SpatialCovariance(torch.zeros(2, 1, 2, 2)))
    with pytest.raises(ValueError, match="one positive entry"):
        GaussianScaleMixture(torch.ones(2), torch.tensor([1.0, 0.0]), (1, 2, 2))
    with pytest.raises(ValueError, match="d = 4"):
        GaussianMixture(torch.ones(2), torch.zeros(2, 3), torch.zeros(2, 3, 3), (1, 2, 2))
    cov = FourierCovariance(torch.zeros(1, 1, 2, 2).double())
    with pytest.raises(ValueError, match="eigenbasis"):
        DiagonalGaussian(SpatialCovariance(torch.zeros(1, 1, 2, 2).double()))(torch.zeros(1, 1, 2, 2).double(), cov)


@energies
def test_energies_keep_the_protocol(name: str) -> None:
    energy, *_ = setting(name, "spatial")
    assert isinstance(energy, Energy)

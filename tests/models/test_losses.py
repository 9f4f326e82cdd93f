"""Dual score matching: gradients against differences, a minimum at the truth, and what is learnt from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from conftest import COVARIANCES, random_covariance
from linverse.analytic import DiagonalGaussian, GaussianMixture
from linverse.covariance import Covariance, SpatialCovariance, VarianceRange
from linverse.energy import differentiable, evaluate, group_mean
from linverse.models import losses
from linverse.models.denoiser import Denoiser, DenoiserConfig
from linverse.models.energies.learned import EnergyConfig, LearnedEnergy
from linverse.models.energies.scores import Pair, Scores
from linverse.models.losses import DenoiserLoss, DualLoss, LossConfig, NoisyBatch, score_errors, variance_errors
from linverse.rng import keyed_generator, normal_like
from linverse.training.normalise import normalising_constant
from oracles import matrix_of, random_spd, z_threshold
from tiny import BACKBONE, CASE_NAMES, CASES, COLOURS, FAMILIES, Shape, tiny_energy

families = pytest.mark.parametrize("family", FAMILIES)
colours = pytest.mark.parametrize("colour", COLOURS)
# (that of the variance holds parts of itself fixed: no finite difference knows it)
EVERY_TERM = LossConfig(cov_weight=0.7, image_weight=0.3, mean_power=0.5)


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    """Networks draw their first weights from torch's own stream."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def draw_part(x: Tensor, cov: Covariance, name: str = "noise") -> NoisyBatch:
    return NoisyBatch(x, cov, normal_like(x, keyed_generator("losses", name)))


def random_images(shape: Shape, batch: int) -> Tensor:
    return torch.rand(batch, *shape, generator=keyed_generator("losses", "images"), dtype=torch.float64)


# --- the gradient of the loss ------------------------------------------------------------------------------------------------


def directional_difference(
    loss: DualLoss, parts: list[NoisyBatch], direction: list[Tensor], step: float = 1e-6
) -> float:
    """(ℓ(θ + hv) − ℓ(θ − hv)) / 2h; leaves θ as it was."""
    values = []
    for sign in (1, -2, 1):
        for parameter, v in zip(loss.parameters(), direction, strict=True):
            parameter.data += sign * step * v
        values.append(float(loss(parts, create_graph=False)[0].detach()))
    return (values[0] - values[1]) / (2 * step)


def assert_gradient_matches(loss: DualLoss, parts: list[NoisyBatch]) -> None:
    loss(parts)[0].backward()
    for trial in range(2):
        generator = keyed_generator("direction", trial)
        direction = [normal_like(p.detach(), generator) for p in loss.parameters()]
        slopes = [float((p.grad * v).sum()) for p, v in zip(loss.parameters(), direction, strict=True)]  # type: ignore[operator]
        difference = directional_difference(loss, parts, direction)
        assert difference == pytest.approx(sum(slopes), rel=1e-6, abs=1e-7)
        assert abs(difference) > 1e-3  # a direction along which nothing happens would test nothing


@pytest.mark.parametrize(("family", "colour", "form"), CASES, ids=CASE_NAMES)
def test_the_gradient_of_the_loss_equals_finite_differences(family: str, colour: str, form: tuple[str, str]) -> None:
    channels, shared = COLOURS[colour]
    shape = (channels, 4, 4)
    loss = DualLoss(tiny_energy(shape, form), EVERY_TERM)
    cov = random_covariance(family, shape, batch=2, shared=shared)
    assert_gradient_matches(loss, [draw_part(random_images(shape, 2), cov)])


@pytest.mark.parametrize("objective", ["dual", "single"])
def test_the_gradient_of_a_batch_of_several_bases(objective: str) -> None:
    shape = (3, 4, 4)
    loss = DualLoss(tiny_energy(shape), LossConfig(objective=objective))  # type: ignore[arg-type]
    parts = [draw_part(random_images(shape, 1), random_covariance(f, shape, batch=1, shared=True), f) for f in FAMILIES]
    assert_gradient_matches(loss, parts)


# --- the terms ---------------------------------------------------------------------------------------------------------------


@colours
@families
def test_the_terms_are_the_formulas(family: str, colour: str) -> None:
    """Written out with dense sums: Σ over a group that shares λ, divided by its size; the paper's 1/d² on a sum of squares."""
    channels, shared = COLOURS[colour]
    shape = (channels, 4, 4)
    energy, cov = tiny_energy(shape), random_covariance(family, shape, batch=1, shared=shared)
    part = draw_part(random_images(shape, 1), cov)
    y = part.noisy().requires_grad_()
    log_variance = cov.log_variance.clone().requires_grad_()
    score, kappa = torch.autograd.grad(energy(y, cov.with_log_variance(log_variance)).sum(), (y, log_variance))
    e = cov.analysis(score) * cov.variance.sqrt()
    target = 0.5 * (1 - part.noise.square())
    if shared:
        kappa, target = kappa / channels, target.sum(dim=1, keepdim=True) / channels
    loss, terms = DualLoss(energy, LossConfig(cov_weight=None))([part])
    d = math.prod(shape)
    expected = {
        "dsm": (e - part.noise).square().sum() / d,
        "csm": (kappa - target).square().mean(),
        "image_csm": d * (kappa - target).mean().square(),
    }
    for name, value in expected.items():
        torch.testing.assert_close(terms[name], value)
    torch.testing.assert_close(
        loss.detach(), terms["dsm"] + terms["csm"] / d
    )  # with d groups: 1/d² on the sum of squares
    full, _ = DualLoss(energy, LossConfig(cov_weight=2.0, image_weight=3.0))([part])
    torch.testing.assert_close(full.detach(), terms["dsm"] + 2 * terms["csm"] + 3 * terms["image_csm"])


def linear_variance(energy: LearnedEnergy, part: NoisyBatch) -> Tensor:
    """diag V_G in Σ's eigenbasis, from dense matrices."""
    base, (channels, *size) = energy.form.base, energy.shape
    scaled = base.components.flatten(1)
    prior = scaled.mT @ scaled + base.log_rest.exp() * torch.eye(part.cov.dim, dtype=torch.float64)
    basis = matrix_of(part.cov.synthesis, (channels, *size))
    rows = []
    for noise in part.cov.dense():
        spread = noise @ torch.linalg.solve(prior + noise, prior)
        rows.append((basis.mT @ spread @ basis).diagonal().reshape(energy.shape))
    return torch.stack(rows)


@families
def test_the_pixel_term_is_the_likelihood_of_the_mean_s_errors(family: str) -> None:
    """½(v + (x−x̂)²/eᵛ) in pixels, with v the network's own log-variance; x̂ is held fixed."""
    shape = (3, 4, 4)
    energy, cov = tiny_energy(shape), random_covariance(family, shape, batch=2, shared=True)
    part = draw_part(random_images(shape, 2), cov)
    result = evaluate(energy, part.noisy(), cov)
    assert result.pixel_variance is not None
    expected = 0.5 * (result.pixel_variance.log() + (part.x - result.mean).square() / result.pixel_variance).mean()
    loss, terms = DualLoss(energy, LossConfig(pixel_weight=0.5))([part])
    torch.testing.assert_close(terms["pixels"], expected, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(loss.detach(), terms["dsm"] + terms["csm"] + 0.5 * terms["pixels"])


@families
def test_the_variance_term_is_the_one_shot_variance_against_the_actual_error(family: str) -> None:
    """Written with what `evaluate` returns, the mean and the variance in units of λ and V_G."""
    shape = (3, 4, 4)
    energy, cov = tiny_energy(shape), random_covariance(family, shape, batch=2, shared=True)
    part = draw_part(random_images(shape, 2), cov)
    result, relative = (
        evaluate(energy, part.noisy(), cov),
        group_mean(cov.variance / linear_variance(energy, part), cov),
    )
    gaussian = cov.variance / relative
    error = group_mean(cov.analysis(part.x - result.mean).square(), cov)
    e = cov.analysis(result.score) * cov.full(cov.variance).sqrt()
    ratio = cov.variance / gaussian * (1 - 2 * result.cov_score - group_mean(e.square(), cov))
    expected = (1 - gaussian / cov.variance) * ((ratio - error / gaussian) / ratio.abs().clamp_min(1)).square()
    loss, terms = DualLoss(energy, LossConfig(variance_weight=0.5))([part])
    torch.testing.assert_close(terms["variance"], expected.mean().detach(), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(loss.detach(), terms["dsm"] + terms["csm"] + 0.5 * terms["variance"])


def test_the_variance_term_leaves_the_mean_alone() -> None:
    """With a gradient in e a skewed posterior would pull the mean away from E[x|y]."""
    cov = random_covariance("spatial", (1, 4, 4), batch=2)
    noise = normal_like(cov.log_variance, keyed_generator("noise"))
    e, kappa = (t.requires_grad_() for t in (0.5 * noise, torch.zeros_like(noise)))
    errors = variance_errors(Scores(e, kappa, 0.3 * cov.variance), cov, noise)
    of_mean, of_kappa = torch.autograd.grad(errors.sum(), (e, kappa), allow_unused=True)
    assert of_mean is None
    assert float(of_kappa.abs().min()) > 0


def test_outliers_of_the_image_average_count_by_their_size() -> None:
    x = torch.tensor([-3.0, 0.5, 4.0, 20.0]).double()
    torch.testing.assert_close(losses.huber(x, None), x.square())
    torch.testing.assert_close(losses.huber(x, 5.0), torch.tensor([9.0, 0.25, 16.0, 5.0 * (40.0 - 5.0)]).double())


def test_a_floor_lowers_the_weight_of_what_the_base_is_too_sure_of() -> None:
    cov = random_covariance("dct", (1, 4, 4), batch=1)
    variance = cov.variance * torch.linspace(1e-4, 1, 16).double().reshape(1, 1, 4, 4)
    scores = Scores(torch.zeros(1, 1, 4, 4).double(), torch.zeros(1, 1, 4, 4).double(), variance)
    plain, floored = losses.relative_noise(scores, cov), losses.relative_noise(scores, cov, 0.1)
    expected = (cov.variance / (variance + 0.1 * variance.mean())).clamp_min(1)
    torch.testing.assert_close(floored, expected)
    assert float(plain.max()) > 10 * float(floored.max())


def test_a_batch_counts_every_image_alike() -> None:
    shape = (1, 4, 4)
    loss = DualLoss(tiny_energy(shape), EVERY_TERM)
    parts = [
        draw_part(random_images(shape, n), random_covariance(family, shape, batch=n), family)
        for family, n in (("spatial", 1), ("fourier", 3))
    ]
    alone = [loss([part])[0].detach() for part in parts]
    torch.testing.assert_close(loss(parts)[0].detach(), (alone[0] + 3 * alone[1]) / 4)


def test_the_weighted_a_dsm_counts_the_mean_s_error_against_the_gaussian_posterior() -> None:
    """With p = 1: (x̂ − x)² / V_G."""
    shape = (1, 4, 4)
    energy, cov = tiny_energy(shape), random_covariance("dct", shape, batch=3)
    energy.constant.fill_(1e6)  # far above the bound, whose derivatives would take over
    part = draw_part(random_images(shape, 3), cov)
    error = cov.analysis(evaluate(energy, part.noisy(), cov).mean - part.x).square()
    loss, _ = DualLoss(energy, LossConfig(objective="single", mean_power=1.0))([part])
    torch.testing.assert_close(loss.detach(), (error / linear_variance(energy, part)).mean())


@pytest.mark.parametrize("power", [0.0, 1.0])
def test_a_denoiser_is_trained_by_the_same_a_dsm(power: float) -> None:
    """At its silent start a denoiser and an energy are the same Wiener filter."""
    shape = (3, 4, 4)
    config = LossConfig(objective="single", mean_power=power)
    energy = LearnedEnergy(EnergyConfig(shape, backbone=BACKBONE)).double()
    denoiser = Denoiser(DenoiserConfig(shape, backbone=BACKBONE)).double()
    for model in (energy, denoiser):
        model.fit_gaussian(torch.full(shape, 0.4), 0.08)
    levels = torch.tensor([-5.0, 0.0, 4.0]).double().reshape(3, 1, 1, 1).expand(3, 1, 4, 4)
    part = draw_part(random_images(shape, 3), SpatialCovariance(levels.contiguous(), 3))
    ours, theirs = DenoiserLoss(denoiser, config)([part]), DualLoss(energy, config)([part])
    torch.testing.assert_close(ours[0].detach(), theirs[0].detach())
    torch.testing.assert_close(ours[1]["dsm"], theirs[1]["dsm"])


@pytest.mark.parametrize(("family", "message"), [("fourier", "got a fourier"), ("spatial", "differ between pixels")])
def test_a_denoiser_refuses_noise_that_is_not_isotropic(family: str, message: str) -> None:
    shape = (1, 4, 4)
    loss = DenoiserLoss(Denoiser(DenoiserConfig(shape, backbone=BACKBONE)).double(), LossConfig())
    with pytest.raises(ValueError, match=message):
        loss([draw_part(random_images(shape, 2), random_covariance(family, shape))])


# --- at the truth the expected gradient is zero ----------------------------------------------------------------------------------

Function = Callable[[Tensor, Covariance, Tensor], Tensor]


class Adjustable(nn.Module):
    """U_θ(y, Σ) with its own θ for every sample [B, k], as training sees a model: one backward pass gives gradients by sample."""

    def __init__(self, function: Function, theta: Tensor, shape: Shape, prior: float = 0.1) -> None:
        super().__init__()
        self.function, self.theta, self.shape, self.prior = function, theta, shape, prior

    def scores(self, pairs: list[Pair], create_graph: bool = True) -> list[Scores]:
        ((z, cov),) = pairs
        z, log_variance = differentiable(z), differentiable(cov.log_variance)
        cov = cov.with_log_variance(log_variance)
        energy = self.function(cov.synthesis(z), cov, self.theta)
        score, kappa = torch.autograd.grad(energy.sum(), (z, log_variance), create_graph=create_graph)
        base = torch.exp(cov.log_variance - F.softplus(cov.log_variance - math.log(self.prior)))
        return [Scores(score * torch.exp(0.5 * cov.log_variance), kappa / cov.multiplicity, base)]


def gradients(function: Function, size: int, shape: Shape, part: NoisyBatch, config: LossConfig) -> Tensor:
    """∂ℓ/∂θ at θ = 0 for every sample, [B, size]."""
    theta = torch.zeros(len(part.x), size, dtype=torch.float64, requires_grad=True)
    loss, _ = DualLoss(Adjustable(function, theta, shape), config)([part])  # type: ignore[arg-type]
    return torch.autograd.grad(loss * len(part.x), theta)[0]


def z_scores(samples: Tensor) -> Tensor:
    """Mean over its standard error, for every column."""
    return samples.mean(dim=0) / (samples.std(dim=0) / math.sqrt(len(samples)))


TRUTH_SHAPE: Shape = (3, 2, 4)
CHANGES = 5


def truth() -> GaussianMixture:
    """Two components that no basis makes diagonal, with correlated colours."""
    generator = keyed_generator("losses", "truth")
    d = math.prod(TRUTH_SHAPE)
    means = torch.rand(2, d, generator=generator, dtype=torch.float64)
    return GaussianMixture(torch.tensor([0.4, 0.6]), means, random_spd(generator, 2, d, 0.2), TRUTH_SHAPE)


def perturbed(mixture: GaussianMixture) -> Function:
    """Families through the truth: a scaled energy, tilts by coefficient in y and in Σ, a quadratic, wider components."""
    generator = keyed_generator("losses", "tilts")
    tilt = torch.randn(3, *TRUTH_SHAPE, generator=generator, dtype=torch.float64)

    def function(y: Tensor, cov: Covariance, theta: Tensor) -> Tensor:
        scale, linear, pure, quadratic, width = theta.unbind(dim=1)
        spread = mixture.covariances * width.exp()[:, None, None, None] + cov.dense()[:, None]
        factor = torch.linalg.cholesky(spread)
        shift = (y.flatten(1)[:, None] - mixture.means)[..., None]
        white = torch.linalg.solve_triangular(factor, shift, upper=False)[..., 0]
        logdet = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        terms = mixture.log_weights - 0.5 * (white.square().sum(-1) + logdet + math.log(2 * math.pi) * cov.dim)
        z, level = cov.analysis(y), cov.full(cov.log_variance)
        unit = z * torch.exp(-0.5 * torch.nn.functional.softplus(level))
        return (
            (1 + scale) * -torch.logsumexp(terms, dim=1)
            + linear * (tilt[0] * unit).sum(dim=(1, 2, 3))
            + pure * (tilt[1] * level).sum(dim=(1, 2, 3))
            + quadratic * (tilt[2] * unit.square()).sum(dim=(1, 2, 3))
        )

    return function


def truth_part(family: str, shared: bool, count: int = 1000) -> tuple[GaussianMixture, NoisyBatch]:
    mixture = truth()
    cov = random_covariance(family, TRUTH_SHAPE, batch=count, shared=shared, spread=2.0)
    return mixture, draw_part(mixture.sample(count, keyed_generator("losses", "x")), cov, family)


def test_the_perturbed_energy_passes_through_the_truth() -> None:
    mixture, part = truth_part("fourier", True, count=5)
    function, zeros = perturbed(mixture), torch.zeros(5, CHANGES, dtype=torch.float64)
    torch.testing.assert_close(function(part.noisy(), part.cov, zeros), mixture(part.noisy(), part.cov))


TERMS = {
    "weighted A-DSM": LossConfig(objective="single", mean_power=1.0),
    "dual with image term": LossConfig(image_weight=1.0),
    "posterior variance": LossConfig(cov_weight=0.0, variance_weight=1.0),
}


@pytest.mark.parametrize("shared", [True, False], ids=["rgb-shared", "rgb-own"])
@families
def test_at_the_truth_the_expected_gradients_vanish(family: str, shared: bool) -> None:
    mixture, part = truth_part(family, shared)
    limit = z_threshold(CHANGES * len(TERMS) * 2 * len(FAMILIES), alarm=1e-5)
    for name, config in TERMS.items():
        z = z_scores(gradients(perturbed(mixture), CHANGES, TRUTH_SHAPE, part, config))
        used = z.isfinite()  # a pure function of Σ has no gradient in the A-DSM
        assert int(used.sum()) >= CHANGES - 1
        assert float(z[used].abs().max()) < limit, f"{name}: {z.tolist()}"


def mean_instead_of_sum(scores: Scores, cov: Covariance, noise: Tensor) -> tuple[Tensor, Tensor]:
    """∂U/∂log λ of a shared λ, which is a sum over channels, against the mean of their targets."""
    data, _ = score_errors(scores, cov, noise)
    return data, scores.kappa * cov.multiplicity - group_mean(0.5 * (1 - noise.square()), cov)


def target_in_pixels(scores: Scores, cov: Covariance, noise: Tensor) -> tuple[Tensor, Tensor]:
    """A spectral derivative against the target transformed back to pixels."""
    data, _ = score_errors(scores, cov, noise)
    return data, scores.kappa - group_mean(cov.synthesis(0.5 * (1 - noise.square())), cov)


@pytest.mark.parametrize(
    ("mistake", "family"),
    [(mean_instead_of_sum, family) for family in FAMILIES] + [(target_in_pixels, family) for family in FAMILIES[1:]],
)
def test_the_known_mistakes_do_not_vanish_at_the_truth(
    mistake: Callable[..., tuple[Tensor, Tensor]], family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixture, part = truth_part(family, shared=True)
    monkeypatch.setattr(losses, "score_errors", mistake)
    z = z_scores(gradients(perturbed(mixture), CHANGES, TRUTH_SHAPE, part, LossConfig()))
    assert float(z.abs().max()) > 8


# --- a model that can be right learns to be right --------------------------------------------------------------------------------

GAUSS_SHAPE: Shape = (2, 2, 4)
LIMITS = VarianceRange(1e-3, 1e2)


class LinearGaussian:
    """θ = (m, log S, a, b): U = ½Σ(z−m)²/(S+λ) + a·½Σ log 2π(S+λ) + Σ_i Σ_k b_k (log λ_i / 5)^k. The truth has a = 1, b = 0.

    With a = 0 the energy knows nothing of its normalisation: all of it must come from the covariance score.
    """

    size = 2 * math.prod(GAUSS_SHAPE) + 4

    def __init__(self, theta: Tensor, template: Covariance) -> None:
        self.theta, self.template = theta, template
        self.shape, self.range = GAUSS_SHAPE, VarianceRange(LIMITS.minimum, LIMITS.maximum)

    @staticmethod
    def start() -> Tensor:
        d = math.prod(GAUSS_SHAPE)
        return torch.cat([torch.zeros(d), torch.full((d,), -0.5), torch.tensor([0.0, 0.4, -0.3, 0.2])]).double()

    @staticmethod
    def function(y: Tensor, cov: Covariance, theta: Tensor) -> Tensor:
        d = math.prod(GAUSS_SHAPE)
        mean, log_spread = (part.unflatten(1, GAUSS_SHAPE) for part in (theta[:, :d], theta[:, d : 2 * d]))
        level = cov.full(cov.log_variance)
        log_total = torch.logaddexp(log_spread, level)
        quadratic = (cov.analysis(y) - mean).square() * torch.exp(-log_total)
        powers = torch.stack([(level / 5) ** k for k in (1, 2, 3)], dim=1)
        offset = (theta[:, 2 * d + 1 :, None, None, None] * powers).sum(dim=(1, 2, 3, 4))
        logdet = (log_total + math.log(2 * math.pi)).sum(dim=(1, 2, 3))
        return 0.5 * quadratic.sum(dim=(1, 2, 3)) + 0.5 * theta[:, 2 * d] * logdet + offset

    def __call__(self, y: Tensor, cov: Covariance) -> Tensor:
        # a Σ of another basis comes from the normalisation only and is isotropic: the same Σ in ours
        return self.function(y, self.template.with_log_variance(cov.log_variance), self.theta.expand(len(y), -1))

    def gaussian(self, cov: Covariance) -> tuple[Tensor, Tensor]:
        """Moments in pixels, where the normalisation asks for them."""
        d = math.prod(GAUSS_SHAPE)
        mean, log_spread = (t.reshape(1, *GAUSS_SHAPE) for t in (self.theta[:d], self.theta[d : 2 * d]))
        dense = self.template.with_log_variance(log_spread).dense()[0]
        return self.template.synthesis(mean), dense.diagonal().reshape(1, *GAUSS_SHAPE)


def gaussian_truth(family: str) -> DiagonalGaussian:
    generator = keyed_generator("losses", "gaussian")
    spectrum = torch.randn(1, *GAUSS_SHAPE, generator=generator, dtype=torch.float64) - 2
    mean = torch.rand(GAUSS_SHAPE, generator=generator, dtype=torch.float64)
    return DiagonalGaussian(COVARIANCES[family](spectrum, GAUSS_SHAPE[0]), mean, LIMITS)


def wide_covariance(family: str, count: int, name: str) -> Covariance:
    """log λ uniform over the whole range, shared by the channels."""
    low, high = math.log(LIMITS.minimum), math.log(LIMITS.maximum)
    uniform = torch.rand(
        count, 1, *GAUSS_SHAPE[1:], generator=keyed_generator("losses", "wide", name), dtype=torch.float64
    )
    return COVARIANCES[family](low + (high - low) * uniform, GAUSS_SHAPE[0])


def fit(part: NoisyBatch, config: LossConfig) -> Tensor:
    """The minimiser of the empirical loss, by L-BFGS from `start`."""
    theta = LinearGaussian.start().requires_grad_()
    model = Adjustable(LinearGaussian.function, theta, GAUSS_SHAPE)
    optimiser = torch.optim.LBFGS(
        [theta], max_iter=150, tolerance_grad=1e-6, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        model.theta = theta.expand(len(part.x), -1)
        loss, _ = DualLoss(model, config)([part])  # type: ignore[arg-type]
        (theta.grad,) = torch.autograd.grad(loss, theta)
        return loss.detach()

    optimiser.step(closure)  # type: ignore[arg-type]
    return theta.detach()


def standard_errors(theta: Tensor, part: NoisyBatch, config: LossConfig) -> Tensor:
    """The sandwich H⁻¹GH⁻¹/n of an M-estimator."""

    def loss(value: Tensor) -> Tensor:
        model = Adjustable(LinearGaussian.function, value.expand(len(part.x), -1), GAUSS_SHAPE)
        return DualLoss(model, config)([part])[0]  # type: ignore[arg-type]

    hessian = torch.autograd.functional.hessian(loss, theta)
    shifted = lambda y, cov, change: LinearGaussian.function(y, cov, theta + change)  # noqa: E731
    by_sample = gradients(shifted, len(theta), GAUSS_SHAPE, part, config)
    root = torch.linalg.solve(hessian, by_sample.mT)
    return (root @ root.mT).diagonal().sqrt() / len(part.x)


@pytest.mark.parametrize("family", ["fourier"])
def test_dual_score_matching_recovers_the_covariance_and_the_normalised_energy(family: str) -> None:
    exact, count = gaussian_truth(family), 4000
    cov = wide_covariance(family, count, "train")
    part = draw_part(exact.sample(count, keyed_generator("losses", "x")), cov, family)
    dual, single = (fit(part, LossConfig(objective=objective)) for objective in ("dual", "single"))  # type: ignore[arg-type]
    moments = (exact.prior.analysis(exact.mean[None]), exact.prior.log_variance)
    target = torch.cat([*(t.flatten() for t in moments), torch.tensor([1.0, 0.0, 0.0, 0.0]).double()])
    z = (dual - target) / standard_errors(dual, part, LossConfig())
    assert float(z.abs().max()) < z_threshold(len(z), alarm=1e-5)
    assert normalised_error(dual, exact) < 0.05
    # A-DSM alone learns the Gaussian but leaves the normalisation where it started
    d = math.prod(GAUSS_SHAPE)
    assert torch.equal(single[2 * d :], LinearGaussian.start()[2 * d :])
    assert float((single - target)[d : 2 * d].abs().max()) < 0.5
    assert normalised_error(single, exact) > 1.0


def normalised_error(theta: Tensor, exact: DiagonalGaussian) -> float:
    """Root-mean-square of U_θ + c − U in nats per dimension over fresh (y, Σ), c fixed at λ_max·I."""
    model = LinearGaussian(theta, exact.prior)
    generator = keyed_generator("losses", "fresh")
    x = exact.sample(500, generator)
    constant = normalising_constant(model, x, generator)
    cov = exact.prior.with_log_variance(wide_covariance("spatial", 500, "fresh").log_variance)
    y = x + cov.sample_noise(generator)
    error = model(y, cov) + constant - exact(y, cov)
    return float(error.square().mean().sqrt()) / math.prod(GAUSS_SHAPE)


def test_images_that_are_far_off_do_not_outweigh_the_others() -> None:
    x = torch.tensor([0.5, 2.0, 200.0], dtype=torch.float64, requires_grad=True)
    expected = torch.tensor([0.5, 2.0, 2 * (1 + math.log(100.0))], dtype=torch.float64)
    torch.testing.assert_close(losses.tamed(x, 2.0), expected)
    torch.testing.assert_close(losses.tamed(x, None), x)
    (slope,) = torch.autograd.grad(losses.tamed(x, 2.0).sum(), x)
    torch.testing.assert_close(slope, torch.tensor([1.0, 1.0, 0.01], dtype=torch.float64))

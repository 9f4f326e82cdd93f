"""Learned energies: stable forms against automatic differentiation, batches of several bases, agreement, limits, embeddings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from conftest import COVARIANCES, plain_evaluate, random_covariance, same_evaluation
from linverse.analytic import DiagonalGaussian
from linverse.covariance import Covariance, SpatialCovariance
from linverse.degradations import Denoising
from linverse.energy import (
    Energy,
    Evaluation,
    SelfEvaluating,
    autograd_evaluate,
    evaluate,
    from_derivatives,
)
from linverse.models.bases import image_moments
from linverse.models.denoiser import Denoiser, DenoiserConfig
from linverse.models.embeddings.space_frequency import BANDS, FAINTEST, SpaceFrequencyEmbedding, band_weights
from linverse.models.embeddings.two_branch import TwoBranchEmbedding
from linverse.models.energies.bound import lowest_energy
from linverse.models.energies.learned import EnergyConfig, LearnedEnergy
from linverse.posterior import Posterior
from linverse.rng import keyed_generator, normal_like
from oracles import matrix_of
from tiny import BACKBONE, CASE_NAMES, CASES, COLOURS, FAMILIES, FORMS, Pictures, Shape, awaken, noisy_pair, tiny_energy

SIDE = 8
families = pytest.mark.parametrize("family", FAMILIES)
colours = pytest.mark.parametrize("colour", COLOURS)
forms = pytest.mark.parametrize("form", FORMS, ids=" + ".join)


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    """Networks draw their first weights from torch's own stream."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def shape_of(colour: str) -> Shape:
    return COLOURS[colour][0], SIDE, SIDE


def isotropic(family: str, variance: float, shape: Shape, batch: int = 3) -> Covariance:
    log_variance = torch.full((batch, 1, *shape[1:]), variance, dtype=torch.float64).log()
    return COVARIANCES[family](log_variance, shape[0])


def images(shape: Shape, batch: int = 3) -> Tensor:
    return torch.rand(batch, *shape, generator=keyed_generator("images"), dtype=torch.float64)


# --- derivatives -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "colour", "form"), CASES, ids=CASE_NAMES)
def test_stable_forms_and_scores_equal_automatic_differentiation(
    family: str, colour: str, form: tuple[str, str]
) -> None:
    energy = tiny_energy(shape_of(colour), form, size=0.1)
    y, cov = noisy_pair(family, shape_of(colour), COLOURS[colour][1])
    stable, plain = evaluate(energy, y, cov), plain_evaluate(energy, y, cov)
    same_evaluation(stable, plain)
    assert plain.variance.count_nonzero() > 0.03 * plain.variance.numel()  # not compared where the clamp hides it
    (scores,) = energy.scores([(cov.analysis(y), cov)], create_graph=False)
    torch.testing.assert_close(scores.e, cov.analysis(plain.score) * cov.variance.sqrt(), rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(scores.kappa, plain.cov_score, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(("family", "colour", "form"), CASES, ids=CASE_NAMES)
def test_derivatives_are_those_of_the_energy(family: str, colour: str, form: tuple[str, str]) -> None:
    """Finite differences in y and log λ: nothing on the way is detached, neither w nor φ nor the embedding."""
    energy = tiny_energy(shape_of(colour), form)
    y, cov = noisy_pair(family, shape_of(colour), COLOURS[colour][1])

    def run(image: Tensor, log_variance: Tensor) -> Tensor:
        return energy(image, cov.with_log_variance(log_variance))

    leaves = (y.requires_grad_(), cov.log_variance.clone().requires_grad_())
    assert torch.autograd.gradcheck(run, leaves, fast_mode=True, atol=1e-7, rtol=1e-5)


@forms
def test_an_evaluation_can_be_differentiated_again(form: tuple[str, str]) -> None:
    """The result with `create_graph` depends on y as the formulas say: a directional difference of each field."""
    energy = tiny_energy(shape_of("grey"), form)
    y, cov = noisy_pair("fourier", shape_of("grey"), True)
    direction = torch.randn(y.shape, generator=keyed_generator("direction"), dtype=torch.float64)
    leaf = y.clone().requires_grad_()
    result, step = evaluate(energy, leaf, cov, create_graph=True), 1e-6
    ahead, behind = (evaluate(energy, y + s * step * direction, cov) for s in (1, -1))
    for name in ("energy", "score", "cov_score", "mean", "variance"):
        (gradient,) = torch.autograd.grad(getattr(result, name).sum(), leaf, retain_graph=True)
        difference = (getattr(ahead, name) - getattr(behind, name)).sum() / (2 * step)
        torch.testing.assert_close((gradient * direction).sum(), difference, rtol=1e-5, atol=1e-6)


@forms
def test_a_batch_of_several_bases_is_evaluated_as_each_of_them_alone(form: tuple[str, str]) -> None:
    shape = (3, SIDE, SIDE)
    energy = tiny_energy(shape, form)
    pairs = [noisy_pair(family, shape, True, batch=n) for n, family in enumerate(FAMILIES, start=1)]
    for together, pair in zip(energy.scores(pairs, create_graph=False), pairs, strict=True):
        (alone,) = energy.scores([pair], create_graph=False)
        for name, value in vars(alone).items():
            torch.testing.assert_close(getattr(together, name), value, rtol=1e-9, atol=1e-10)


# --- across bases and scales -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variance", [1e-6, 1e-3, 1.0, 1e3])
@pytest.mark.parametrize("form", FORMS[:2], ids=" + ".join)
def test_energies_agree_across_bases_at_isotropic_noise(form: tuple[str, str], variance: float) -> None:
    shape = (3, SIDE, SIDE)
    energy = tiny_energy(shape, form)
    y = images(shape) + isotropic("spatial", variance, shape).sample_noise(keyed_generator("noise"))
    values = torch.stack([energy(y, isotropic(family, variance, shape)) for family in FAMILIES])
    torch.testing.assert_close(values, values[:1].expand_as(values), rtol=1e-9, atol=1e-7)


@families
def test_one_shot_answers_are_accurate_in_float32_at_huge_noise(family: str) -> None:
    """At λ = 1e3 the plain forms lose the variance to cancellation and the mean to rounding; the stable ones do not."""
    shape = (3, SIDE, SIDE)
    double = tiny_energy(shape, size=0.05)  # a network that leaves the variances positive
    single = LearnedEnergy(double.config).eval()
    single.load_state_dict(double.state_dict())
    double.load_state_dict(single.state_dict())  # the same weights, rounded
    cov = isotropic(family, 1e3, shape)
    y = (images(shape) + cov.sample_noise(keyed_generator("noise"))).float()
    exact, rounded = evaluate(double, y.double(), cov), evaluate(single, y, cov.to(torch.float32))
    assert rounded.mean.dtype == torch.float32
    assert float((rounded.mean - exact.mean).abs().max()) < 4e-6
    assert float((rounded.variance - exact.variance).abs().max()) < 1e-4 * 0.09
    plain = from_derivatives(
        rounded.energy, rounded.score_coefficients, rounded.cov_score, rounded.cov.analysis(y), rounded.cov
    )
    assert float((plain.variance - exact.variance).abs().max()) > 1e-3 * 0.09  # else this test could not fail


@families
def test_energies_are_summed_in_float64(family: str) -> None:
    energy = LearnedEnergy(EnergyConfig((1, SIDE, SIDE), backbone=BACKBONE))
    y, cov = noisy_pair(family, (1, SIDE, SIDE), True)
    assert energy(y.float(), cov.to(torch.float32)).dtype == torch.float64
    assert energy.constant.dtype == torch.float64


@colours
@families
def test_a_residual_energy_starts_as_the_exact_gaussian(family: str, colour: str) -> None:
    shape = shape_of(colour)
    energy = LearnedEnergy(EnergyConfig(shape, backbone=BACKBONE)).double()
    mean = torch.rand(shape, generator=keyed_generator("mean"))
    energy.fit_gaussian(mean, 0.07)
    y, cov = noisy_pair(family, shape, COLOURS[colour][1])
    prior = cov[:1].isotropic(float(energy.form.log_prior.exp()))
    exact = DiagonalGaussian(prior, mean.double())
    torch.testing.assert_close(energy(y, cov), exact(y, cov), rtol=1e-9, atol=1e-9)
    ours, theirs = evaluate(energy, y, cov), evaluate(exact, y, cov)
    same_evaluation(ours, theirs, rtol=1e-7)


@families
def test_the_residual_vanishes_at_large_noise(family: str) -> None:
    shape = (3, SIDE, SIDE)
    energy = tiny_energy(shape)
    sizes = []
    for variance in (1e2, 1e6, 1e10):
        cov = isotropic(family, variance, shape)
        y = images(shape) + cov.sample_noise(keyed_generator("noise"))
        sizes.append(float((energy(y, cov) - energy.form.gaussian_energy(cov.analysis(y), cov)).detach().abs().max()))
    assert sizes[2] < 1e-3
    assert sizes[2] < 1e-3 * sizes[0]


def test_the_inner_product_energy_is_zero_at_zero() -> None:
    _, cov = noisy_pair("dct", (3, SIDE, SIDE), False)
    for form in FORMS[1:3]:
        energy = tiny_energy((3, SIDE, SIDE), form)
        torch.testing.assert_close(energy(torch.zeros(2, 3, SIDE, SIDE).double(), cov), torch.zeros(2).double())


def test_the_constant_is_added_and_moves_no_derivative() -> None:
    energy = tiny_energy((1, SIDE, SIDE))
    y, cov = noisy_pair("spatial", (1, SIDE, SIDE), True)
    before = evaluate(energy, y, cov)
    energy.constant.fill_(12.5)
    after = evaluate(energy, y, cov)
    torch.testing.assert_close(after.energy, before.energy + 12.5)
    torch.testing.assert_close(energy(y, cov), after.energy)
    assert torch.equal(after.mean, before.mean)


def test_a_learned_energy_keeps_the_protocol_and_names_its_range() -> None:
    energy = tiny_energy((1, SIDE, SIDE), bases=("spatial",))
    assert isinstance(energy, Energy)
    assert isinstance(energy, SelfEvaluating)
    y, cov = noisy_pair("fourier", (1, SIDE, SIDE), True)
    with pytest.warns(UserWarning, match="fourier covariance; the energy knows spatial"):
        result = evaluate(energy, y, cov)
    assert isinstance(result, Evaluation)
    assert not result.mean.requires_grad
    mean, prior = energy.gaussian(cov)
    moments = image_moments(Pictures(shape=(1, SIDE, SIDE)))
    torch.testing.assert_close(cov.synthesis(mean)[0], moments.mean)
    basis = matrix_of(cov.synthesis, (1, SIDE, SIDE))
    exact = (basis.mT @ moments.covariance @ basis).diagonal()
    torch.testing.assert_close(prior.sum(), exact.sum())
    assert float((prior.flatten() - exact).abs().max()) < 0.2 * float(
        exact.max()
    )  # all but what the last components hold


@pytest.mark.parametrize("stem", [1, 2, 4])
def test_images_that_the_levels_do_not_divide_are_refused(stem: int) -> None:
    backbone = replace(BACKBONE, stem=stem)
    divisor = 2 * stem
    EnergyConfig((1, divisor, 3 * divisor), backbone=backbone)
    with pytest.raises(ValueError, match=f"multiples of {divisor}; got {divisor}×{divisor + 1}"):
        EnergyConfig((1, divisor, divisor + 1), backbone=backbone)


def test_the_residual_form_takes_the_space_frequency_embedding_only() -> None:
    with pytest.raises(ValueError, match="space-frequency"):
        LearnedEnergy(EnergyConfig((1, 8, 8), embedding="two-branch", backbone=BACKBONE))
    with pytest.raises(ValueError, match="unknown parameterisation 'quadratic'"):
        LearnedEnergy(EnergyConfig((1, 8, 8), parameterisation="quadratic", backbone=BACKBONE))  # type: ignore[arg-type]


@pytest.mark.parametrize("style", ["ncsn++", "compact"])
@pytest.mark.parametrize("stem", [1, 2, 4])
@pytest.mark.parametrize("form", FORMS[:2], ids=" + ".join)
def test_every_backbone_serves_every_form_on_oblong_images(form: tuple[str, str], stem: int, style: str) -> None:
    shape = (2, 8, 16)
    energy = tiny_energy(shape, form, replace(BACKBONE, stem=stem, style=style))
    y, cov = noisy_pair("block-dct", shape, False)
    stable, plain = evaluate(energy, y, cov), plain_evaluate(energy, y, cov)
    torch.testing.assert_close(stable.mean, plain.mean, rtol=1e-8, atol=1e-9)


# --- the lower bound ---------------------------------------------------------------------------------------------------------


@families
def test_no_energy_of_images_in_the_unit_range_is_below_the_bound(family: str) -> None:
    """The exact energy of a few pictures, −log mean_k N(y; x_k, Σ), for y near and far."""
    shape = (1, SIDE, SIDE)
    pictures = torch.rand(5, *shape, generator=keyed_generator("pictures"), dtype=torch.float64)
    for size in (0.01, 1.0, 30.0):
        cov = random_covariance(family, shape, batch=1, spread=2.0)
        y = pictures[:1] + size * normal_like(pictures[:1], keyed_generator("far", str(size)))
        distances = torch.cat([cov.mahalanobis(y - x) for x in pictures[:, None]])
        exact = -torch.logsumexp(-0.5 * distances, dim=0) + math.log(5)
        exact = exact + 0.5 * (cov.logdet() + cov.dim * math.log(2 * math.pi))
        assert float(lowest_energy(y, cov)) <= float(exact)


@families
def test_the_bound_is_reached_by_a_picture_outside_of_the_range(family: str) -> None:
    y = torch.full((1, 1, SIDE, SIDE), 1.5).double()
    cov = isotropic(family, 0.01, (1, SIDE, SIDE), batch=1)
    white = -torch.distributions.Normal(1.0, 0.1).log_prob(y).sum()
    torch.testing.assert_close(lowest_energy(y, cov)[0], white)


@families
def test_a_hole_in_the_energy_is_filled_with_its_derivatives(family: str) -> None:
    """Pushed below the bound, an energy is the bound: so are its score, κ and mean; for pixels the mean is y, cut to [0, 1]."""
    energy = tiny_energy((1, SIDE, SIDE))
    energy.constant.fill_(-1e6)
    y, cov = noisy_pair(family, (1, SIDE, SIDE), True)
    got, plain = evaluate(energy, y, cov), autograd_evaluate(lowest_energy, cov.analysis(y), cov)
    same_evaluation(got, plain)
    assert got.unknown is not None
    assert bool(got.unknown.all())
    torch.testing.assert_close(energy(y, cov), got.energy)
    if family == "spatial":
        torch.testing.assert_close(got.mean, y.clamp(0, 1))


def test_what_only_a_bound_knows_is_said_and_claims_no_certainty() -> None:
    """One of two pictures lies far beyond [0, 1]: it alone is unknown, has the prior's variance, and the posterior warns."""
    energy = tiny_energy((1, SIDE, SIDE))
    x = torch.full((2, 1, SIDE, SIDE), 0.5).double()
    measured = Denoising(0.3).from_raw(x)
    factors = torch.tensor([1.0, 200.0]).reshape(2, 1, 1, 1)
    posterior = Posterior(energy, replace(measured, coefficients=measured.coefficients * factors))
    with pytest.warns(UserWarning, match="1 of 2 measurements"):
        unknown = posterior.evaluate().unknown
    assert unknown is not None
    assert unknown.tolist() == [False, True]
    prior = energy.gaussian(posterior.covariance)[1]
    torch.testing.assert_close(posterior.std()[1].square(), prior.expand(1, 1, SIDE, SIDE)[0].double())


# --- embeddings --------------------------------------------------------------------------------------------------------------


@families
def test_the_space_frequency_maps_are_means_of_log_variance(family: str) -> None:
    """Isotropic noise shows its own level in every band, everywhere; more noise in one coefficient shows where it sits."""
    shape, log_prior = (1, SIDE, SIDE), torch.tensor(-2.0).double()
    level = SpaceFrequencyEmbedding(BACKBONE).maps(isotropic(family, 0.3, shape), log_prior)
    torch.testing.assert_close(level, level[:1, :, :1, :1].expand_as(level))
    cov = isotropic(family, 0.3, shape, batch=1)
    bumped = cov.log_variance.clone()
    bumped[0, 0, 4, 6] += 1.0
    change = (SpaceFrequencyEmbedding(BACKBONE).maps(cov.with_log_variance(bumped), log_prior) - level[:1]).unflatten(
        1, (2, BANDS + 1)
    )
    moved = change[:, :, :BANDS].abs().sum(dim=(1, 2))[0]
    block = {"spatial": 1, "block-dct": 2}.get(family, SIDE)
    rows, columns = (moved > 1e-9).nonzero().T
    assert {(int(r) // block, int(c) // block) for r, c in zip(rows, columns, strict=True)} == {
        (4 // block, 6 // block)
    }
    assert len(rows) == block * block


@families
def test_the_last_maps_tell_every_pixel_how_noisy_the_whole_is(family: str) -> None:
    """−log φ̄ and −log(1−φ̄) of the mean φ = C/(C+λ), however large λ is and in whatever basis."""
    shape, log_prior = (1, SIDE, SIDE), torch.tensor(-2.0).double()
    cov = isotropic(family, 0.3, shape, batch=1)
    log_variance = torch.linspace(-4.0, 9.0, SIDE * SIDE).double().reshape(1, 1, SIDE, SIDE)
    mean_share = torch.sigmoid(log_prior - log_variance).mean()
    maps = SpaceFrequencyEmbedding(BACKBONE).maps(cov.with_log_variance(log_variance), log_prior)
    for index, expected in ((BANDS, -torch.log(mean_share)), (2 * BANDS + 1, -torch.log1p(-mean_share))):
        torch.testing.assert_close(maps[0, index] * 5, expected.expand(SIDE, SIDE))


@families
def test_band_weights_are_averages(family: str) -> None:
    weights = band_weights(isotropic(family, 1.0, (1, SIDE, SIDE)).frequencies())
    assert len(weights) == BANDS
    torch.testing.assert_close(weights.flatten(1).sum(dim=1), torch.ones(BANDS).double())
    assert float(weights.min()) >= 0


def test_no_frequency_is_out_of_every_bands_sight() -> None:
    """The strongest weight of any frequency, as a share of that band's largest: noise in the corners was removed by nobody."""
    weights = band_weights(isotropic("fourier", 1.0, (1, 28, 28)).frequencies()).flatten(1)
    assert float((weights / weights.amax(dim=1, keepdim=True)).amax(dim=0).min()) > 0.3


def test_the_maps_feel_a_hidden_pixel_by_what_is_left_of_it() -> None:
    """∂map/∂log λ is of order φ where λ ≫ C: an embedding that went on with log λ would be magnified by 1/φ in the one-shot variance."""
    log_prior = torch.tensor(-2.0).double()
    slopes = []
    for log_ratio in (0.0, 4.0, 8.0):
        log_variance = torch.full((1, 1, 4, 4), -2.0 + log_ratio).double().requires_grad_()
        maps = SpaceFrequencyEmbedding(BACKBONE).maps(SpatialCovariance(log_variance), log_prior)
        (slope,) = torch.autograd.grad(maps[:, 0].sum(), log_variance)  # of −log φ in the band of DC
        slopes.append(float(slope[0, 0, 1, 1]) * 5)
    assert slopes[0] == pytest.approx(0.5, rel=0.1)  # λ = C: as if nothing ended
    phi = 1 / (1 + math.exp(8.0))
    assert phi / FAINTEST / 2 < slopes[2] < phi / FAINTEST < slopes[1]


@families
def test_a_hidden_coefficient_among_measured_ones_is_hardly_felt(family: str) -> None:
    """Where one coefficient of a band is hidden and the next is measured, their mean log λ is in the middle: λ ends before the mean."""
    log_prior = torch.tensor(-2.0).double()
    log_variance = torch.full((1, 1, SIDE, SIDE), -9.0).double()
    log_variance[..., 1, 1] = 7.0
    cov = isotropic(family, 0.3, (1, SIDE, SIDE), batch=1).with_log_variance(log_variance.requires_grad_())
    bands = SpaceFrequencyEmbedding(BACKBONE).maps(cov, log_prior).unflatten(1, (2, BANDS + 1))[:, :, :BANDS]
    phi = 1 / (1 + math.exp(9.0))
    for band in bands.mean(dim=(0, 3, 4)).flatten():
        (slope,) = torch.autograd.grad(band * 5, log_variance, retain_graph=True)
        assert float(slope[0, 0, 1, 1].abs()) < phi / FAINTEST


def two_branch() -> TwoBranchEmbedding:
    embedding = TwoBranchEmbedding(BACKBONE, 1e-6, 1e3).double()
    awaken(embedding)
    return embedding


def test_two_branches_handle_mixed_batches() -> None:
    embedding, log_prior = two_branch(), torch.tensor(-2.0).double()
    maps = [embedding.maps(noisy_pair(family, (3, SIDE, SIDE), True)[1], log_prior) for family in FAMILIES]
    order = torch.tensor([4, 0, 7, 2, 1, 6, 3, 5])
    together = embedding(torch.cat(maps)[order])
    alone = [embedding(m) for m in maps]
    for level, out in enumerate(together):
        expected = torch.cat([levels[level] for levels in alone])[order]
        torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("family", ["spatial", "fourier"])
def test_an_empty_branch_still_takes_part_in_the_gradient(family: str) -> None:
    """Or a process whose share of a batch has one kind of Σ only would leave the others waiting."""
    embedding = two_branch()
    maps = embedding.maps(noisy_pair(family, (1, SIDE, SIDE), True)[1], torch.tensor(-2.0).double())
    out = embedding(maps)
    assert [tuple(level.shape[2:]) for level in out] == [(8, 8), (4, 4)]
    sum(level.square().sum() for level in out).backward()  # type: ignore[union-attr]
    used, idle = embedding.spatial, embedding.spectral
    if family == "fourier":
        used, idle = idle, used
    assert all(p.grad is not None and p.grad.any() for p in used.parameters())
    assert all(p.grad is not None and not p.grad.any() for p in idle.parameters())


def test_the_spectral_branch_knows_where_a_value_sits() -> None:
    """Two places so far from the borders that to convolutions alone they would be the same."""
    embedding = two_branch()
    cov = isotropic("fourier", 0.3, (1, 16, 16), batch=1)
    outs = []
    for place in ((6, 6), (9, 7)):
        bumped = cov.log_variance.clone()
        bumped[0, 0, place[0], place[1]] += 2.0
        outs.append(embedding(embedding.maps(cov.with_log_variance(bumped), torch.tensor(0.0)))[0])
    assert bool((outs[0] - outs[1]).abs().max() > 1e-3 * outs[0].abs().max())
    torch.testing.assert_close(outs[0], outs[0][..., :1, :1].expand_as(outs[0]))  # gains of channels, not of pixels


@pytest.mark.parametrize("embedding", ["space-frequency", "two-branch"])
def test_the_smallest_variances_are_told_apart(embedding: str) -> None:
    """Features of the raw variance cannot tell 1e-6 from 1e-5."""
    shape = (1, SIDE, SIDE)
    module = two_branch() if embedding == "two-branch" else SpaceFrequencyEmbedding(BACKBONE).double()
    low, high = (module.maps(isotropic("spatial", v, shape), torch.tensor(-2.0)) for v in (1e-6, 1e-5))
    near, far = (module(m)[0] for m in (low, high))
    assert bool((near - far).abs().max() > 1e-2 * near.abs().max())


# --- denoisers ---------------------------------------------------------------------------------------------------------------


def tiny_denoiser(channels: int = 1, condition: int = 0) -> Denoiser:
    config = DenoiserConfig((channels, SIDE, SIDE), 1e-4, 1e2, backbone=BACKBONE, condition_channels=condition)
    denoiser = Denoiser(config).double()
    denoiser.fit_gaussian(torch.rand(channels, SIDE, SIDE, generator=keyed_generator("mean")), 0.07)
    return denoiser.eval()


@pytest.mark.parametrize("channels", [1, 3])
def test_a_denoiser_starts_as_the_wiener_filter(channels: int) -> None:
    denoiser, shape = tiny_denoiser(channels), (channels, SIDE, SIDE)
    cov = isotropic("spatial", 0.2, shape)
    y = images(shape) + cov.sample_noise(keyed_generator("noise"))
    exact, _ = DiagonalGaussian(cov[:1].isotropic(float(denoiser.log_prior.exp())), denoiser.mean).posterior(y, cov)
    torch.testing.assert_close(denoiser(y, 0.2), exact, rtol=1e-6, atol=1e-9)


def test_a_denoiser_takes_one_variance_a_sample() -> None:
    denoiser = tiny_denoiser()
    awaken(denoiser)
    y, variances = images((1, SIDE, SIDE)), torch.tensor([0.01, 1.0, 50.0]).double()
    together = denoiser(y, variances)
    for row in range(3):
        torch.testing.assert_close(together[row : row + 1], denoiser(y[row : row + 1], float(variances[row])))


def test_a_conditional_denoiser_sees_its_condition_and_insists_on_it() -> None:
    denoiser = tiny_denoiser(condition=2)
    awaken(denoiser)
    y = images((1, SIDE, SIDE))
    condition = torch.randn(3, 2, SIDE, SIDE, generator=keyed_generator("condition"), dtype=torch.float64)
    assert not torch.allclose(denoiser(y, 0.1, condition), denoiser(y, 0.1, 2 * condition), rtol=1e-4)
    with pytest.raises(ValueError, match="condition of 2 channels"):
        denoiser(y, 0.1)
    with pytest.raises(ValueError, match="condition of 0 channels"):
        tiny_denoiser()(y, 0.1, condition)

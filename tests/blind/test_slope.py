"""The slope of the evidence from means, and estimates judged by held-out images: on energies that are exact, or wrong in a known way."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from linverse.analytic import DiagonalGaussian
from linverse.blind import Axis, Search, UnknownGaussianBlur, evidence_slopes, log_evidence, search, simulate
from linverse.blind import slope as module
from linverse.blind.automatic import search_width
from linverse.blind.slope import bracket, calibrate_slopes, search_by_slope, tops
from linverse.covariance import Covariance, FourierCovariance, VarianceRange
from linverse.data.digits import load_digits
from linverse.energy import Energy
from linverse.experiments.demo import exact_digits
from linverse.progress import silent
from linverse.rng import keyed_generator
from linverse.store.references import References

STD, SIGMA = 1.0, 0.03
FAMILY = UnknownGaussianBlur(SIGMA)
AXIS = Axis("std", 0.3, 3.0, 19)
LIMITS = VarianceRange(1e-6, 1e3)


class Tilted:
    """An energy plus a share of ½ log det Σ: its evidence prefers blurs that are too narrow, its means are what they were."""

    def __init__(self, energy: Energy, share: float) -> None:
        self.energy, self.share = energy, share
        self.shape, self.range, self.gaussian = energy.shape, energy.range, energy.gaussian

    def __call__(self, y: Tensor, cov: Covariance) -> Tensor:
        return self.energy(y, cov) + 0.5 * self.share * cov.logdet()


def gaussian_prior(side: int = 12, tilt: float = 2.0) -> DiagonalGaussian:
    """Power that falls with frequency: `tilt` 2 is f⁻²."""
    f = torch.fft.fftfreq(side, dtype=torch.float64)
    power = -0.5 * tilt * torch.log(f[:, None].square() + f[None, :].square() + 0.01) - 5.0
    return DiagonalGaussian(FourierCovariance(power[None, None]), limits=LIMITS)


def digits(count: int, split: str = "test") -> Tensor:
    return load_digits(split).batch(torch.arange(count))


def blurred(x: Tensor, key: str) -> Tensor:
    rows = [simulate(FAMILY, one[None], {"std": STD}, keyed_generator(key, i)) for i, one in enumerate(x)]
    return torch.cat(rows)


def difference(energy: Energy, raw: Tensor, values: Tensor, step: float = 1e-4) -> Tensor:
    """∂ log p/∂ log θ of one image by central differences of the evidence itself."""
    up, down = (log_evidence(energy, raw, FAMILY, {"std": values * math.exp(s)}) for s in (step, -step))
    return (up - down) / (2 * step)


def test_the_slope_is_that_of_the_evidence_for_a_gaussian() -> None:
    """J is diagonal in the basis of the blur: random signs give its trace exactly."""
    prior = gaussian_prior()
    raw = blurred(prior.sample(1, keyed_generator("prior")) + 0.5, "gaussian")
    values = torch.tensor([0.4, 0.9, 1.6, 2.5], dtype=torch.float64)
    found = evidence_slopes(prior, raw, FAMILY, "std", values)
    torch.testing.assert_close(found, difference(prior, raw, values), rtol=1e-5, atol=1e-4)
    assert float(found.abs().min()) > 1  # zeros would not pass


def test_the_slope_is_that_of_the_evidence_for_a_mixture(monkeypatch: pytest.MonkeyPatch) -> None:
    energy, raw = exact_digits(), blurred(digits(1), "mixture").double()
    values = torch.tensor([0.6, 1.0, 1.5], dtype=torch.float64)
    exact = difference(energy, raw, values)
    monkeypatch.setattr(module, "PROBES", (64 * 16, 16))
    rows = torch.stack([evidence_slopes(energy, raw, FAMILY, "std", values, seed=0)])
    seeds = [rows[0]]
    signs = keyed_generator
    for number in range(1, 20):  # other signs, the same noise that is added to the data
        monkeypatch.setattr(
            module, "keyed_generator", lambda *key, n=number: signs(*key, n) if key[0] == "signs" else signs(*key)
        )
        seeds.append(evidence_slopes(energy, raw, FAMILY, "std", values, seed=0))
    found = torch.stack(seeds)
    error = found.std(dim=0) / math.sqrt(len(found))
    assert bool(((found.mean(0) - exact).abs() < 5 * error + 1e-3 * exact.abs()).all())
    assert bool((exact.abs() > 10 * error).any())  # or zeros might pass


def test_a_term_of_the_noise_alone_tilts_the_evidence_and_not_the_slope() -> None:
    prior = gaussian_prior()
    tilted = Tilted(prior, 0.3)
    raw = blurred(prior.sample(1, keyed_generator("prior")) + 0.5, "tilted")
    values = torch.tensor([0.6, 1.2], dtype=torch.float64)
    plain, other = (evidence_slopes(energy, raw, FAMILY, "std", values) for energy in (prior, tilted))
    torch.testing.assert_close(plain, other, rtol=1e-9, atol=1e-9)
    assert bool(((difference(tilted, raw, values) - plain).abs() > 5).all())


def test_the_estimate_is_the_top_of_the_evidence() -> None:
    prior = gaussian_prior()
    raw = blurred(prior.sample(3, keyed_generator("prior")) + 0.5, "top")
    places = torch.linspace(math.log(0.3), math.log(3.0), 13, dtype=torch.float64).expand(3, -1)
    found, climbed = tops(prior, raw, FAMILY, "std", places)
    for one, image in zip(found.tolist(), raw.split(1), strict=True):
        exact = search(prior, image, FAMILY, (AXIS,))
        assert abs(one - math.log(exact.value(exact.axes[0]))) < 0.02
    evidence = log_evidence(prior, raw[:1], FAMILY, {"std": places[0].exp()})
    rise = evidence - evidence[0]  # the integral by trapezoids, of steps of a fifth
    assert float((climbed[0] - rise).abs().max()) < 0.1 * float(rise.max() - rise.min())


def test_the_highest_of_two_hills_is_climbed() -> None:
    places = torch.arange(7, dtype=torch.float64).expand(3, -1)
    slopes = torch.tensor(
        [[1.0, -1, -1, 5, 4, -1, -9], [9.0, -1, -9, 1, 1, -1, -1], [1.0, 1, 1, 1, 1, 1, 1]], dtype=torch.float64
    )
    climbed = torch.cat([torch.zeros(3, 1), torch.cumulative_trapezoid(slopes, places, dim=1)], dim=1)
    left, right, below, above = bracket(places, slopes, climbed)
    assert [left.tolist(), right.tolist()] == [[4, 0, 6], [5, 1, 6]]
    assert [below.tolist(), above.tolist()] == [[4, 9, 1], [-1, -1, 1]]


def test_a_known_bias_is_taken_off_and_intervals_cover(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of f⁻², an energy of f⁻¹ and another power: it finds them less blurred than they are."""
    truth, wrong, images = gaussian_prior(), gaussian_prior(tilt=1.0), 24
    held_out = truth.sample(40, keyed_generator("held out")) + 0.5
    pixels = (held_out.clamp(0, 1) * 255).round().to(torch.uint8)
    monkeypatch.setattr(module, "references_of", lambda _: References(pixels))
    raw = blurred(truth.sample(images, keyed_generator("pictures")) + 0.5, "pictures")
    plain = [search(wrong, one, FAMILY, (AXIS,)) for one in raw.split(1)]
    places = torch.linspace(math.log(0.5), math.log(1.8), 3, dtype=torch.float64)
    judged = calibrate_slopes(wrong, FAMILY, "std", places, images=40)
    better = [search_by_slope(wrong, one, FAMILY, AXIS, judged) for one in raw.split(1)]
    assert abs(mean_error(plain)) > 0.1
    assert abs(mean_error(better)) < 0.3 * abs(mean_error(plain))
    assert covered(plain) < 0.6 * images < 0.75 * images <= covered(better)


def mean_error(found: list[Search]) -> float:
    return sum(math.log(one.value(one.axes[0]) / STD) for one in found) / len(found)


def covered(found: list[Search]) -> int:
    intervals = [one.interval(one.axes[0]) for one in found]
    return sum(low <= STD <= high for low, high in intervals)


def test_without_held_out_images_the_evidence_is_taken_as_it_is() -> None:
    raw = blurred(digits(1), "none")
    found = search_width(exact_digits(), raw, FAMILY, AXIS, seed=0, progress=silent)
    exact = search(exact_digits(), raw, FAMILY, (AXIS,))
    assert found.value(found.axes[0]) == exact.value(exact.axes[0])
    with pytest.raises(ValueError, match="carries no held-out images"):
        search_by_slope(exact_digits(), raw, FAMILY, AXIS)


def test_an_estimate_at_the_edge_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = (digits(30) * 16).round().to(torch.uint8)
    monkeypatch.setattr(module, "references_of", lambda _: References(pixels, 16))
    found = search_by_slope(exact_digits(), blurred(digits(1), "edge"), FAMILY, Axis("std", 0.1, 0.5, 19))
    assert [axis.name for axis in found.at_edge()] == ["std"]

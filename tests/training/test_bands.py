"""Self-tests by band and at the floor: right for an exact energy, and wrong in the right place for a wrong one."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from linverse.analytic import DenseGaussian
from linverse.covariance import Covariance, VarianceRange
from linverse.energy import Evaluation, evaluate_in_basis
from linverse.rng import keyed_generator
from linverse.training.bands import BANDS, NOISE_EXAMPLES, band_tests, jackknife, worst
from linverse.training.floor import floor_test

SHAPE = (1, 8, 8)
LIMITS = VarianceRange(1e-6, 1e3)
COUNT = 400


def prior() -> DenseGaussian:
    """Smooth pictures."""
    index = torch.arange(8).double()
    line = torch.exp(-0.5 * ((index[:, None] - index[None]) / 2.0).square()) + 1e-3 * torch.eye(8).double()
    return DenseGaussian(torch.full((64,), 0.5).double(), 0.08 * torch.kron(line, line), SHAPE, LIMITS)


class Shifted:
    """An energy whose covariance score is wrong by some amount at hidden coefficients, and its density by a constant at all."""

    def __init__(self, energy: DenseGaussian, kappa: float = 0.0, tilt: float = 0.0) -> None:
        self.energy, self.kappa, self.tilt = energy, kappa, tilt
        self.range, self.shape, self.gaussian = energy.range, energy.shape, energy.gaussian

    def __call__(self, y: Tensor, cov: Covariance) -> Tensor:
        return self.energy(y, cov) + self.tilt * cov.log_variance.double().mean(dim=(1, 2, 3)) * cov.dim

    def evaluate_in_basis(self, z: Tensor, cov: Covariance, *, create_graph: bool = False) -> Evaluation:
        found = evaluate_in_basis(self.energy, z, cov)
        hidden = cov.log_variance > math.log(100.0)
        energy = self(cov.synthesis(z), cov)
        return replace(found, energy=energy, cov_score=found.cov_score + self.kappa * hidden)


def pictures() -> Tensor:
    return prior().sample(COUNT, keyed_generator("pictures"))


def test_an_exact_energy_passes_in_every_band() -> None:
    tests = band_tests(prior(), pictures(), ("isotropic", "box", "gaussian-blur"))
    assert {t.family for t in tests} >= {"white noise 0.1", "box", "blur 0.8", "×4", "pink noise 0.1"}
    assert {t.measured for t in tests} == {True, False}
    for t in tests:
        assert abs(t.mean) < 5 * t.mean_error + 1e-6, t
        assert abs(t.slope - 1) < 5 * t.slope_error + 1e-6, t
        assert abs(t.variance_ratio - 1) < 5 * t.variance_error + 1e-6, t
        assert t.seen == (t.family in ("white noise 0.1", "white noise 0.5", "box", "blur 0.8", "blur 1.5"))


def test_an_error_of_hidden_coefficients_shows_where_it_is() -> None:
    tests = band_tests(Shifted(prior(), kappa=0.1), pictures(), ("box",))
    box = {(t.measured, t.band): t for t in tests if t.family == "box"}
    assert box[False, BANDS[3]].mean == pytest.approx(0.1, abs=5 * box[False, BANDS[3]].mean_error)
    measured = [t for (seen, _), t in box.items() if seen]
    assert measured
    assert all(abs(t.mean) < 5 * t.mean_error for t in measured)
    assert worst(tests)["mean"] > 0.05


def test_the_gap_at_the_floor_is_zero_for_an_exact_energy_and_finds_a_drift() -> None:
    x = pictures()
    exact = floor_test(prior(), x, 160)
    assert abs(exact.gap) < 5 * exact.gap_error + 2e-3  # the trapezoidal rule's own error beside it
    tilted = floor_test(Shifted(prior(), tilt=0.01), x, 160)
    assert tilted.gap - exact.gap == pytest.approx(-0.01 * math.log(1e9), abs=1e-6)


def test_families_that_a_picture_is_too_small_for_are_left_out() -> None:
    small = DenseGaussian(torch.zeros(9).double(), torch.eye(9).double(), (1, 3, 3), LIMITS)
    names = {t.family for t in band_tests(small, torch.rand(30, 1, 3, 3).double(), ())}
    assert "×4" not in names
    assert "white noise 0.1" in names


def test_jackknife_gives_the_standard_error_of_a_mean() -> None:
    rows = torch.stack([torch.ones(50), torch.randn(50, generator=keyed_generator("rows"))], dim=1).double()
    mean, error = jackknife(lambda s: (s[..., 1] / s[..., 0])[..., None], rows)
    assert mean == pytest.approx(float(rows[:, 1].mean()))
    assert error == pytest.approx(float(rows[:, 1].std()) / 50**0.5, rel=1e-9)


def test_every_family_has_a_name_of_its_own() -> None:
    assert len({f.name for f in NOISE_EXAMPLES}) == len(NOISE_EXAMPLES)

"""The noise between x and z: as loud as the operator allows, never louder."""

from __future__ import annotations

import pytest
import torch

from linverse import degradations as dg
from linverse.analytic import DenseGaussian
from linverse.covariance import VarianceRange
from linverse.energy import Energy
from linverse.operator_measurement import OperatorMeasurement
from linverse.sampling.coupling import COUPLING, between, couple, seen_spectrum
from oracles import matrix_of

SHAPE, SIGMA = (1, 12, 12), 0.1


def energy(*bases: str, minimum: float = 1e-6) -> Energy:
    eye = torch.eye(144, dtype=torch.float64)
    return DenseGaussian(eye[0], eye, SHAPE, VarianceRange(minimum, 1e3, bases))


def measured(degradation: dg.Degradation) -> OperatorMeasurement:
    found = degradation.measure(torch.zeros(1, *SHAPE, dtype=torch.float64))
    assert isinstance(found, OperatorMeasurement)
    return found


OPERATORS = {
    "tomography": dg.Tomography(SHAPE[1:], 12, SIGMA),
    "varying blur": dg.VaryingBlur.across(SHAPE[1:], 0.4, 1.2, SIGMA),
    "projections": dg.CompressedSensing(SHAPE[1:], 0.4, SIGMA),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_the_rest_of_the_noise_is_a_covariance(name: str) -> None:
    """σ²I − HΣ_zHᵀ > 0, by dense matrices."""
    seen = measured(OPERATORS[name])
    noise = couple(energy(), seen)
    matrix = matrix_of(OPERATORS[name].operator, SHAPE)
    left = SIGMA**2 * torch.eye(len(matrix), dtype=torch.float64) - matrix @ matrix_of(noise.apply, SHAPE) @ matrix.mT
    assert float(torch.linalg.eigvalsh(left).min()) > 0.05 * SIGMA**2
    largest = float(torch.linalg.eigvalsh(matrix_of(between(noise, seen), SHAPE)).max())
    assert 0.8 * COUPLING < largest < 1.05 * COUPLING


def test_an_operator_that_sees_fine_waves_hardly_leaves_them_free() -> None:
    seen = measured(OPERATORS["tomography"])
    free, white = couple(energy(), seen), couple(energy("spatial"), seen)
    assert (free.basis, white.basis) == ("fourier", "spatial")
    assert float((free.log_variance.mean() - white.log_variance.mean()).exp()) > 3


def test_patterns_without_a_preference_leave_it_white() -> None:
    assert couple(energy(), measured(OPERATORS["projections"])).basis == "spatial"


def test_what_the_energy_cannot_resolve_is_not_asked_of_it() -> None:
    seen = measured(OPERATORS["tomography"])
    floor = float(couple(energy("spatial"), seen).log_variance.exp().min())
    noise = couple(energy(minimum=0.99 * floor), seen)
    assert float(noise.log_variance.exp().min()) >= 0.99 * floor


def test_the_spectrum_is_that_of_a_periodic_blur() -> None:
    """Where HᵀH is diagonal in Fourier its eigenvalues come out, but for the mean over neighbours."""
    blur = dg.GaussianBlur(1.0, SIGMA)
    linear = measured(dg.LinearOperator(blur.operator, blur.operator, SIGMA)).linear
    dense = matrix_of(lambda x: linear.adjoint(linear.forward(x)), SHAPE)
    spectrum = seen_spectrum(linear)
    basis = matrix_of(spectrum.synthesis, SHAPE)
    exact = (basis.mT @ dense @ basis).diagonal().reshape(SHAPE[1:])
    found = spectrum.log_variance.exp()[0, 0]
    torch.testing.assert_close(found[0, 0], exact[0, 0])
    middle = exact > 0.01
    assert float((found / exact)[middle].log().abs().max()) < 0.8

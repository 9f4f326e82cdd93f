"""Operators that no basis diagonalises: exact adjoints, what they measure, and what they refuse."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import linverse as lv
from linverse import degradations as dg
from linverse.operator_measurement import LinearMap, OperatorMeasurement, as_operator
from linverse.rng import keyed_generator
from oracles import matrix_of

SHAPE = (1, 6, 8)
OPERATORS: dict[str, tuple[dg.Degradation, tuple[int, int, int]]] = {
    "tomography": (dg.Tomography((6, 8), 5, 0.1), (2, 6, 8)),
    "gaussian patterns": (dg.CompressedSensing((6, 8), 0.4, 0.1), (2, 6, 8)),
    "scrambled patterns": (dg.CompressedSensing((6, 8), 0.4, 0.1, "scrambled"), (2, 6, 8)),
    "hadamard patterns": (dg.CompressedSensing((6, 8), 0.4, 0.1, "hadamard"), (2, 6, 8)),
    "decolorise": (dg.Decolorise(0.1), (3, 6, 8)),
    "bicubic": (dg.SuperResolution(2, 0.1, "bicubic"), (2, 6, 8)),
    "varying blur": (dg.VaryingBlur.across((6, 8), 0.3, 1.2, 0.1), (2, 6, 8)),
    "composed": (dg.Composed([dg.GaussianBlur(0.8), dg.SuperResolution(2)], (2, 6, 8), 0.1), (2, 6, 8)),
    "stacked": (dg.Stacked([dg.Tomography((6, 8), 3, 0.1), dg.Box(3, 0.2)], (2, 6, 8)), (2, 6, 8)),
}
operators = pytest.mark.parametrize("name", OPERATORS)


def measured(name: str) -> tuple[dg.Degradation, Tensor, OperatorMeasurement]:
    degradation, shape = OPERATORS[name]
    x = torch.rand(2, *shape, generator=keyed_generator("x"), dtype=torch.float64)
    seen = degradation.measure(x, keyed_generator("v"))
    assert isinstance(seen, OperatorMeasurement)
    return degradation, x, seen


@operators
def test_the_adjoint_is_the_transposed_matrix(name: str) -> None:
    degradation, x, seen = measured(name)
    matrix = matrix_of(degradation.operator, tuple(x.shape[1:]))  # type: ignore[arg-type]
    data = torch.randn(2, *seen.raw.shape[1:], generator=keyed_generator("r"), dtype=torch.float64)
    torch.testing.assert_close(seen.adjoint(data).flatten(1), data.flatten(1) @ matrix, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        seen.linear.gain, 1.05 * float(torch.linalg.matrix_norm(matrix, 2)) ** 2, rtol=0.02, atol=0
    )


@operators
def test_what_solvers_ask_is_what_dense_matrices_say(name: str) -> None:
    degradation, x, seen = measured(name)
    matrix = matrix_of(degradation.operator, tuple(x.shape[1:]))  # type: ignore[arg-type]
    raw, flat, eye = seen.raw.flatten(1), x.flatten(1), torch.eye(len(matrix), dtype=torch.float64)
    for variance in (1e-3, 0.5):
        inner = torch.linalg.solve(variance * matrix @ matrix.mT + 0.01 * eye, (raw - flat @ matrix.mT).mT).mT
        expected = flat + variance * inner @ matrix
        torch.testing.assert_close(seen.proximal(x, variance).flatten(1), expected, rtol=0, atol=1e-3)
    torch.testing.assert_close(seen.residual(x).flatten(1), raw - flat @ matrix.mT)
    assert seen.normalised_residual(x).mean() == pytest.approx(1, abs=0.5)
    damped = matrix @ matrix.mT + 1e-2 * seen.linear.gain * eye
    inverse = torch.linalg.solve(damped, raw.mT).mT @ matrix
    torch.testing.assert_close(seen.pseudo_inverse(0.1).flatten(1), inverse, rtol=0, atol=2e-3)


@operators
def test_float32_and_parts_of_a_batch(name: str) -> None:
    degradation, x, seen = measured(name)
    torch.testing.assert_close(degradation.operator(x.float()).double(), degradation.operator(x), rtol=0, atol=1e-5)
    single = seen.to(torch.float32)
    assert single.residual(x.float()).dtype == torch.float32  # a float64 operator behind float32 data
    torch.testing.assert_close(single.residual(x.float()).double(), seen.residual(x), rtol=0, atol=1e-5)
    assert torch.equal(seen[1:].raw, seen.raw[1:])
    assert seen.repeat_interleave(2).batch == 4
    assert (seen.shape, seen.template.basis) == (tuple(x.shape), "spatial")


def test_tomography_gives_line_integrals() -> None:
    x = torch.rand(1, 1, 7, 7, generator=keyed_generator("x"), dtype=torch.float64)
    sinogram = dg.Tomography((7, 7), 2, 0.1).operator(x)[0, 0]
    centre = slice(2, 9)  # of 12 cells: ⌈√98⌉ + 2
    torch.testing.assert_close(sinogram[0].sum(), x.sum() / 7)
    half = (sinogram.shape[1] - 7) / 2
    assert half == 2.5  # columns fall between cells: half of each on either side
    columns, rows = x.sum(dim=2)[0, 0] / 7, x.sum(dim=3)[0, 0] / 7
    for line, sums in ((0, columns), (1, rows)):
        expected = torch.zeros(12, dtype=torch.float64)
        expected[centre] += 0.5 * sums
        expected[3:10] += 0.5 * sums
        torch.testing.assert_close(sinogram[line], expected)


def test_a_diagonal_ray_sees_the_diagonal() -> None:
    """At 45° the centre cell of an odd detector holds the pixels on the diagonal, and half a cell's worth of their neighbours."""
    x = torch.eye(6).reshape(1, 1, 6, 6).double()
    sinogram = dg.Tomography((6, 6), 4, 0.1).operator(x)[0, 0]
    assert float(sinogram[3].max()) > 2.5 * float(sinogram[1].max())  # 135° runs along the main diagonal, 45° across it


def test_hadamard_is_orthonormal_and_the_coarsest_pattern_is_the_mean() -> None:
    from linverse.degradations.scanners import hadamard

    matrix = hadamard(torch.eye(16, dtype=torch.float64))
    torch.testing.assert_close(matrix @ matrix.mT, torch.eye(16, dtype=torch.float64))
    x = torch.rand(1, 1, 4, 4, generator=keyed_generator("x"), dtype=torch.float64)
    seen = dg.CompressedSensing((4, 4), 0.25, 0.1, "hadamard").operator(x)[0, 0]
    torch.testing.assert_close(seen[0], 4 * x.mean())
    halves = x[..., :2].sum() - x[..., 2:].sum(), x[..., :2, :].sum() - x[..., 2:, :].sum()
    assert sorted(map(float, seen[1:3])) == pytest.approx(sorted(float(h) / 4 for h in halves))


def test_bicubic_keeps_a_constant_and_a_ramp() -> None:
    ramp = torch.linspace(0, 1, 24, dtype=torch.float64).expand(1, 1, 24, 24)
    small = dg.SuperResolution(4, 0.1, "bicubic").operator(ramp)
    box = dg.SuperResolution(4).operator(ramp)
    torch.testing.assert_close(small[..., 2:-2], box[..., 2:-2])  # away from the edges both see a straight line
    torch.testing.assert_close(
        dg.SuperResolution(4, 0.1, "bicubic").operator(torch.ones_like(ramp)), torch.ones_like(small)
    )


def test_varying_blur_is_each_blur_where_its_map_is_one() -> None:
    x = torch.rand(1, 1, 6, 8, generator=keyed_generator("x"), dtype=torch.float64)
    y = dg.VaryingBlur.across((6, 8), 0.3, 1.2, 0.1).operator(x)
    torch.testing.assert_close(y[..., 0], dg.GaussianBlur(0.3).operator(x)[..., 0])
    torch.testing.assert_close(y[..., -1], dg.GaussianBlur(1.2).operator(x)[..., -1])


def test_stacked_data_have_the_noise_of_the_first() -> None:
    degradation = dg.Stacked([dg.Denoising(0.1), dg.Denoising(0.4)], SHAPE)
    raws = [torch.ones(2, *SHAPE), torch.ones(2, *SHAPE)]
    joined = degradation.join(raws)
    torch.testing.assert_close(joined[:, :48], torch.ones(2, 48))
    torch.testing.assert_close(joined[:, 48:], torch.full((2, 48), 0.25))
    assert degradation.sigma == 0.1
    with pytest.raises(ValueError, match="1 measurements for 2 operators"):
        degradation.join(raws[:1])


MATRIX = torch.randn(5, 48, generator=keyed_generator("matrix"))


def forward(x: Tensor) -> Tensor:
    return x.flatten(1) @ MATRIX.to(x).mT


def backward(r: Tensor) -> Tensor:
    return (r @ MATRIX.to(r)).reshape(-1, *SHAPE)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "wrong adjoint": (
        lambda: lv.LinearOperator(forward, lambda r: 2 * backward(r), 0.1).from_raw(torch.zeros(1, 5)),
        "the adjoint is not the operator's",
    ),
    "no noise": (lambda: lv.LinearOperator(forward, backward, 0.0), "sigma is 0"),
    "negative noise": (lambda: lv.LinearOperator(forward, backward, -1.0), "standard deviation"),
    "data of another length": (
        lambda: lv.LinearOperator(forward, backward, 0.1).from_raw(torch.zeros(1, 6)),
        r"does not take data of shape \(1, 6\)",
    ),
    "data of another shape": (
        lambda: lv.LinearOperator(forward, lambda r: backward(r.flatten(1)), 0.1).from_raw(torch.zeros(2, 5, 1)),
        r"the measurement has shape \(2, 5, 1\); for images of 1×6×8 the operator gives \[batch, 5\]",
    ),
    "NaN": (
        lambda: lv.LinearOperator(forward, backward, 0.1).from_raw(torch.full((1, 5), math.nan)),
        "5 NaN or infinite entries",
    ),
    "integers": (lambda: lv.LinearOperator(forward, backward, 0.1).from_raw(torch.zeros(1, 5).long()), "dtype int64"),
    "an adjoint that gives no image": (
        lambda: lv.LinearOperator(forward, lambda r: r @ MATRIX, 0.1).from_raw(torch.zeros(1, 5)),
        r"it must give an image \[1, channels, height, width\]",
    ),
    "a sinogram of other angles": (
        lambda: lv.Tomography((6, 8), 5, 0.1).from_raw(torch.zeros(1, 1, 4, 12)),
        r"the sinogram has shape \(1, 1, 4, 12\)",
    ),
    "an image of another size": (
        lambda: lv.Tomography((6, 8), 5, 0.1).measure(torch.zeros(1, 1, 8, 8)),
        "the image is 8×8; this scanner is made for 6×8",
    ),
    "no angles": (lambda: lv.Tomography((6, 8), 0, 0.1), "at least one angle"),
    "a share of 0": (lambda: lv.CompressedSensing((6, 8), 0.0), "share of the pixels"),
    "unknown patterns": (lambda: lv.CompressedSensing((6, 8), 0.5, 0.1, "waves"), "gaussian, scrambled or hadamard"),  # type: ignore[arg-type]
    "a large dense matrix": (lambda: lv.CompressedSensing((64, 64)), 'patterns="scrambled"'),
    "a grey picture of grey": (lambda: lv.Decolorise().measure(torch.zeros(1, 1, 2, 2)), "3 channels"),
    "maps that are none": (lambda: lv.VaryingBlur([lv.GaussianBlur(1.0)], torch.zeros(1, 2, 2), 0.1), "sum to one"),
    "bicubic without noise": (
        lambda: lv.SuperResolution(2, kernel="bicubic").measure(torch.zeros(1, 1, 4, 4)),
        "sigma is 0",
    ),
    "nothing measured": (
        lambda: LinearMap(lambda x: 0 * forward(x), lambda r: 0 * backward(r), torch.zeros(1, *SHAPE)).gain,
        "nothing was measured",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        make()


def test_a_measurement_in_a_basis_as_a_general_operator() -> None:
    """The same likelihood: precision and pull of every pixel, with noise that differs between coefficients."""
    scan, shape = dg.MRI(2.5, 0.1, seed=1), (1, 6, 8)
    seen = scan.measure(
        torch.rand(2, *shape, generator=keyed_generator("x"), dtype=torch.float64), keyed_generator("v")
    )
    general = as_operator(seen)
    general.linear.check_adjoint()
    ours, theirs = matrix_of(general.forward, shape), matrix_of(scan.operator, shape)
    torch.testing.assert_close(ours.mT @ ours / general.variance, theirs.mT @ theirs / 0.01, rtol=0, atol=1e-9)
    pulled = general.adjoint(general.raw).flatten(1) / general.variance
    torch.testing.assert_close(pulled, seen.raw.flatten(1) @ theirs / 0.01, rtol=0, atol=1e-9)
    assert as_operator(general) is general


def test_a_measurement_without_a_basis_says_so() -> None:
    seen = lv.LinearOperator(forward, backward, 0.1).from_raw(torch.zeros(2, 5))
    for name in ("coefficients", "log_gain", "log_noise", "gain", "measured", "log_variance"):
        with pytest.raises(TypeError, match="no basis diagonalises this operator"):
            getattr(seen, name)
    assert repr(seen) == "OperatorMeasurement(2 of 1×6×8 by data of 5, noise std 0.1)"

"""How loosely split Gibbs may tie z to x: the noise Σ_z between them (mathematics §14).

With z = x + N(0, Σ_z) and data y = Hz + N(0, σ²I − HΣ_zHᵀ) the law of x is the posterior itself, whatever Σ_z with HΣ_zHᵀ < σ²I, and
    z|x = N(x + Σ_zHᵀ(y − Hx)/σ², Σ_z^{½}(I − A)Σ_z^{½}),   A = Σ_z^{½}HᵀHΣ_z^{½}/σ².
The louder Σ_z the sooner the chain forgets: a direction of posterior variance V moves by Σ_z in a sweep. White Σ_z is bound by the best
measured direction, ρ² < σ²/‖H‖². An operator that sees coarse waves well and fine ones hardly (tomography: HᵀH ≈ 1/|k|) allows far more
at the fine ones, and x given z under such noise is a question that these energies answer. So
    Σ_z ∝ d^{−p} in Fourier,   d_k = ‖H f_k‖² by random probes,   p one of 0, ½, 1,
scaled to ‖A‖ = 0.9: the p with the largest mean log λ is taken, if it is clearly larger than that of white noise. Were HᵀH diagonal in
Fourier, A would be 0.9·I for p = 1 and every sweep all but a fresh sample; random projections have a flat d.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from linverse.covariance import Covariance, identity
from linverse.energy import Energy, floor_covariance
from linverse.operator_measurement import LinearMap, OperatorMeasurement, largest_eigenvalue
from linverse.rng import keyed_generator, normal_like

COUPLING = 0.9  # ‖A‖: as far as z can go before its noise, and √(I − A), become singular
POWERS = (0.5, 1.0)  # p, besides 0
LEAST_GAIN = math.log(2)  # of the mean log λ: below that white noise is the simpler question
FAINTEST = 1e-3  # of the largest d: below that nothing was seen
PROBE_PIXELS = 2**18  # of all probes together …
PROBES = (16, 256)  # … which are so many at least and at most


def couple(energy: Energy, seen: OperatorMeasurement) -> Covariance:
    """Σ_z, one row: white, or louder where H sees little, if the energy knows periodic noise."""
    template = floor_covariance(energy, seen.raw.new_empty(seen.shape))
    white = template.isotropic(min(COUPLING * seen.variance / seen.linear.gain, energy.range.maximum))
    bases = energy.range.bases
    if bases and "fourier" not in bases:
        return white
    spectrum = seen_spectrum(seen.linear)
    found = [_scaled(spectrum.with_log_variance(-p * spectrum.log_variance), seen) for p in POWERS]
    known = [cov for cov in found if float(cov.log_variance.min()) >= math.log(energy.range.minimum)]
    best = max(known, key=lambda cov: float(cov.log_variance.mean()), default=white)
    if float(best.log_variance.mean() - white.log_variance.mean()) < LEAST_GAIN:
        return white
    loudest = math.log(energy.range.maximum)
    return best.with_log_variance(best.log_variance.clamp_max(loudest).to(seen.raw))


def seen_spectrum(linear: LinearMap) -> Covariance:
    """d in Fourier, one for all channels, smoothed; what was hardly seen counts as seen a little."""
    gains = seen_gains(linear, "fourier")
    return identity("fourier", linear.shape, linear.like).with_log_variance(
        gains.clamp_min(FAINTEST * float(gains.max())).log()
    )


def seen_gains(linear: LinearMap, basis: str) -> Tensor:
    """d = diag(QᵀHᵀHQ), one for all channels, [1, 1, H, W], by random images v: d_k = Σ_v v_k (HᵀHv)_k / Σ_v v_k².

    Exact if HᵀH is diagonal there. In Fourier both sums are those of neighbouring frequencies, too: few probes do.
    """
    channels, height, width = linear.shape
    count = max(PROBES[0], min(PROBES[1], PROBE_PIXELS // (height * width)))
    probes = normal_like(linear.like.expand(count, -1, -1, -1), keyed_generator("coupling"))
    template = identity(basis, (channels, height, width), linear.like)
    v, seen = template.analysis(probes), template.analysis(linear.adjoint(linear.forward(probes)))
    sums = [t.sum(dim=(0, 1)) for t in (v * seen, v.square())]
    if basis == "fourier":
        sums = [_smooth(_even(t)) for t in sums]
    return (sums[0] / sums[1]).clamp_min(0)[None, None]


def _even(values: Tensor) -> Tensor:
    """The mean over ±k of values on the DFT grid, [H, W]: noise that does not depend on the place has such a spectrum."""
    return 0.5 * (values + values.flip(0, 1).roll((1, 1), (0, 1)))


def _smooth(values: Tensor) -> Tensor:
    """The mean over a frequency and its eight neighbours, the zero frequency left alone: it is like no other."""
    around = [values.roll((i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    mean = torch.stack(around).mean(0)
    mean[0, 0] = values[0, 0]
    return mean


def _scaled(shape: Covariance, seen: OperatorMeasurement) -> Covariance:
    """Σ_z of that shape with ‖A‖ = `COUPLING`."""
    norm = largest_eigenvalue(between(shape, seen), seen.linear.like)
    return shape.with_log_variance(shape.log_variance + math.log(COUPLING / norm))


def between(noise: Covariance, seen: OperatorMeasurement) -> Callable[[Tensor], Tensor]:
    """A = Σ_z^{½}HᵀHΣ_z^{½}/σ², on images."""

    def apply(v: Tensor) -> Tensor:
        return noise.power(seen.adjoint(seen.forward(noise.power(v, 0.5))), 0.5) / seen.variance

    return apply

"""What every energy of images in [0, 1] must exceed: p(y|Σ) = E_x N(y; x, Σ) is at most the largest N(y; x, Σ) over such x.

A network has seen y that are typical of Σ. Shown an image that is far noisier than Σ allows, it extrapolates, and may call it tens of
thousands of nats more probable than any image can be; a search for the noise level would end there. With o the part of y that
lies outside of [0, 1],
    U(y, Σ) ≥ ½ log det 2πΣ + ½ Σ_i o_i²/λ_i        Σ diagonal in pixels
    U(y, Σ) ≥ ½ log det 2πΣ + ½ |o|²/max λ          otherwise.
"""

from __future__ import annotations

import math

from torch import Tensor

from linverse.covariance import Covariance, SpatialCovariance


def lowest_energy(y: Tensor, cov: Covariance) -> Tensor:
    """The bound, [B], float64."""
    outside = y - y.clamp(0, 1)
    if isinstance(cov, SpatialCovariance):
        misfit = cov.mahalanobis(outside)
    else:
        misfit = outside.double().square().sum(dim=(1, 2, 3)) / cov.log_variance.double().amax(dim=(1, 2, 3)).exp()
    return 0.5 * (cov.logdet() + misfit + cov.dim * math.log(2 * math.pi))

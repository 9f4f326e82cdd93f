"""The exact energy of 8×8 digits."""

from __future__ import annotations

import torch

from linverse.analytic import DenseGaussian
from linverse.covariance import SpatialCovariance
from linverse.data.digits import load_digits
from linverse.experiments.demo import exact_digits
from small import SHAPE


def test_the_exact_energy_is_a_good_one() -> None:
    energy, x = exact_digits(), load_digits("test").batch(torch.arange(297)).double()
    cov = SpatialCovariance(torch.zeros(1, 1, 8, 8, dtype=torch.float64)).isotropic(energy.range.minimum)
    mean, spread = energy.moments()
    plain = DenseGaussian(mean, spread + 1e-3 * torch.eye(64), SHAPE)
    assert float(energy(x, cov).mean()) < float(plain(x, cov).mean()) - 10  # nats an image, held out

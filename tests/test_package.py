"""`import linverse` itself: what it sets, and what it leaves alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from linverse.blind import FAMILIES, UnknownNoise, search
from linverse.covariance import FourierCovariance
from linverse.degradations import Denoising
from linverse.energy import evaluate
from linverse.experiments.demo import exact_digits
from linverse.posterior import Posterior
from linverse.typicality import compare, score_images
from small import digit

VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


@pytest.mark.parametrize(
    ("given", "imports", "policy"),
    [
        ({}, "linverse", "PASSIVE"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "linverse", "ACTIVE"),
        ({"GOMP_SPINCOUNT": "100"}, "linverse", "None"),
        ({}, "sys; sys.modules['torch'] = sys; import linverse", "None"),  # torch is there: too late to say
    ],
)
def test_waiting_threads_sleep_unless_the_user_or_torch_came_first(
    given: dict[str, str], imports: str, policy: str
) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES} | given
    script = f"import os, {imports}; print(os.environ.get('OMP_WAIT_POLICY'))"
    answer = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == policy


def test_what_users_print_fits_a_line_or_two() -> None:
    energy, x = exact_digits(), digit()
    cov = FourierCovariance(torch.zeros(2, 1, 8, 8))
    measurement = Denoising(0.2).measure(x)
    found = search(energy, measurement.raw, UnknownNoise(), FAMILIES["noise"].axes((8, 8)))
    printed = [
        cov,
        evaluate(energy, x, cov),
        measurement,
        Posterior(energy, measurement),
        Posterior(energy, measurement).draw(2, 3),
        found,
        found.final,
        score_images(energy, x),
        compare(torch.zeros(9), torch.randn(1, 30)),
    ]
    for one in printed:
        assert len(repr(one)) < 220, repr(one)
        assert "tensor(" not in repr(one)
    assert "variances 1)" in repr(cov)
    assert "sigma = " in repr(found)

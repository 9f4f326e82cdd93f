"""Units, keyed randomness, and what `import linverse` does not drag in."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch

import linverse
from linverse.rng import keyed_generator, keyed_seed, normal_like
from linverse.units import bits_per_dim, decibels_per_dim, variance_from_sigma

# --- units -------------------------------------------------------------------------------------------------------------------


def test_sigma_is_squared_once() -> None:
    assert variance_from_sigma(0.0) == 0.0
    assert variance_from_sigma(0.3) == pytest.approx(0.09)


@pytest.mark.parametrize("sigma", [-1e-9, math.nan, math.inf, -math.inf])
def test_what_is_no_standard_deviation_is_refused(sigma: float) -> None:
    with pytest.raises(ValueError, match=f"sigma is a standard deviation.*got {sigma}"):
        variance_from_sigma(sigma)


def test_densities_per_dimension() -> None:
    """A uniform density on [0,1]^d has 0 nats, 0 bits and 0 dB; as a probability of 256 levels it is 8 bits."""
    nothing = torch.zeros(2, dtype=torch.float64)
    assert torch.equal(bits_per_dim(nothing, 10), nothing)
    assert torch.equal(bits_per_dim(nothing, 10, levels=256), nothing + 8)
    assert torch.equal(decibels_per_dim(nothing, 10), nothing)
    halved = torch.tensor([-10 * math.log(2.0)], dtype=torch.float64)  # p = 2^-10 over 10 dimensions
    assert float(bits_per_dim(halved, 10)) == pytest.approx(1.0)
    tenth = torch.tensor([-10 * math.log(10.0)], dtype=torch.float64)
    assert float(decibels_per_dim(tenth, 10)) == pytest.approx(-10.0)


# --- keyed randomness ----------------------------------------------------------------------------------------------------------


def test_keys_are_the_same_on_every_machine_and_version() -> None:
    """Written down once: a change would change every run that is resumed."""
    assert keyed_seed("train", 0, 1) == 1961638460501518565
    assert keyed_seed(0) == 4761921975702974394


def test_different_keys_have_different_seeds() -> None:
    keys = [(i, j) for i in range(40) for j in range(40)] + [(f"{i}{j}",) for i in range(40) for j in range(40)]
    seeds = {keyed_seed(*key) for key in keys}
    assert len(seeds) == len(set(keys))
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_stream_depends_on_its_key_only() -> None:
    a, b, c = (torch.randn(5, generator=keyed_generator(*key)) for key in [("x", 1), ("x", 1), ("x", 2)])
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    before = torch.get_rng_state()
    keyed_generator("x", 1)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_has_the_shape_and_the_precision_of_its_model(dtype: torch.dtype) -> None:
    x = torch.zeros(3, 2, 5, 7, dtype=dtype)
    noise = normal_like(x, keyed_generator("noise"))
    assert noise.shape == x.shape
    assert noise.dtype == dtype
    assert torch.equal(noise, normal_like(x, keyed_generator("noise")))
    assert not torch.equal(normal_like(x), normal_like(x))


# --- imports -----------------------------------------------------------------------------------------------------------------------


def test_import_stays_light() -> None:
    """Heavy packages are imported inside the functions that need them."""
    heavy = ["matplotlib", "scipy", "torchmetrics", "sklearn", "gradio", "deepinv", "tensorboard", "pandas", "PIL"]
    code = f"import sys, linverse; print([name for name in {heavy!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_public_names_exist() -> None:
    assert all(hasattr(linverse, name) for name in linverse.__all__)
    assert linverse.__version__

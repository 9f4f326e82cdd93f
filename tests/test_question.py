"""A picture as a question: the measurement is that of the degradation that was named, found or simulated."""

from __future__ import annotations

import pytest
import torch

import linverse as lv
from linverse.analytic import DiagonalGaussian
from linverse.covariance import identity
from linverse.question import Damage, ask


@pytest.fixture(scope="module")
def prior() -> DiagonalGaussian:
    """Pixels of variance 0.04, 8×8."""
    return DiagonalGaussian(identity("spatial", (1, 8, 8)).isotropic(0.04))


def picture(size: tuple[int, int] = (8, 8), depth: int | None = None) -> lv.Picture:
    pixels = torch.rand(1, 1, *size, generator=torch.Generator().manual_seed(0))
    return lv.Picture(pixels if depth is None else (pixels * 255).round() / 255, "shoe.png", depth)


def test_a_damaged_picture_is_the_data_and_its_rounding_is_noise(prior: DiagonalGaussian) -> None:
    exact, rounded = (ask(prior, picture(depth=depth), Damage(sigma=0.01)) for depth in (None, 8))
    assert torch.equal(exact.measurement.raw, picture().pixels)
    assert exact.truth is None
    assert bool((rounded.measurement.log_noise > exact.measurement.log_noise).all())


def test_a_clean_picture_is_damaged_and_stays_the_truth(prior: DiagonalGaussian) -> None:
    one, same, other = (ask(prior, picture(), Damage(sigma=0.1, simulate=True), seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.measurement.raw, same.measurement.raw)
    assert not torch.equal(one.measurement.raw, other.measurement.raw)
    assert one.truth is not None
    assert float((one.measurement.raw[0] - one.truth).std()) == pytest.approx(0.1, rel=0.4)


def test_low_resolution_is_taken_in_its_own_size(prior: DiagonalGaussian) -> None:
    assert ask(prior, picture((4, 4)), Damage("sr2", 0.01)).measurement.template.size == (8, 8)
    with pytest.raises(ValueError, match="this task measures 4×4 pixels"):
        ask(prior, picture(), Damage("sr2", 0.01))
    told: list[str] = []
    assert ask(prior, picture(), Damage("sr2", 0.01), resize=True, tell=told.append).picture.size == (4, 4)
    assert "shoe.png" in told[0]


def test_a_mask_is_asked_for_in_the_size_of_the_image(prior: DiagonalGaussian) -> None:
    asked: list[tuple[int, int]] = []

    def mask(size: tuple[int, int]) -> torch.Tensor:
        asked.append(size)
        return torch.eye(8, dtype=torch.bool)[None, None]

    seen = ask(prior, picture(), Damage(mask=mask)).measurement
    assert set(asked) == {(8, 8)}
    assert torch.equal(seen.measured[0, 0], torch.eye(8, dtype=torch.bool))


def test_a_map_of_noise_goes_with_noise_alone(prior: DiagonalGaussian) -> None:
    levels = torch.full((8, 8), 0.1)
    levels[0, 0] = 0.5
    seen = ask(prior, picture(), Damage(sigma=levels)).measurement
    assert float(seen.log_noise[0, 0, 0, 0].exp()) == pytest.approx(0.25, rel=1e-5)
    with pytest.raises(ValueError, match="goes with the task denoise"):
        ask(prior, picture(), Damage("gauss", sigma=levels))

from __future__ import annotations

import math

import pytest
import torch

from conftest import COVARIANCES, random_covariance
from linverse.covariance import Covariance, FourierCovariance, SpatialCovariance
from linverse.sampling import Path, autoregressive, clamped, geometric, held, linear, per_coefficient
from linverse.sampling.paths import default_path, patch_order

SHAPE = (3, 4, 6)
SIMPLE = {"geometric": geometric, "linear": linear, "clamped": clamped}


def schedule(cov: Covariance) -> torch.Tensor:
    rates = torch.rand(1, *cov.log_variance.shape[1:], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    times = torch.linspace(0, 1, 8, dtype=torch.float64).reshape(-1, 1, 1, 1, 1)
    return times ** (0.5 + rates)


@pytest.mark.parametrize("family", COVARIANCES)
@pytest.mark.parametrize("name", [*SIMPLE, "per-coefficient"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_path_leads_from_sigma_to_the_floor(family: str, name: str, dtype: torch.dtype) -> None:
    cov = random_covariance(family, SHAPE, shared=True).to(dtype)
    floor = 1e-2
    path = per_coefficient(cov, floor, schedule(cov)) if name == "per-coefficient" else SIMPLE[name](cov, floor, 7)
    assert path.steps == 7
    assert torch.equal(path.log_variance[0], cov.log_variance)
    # coefficients that start below the floor stay where they are
    torch.testing.assert_close(path.log_variance[-1], cov.log_variance.clamp_max(math.log(floor)), rtol=0, atol=1e-6)
    assert bool((path.log_variance.diff(dim=0) <= 0).all())
    assert path.covariance(3).basis == cov.basis


def test_the_formulas() -> None:
    cov = SpatialCovariance(torch.tensor([[[[0.0, math.log(100.0)]]]], dtype=torch.float64))
    middle = {name: make(cov, 0.01, 2).covariance(1).variance.flatten().tolist() for name, make in SIMPLE.items()}
    assert middle["geometric"] == pytest.approx([0.1, 1.0])
    assert middle["linear"] == pytest.approx([0.505, 50.005])
    assert middle["clamped"] == pytest.approx([1.0, 1.0])
    warped = per_coefficient(cov, 0.01, torch.tensor([0.0, 0.25, 1.0]))
    assert warped.covariance(1).variance.flatten().tolist() == pytest.approx([10**-0.5, 10.0])


@pytest.mark.parametrize("order", ["reading", "reversed", "centre-out", [2, 0, 1, 5, 4, 3]])
def test_autoregressive_lowers_one_patch_at_a_time_in_order(order: str | list[int]) -> None:
    cov = SpatialCovariance(torch.zeros(1, 1, 4, 6, dtype=torch.float64))
    path = autoregressive(cov, 1e-3, patch=2, order=order, levels=3)
    assert path.steps == 6 * 3
    moved = (path.log_variance.diff(dim=0) < 0)[:, 0, 0]
    patches = moved.reshape(18, 2, 2, 3, 2).any(dim=4).any(dim=2).flatten(1)
    assert torch.equal(moved, patches.reshape(18, 2, 3).repeat_interleave(2, 1).repeat_interleave(2, 2))
    assert bool((patches.sum(dim=1) == 1).all())
    assert patches.double().argmax(dim=1)[::3].tolist() == patch_order(2, 3, order).tolist()
    first = math.log(1e-3) / 3
    assert float(path.log_variance[1].min()) == pytest.approx(first)


def test_orders() -> None:
    assert patch_order(2, 2, "reversed").tolist() == [3, 2, 1, 0]
    assert patch_order(3, 3, "centre-out").tolist()[0] == 4
    assert set(patch_order(3, 3, "centre-out").tolist()[-4:]) == {0, 2, 6, 8}
    with pytest.raises(ValueError, match="each of the 4 patches once"):
        patch_order(2, 2, [0, 1, 2, 2])
    with pytest.raises(ValueError, match="centre-out"):
        patch_order(2, 2, "spiral")


def test_measured_patches_cost_no_step() -> None:
    log_variance = torch.zeros(1, 1, 4, 4, dtype=torch.float64)
    log_variance[..., :2, :] = math.log(1e-3)
    path = autoregressive(SpatialCovariance(log_variance), 1e-3, patch=2, levels=5)
    assert path.steps == 2 * 5


def test_patches_need_a_basis_that_is_local() -> None:
    with pytest.raises(ValueError, match="fourier covariance cannot be lowered in patches of 2×2"):
        autoregressive(FourierCovariance(torch.zeros(1, 1, 4, 4)), 1e-3, patch=2)
    blocks = COVARIANCES["block-dct"](torch.zeros(1, 1, 4, 4), 1)
    assert autoregressive(blocks, 1e-3, patch=2, levels=2).steps == 8
    with pytest.raises(ValueError, match="do not tile"):
        autoregressive(blocks, 1e-3, patch=3)


def test_bad_paths_are_refused() -> None:
    cov = SpatialCovariance(torch.zeros(1, 1, 2, 2))
    levels = torch.tensor([0.0, -1.0, -0.5, -2.0]).reshape(4, 1, 1, 1, 1).expand(4, 1, 1, 2, 2)
    with pytest.raises(ValueError, match=r"not monotone: from level 1 to 2 some log λ rises by 0\.5"):
        Path(cov, levels)
    with pytest.raises(ValueError, match="NaN or infinite at level 2"):
        Path(cov, torch.tensor([0.0, -1.0, -math.inf]).reshape(3, 1, 1, 1, 1).expand(3, 1, 1, 2, 2))
    with pytest.raises(ValueError, match="it must be"):
        Path(cov, torch.zeros(3, 1, 1, 2, 3))
    for bad in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="positive variance"):
            geometric(cov, bad, 3)
    with pytest.raises(ValueError, match="at least one step"):
        geometric(cov, 1e-3, 0)
    with pytest.raises(ValueError, match="starts at 0, ends at 1"):
        per_coefficient(cov, 1e-3, torch.tensor([0.0, 0.7, 0.6, 1.0]))


def test_a_path_must_start_at_sigma() -> None:
    cov = SpatialCovariance(torch.zeros(2, 1, 2, 2))
    path = geometric(cov, 1e-3, 4)
    path.check_start(cov)
    with pytest.raises(ValueError, match=r"starts at variances in \[1, 1\], the measurement's Σ has \[2, 2\]"):
        path.check_start(cov * 2.0)
    with pytest.raises(ValueError, match="the path is for spatial"):
        path.check_start(FourierCovariance(torch.zeros(2, 1, 2, 2)))
    with pytest.raises(ValueError, match="batch of 2"):
        path.check_start(SpatialCovariance(torch.zeros(3, 1, 2, 2)))


def test_resampling_keeps_the_curve() -> None:
    cov = random_covariance("spatial", (1, 3, 3))
    path = geometric(cov, 1e-3, 40)
    coarse = path.resample(8)
    torch.testing.assert_close(coarse.log_variance, geometric(cov, 1e-3, 8).log_variance)
    assert clamped(cov, 1e-3, 40).resample(100).steps == 100


def test_plot_data_are_plain_arrays() -> None:
    cov = SpatialCovariance(torch.tensor([[[[0.0, math.log(100.0)]]]]))
    data = geometric(cov, 0.01, 2).plot_data()
    assert data["step"].tolist() == [0, 1, 2]
    assert data["log10_variance"].shape == (3, 1, 1, 1, 2)
    assert data["highest"].tolist() == pytest.approx([2, 0, -2])
    assert data["lowest"].tolist() == pytest.approx([0, -1, -2])


def test_the_default_path_is_shared_when_all_sigmas_are_equal() -> None:
    same = SpatialCovariance(torch.zeros(5, 1, 2, 2))
    assert default_path(same, 1e-3, 3).batch == 1
    other = same.with_log_variance(torch.arange(5.0).reshape(5, 1, 1, 1).expand(5, 1, 2, 2))
    assert default_path(other, 1e-3, 3).batch == 5
    assert default_path(other, 1e-3, 3)[1:3].batch == 2
    assert default_path(same, 1e-3, 3)[1:3].batch == 1


def test_on_the_default_path_the_loudest_coefficients_fall_first() -> None:
    cov = SpatialCovariance(torch.tensor([10.0, 1.0, 0.1]).log().reshape(1, 1, 1, 3))
    levels = default_path(cov, 0.1, 4).log_variance[:, 0, 0, 0].exp()
    assert levels[1].tolist() == pytest.approx([10**0.5, 1.0, 0.1])
    assert levels[2].tolist() == pytest.approx([1.0, 1.0, 0.1])
    assert levels[3].tolist() == pytest.approx([10**-0.5, 10**-0.5, 0.1])
    # what is measured at the floor, and the rest at one level: the geometric path
    masked = SpatialCovariance(torch.tensor([10.0, 0.1]).log().reshape(1, 1, 1, 2))
    torch.testing.assert_close(default_path(masked, 0.1, 5).log_variance, geometric(masked, 0.1, 5).log_variance)


def test_held_coefficients_stand_still() -> None:
    cov = SpatialCovariance(torch.tensor([[[[math.log(1e-2), math.log(1e3)]]]]))
    path = geometric(cov, held(cov, 1e-4, above=1.0), 5)
    assert torch.equal(path.log_variance[:, 0, 0, 0, 0], cov.log_variance[0, 0, 0, 0].expand(6))
    assert float(path.covariance(-1).variance[0, 0, 0, 1]) == pytest.approx(1e-4)

"""deepinv and we mean the same: its operators are ours to rounding, its solvers run on our models, ours on its operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import linverse as lv
from linverse.analytic import DiagonalGaussian
from linverse.baselines import METHODS, EnergyDenoiser
from linverse.covariance import VarianceRange, identity
from linverse.degradations import Blur, Degradation, Denoising, Inpainting, SuperResolution
from linverse.extras import MissingExtra
from linverse.posterior import Posterior
from tiny import BACKBONE

try:
    from linverse.interop import deepinv as bridge

    dinv = bridge.dinv
except MissingExtra as missing:
    pytest.skip(f"{missing} (make test-all)", allow_module_level=True)

SHAPE, SIGMA = (1, 8, 8), 0.05
LIMITS = VarianceRange(1e-6, 1e3)


def noise() -> Any:
    return dinv.physics.GaussianNoise(SIGMA)


def kernel(height: int, width: int) -> Tensor:
    values = torch.rand(1, 1, height, width, generator=torch.Generator().manual_seed(0))
    return values / values.sum()


def mask() -> Tensor:
    seen = torch.ones(1, 8, 8)
    seen[:, 2:6, 2:6] = 0
    return seen


def photographs_like() -> DiagonalGaussian:
    """N(½, S), S a power law in Fourier."""
    template = identity("fourier", SHAPE, torch.zeros(1, dtype=torch.float64))
    radius = torch.hypot(*template.frequencies()).clamp_min(1 / 8)
    power = 0.04 * radius**-2 / (radius**-2).mean()
    return DiagonalGaussian(
        template.with_log_variance(power.log()[None, None]), torch.full(SHAPE, 0.5).double(), LIMITS
    )


PHYSICS = {
    "denoising": lambda: dinv.physics.Denoising(noise()),
    "inpainting": lambda: dinv.physics.Inpainting(SHAPE, mask=mask(), noise_model=noise()),
    "BlurFFT": lambda: dinv.physics.BlurFFT(SHAPE, filter=kernel(5, 3), noise_model=noise()),
    "BlurFFT, even kernel": lambda: dinv.physics.BlurFFT(SHAPE, filter=kernel(4, 2), noise_model=noise()),
    "Blur, circular": lambda: dinv.physics.Blur(filter=kernel(5, 3), padding="circular", noise_model=noise()),
    "box downsampling": lambda: dinv.physics.Downsampling(
        SHAPE, filter=torch.ones(1, 1, 2, 2) / 4, factor=2, noise_model=noise()
    ),
}
KINDS: dict[str, type[Degradation]] = {
    "denoising": Denoising,
    "inpainting": Inpainting,
    "BlurFFT": Blur,
    "BlurFFT, even kernel": Blur,
    "Blur, circular": Blur,
    "box downsampling": SuperResolution,
}


# --- its operators -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PHYSICS)
def test_its_operators_are_recognised_and_equal_ours(name: str) -> None:
    physics = PHYSICS[name]()
    ours = bridge.from_physics(physics, SHAPE)
    assert type(ours) is KINDS[name]
    assert ours.sigma == SIGMA
    x = torch.rand(3, *SHAPE)
    assert float((ours.operator(x) - physics.A(x)).abs().max()) < 1e-6


@pytest.mark.parametrize("name", [name for name in PHYSICS if name != "box downsampling"])  # its adjoint is wrong there
def test_the_adjoint_and_the_proximal_point_are_its_own(name: str) -> None:
    torch.manual_seed(0)
    physics = PHYSICS[name]()
    y, u = physics(torch.rand(2, *SHAPE)), torch.rand(2, *SHAPE)
    seen = bridge.from_physics(physics, SHAPE).from_raw(y)
    assert float((seen.adjoint(seen.coefficients) - physics.A_adjoint(y)).abs().max()) < 1e-5
    theirs = physics.prox_l2(u, y, gamma=0.3 / SIGMA**2)
    tolerance = 1e-5 if isinstance(physics, dinv.physics.DecomposablePhysics) else 0.02  # others iterate
    assert float((seen.proximal(u, 0.3) - theirs).abs().max()) < tolerance


@pytest.mark.parametrize(
    "make",
    [
        lambda: dinv.physics.Blur(filter=kernel(5, 3), padding="reflect", noise_model=noise()),
        lambda: dinv.physics.Downsampling(SHAPE, filter="gaussian", factor=2, noise_model=noise()),
        lambda: dinv.physics.Tomography(6, img_width=8, circle=False, normalize=True, noise_model=noise()),
        lambda: dinv.physics.SinglePixelCamera(m=20, img_size=SHAPE, noise_model=noise()),
    ],
    ids=["reflecting blur", "Gaussian downsampling", "tomography", "single-pixel camera"],
)
@pytest.mark.filterwarnings(
    "ignore:the chains have not forgotten"
)  # few levels; all chains together are asked for their mean
def test_what_no_basis_of_ours_diagonalises_is_sampled(make: Any) -> None:
    physics = make()
    energy = lv.analytic.DiagonalGaussian(
        identity("spatial", SHAPE, torch.zeros(1)).isotropic(0.04), torch.full(SHAPE, 0.5), VarianceRange(1e-5, 1e3)
    )
    x = energy.sample(1, torch.Generator().manual_seed(0))
    y = physics.A(x) + SIGMA * torch.randn(physics.A(x).shape, generator=torch.Generator().manual_seed(1))
    linear = bridge.from_physics(physics, SHAPE)
    assert isinstance(linear, lv.LinearOperator)
    matrix = physics.A(torch.eye(64).reshape(64, *SHAPE)).flatten(1).mT.double()
    exact = torch.linalg.solve(
        matrix.mT @ matrix / SIGMA**2 + torch.eye(64) / 0.04,
        matrix.mT @ (y.flatten().double() - matrix @ torch.full((64,), 0.5).double()) / SIGMA**2,
    )
    found = bridge.to_reconstructor(energy, samples=10, steps=6)(y.expand(24, *y.shape[1:]), physics).mean(dim=0)
    # 24 chains of 10 draws: the error of the mean, of about 0.2/√24 per pixel at most, is 0.04
    assert float((found.flatten().double() - 0.5 - exact).square().mean().sqrt()) < 0.06


def test_noise_that_is_not_gaussian_and_operators_that_are_not_linear_are_refused() -> None:
    with pytest.raises(ValueError, match="noise is PoissonNoise; linverse takes GaussianNoise"):
        bridge.from_physics(dinv.physics.Inpainting(SHAPE, mask=mask(), noise_model=dinv.physics.PoissonNoise(0.1)))
    with pytest.raises(ValueError, match="is not linear"):
        bridge.from_physics(dinv.physics.Physics(), SHAPE)
    with pytest.raises(ValueError, match=r"give shape=\(C, H, W\)"):
        bridge.from_physics(dinv.physics.Denoising(noise()))


# --- ours as its -------------------------------------------------------------------------------------------------------------------


OURS = {
    "denoising": lv.Denoising(SIGMA),
    "box": lv.Box(4, SIGMA),
    "blur": lv.GaussianBlur(1.0, SIGMA),
    "reflecting blur": lv.GaussianBlur(0.8, SIGMA, boundary="reflecting"),
    "super-resolution": lv.SuperResolution(2, SIGMA),
    "noise map": lv.Denoising(torch.linspace(0.05, 0.2, 64).reshape(8, 8)),
}


@pytest.mark.parametrize("name", OURS)
def test_ours_are_decomposable_operators_of_deepinv(name: str) -> None:
    degradation = OURS[name]
    physics = bridge.to_physics(degradation, SHAPE)
    x = torch.rand(2, *SHAPE)
    y = degradation.operator(x)
    assert float((physics.A(x) - y).abs().max()) < 1e-6
    assert float(physics.adjointness_test(x)) < 1e-3
    assert torch.allclose(physics.U(physics.mask * physics.V_adjoint(x)), y, atol=1e-5)
    seen = degradation.encode(y)
    assert torch.allclose(physics.A_adjoint(y), seen.adjoint(seen.coefficients), atol=1e-5)
    back = bridge.from_physics(physics, SHAPE)
    assert float((back.operator(x) - y).abs().max()) < 1e-6


def test_noise_of_a_map_is_the_maps() -> None:
    physics = bridge.to_physics(OURS["noise map"], SHAPE)
    torch.manual_seed(0)
    found = physics(torch.zeros(4000, *SHAPE)).std(dim=0)
    assert float((found[0] / torch.linspace(0.05, 0.2, 64).reshape(8, 8) - 1).abs().max()) < 0.06


# --- models and solvers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["BlurFFT", "BlurFFT, even kernel"])
def test_the_reconstructor_gives_the_exact_posterior_mean(name: str) -> None:
    energy, physics = photographs_like(), PHYSICS[name]().double()
    y = physics(energy.sample(2, torch.Generator().manual_seed(0)).float().double())
    response = torch.fft.fft2(physics.A(torch.eye(64).double()[:1].reshape(1, *SHAPE)))[0, 0]
    power = energy.prior.variance[0, 0]
    filtered = torch.fft.fft2(y - 0.5 * response[0, 0].real) * response.conj() * power
    exact = 0.5 + torch.fft.ifft2(filtered / (response.abs().square() * power + SIGMA**2)).real
    assert float((bridge.to_reconstructor(energy)(y, physics) - exact).abs().max()) < 1e-5


def test_the_reconstructor_runs_in_its_benchmark() -> None:
    energy, physics = photographs_like(), PHYSICS["BlurFFT"]()
    x = energy.sample(8, torch.Generator().manual_seed(0)).float()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, physics(x)), batch_size=4)
    results = dinv.test(bridge.to_reconstructor(energy), loader, physics, verbose=False, show_progress_bar=False)
    assert results["PSNR"] > results["PSNR no learning"] + 1


def solvers(denoiser: Any) -> dict[str, Any]:
    return {
        "DPS": dinv.sampling.DPS(denoiser, num_steps=40, weight=100.0),
        "DiffPIR": dinv.sampling.DiffPIR(denoiser, dinv.optim.L2(), SIGMA, max_iter=40, zeta=1.0, lambda_=1.0),
        "DDRM": dinv.sampling.DDRM(denoiser, sigmas=np.linspace(1, 0, 40)),
    }


def psnr(found: Tensor, x: Tensor) -> float:
    return float(-10 * (found.double() - x).square().mean(dim=(1, 2, 3)).log10().mean())


@pytest.mark.parametrize("name", ["DPS", "DiffPIR", "DDRM"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_its_solvers_on_our_energy_do_as_well_as_ours_on_the_same_measurements(name: str) -> None:
    mild = torch.tensor([[0.25, 0.5, 0.25]])
    energy = photographs_like()
    physics = dinv.physics.BlurFFT(SHAPE, filter=(mild.mT @ mild)[None, None], noise_model=noise())
    degradation = bridge.from_physics(physics)
    x = energy.sample(16, torch.Generator().manual_seed(3))
    torch.manual_seed(0)
    y = physics(x.float()).double()
    theirs = psnr(solvers(bridge.to_denoiser(energy))[name](y, physics.double(), seed=1), x)
    own = {"DPS": "dps", "DiffPIR": "diffpir", "DDRM": "pigdm"}[name]
    model = EnergyDenoiser(energy, identity("fourier", SHAPE, y))
    ours = psnr(METHODS[own].solve(model, degradation, y, torch.Generator().manual_seed(0), steps=40).samples, x)
    assert abs(theirs - ours) < 2.5
    assert theirs > psnr(torch.full_like(x, 0.5), x) + 2  # than the prior's mean


def test_learned_models_keep_their_precision_behind_its_double_ones() -> None:
    from linverse.models.denoiser import DenoiserConfig

    torch.manual_seed(0)
    model = DenoiserConfig(SHAPE, backbone=BACKBONE).build().eval()
    y = torch.rand(2, *SHAPE)
    denoiser = bridge.to_denoiser(model)
    assert denoiser(y.double(), 0.2).dtype == torch.float64
    assert torch.allclose(denoiser(y.double(), 0.2).float(), model(y, 0.04), atol=1e-6)
    with pytest.raises(ValueError, match="a map of sigmas needs an energy"):
        denoiser(y, torch.full((8, 8), 0.1))


def test_posterior_takes_its_data_and_operator() -> None:
    energy, physics = photographs_like(), PHYSICS["BlurFFT"]()
    y = physics(energy.sample(1, torch.Generator().manual_seed(0)).float()).double()
    posterior = Posterior(energy, bridge.from_physics(physics).from_raw(y))
    assert torch.equal(posterior.mean(), bridge.to_reconstructor(energy)(y, physics))
    assert torch.isfinite(posterior.evidence()).all()

"""deepinv beside us, on the same measurements of the same garments: are its operators ours, and do its solvers run on our networks?

    python benchmarks/interop.py     (needs linverse[interop])

The first table gives the largest difference between answers of `Posterior` for deepinv's operator and for ours; the second the PSNR of
deepinv's solvers, with our energy as their denoiser, and of ours by the same name.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch

import linverse as lv
from linverse.baselines import METHODS, EnergyDenoiser
from linverse.data.examples import load_examples
from linverse.extras import MissingExtra
from linverse.metrics import psnr
from linverse.rng import keyed_generator

try:
    from linverse.interop.deepinv import dinv, from_physics, to_denoiser
except MissingExtra as missing:  # `make bench` runs without it
    print(missing)
    raise SystemExit(0) from None

SHAPE, SIGMA, IMAGES, STEPS = (1, 28, 28), 0.05, 4, 30
DPS_WEIGHTS = (1.0, 10.0, 30.0, 100.0)


def kernel() -> torch.Tensor:
    taps = torch.exp(-torch.arange(-3.0, 4.0).square() / (2 * 0.8**2))
    return torch.outer(taps, taps) / taps.sum() ** 2


def operators() -> dict[str, tuple[object, lv.Degradation]]:
    """Name → deepinv's operator and ours."""
    noise = dinv.physics.GaussianNoise(SIGMA)
    mask = torch.ones(*SHAPE)
    mask[:, 9:19, 9:19] = 0
    box = torch.ones(1, 1, 2, 2) / 4
    inpainting = dinv.physics.Inpainting(SHAPE, mask=mask, noise_model=noise)
    blur = dinv.physics.BlurFFT(SHAPE, filter=kernel()[None, None], noise_model=noise)
    smaller = dinv.physics.Downsampling(SHAPE, filter=box, factor=2, noise_model=noise)
    return {
        "Inpainting": (inpainting, lv.Inpainting(mask > 0, SIGMA)),
        "BlurFFT": (blur, lv.Blur(kernel(), SIGMA)),
        "Downsampling": (smaller, lv.SuperResolution(2, SIGMA)),
    }


def largest(a: torch.Tensor, b: torch.Tensor) -> str:
    return f"{float((a - b).abs().max()):.1e}"


def equal_answers(energy: lv.Energy, x: torch.Tensor) -> None:
    print(f"{'operator':<14} {'becomes':<16} {'Hx':>8} {'mean':>8} {'std':>8} {'evidence':>8} {'PSNR of the mean':>17}")
    for name, (physics, ours) in operators().items():
        theirs, raw = from_physics(physics, SHAPE), ours.measure(x, keyed_generator("noise")).raw
        mine, other = (lv.Posterior(energy, degradation.from_raw(raw), check=False) for degradation in (ours, theirs))
        pairs = (
            (ours.operator(x), physics.A(x)),
            (mine.mean(), other.mean()),
            (mine.std(), other.std()),
            (mine.evidence(), other.evidence()),
        )
        gaps = " ".join(f"{largest(a, b):>8}" for a, b in pairs)
        print(f"{name:<14} {type(theirs).__name__:<16} {gaps} {mean_psnr(other.mean(), x):>14.2f} dB")


def mean_psnr(found: torch.Tensor, x: torch.Tensor) -> float:
    return float(psnr(found.clamp(0, 1).float(), x).mean())


def tomography(energy: lv.Energy, x: torch.Tensor) -> None:
    """No basis diagonalises it: split Gibbs on deepinv's operator."""
    physics = dinv.physics.Tomography(
        20, img_width=28, circle=False, normalize=True, noise_model=dinv.physics.GaussianNoise(0.01)
    )
    clean = physics.A(x)
    raw = clean + 0.01 * torch.randn(clean.shape, generator=keyed_generator("noise"))
    post = lv.Posterior(energy, from_physics(physics, SHAPE).from_raw(raw))
    drawn = post.draw(2, sweeps=10, generator=keyed_generator("draws"))
    mean = drawn.average.unflatten(0, (2, -1)).mean(dim=0)
    print(
        f"Tomography     {type(post).__name__}: PSNR of the mean of 2 chains {mean_psnr(mean, x):.2f} dB (its pseudo-inverse "
        f"{mean_psnr(physics.A_dagger(raw), x):.2f} dB), residual {float(drawn.residual.mean()):.2f}σ"
    )


def solvers(energy: lv.Energy, x: torch.Tensor) -> None:
    denoiser = to_denoiser(energy)
    physics, ours = operators()["BlurFFT"]
    raw = ours.measure(x, keyed_generator("noise")).raw
    theirs = {
        # the best weight depends on size and steps, so all that were tried are shown
        **{f"DPS, weight {w}": dinv.sampling.DPS(denoiser, num_steps=STEPS, weight=w) for w in DPS_WEIGHTS},
        "DiffPIR": dinv.sampling.DiffPIR(denoiser, dinv.optim.L2(), SIGMA, max_iter=STEPS, zeta=1.0, lambda_=1.0),
        "DDRM": dinv.sampling.DDRM(denoiser, sigmas=np.linspace(1, 0, STEPS)),
    }
    print(f"{'solver':<18} {'deepinv':>10} {'ours':>10}   (blur, σ = {SIGMA}, {STEPS} steps)")
    for name, solver in theirs.items():
        found = mean_psnr(solver(raw, physics, seed=1), x)
        method = METHODS[name.split(",")[0].lower()]
        solved = method.solve(EnergyDenoiser(energy), ours, raw, keyed_generator("solver"), steps=STEPS)
        print(f"{name:<18} {found:>7.2f} dB {mean_psnr(solved.samples, x):>7.2f} dB")


def main() -> None:
    warnings.simplefilter("ignore")
    x, energy = load_examples("fashion-mnist").batch(torch.arange(IMAGES)), lv.load("fashion-mnist")
    equal_answers(energy, x)
    solvers(energy, x)
    tomography(energy, x[:1])


if __name__ == "__main__":
    main()

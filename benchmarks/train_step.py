"""What a training step costs, side by side in one run: ours, the plain recipe, and their parts, against the roofline.

The roofline is 6 × the forward convolution FLOPs (forward, input gradient, and the four products of the double backward) at the
GEMM rate measured here. Run on an idle machine; compare ratios within one run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from linverse.models.energies.learned import EnergyConfig, LearnedEnergy
from linverse.models.losses import DualLoss, NoisyBatch
from linverse.rng import keyed_generator
from linverse.training.batches import draw_parts
from linverse.training.presets import FASHION
from time_to_quality import PLAIN_BACKBONE, RECIPES


def seconds(call: Callable[[], object], repeats: int) -> float:
    call()
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def gemm_rate(repeats: int = 10) -> float:
    a = torch.randn(2048, 2048)
    return 2 * 2048**3 / seconds(lambda: a @ a, repeats)


def convolution_flops(energy: LearnedEnergy, parts: list[NoisyBatch]) -> float:
    """FLOPs of the convolutions of one forward pass."""
    total = 0.0

    def count(module: nn.Module, _: object, out: torch.Tensor) -> None:
        nonlocal total
        assert isinstance(module, nn.Conv2d)
        total += 2 * out.numel() * module.in_channels / module.groups * module.kernel_size[0] * module.kernel_size[1]

    hooks = [m.register_forward_hook(count) for m in energy.modules() if isinstance(m, nn.Conv2d)]
    with torch.no_grad():
        energy.form.energies([(part.noisy(), part.cov) for part in parts])
    for hook in hooks:
        hook.remove()
    return total


def first_order_step(energy: LearnedEnergy, parts: list[NoisyBatch]) -> None:
    """The same backbone trained as a denoiser: one forward and one backward."""
    energies = energy.form.energies([(part.noisy(), part.cov) for part in parts])
    energies.sum().backward()


def measure(name: str, config: EnergyConfig, parts: list[NoisyBatch], rate: float, repeats: int) -> dict[str, float]:
    energy = LearnedEnergy(config)
    energy.fit_gaussian(torch.zeros(config.shape), 0.09)
    loss = DualLoss(energy, FASHION.loss)
    pairs = [(part.noisy(), part.cov) for part in parts]

    def dual() -> None:
        loss(parts)[0].backward()
        energy.zero_grad()

    with torch.no_grad():
        forward = seconds(lambda: energy.form.energies(pairs), repeats)
    flops = convolution_flops(energy, parts)
    step = seconds(dual, repeats)
    result = {
        "parameters (k)": sum(p.numel() for p in energy.parameters()) / 1e3,
        "forward GFLOP": flops / 1e9,
        "dual step (s)": step,
        "first-order step (s)": seconds(lambda: first_order_step(energy, parts), repeats),
        "energy + both scores (s)": seconds(lambda: energy.scores(pairs, create_graph=False), repeats),
        "forward (s)": forward,
        "share of the roofline (%)": 100 * 6 * flops / rate / step,
    }
    print(f"{name:<34}" + "  ".join(f"{key} {value:.3g}" for key, value in result.items()), flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    x = torch.rand(options.batch, 1, 28, 28, generator=keyed_generator("benchmark"))
    parts = draw_parts(FASHION, x, keyed_generator("benchmark", 1))
    rate = gemm_rate()
    print(f"{torch.get_num_threads()} threads, GEMM {rate / 1e9:.0f} GFLOP/s, batch {options.batch}")
    assert isinstance(FASHION.model, EnergyConfig)
    ours = measure("ours", FASHION.model, parts, rate, options.repeats)
    measure(
        "NCSN++ blocks, our embedding", replace(FASHION.model, backbone=PLAIN_BACKBONE), parts, rate, options.repeats
    )
    plain = RECIPES["plain"].model
    assert isinstance(plain, EnergyConfig)
    recipe = measure("plain recipe (paper, eager)", plain, parts, rate, options.repeats)
    print(f"plain recipe ÷ ours, time of a dual step: {recipe['dual step (s)'] / ours['dual step (s)']:.2f}")


if __name__ == "__main__":
    main()

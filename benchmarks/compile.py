"""torch.compile on the backbone of bundled energies: what one evaluation with all derivatives takes before and after, and what it changes.

    python benchmarks/compile.py     (needs a C++ compiler; about a minute and a half)

Processor seconds of this process, medians; compilation itself is counted apart, by the clock. The last line tries a derivative of a
derivative, which training needs.
"""

from __future__ import annotations

import time

import torch

import linverse as lv
from linverse.covariance import identity
from linverse.energy import Evaluation, evaluate
from linverse.models.energies.learned import LearnedEnergy

CASES = (("fashion-mnist", (1, 28, 28), 8), ("photographs", (3, 96, 96), 1))
REPEATS, VARIANCE = 15, 0.05


def timed(energy: LearnedEnergy, shape: tuple[int, int, int], images: int) -> tuple[float, float, Evaluation]:
    """Seconds of the first evaluation (by the clock) and of the others (of the processor), and the answer."""
    x = torch.rand(images, *shape, generator=torch.Generator().manual_seed(0))
    cov = identity("spatial", shape).isotropic(VARIANCE)
    begun = time.perf_counter()
    found = evaluate(energy, x, cov)
    first, seconds = time.perf_counter() - begun, []
    for _ in range(REPEATS):
        start = time.process_time()
        evaluate(energy, x, cov)
        seconds.append(time.process_time() - start)
    return first, sorted(seconds)[REPEATS // 2], found


def second_derivative(energy: LearnedEnergy, shape: tuple[int, int, int]) -> str:
    y, cov = torch.rand(1, *shape, requires_grad=True), identity("spatial", shape).isotropic(VARIANCE)
    energy.requires_grad_(True)
    try:
        (score,) = torch.autograd.grad(energy(y, cov).sum(), y, create_graph=True)
        score.square().sum().backward()
    except RuntimeError as error:
        return f"refused ({str(error).partition('. ')[0]})"
    return "works"


def main() -> None:
    for name, shape, images in CASES:
        energy = lv.load(name)
        _, plain, before = timed(energy, shape, images)
        energy.backbone.compile()
        first, compiled, after = timed(energy, shape, images)
        mean, nats = (float((a - b).abs().max()) for a, b in ((before.mean, after.mean), (before.energy, after.energy)))
        print(
            f"{name}, {images} of {shape}: {plain:.3f} s, compiled {compiled:.3f} s (ratio {compiled / plain:.2f}); "
            f"first evaluation {first:.0f} s; means differ by {mean:.0e}, energies by {nats:.0e} nats"
        )
    print(f"a derivative of a derivative of {name}, compiled: {second_derivative(energy, shape)}")


if __name__ == "__main__":
    main()

"""Colouring noise of 64×3×64×64 against a plain FFT round trip and an element-wise product, side by side in one run.

The foundation asks for at most 3× the round trip (Fourier) and 2× the product (spatial). Nothing is asserted: ratios are printed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from linverse.covariance import BlockDCTCovariance, DCTCovariance, FourierCovariance, SpatialCovariance

SHAPE = (64, 3, 64, 64)
ROUNDS = 20


def times(functions: dict[str, Callable[[], Tensor]]) -> dict[str, float]:
    """Best seconds of each: the functions take turns, and the best round is the one that other processes disturbed least."""
    samples: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(ROUNDS + 3):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            samples[name].append(time.perf_counter() - start)
    return {name: min(values[3:]) for name, values in samples.items()}


def cases(shared: bool) -> dict[str, Callable[[], Tensor]]:
    """The two yardsticks and the four families, on the same noise; log λ shared by the channels or one each."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(SHAPE, generator=generator)
    log_variance = torch.randn(SHAPE[0], 1 if shared else SHAPE[1], *SHAPE[2:], generator=generator)
    scale = torch.rand(SHAPE, generator=generator)
    spatial, fourier, dct = (f(log_variance, 3) for f in (SpatialCovariance, FourierCovariance, DCTCovariance))
    block = BlockDCTCovariance(log_variance, 3, 4)
    return {
        "fft round trip": lambda: torch.fft.ifft2(torch.fft.fft2(noise)).real,
        "element-wise product": lambda: noise * scale,
        "spatial": lambda: spatial.colour(noise),
        "fourier": lambda: fourier.colour(noise),
        "dct": lambda: dct.colour(noise),
        "block dct 4×4": lambda: block.colour(noise),
    }


def main() -> None:
    print(f"colour, {SHAPE}, best of {ROUNDS} rounds, {torch.get_num_threads()} threads")
    for shared in (True, False):
        print("log λ shared by the channels" if shared else "log λ per channel")
        seconds = times(cases(shared))
        for name, value in seconds.items():
            to_fft, to_product = value / seconds["fft round trip"], value / seconds["element-wise product"]
            print(f"  {name:<22} {1e3 * value:8.2f} ms  {to_fft:6.2f} × round trip  {to_product:7.2f} × product")


if __name__ == "__main__":
    main()

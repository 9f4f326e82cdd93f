"""Digits that nobody wrote.

A measurement that is noise and nothing else leaves the prior: samples of its posterior are new digits.
"""

import torch
from matplotlib.figure import Figure

import linverse as lv


def draw() -> Figure:
    """Eight of them, each from noise of its own."""
    generator = torch.Generator().manual_seed(0)
    noise = lv.Denoising(sigma=30.0).from_raw(0.5 + 30.0 * torch.randn(8, 1, 28, 28, generator=generator))
    digits = lv.Posterior(lv.load("mnist"), noise).sample(1, 30, generator=generator)[0]
    figure = Figure(figsize=(8, 1.2), layout="constrained")
    for axes, digit in zip(figure.subplots(1, 8), digits[:, 0], strict=True):
        axes.imshow(digit.clamp(0, 1).numpy(), cmap="gray")
        axes.set_axis_off()
    return figure

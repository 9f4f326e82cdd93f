"""How noisy is it? The evidence of every noise level.

A boot under white noise of three levels (dashed): the posterior of the level, from the picture alone.
"""

import torch
from matplotlib.figure import Figure

import linverse as lv
from linverse.blind import UnknownNoise, estimate
from linverse.data.examples import load_examples


def draw() -> Figure:
    """Posteriors of sigma."""
    boot = load_examples("fashion-mnist").batch(torch.tensor([0]))
    energy, levels = lv.load("fashion-mnist"), torch.logspace(-1.7, 0, 80)
    figure = Figure(figsize=(8, 3), layout="constrained")
    axes = figure.subplots()
    for seed, sigma in enumerate((0.05, 0.15, 0.5)):
        noisy = boot + sigma * torch.randn(boot.shape, generator=torch.Generator().manual_seed(seed))
        found = estimate(energy, noisy, UnknownNoise(), {"sigma": levels})
        density = found.marginal("sigma")
        axes.plot(levels, density / density.max(), label=f"σ = {sigma}")
        axes.axvline(sigma, color="grey", linestyle="--", linewidth=1)
    axes.set(xscale="log", xlabel="noise level σ", ylabel="probability, of its largest")
    axes.legend()
    return figure

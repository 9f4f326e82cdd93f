"""The same model undoes a blur.

No network was trained for it alone: the covariance of the noise tells the energy what was measured, and how well.
"""

import torch
from matplotlib.figure import Figure

import linverse as lv
from linverse.data.examples import load_examples


def draw() -> Figure:
    """A blurred shirt."""
    shirt = load_examples("fashion-mnist").batch(torch.tensor([2]))
    measurement = lv.GaussianBlur(1.2, sigma=0.01).measure(shirt, torch.Generator().manual_seed(0))
    return lv.plot(lv.Posterior(lv.load("fashion-mnist"), measurement), samples=8, path=20, truth=shirt[0])

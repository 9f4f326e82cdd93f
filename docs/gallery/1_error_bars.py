"""A missing square, and how sure we are of what stood there.

Below the measurement, its mean and its standard deviation: posterior samples, the most probable first.
"""

import torch
from matplotlib.figure import Figure

import linverse as lv
from linverse.data.examples import load_examples


def draw() -> Figure:
    """A bag without its middle."""
    bag = load_examples("fashion-mnist").batch(torch.tensor([1]))
    measurement = lv.Box(16, sigma=0.01).measure(bag, torch.Generator().manual_seed(0))
    return lv.plot(lv.Posterior(lv.load("fashion-mnist"), measurement), samples=8, path=20, truth=bag[0])

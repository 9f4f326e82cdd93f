"""Energies whose truth is known: the oracles that everything else is tested against."""

from linverse.analytic.gaussian import DiagonalGaussian
from linverse.analytic.mixture import DenseGaussian, GaussianMixture, MixturePosterior
from linverse.analytic.scale_mixture import GaussianScaleMixture

__all__ = ["DenseGaussian", "DiagonalGaussian", "GaussianMixture", "GaussianScaleMixture", "MixturePosterior"]

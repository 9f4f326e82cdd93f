"""Blind estimation: which degradation made this image? Families of them, evidence over a grid, grids that zoom in."""

from linverse.blind.ascent import maximise
from linverse.blind.estimate import BlindEstimate, estimate, log_evidence, noise_bound, noise_levels, restore
from linverse.blind.families import (
    Family,
    Parameters,
    UnknownGaussianBlur,
    UnknownLineBlur,
    UnknownMask,
    UnknownNoise,
    UnknownNoiseBox,
)
from linverse.blind.search import FAMILIES, Axis, FamilyPreset, Search, search, search_noise_levels, simulate

__all__ = [
    "FAMILIES",
    "Axis",
    "BlindEstimate",
    "Family",
    "FamilyPreset",
    "Parameters",
    "Search",
    "UnknownGaussianBlur",
    "UnknownLineBlur",
    "UnknownMask",
    "UnknownNoise",
    "UnknownNoiseBox",
    "estimate",
    "log_evidence",
    "maximise",
    "noise_bound",
    "noise_levels",
    "restore",
    "search",
    "search_noise_levels",
    "simulate",
]

"""Blind estimation: which degradation made this image? Families of them, evidence over a grid, grids that zoom in."""

from linverse.blind.ascent import maximise
from linverse.blind.automatic import FoundDegradation, find_degradation, search_blur, search_family
from linverse.blind.boxes import Calibrations, search_box
from linverse.blind.estimate import BlindEstimate, estimate, integrated_mean, log_evidence, noise_bound, noise_levels
from linverse.blind.families import (
    Family,
    Given,
    Parameters,
    UnknownGaussianBlur,
    UnknownLineBlur,
    UnknownMask,
    UnknownNoise,
    UnknownNoiseBox,
    reflecting,
)
from linverse.blind.noise_level import NoiseSearch, search_noise
from linverse.blind.search import (
    FAMILIES,
    Axis,
    FamilyPreset,
    Search,
    check_truth,
    search,
    search_noise_levels,
    simulate,
)
from linverse.blind.slope import CorrectedSearch, SlopeCalibration, calibrate_slopes, evidence_slopes, search_by_slope

__all__ = [
    "FAMILIES",
    "Axis",
    "BlindEstimate",
    "Calibrations",
    "CorrectedSearch",
    "Family",
    "FamilyPreset",
    "FoundDegradation",
    "Given",
    "NoiseSearch",
    "Parameters",
    "Search",
    "SlopeCalibration",
    "UnknownGaussianBlur",
    "UnknownLineBlur",
    "UnknownMask",
    "UnknownNoise",
    "UnknownNoiseBox",
    "calibrate_slopes",
    "check_truth",
    "estimate",
    "evidence_slopes",
    "find_degradation",
    "integrated_mean",
    "log_evidence",
    "maximise",
    "noise_bound",
    "noise_levels",
    "reflecting",
    "search",
    "search_blur",
    "search_box",
    "search_by_slope",
    "search_family",
    "search_noise",
    "search_noise_levels",
    "simulate",
]

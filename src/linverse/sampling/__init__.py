"""Samples of p(x | y) along paths through covariance space: predictors, Metropolis correctors, energy-guided schedules."""

from linverse.sampling.evaluator import Evaluator, Iterate
from linverse.sampling.film import Film, film_in_basis
from linverse.sampling.guided import MagnitudeStep, MirrorStep, Rule, VarianceStep, freeze
from linverse.sampling.langevin import MALA, ULA, ChainState, Kernel, KernelInfo, SignalToNoiseULA, warm_up
from linverse.sampling.paths import Path, autoregressive, clamped, geometric, held, linear, per_coefficient
from linverse.sampling.predictors import Ancestral, Euler, Matched, Predictor, ProbabilityFlowHeun, TwoStepAncestral
from linverse.sampling.prior import prior_start
from linverse.sampling.sampler import SampleResult, SamplerOptions, sample, sample_in_basis, tune
from linverse.sampling.split_gibbs import OperatorSamples, SplitGibbsOptions, sample_operator
from linverse.sampling.targets import OperatorTarget, PathTarget, Target

__all__ = [
    "MALA",
    "ULA",
    "Ancestral",
    "ChainState",
    "Euler",
    "Evaluator",
    "Film",
    "Iterate",
    "Kernel",
    "KernelInfo",
    "MagnitudeStep",
    "Matched",
    "MirrorStep",
    "OperatorSamples",
    "OperatorTarget",
    "Path",
    "PathTarget",
    "Predictor",
    "ProbabilityFlowHeun",
    "Rule",
    "SampleResult",
    "SamplerOptions",
    "SignalToNoiseULA",
    "SplitGibbsOptions",
    "Target",
    "TwoStepAncestral",
    "VarianceStep",
    "autoregressive",
    "clamped",
    "film_in_basis",
    "freeze",
    "geometric",
    "held",
    "linear",
    "per_coefficient",
    "prior_start",
    "sample",
    "sample_in_basis",
    "sample_operator",
    "tune",
    "warm_up",
]

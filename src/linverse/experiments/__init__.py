"""One file a table or figure of the paper; each writes numbers, a picture, and the paper's claim beside them."""

from linverse.experiments.framework import (
    EXPERIMENTS,
    ExperimentResult,
    experiment_options,
    run_experiment,
)

__all__ = ["EXPERIMENTS", "ExperimentResult", "experiment_options", "run_experiment"]

"""One file a table or figure of the paper; each writes numbers, a picture, and the paper's claim beside them."""

from linverse.experiments.framework import (
    EXPERIMENTS,
    ExperimentResult,
    Progress,
    experiment_options,
    run_experiment,
    silent,
)

__all__ = ["EXPERIMENTS", "ExperimentResult", "Progress", "experiment_options", "run_experiment", "silent"]

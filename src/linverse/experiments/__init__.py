"""One file for each table or figure of the paper: it computes the numbers; `report.experiments` draws them."""

from linverse.experiments.framework import EXPERIMENTS, ExperimentResult, experiment_options, run_experiment

__all__ = ["EXPERIMENTS", "ExperimentResult", "experiment_options", "run_experiment"]

"""The recipes of CONTRIBUTING.md work as they are written, and are as short as they say."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from linverse.baselines import EnergyDenoiser
from linverse.covariance import identity
from linverse.degradations import Box
from linverse.energy import Energy, evaluate
from linverse.experiments import framework
from linverse.posterior import Posterior

PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
RECIPES = dict(re.findall(r"\*\*An? (\w+)\*\*:.*?```python\n(.*?)```", PAGE, flags=re.DOTALL))


def recipe(name: str, module: str = "recipe") -> dict[str, Any]:
    made = ModuleType(module)
    sys.modules[module] = made  # dataclasses look their module up
    exec(compile(RECIPES[name], f"CONTRIBUTING.md: {name}", "exec"), vars(made))
    return vars(made)


def test_there_are_four_of_about_ten_lines() -> None:
    assert set(RECIPES) == {"operator", "energy", "solver", "experiment"}
    for name, text in RECIPES.items():
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("from ", "import "))]
        assert len(lines) <= 10, (name, len(lines))


def test_the_energy_is_one_and_restores() -> None:
    energy = recipe("energy")["WhiteEnergy"]()
    assert isinstance(energy, Energy)
    y = torch.rand(2, 1, 8, 8, dtype=torch.float64)
    found = evaluate(energy, y, identity("spatial", (1, 8, 8), y).isotropic(0.01))
    assert torch.allclose(found.mean, 0.5 + 0.8 * (y - 0.5))
    assert torch.allclose(found.variance, torch.full_like(found.variance, 0.008))


def test_the_operator_measures_what_a_posterior_takes() -> None:
    energy, degradation = recipe("energy")["WhiteEnergy"](), recipe("operator")["Dimming"](0.5, 0.05)
    x = torch.rand(1, 1, 8, 8, dtype=torch.float64)
    measurement = degradation.measure(x, torch.Generator().manual_seed(0))
    gain = 0.5 * 0.04 / (0.25 * 0.04 + 0.05**2)
    exact = 0.5 + gain * (measurement.raw - 0.25)
    assert torch.allclose(Posterior(energy, measurement).mean(), exact)


def test_the_solver_restores_what_is_missing() -> None:
    energy, solve = recipe("energy")["WhiteEnergy"](), recipe("solver")["solve"]
    x, degradation = torch.full((3, 1, 8, 8), 0.6, dtype=torch.float64), Box(4, 0.01)
    raw = degradation.measure(x, torch.Generator().manual_seed(0)).raw
    solution = solve(EnergyDenoiser(energy), degradation, raw, None)
    assert (solution.evaluations, solution.samples.shape) == (20, x.shape)
    assert float((solution.samples - x).square().mean()) < 0.25 * float((raw - x).square().mean())


def test_the_experiment_runs_under_the_framework(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(**recipe("experiment", "linverse.experiments.entropy"))
    monkeypatch.setitem(sys.modules, "linverse.experiments.entropy", module)
    monkeypatch.setitem(framework.EXPERIMENTS, "entropy", "a recipe")
    record, _ = framework.run_experiment("entropy", tmp_path, quick=True)
    # of 100 images with 64 pixels: U has a variance of 64/2, its mean a standard error of 0.57
    assert abs(record["metrics"]["gap"]) < 4 * (32 / 100) ** 0.5
    assert record["metrics"]["gap"] != 0

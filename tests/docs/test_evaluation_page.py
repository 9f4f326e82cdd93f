"""docs/evaluation.md is right: its examples run as they stand, its tables name all there is, and its costs are those that are counted."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import solvable
import torch

from linverse import cli
from linverse.analytic import GaussianMixture
from linverse.baselines import METHODS, EnergyDenoiser
from linverse.degradations import Box
from linverse.degradations.tasks import TASKS
from linverse.metrics import METRICS
from linverse.models.denoiser import Denoiser, DenoiserConfig
from linverse.models.energies.learned import LearnedEnergy
from linverse.models.networks.unet import UNetConfig
from linverse.report.tables import options_text
from linverse.rng import keyed_generator
from tiny import awaken, tiny_energy

PAGE = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text()
SHAPE = (1, 8, 8)
BACKBONE = UNetConfig(channels=4, multipliers=(1,), blocks=1, embedding=4, stem=2, style="compact", middle=1)


def block(language: str, containing: str) -> str:
    """The code block of the page that holds a text."""
    found = [b for b in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if containing in b]
    assert len(found) == 1
    return str(found[0])


def table_rows(heading: str) -> list[list[str]]:
    """The cells of the table whose first line begins so."""
    lines = PAGE[PAGE.index(heading) :].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return rows


def small_energy() -> LearnedEnergy:
    energy = tiny_energy(SHAPE, backbone=BACKBONE).float()
    energy.fit_gaussian(torch.full(SHAPE, 0.3), 0.1)
    return energy.eval()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user's, with a model `digits` and the solver of the page in it."""
    small_energy().save_pretrained(tmp_path / "digits")
    (tmp_path / "my_solvers.py").write_text(block("python", "plug_and_play"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def imported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "my_solvers", raising=False)
    return importlib.import_module("my_solvers")


# --- a solver of one's own -------------------------------------------------------------------------------------------------------


def test_the_solver_has_ten_lines() -> None:
    lines = [line for line in block("python", "plug_and_play").splitlines() if line.strip()]
    assert len(lines) <= 10


def test_the_solver_runs_by_the_command_of_the_page(here: Path) -> None:
    command = block("bash", "my_solvers:plug_and_play").split()
    assert command[:2] == ["linverse", "evaluate"]
    own = {"fashion-mnist": "digits", "16": "4"}  # our model and fewer images: all else as it is printed
    arguments = [own.get(word, word) for word in command[1:]]
    more = ["--data", "digits", "--task", "gauss", "--metric", "PSNR", "--pictures", "0"]
    cli.main([*arguments, *more, "--method", "pseudo-inverse"])
    methods = json.loads((here / "evaluation/results.json").read_text())["tasks"]["gauss"]["methods"]
    for label, steps in (("my_solvers:plug_and_play", 20), ("my_solvers:plug_and_play:steps=50", 50)):
        assert methods[label]["status"] == "done"
        assert methods[label]["evaluations"] == steps
        assert methods[label]["network"] == "energy as denoiser"


def test_the_solver_restores(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a prior that is known it is far better than the pseudo-inverse that it starts from."""
    prior: GaussianMixture = solvable.mixture()
    degradation, generator = Box(2, 0.05), keyed_generator("page")
    truth = prior.sample(50, generator).clamp(-0.4, 1.4)
    raw = degradation.measure(truth, generator).raw
    found = imported(here, monkeypatch).plug_and_play(EnergyDenoiser(prior), degradation, raw, generator)
    start = METHODS["pseudo-inverse"].solve(None, degradation, raw, generator)
    errors = [float((solution.samples - truth).square().mean()) for solution in (found, start)]
    assert errors[0] < 0.3 * errors[1]


def test_the_example_in_python_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "my_evaluation.py").write_text(block("python", "evaluate_methods"))
    sys.path.insert(0, str(here))
    importlib.import_module("my_evaluation")
    sys.modules.pop("my_evaluation")
    assert "estimate" in capsys.readouterr().out
    assert (here / "evaluation/grid-superres.png").exists()


# --- tables ----------------------------------------------------------------------------------------------------------------------


def test_all_tasks_are_there_with_their_options() -> None:
    rows = {name.strip("`"): options for name, _, options in table_rows("| task |")}
    assert rows == {name: options_text(task.defaults((28, 28))) for name, task in TASKS.items()}


def test_all_metrics_are_explained() -> None:
    columns = ", ".join(row[0] for row in table_rows("| column |"))
    assert all(name in columns for name in (*METRICS, "Fréchet-VGG16", "log p(x̂)", "log p(x̂\\|y)", "evaluations"))


def test_all_methods_are_explained() -> None:
    assert [row[0].strip("`") for row in table_rows("| method | formula |")] == list(METHODS)
    hyper = {row[0].strip("`") for row in table_rows("| method | the paper |")}
    assert hyper == {name for name, method in METHODS.items() if "steps" in settings(method.solve)} - {"ours-surrogate"}


def settings(solve: Any) -> dict[str, Any]:
    from linverse.evaluation.contenders import default_settings

    return default_settings(solve)[0]


@pytest.mark.parametrize("row", table_rows("| method | formula |"), ids=lambda row: row[0].strip("`"))
def test_costs_are_those_that_are_counted(row: list[str]) -> None:
    """On a score network where one is wanted, with N = 3 steps."""
    name, steps = row[0].strip("`"), 3
    counts = {
        "0": 0,
        "1": 1,
        "N": steps,
        "N + 1": steps + 1,
        "2N + 1": 2 * steps + 1,
        "k·N": 5 * steps,
        "≤ 4·(N + 1)": 4 * (steps + 1),
    }
    promised = [counts[text.strip()] for text in row[-1].split(",")]
    method = METHODS[name]
    network = Denoiser(
        DenoiserConfig(SHAPE, 1e-4, 1e2, condition_channels=2 * (method.needs == "palette"), backbone=BACKBONE)
    )
    awaken(network, size=0.05)
    model = {"energy": small_energy(), "nothing": None}.get(method.needs, network)
    task = "gauss" if name == "ours-surrogate" else "box"
    degradation = TASKS[task].build(TASKS[task].defaults((8, 8)), (8, 8))
    given = {"steps": steps} if "steps" in settings(method.solve) else {}
    solution = method.solve(model, degradation, torch.full((1, *SHAPE), 0.5), keyed_generator("cost"), **given)
    if "≤" in row[-1]:  # conjugate gradients stop where they have converged
        assert solution.evaluations == promised[0]
        assert 2 * promised[0] <= solution.gradients <= promised[1]
    else:
        assert [solution.evaluations, solution.gradients] == promised

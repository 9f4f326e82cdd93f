"""The evaluation harness on tiny untrained networks and 8×8 digits, and its audit on a prior that is known exactly."""

from __future__ import annotations

import csv
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from linverse import cli, evaluation
from linverse.analytic import GaussianMixture
from linverse.baselines import METHODS, EnergyDenoiser, NotApplicable, Solution, pigdm
from linverse.covariance import VarianceRange
from linverse.degradations.tasks import parse_task
from linverse.evaluation import contenders, measures, results, scoring
from linverse.evaluation.audit import POSTERIOR, PRIOR, densities
from linverse.evaluation.contenders import TRUTH, Contender, parse_contender
from linverse.evaluation.defaults import default_contenders
from linverse.evaluation.networks import AS_DENOISER, Models, PaletteModel
from linverse.evaluation.plan import EvaluationSetting, Plan, Task, Unit, make_plan
from linverse.evaluation.runner import run_units
from linverse.evaluation.spread import COVERAGE
from linverse.evaluation.storage import EvaluationFolder, slug
from linverse.metrics import frechet_from_features
from linverse.models.denoiser import Denoiser, DenoiserConfig
from linverse.models.energies.learned import EnergyConfig, LearnedEnergy
from linverse.models.networks.unet import UNetConfig
from linverse.report import comparison, tables
from linverse.report import evaluation as view
from linverse.report.evaluation import write_report
from linverse.rng import keyed_generator
from oracles import random_spd, z_threshold
from tiny import awaken

SHAPE = (1, 8, 8)
BACKBONE = UNetConfig(channels=4, multipliers=(1,), blocks=1, embedding=4, stem=1, style="compact", middle=1)
BASES = ("spatial", "fourier", "block-dct-4")
SETTING = EvaluationSetting("digits", batch=4, metrics=("PSNR", "SSIM"))
QUICK = ("pseudo-inverse", "posterior-mean", "ours:steps=3", "dps:steps=3")


def evaluate_and_report(plan: Plan, folder: Path, pictures: int = 0) -> dict[str, Any]:
    """Run what is not done, and write all that the command does."""
    evaluation.evaluate_methods(plan, folder)
    return write_report(plan, EvaluationFolder(folder, plan), pictures)[0]


def tiny_energy() -> LearnedEnergy:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        energy = LearnedEnergy(EnergyConfig(SHAPE, 1e-4, 1e2, BASES, backbone=BACKBONE))
    awaken(energy, size=0.05)
    energy.fit_gaussian(torch.full(SHAPE, 0.3), 0.1)
    return energy.eval()


def tiny_denoiser(condition: int = 0) -> Denoiser:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        network = Denoiser(DenoiserConfig(SHAPE, 1e-4, 1e2, condition_channels=condition, backbone=BACKBONE))
    awaken(network, size=0.05)
    network.fit_gaussian(torch.full(SHAPE, 0.3), 0.1)
    return network.eval()


def pictures_of(count: int) -> Tensor:
    return torch.rand(count, *SHAPE, generator=keyed_generator("pictures"))


def tiny_plan(*methods: str | Contender, tasks: tuple[str, ...] = ("box",), images: int = 7, **changes: Any) -> Plan:
    chosen = [parse_contender(m) if isinstance(m, str) else m for m in methods or QUICK]
    models = Models(tiny_energy(), tiny_denoiser())
    return make_plan(models, pictures_of(images), tasks, chosen, replace(SETTING, **changes))


def own(label: str, solve: Callable[..., Any], **settings: Any) -> Contender:
    """A method of a test's own."""
    return Contender(label, solve, "nothing", settings, settings)


def grey(model: object, degradation: object, y_raw: Tensor, generator: torch.Generator) -> Tensor:
    return torch.full((len(y_raw), *SHAPE), 0.5)


def values_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return content


# --- what a plan promises ----------------------------------------------------------------------------------------------------


def test_measurements_do_not_depend_on_the_batches() -> None:
    small, large = tiny_plan(batch=2), tiny_plan(batch=7)
    task = small.tasks[0]
    parts = [small.raw(Unit(task, small.contenders[0], k)) for k in range(4)]
    assert torch.equal(torch.cat(parts), large.raw(Unit(task, None, 0)))
    assert not torch.equal(large.raw(Unit(task, None, 0)), tiny_plan(batch=7, seed=1).raw(Unit(task, None, 0)))


def test_all_methods_see_the_same_data_and_the_same_stream(tmp_path: Path) -> None:
    seen: dict[str, list[Any]] = {"a": [], "b": []}

    def spy(name: str) -> Callable[..., Tensor]:
        def solve(model: object, degradation: object, y_raw: Tensor, generator: torch.Generator) -> Tensor:
            seen[name].append((y_raw.clone(), torch.rand(3, generator=generator)))
            return torch.zeros(len(y_raw), *SHAPE)

        return solve

    plan = tiny_plan(own("a", spy("a")), own("b", spy("b")), tasks=("box", "superres"))
    run_units(plan, EvaluationFolder(tmp_path, plan))
    assert len(seen["a"]) == len(seen["b"]) == 4
    for one, other in zip(seen["a"], seen["b"], strict=True):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])
    assert not torch.equal(seen["a"][0][1], seen["a"][1][1])


def test_the_audit_measures_above_the_floor() -> None:
    plan = tiny_plan(tasks=("box", "denoise:sigma=0.3"))
    quiet, noisy = plan.tasks
    assert quiet.degradation.sigma == 1e-3
    assert quiet.audited.sigma == pytest.approx(math.sqrt(10 * 1e-4))
    assert noisy.audited.sigma == noisy.degradation.sigma == 0.3
    unit = Unit(quiet, None, 0)
    raw = plan.raw(unit)
    added = (plan.audit_raw(unit, raw) - raw).square().mean()
    assert float(added) == pytest.approx(10 * 1e-4, rel=0.4)
    noisy_unit = Unit(noisy, None, 0)
    assert torch.equal(plan.audit_raw(noisy_unit, plan.raw(noisy_unit)), plan.raw(noisy_unit))
    assert torch.equal(plan.audit_noise(unit), plan.audit_noise(noisy_unit))


def test_a_plan_refuses_nonsense() -> None:
    with pytest.raises(ValueError, match="each one once"):
        tiny_plan("dps", "dps")
    with pytest.raises(ValueError, match="no metric"):
        tiny_plan(metrics=("beauty",))
    with pytest.raises(ValueError, match="at least one image"):
        tiny_plan(batch=0)
    with pytest.raises(ValueError, match="the model takes"):
        replace(tiny_plan(), truth=torch.zeros(2, 1, 4, 4))
    with pytest.raises(ValueError, match="no images"):
        tiny_plan(images=0)
    with pytest.raises(ValueError, match="do not tile"):
        tiny_plan(tasks=("superres:factor=3",))


# --- running, resuming, sharing ----------------------------------------------------------------------------------------------


def test_the_whole_thing(tmp_path: Path) -> None:
    plan = tiny_plan(*QUICK, "palette", tasks=("box", "motion:size=3"))
    result = evaluate_and_report(plan, tmp_path, 8)
    names = {path.name for path in tmp_path.iterdir()}
    wanted = {"results.json", "timings.json", "table.md", "table.csv", "grid-box.png", "audit-box.png"}
    assert wanted < names
    assert values_of(tmp_path) == json.loads(json.dumps(result))
    for task in result["tasks"].values():
        assert task["methods"]["palette"]["status"] == "skipped"
        assert "--palette-model" in task["methods"]["palette"]["reason"]
        for label in QUICK:
            method = task["methods"][label]
            assert method["status"] == "done"
            assert all(len(values) == 7 for values in method["values"].values())
            assert set(method["summary"]) == {"PSNR", "SSIM", "Fréchet-pixels", PRIOR, POSTERIOR}
        assert set(task["methods"][TRUTH]["values"]) == {PRIOR, POSTERIOR}
    assert result["tasks"]["box"]["methods"]["dps:steps=3"]["evaluations"] == 4
    assert result["tasks"]["motion:size=3"]["options"] == {"size": 3, "intensity": 0.3, "sigma": 2e-3, "seed": 0}
    networks = {label: result["tasks"]["box"]["methods"][label]["network"] for label in QUICK}
    assert networks == dict(zip(QUICK, ("none", "energy", "energy", "score"), strict=True))
    timings = json.loads((tmp_path / "timings.json").read_text())
    assert len(timings["tasks"]["box"]["ours:steps=3"]["batches"]) == 2
    assert set(timings["spent"]) == {"solving", "metrics", "densities", "coverage", "tables and pictures"}
    assert all(seconds > 0 for seconds in timings["spent"].values())


def test_values_are_those_of_the_images(tmp_path: Path) -> None:
    plan = tiny_plan(own("grey", grey))
    found = evaluate_and_report(plan, tmp_path)["tasks"]["box"]["methods"]["grey"]
    exact = -10 * torch.log10((plan.truth - 0.5).square().mean(dim=(1, 2, 3)).double())
    torch.testing.assert_close(torch.tensor(found["values"]["PSNR"]).double(), exact, rtol=1e-5, atol=1e-5)
    assert found["summary"]["PSNR"]["estimate"] == pytest.approx(float(exact.mean()))
    assert found["summary"]["PSNR"]["low"] < found["summary"]["PSNR"]["estimate"] < found["summary"]["PSNR"]["high"]
    pixels = (torch.full_like(plan.truth, 0.5).flatten(1), plan.truth.flatten(1))
    distance = frechet_from_features(*pixels)
    assert found["summary"]["Fréchet-pixels"]["estimate"] == pytest.approx(float(distance), rel=1e-5)
    assert found["evaluations"] is None  # a user's function that returns images does not say


def uniform(width: float) -> Callable[..., Tensor]:
    """A sampler of grey values, the right one for `pictures_of` if the width is 1, that knows the pixels outside of the box."""

    def solve(model: object, degradation: Any, y_raw: Tensor, generator: torch.Generator) -> Tensor:
        return 0.5 + width * (torch.rand(len(y_raw), *SHAPE, generator=generator) - 0.5)

    return solve


def test_coverage_tells_samplers_that_vary_too_little(tmp_path: Path) -> None:
    methods = [own("right", uniform(1.0)), own("timid", uniform(0.3)), own("one answer", grey)]
    plan = tiny_plan(*methods, images=6, coverage=19, coverage_images=5)
    found = evaluate_and_report(plan, tmp_path)["tasks"]["box"]["methods"]
    assert len(found["right"]["coverage"]) == 5
    assert COVERAGE not in found["one answer"]["summary"]
    pixels = 5 * 36
    assert abs(found["right"]["summary"][COVERAGE]["estimate"] - 0.9) < z_threshold(1) * math.sqrt(0.9 * 0.1 / pixels)
    assert found["timid"]["summary"][COVERAGE]["estimate"] < 0.5
    assert COVERAGE in (tmp_path / "table.md").read_text()
    for count in (5, 10**9):
        with pytest.raises(ValueError, match="19 samples or more"):
            tiny_plan(coverage=count)


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        evaluate_and_report(tiny_plan(tasks=("box", "superres")), tmp_path / folder)
    evaluate_and_report(tiny_plan(tasks=("box", "superres"), seed=1), tmp_path / "c")
    first, second, third = ((tmp_path / folder / "results.json").read_bytes() for folder in "abc")
    assert first == second
    assert first != third
    rows = [list(csv.reader((tmp_path / folder / "table.csv").open())) for folder in "ab"]
    assert rows[0][0][-1] == "seconds"
    assert [row[:-1] for row in rows[0]] == [row[:-1] for row in rows[1]]


def test_resuming_does_not_redo_what_is_done(tmp_path: Path) -> None:
    """Killed in the middle, rerun: the same bytes as without the interruption, and no batch solved twice."""
    calls: list[int] = []

    def draw(model: object, degradation: object, y_raw: Tensor, generator: torch.Generator) -> Tensor:
        calls.append(len(y_raw))
        if len(calls) == 2 and stop:
            raise KeyboardInterrupt
        return torch.rand(len(y_raw), *SHAPE, generator=generator)

    stop, plan = False, tiny_plan(own("draw", draw), "pseudo-inverse")
    evaluate_and_report(plan, tmp_path / "whole")
    stop, calls[:] = True, []
    with pytest.raises(KeyboardInterrupt):
        evaluate_and_report(plan, tmp_path / "parts")
    assert calls == [4, 3]
    stop = False
    evaluate_and_report(plan, tmp_path / "parts")
    assert calls == [4, 3, 3]  # the interrupted batch once more
    evaluate_and_report(plan, tmp_path / "parts")
    assert len(calls) == 3
    assert (tmp_path / "whole/results.json").read_bytes() == (tmp_path / "parts/results.json").read_bytes()


def test_methods_and_tasks_can_be_added_later(tmp_path: Path) -> None:
    first = evaluate_and_report(tiny_plan("pseudo-inverse"), tmp_path)
    more = evaluate_and_report(tiny_plan("pseudo-inverse", "ours:steps=2", tasks=("box", "superres")), tmp_path)
    both = (r["tasks"]["box"]["methods"]["pseudo-inverse"]["values"] for r in (first, more))
    assert next(both) == next(both)
    assert more["tasks"]["superres"]["methods"]["ours:steps=2"]["status"] == "done"


def test_two_processes_give_what_one_gives(tmp_path: Path) -> None:
    plan = tiny_plan(tasks=("box", "superres"))
    evaluate_and_report(plan, tmp_path / "one")
    shares = [run_units(plan, EvaluationFolder(tmp_path / "two", plan), rank, 2) for rank in (1, 0)]
    write_report(plan, EvaluationFolder(tmp_path / "two", plan), 0)
    assert sum(shares) == len(plan.units())
    assert abs(shares[0] - shares[1]) <= 1
    assert (tmp_path / "one/results.json").read_bytes() == (tmp_path / "two/results.json").read_bytes()


def test_a_half_finished_evaluation_says_so(tmp_path: Path) -> None:
    plan = tiny_plan("pseudo-inverse", "posterior-mean")
    store = EvaluationFolder(tmp_path, plan)
    run_units(plan, store, 0, 2)
    methods = write_report(plan, store, 0)[0]["tasks"]["box"]["methods"]
    assert {method["status"] for method in methods.values()} == {"unfinished"}
    assert "run the command again" in (tmp_path / "table.md").read_text()


@pytest.mark.parametrize("change", ["seed", "batch", "images", "model", "settings", "operator", "network"])
def test_a_changed_configuration_is_refused(change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = tiny_plan("dps:steps=2")
    evaluate_and_report(plan, tmp_path)
    if change in ("seed", "batch"):
        other = tiny_plan("dps:steps=2", **{change: 5})
    elif change == "images":
        other = replace(plan, truth=plan.truth[:6])
    elif change == "model":
        energy = tiny_energy()
        energy.constant.fill_(3.0)
        other = replace(plan, models=replace(plan.models, energy=energy))
    elif change == "settings":  # a default that a new version changed, or the user in his own function
        contender = plan.contenders[0]
        other = replace(plan, contenders=(replace(contender, settings=contender.settings | {"weight": 7.0}),))
    elif change == "operator":
        task = plan.tasks[0]
        other = replace(plan, tasks=(replace(task, degradation=parse_task("box:side=3", (8, 8))),))
    else:
        other = replace(plan, models=replace(plan.models, score=EnergyDenoiser(plan.models.energy)))
    with pytest.raises(ValueError, match=rf"{change}.* was .* and is .*another --out") as complaint:
        EvaluationFolder(tmp_path, other)
    assert len(str(complaint.value).replace(str(tmp_path), "OUT")) < 300  # hashes are cut short
    EvaluationFolder(tmp_path, plan)


def test_a_changed_solver_of_the_user_is_not_taken_for_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, body = (
        tmp_path / "my_changing_solver.py",
        "def solve(model, degradation, y_raw, generator):\n    return y_raw * {}\n",
    )
    path.write_text(body.format(1))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    plan = tiny_plan("my_changing_solver:solve")
    evaluate_and_report(plan, tmp_path / "out")
    EvaluationFolder(tmp_path / "out", plan)
    path.write_text(body.format(2))
    with pytest.raises(ValueError, match=r"source was .* and is .*remove .*my_changing_solver-solve, or give another"):
        EvaluationFolder(tmp_path / "out", plan)


def test_files_of_somebody_else_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "table.md").write_text("my thesis")
    with pytest.raises(ValueError, match=r"table.md that no evaluation wrote"):
        evaluate_and_report(tiny_plan("pseudo-inverse"), tmp_path)
    assert (tmp_path / "table.md").read_text() == "my thesis"


# --- what goes wrong ---------------------------------------------------------------------------------------------------------


def test_a_broken_method_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    broken = True

    def sometimes(model: object, degradation: object, y_raw: Tensor, generator: torch.Generator) -> Tensor:
        if broken:
            raise RuntimeError("out of luck")
        return grey(model, degradation, y_raw, generator)

    plan = tiny_plan(own("sometimes", sometimes), "pseudo-inverse")
    methods = evaluate_and_report(plan, tmp_path)["tasks"]["box"]["methods"]
    assert methods["sometimes"] == {"status": "failed", "reason": "RuntimeError: out of luck"}
    assert methods["pseudo-inverse"]["status"] == "done"
    assert "sometimes failed: RuntimeError: out of luck" in (tmp_path / "table.md").read_text()
    kept = json.loads((tmp_path / "parts/box/sometimes/0000.error.json").read_text())
    assert "in sometimes" in kept["traceback"]
    assert not (tmp_path / "parts/box/sometimes/0001.error.json").exists()  # not tried on the other batches
    broken = False
    methods = evaluate_and_report(plan, tmp_path)["tasks"]["box"]["methods"]
    assert methods["sometimes"]["status"] == "done"
    assert not (tmp_path / "parts/box/sometimes/0000.error.json").exists()


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (lambda n: torch.full((n, *SHAPE), math.nan), "NaN"),
        (lambda n: torch.zeros(n, 1, 4, 4), "were asked for"),
        (lambda n: [torch.zeros(SHAPE)] * n, "list"),
        (lambda n: torch.full((n, *SHAPE), math.inf), "NaN or infinite"),
    ],
)
def test_nonsense_is_a_failure(answer: Callable[[int], Any], complaint: str, tmp_path: Path) -> None:
    def solve(model: object, degradation: object, y_raw: Tensor, generator: torch.Generator) -> Any:
        return answer(len(y_raw))

    plan = tiny_plan(own("odd", solve))
    method = evaluate_and_report(plan, tmp_path)["tasks"]["box"]["methods"]["odd"]
    assert method["status"] == "failed"
    assert complaint in method["reason"]


def test_what_does_not_apply_is_skipped_and_warnings_are_kept(tmp_path: Path) -> None:
    def picky(model: object, degradation: object, y_raw: Tensor, generator: torch.Generator) -> Tensor:
        raise NotApplicable("not for masks")

    def worried(model: object, degradation: object, y_raw: Tensor, generator: torch.Generator) -> Solution:
        import warnings

        warnings.warn("this is an extrapolation", stacklevel=1)
        return Solution(grey(model, degradation, y_raw, generator), 3, 2, 0.0)

    plan = tiny_plan(own("picky", picky), own("worried", worried), "ours-surrogate")
    methods = evaluate_and_report(plan, tmp_path)["tasks"]["box"]["methods"]
    assert methods["picky"] == {"status": "skipped", "reason": "not for masks"}
    assert methods["ours-surrogate"]["status"] == "skipped"
    assert methods["worried"]["warnings"] == ["this is an extrapolation"]
    assert (methods["worried"]["evaluations"], methods["worried"]["gradients"]) == (3, 2)


def test_an_energy_that_does_not_know_the_basis_says_so(tmp_path: Path) -> None:
    plan = tiny_plan("pseudo-inverse", tasks=("superres",))
    plan.models.energy.config = replace(plan.models.energy.config, bases=("spatial",))  # type: ignore[attr-defined]
    method = evaluate_and_report(plan, tmp_path)["tasks"]["superres"]["methods"]["pseudo-inverse"]
    assert "extrapolated" in method["warnings"][0]


# --- the audit ---------------------------------------------------------------------------------------------------------------


def known_prior() -> GaussianMixture:
    generator = keyed_generator("known")
    means = torch.rand(2, 64, generator=generator, dtype=torch.float64)
    spread = random_spd(generator, 2, 64, 0.02)
    return GaussianMixture(torch.tensor([0.6, 0.4]), means, spread, SHAPE, VarianceRange(1e-4, 1e2))


def test_audit_densities_are_those_of_the_prior_and_of_the_posterior() -> None:
    energy, degradation = known_prior(), parse_task("box:sigma=0.1", (8, 8))
    generator = keyed_generator("audit")
    x = energy.sample(3, generator)
    noise = torch.randn(x.shape, generator=generator, dtype=torch.float64)
    measurement = degradation.measure(x.clamp(-0.4, 1.4), generator)
    found = densities(energy, x, noise, degradation, measurement.raw)
    floored = x + 0.01 * noise
    total = energy.covariances + 1e-4 * torch.eye(64, dtype=torch.float64)
    terms = torch.distributions.MultivariateNormal(energy.means, total).log_prob(floored.flatten(1)[:, None])
    exact = torch.logsumexp(energy.log_weights + terms, dim=1)
    torch.testing.assert_close(found[PRIOR], exact)
    # log p(x|y) = log p(x) + log p(y|x) − log p(y): differences between two images leave out p(y)
    one, other = (degradation.operator(floored)[:1], degradation.operator(floored)[1:2])
    likelihood = [-0.5 * (measurement.raw[:1] - h).square().sum() / (0.01 - 1e-4) for h in (one, other)]
    swapped = densities(energy, x[1:2], noise[1:2], degradation, measurement.raw[:1])
    gap = exact[0] - exact[1] + likelihood[0] - likelihood[1]
    measured = found[POSTERIOR][0] - swapped[POSTERIOR][0]
    torch.testing.assert_close(
        measured, gap, rtol=1e-3, atol=1e-2
    )  # what was not measured keeps λ_max = 100: 1e-3 nats


def exact_samples(model: GaussianMixture, degradation: Any, y_raw: Tensor, generator: torch.Generator) -> Tensor:
    measurement = degradation.from_raw(y_raw.double())
    lifted = measurement.lift(model.range, model.gaussian(measurement.template), generator)
    return model.posterior(lifted.y, lifted.cov).sample(1, generator)[:, 0]


@pytest.mark.parametrize("task", ["box:sigma=0.1", "superres:sigma=0.1"])
def test_exact_samples_pass_the_audit_and_misfits_do_not(task: str, tmp_path: Path) -> None:
    """Exact posterior samples are as probable as the truth, on average; means are more probable, noisy inverses much less."""
    energy = known_prior()
    truth = energy.sample(300, keyed_generator("truth")).clamp(-0.49, 1.49)
    contestants = [Contender("exact", exact_samples, "energy", {}, {})]
    contestants += [parse_contender(name) for name in ("posterior-mean", "pseudo-inverse")]
    plan = make_plan(Models(energy), truth, [task], contestants, EvaluationSetting(batch=300, metrics=("PSNR",)))
    found = evaluate_and_report(plan, tmp_path)["tasks"][task]["methods"]
    for name in (PRIOR, POSTERIOR):
        gap = torch.tensor(found["exact"]["values"][name]) - torch.tensor(found[TRUTH]["values"][name])
        assert abs(float(gap.mean())) < z_threshold(4, 1e-5) * float(gap.std()) / math.sqrt(len(gap))
        if task.startswith("box"):  # where both modes of the prior are likely their mean is not
            assert found["posterior-mean"]["audit"][f"{name} less the truth's"]["low"] > 5
        assert found["pseudo-inverse"]["audit"][f"{name} less the truth's"]["high"] < -20


# --- methods and models by name ----------------------------------------------------------------------------------------------


def test_methods_with_settings() -> None:
    contender = parse_contender("dps:weight=0.5,steps=20")
    assert contender.given == {"weight": 0.5, "steps": 20}
    assert contender.settings["cap"] == 2.0
    assert isinstance(contender.given["steps"], int)
    assert parse_contender("dps:weight=2").given == {"weight": 2}  # a whole number is a number
    assert parse_contender("daps:eta=1e-5,prior_variance=none").given == {"eta": 1e-5, "prior_variance": None}
    assert parse_contender("pigdm").solve is pigdm.solve
    values = contenders.parse_settings("a=1,b=1e-3,c=true,d=none,e=euler", "x")
    assert values == {"a": 1, "b": 1e-3, "c": True, "d": None, "e": "euler"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("dsp", "there is no method 'dsp'; there are ours"),
        ("dps:wieght=1", "no setting wieght; the settings are steps=100"),
        ("dps:weight", "name=value"),
        ("dps:steps=many", "steps is a whole number .default: 100.; got 'many'"),
        ("dps:steps=1.5", "a whole number"),
        ("dps:weight=true", "a number"),
        ("ours:predictor=3", "a word"),
        ("no.such.module:solve", "cannot be imported"),
        ("math:no_such", "cannot be imported"),
        ("math:pi", "not a function"),
    ],
)
def test_methods_that_are_not_there(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_contender(text)


def test_a_solver_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def mine(model, degradation, y_raw, generator, *, shade=0.5):\n    return y_raw * 0 + shade\n"
    (tmp_path / "my_own_solvers.py").write_text(source + "mine.needs = 'score'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    contender = parse_contender("my_own_solvers:mine:shade=0.25")
    assert (contender.needs, contender.given) == ("score", {"shade": 0.25})
    found = evaluate_and_report(tiny_plan(contender), tmp_path / "out")["tasks"]["box"]["methods"]
    assert found["my_own_solvers:mine:shade=0.25"]["status"] == "done"


def test_a_solver_of_an_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        def load(self) -> Callable[..., Any]:
            return grey

    monkeypatch.setattr(contenders, "named_entry_points", lambda: {"grey": Point()})
    contender = parse_contender("grey")
    assert (contender.solve, contender.needs) == (grey, "energy")


def test_every_method_finds_its_model() -> None:
    inpainting, deblurring = tiny_denoiser(2), tiny_denoiser(1)
    bare = Models(tiny_energy())
    full = Models(bare.energy, tiny_denoiser(), (PaletteModel(inpainting), PaletteModel(deblurring)))
    box, blur = parse_task("box", (8, 8)), parse_task("gauss:std=0.5", (8, 8))
    palette, dps = parse_contender("palette"), parse_contender("dps")
    ours, trivial = (bare.choose(parse_contender(name), "box", box) for name in ("ours", "pseudo-inverse"))
    assert (ours.network, ours.kind, ours.reason) == (bare.energy, "energy", None)
    assert (trivial.network, trivial.kind, trivial.reason) == (None, "none", None)
    lent = bare.choose(dps, "box", box)  # no score network: the energy lends itself, and that is said
    assert isinstance(lent.network, EnergyDenoiser)
    assert (lent.network.energy, lent.kind, lent.reason) == (bare.energy, AS_DENOISER, None)
    assert "--palette-model box=FOLDER" in (bare.choose(palette, "box", box).reason or "")
    assert (full.choose(dps, "box", box).network, full.choose(dps, "box", box).kind) == (full.score, "score")
    assert full.choose(palette, "box", box).network is inpainting
    assert full.choose(palette, "gauss:std=0.5", blur).network is deblurring
    bound = replace(full, palettes=(PaletteModel(inpainting, "half"),))
    assert bound.choose(palette, "half", box).network is inpainting
    assert "--palette-model half:depth=2=FOLDER" in (bound.choose(palette, "half:depth=2", box).reason or "")
    assert bound.choose(palette, "box", box).network is None
    misfit = replace(full, palettes=(PaletteModel(deblurring, "box"),)).choose(palette, "box", box)
    assert misfit.network is None
    assert "which shows 2 channels" in (misfit.reason or "")


def test_networks_of_another_kind_are_refused_at_once() -> None:
    energy, small = tiny_energy(), Denoiser(DenoiserConfig((1, 4, 4), 1e-4, 1e2, backbone=BACKBONE))
    for make, complaint in (
        (lambda: Models(energy, tiny_denoiser(2)), "score network is conditional.*--palette-model"),
        (lambda: Models(energy, small), r"takes images of \(1, 4, 4\); the energy takes \(1, 8, 8\)"),
        (lambda: Models(energy, None, (PaletteModel(tiny_denoiser()),)), "not conditional.*--score-model"),
        (lambda: Models(energy, None, (PaletteModel(tiny_denoiser(2), "bokeh"),)), "for bokeh: there is no such task"),
    ):
        with pytest.raises(ValueError, match=complaint):
            make()


# --- tables, pictures, time --------------------------------------------------------------------------------------------------


def test_the_table_marks_the_best_and_escapes() -> None:
    def method(psnr: float, frechet: float) -> dict[str, Any]:
        summary = {
            "PSNR": {"estimate": psnr, "low": psnr - 1, "high": psnr + 1},
            PRIOR: {"estimate": -1.0, "low": -2.0, "high": 0.0},
            "Fréchet-pixels": {"estimate": frechet, "low": None, "high": None},
        }
        return {
            "status": "done",
            "network": "score",
            "summary": summary,
            "evaluations": 3,
            "gradients": None,
            "warnings": ["beware | pipes"],
        }

    skipped = {"status": "skipped", "reason": "no model"}
    about = {"options": {"side": 20.0, "sigma": 0.1}, "sigma": 0.1, "audit_sigma": 0.1}
    task = about | {"methods": {"a": method(20, 3), "b": method(30, 5), "c": skipped}}
    timings = {"tasks": {"t": {"a": {"per_image": 0.5}}}}
    whole = {"configuration": {"images": 4, "data": "d", "seed": 0, "floor": 1e-6}, "tasks": {"t": task}}
    text = tables.markdown(whole, timings)
    assert "## t (side=20, sigma=0.1)" in text
    assert "| method | network | PSNR ↑ | Fréchet-pixels ↓ | log p(x̂) | evaluations | gradients | seconds |" in text
    assert "| a | score | 20 [19, 21] | **3** | -1 [-2, 0] | 3 | – | 0.5 |" in text
    assert "| b | score | **30** [29, 31] | 5 |" in text
    assert "- c skipped: no model" in text
    lines = tables.csv_text(whole, timings).splitlines()
    assert lines[0].startswith("task,method,status,network,PSNR,PSNR low,PSNR high,Fréchet-pixels,")
    assert lines[1].startswith("t,a,done,score,20,")
    assert lines[1].endswith(",0.5")
    assert lines[3].startswith("t,c,skipped,,")


def test_one_image_has_no_interval(tmp_path: Path) -> None:
    found = evaluate_and_report(tiny_plan("pseudo-inverse", images=1), tmp_path, 8)
    assert found["tasks"]["box"]["methods"]["pseudo-inverse"]["summary"]["PSNR"]["low"] is None
    assert "Fréchet" not in (tmp_path / "table.md").read_text()


def test_a_perfect_restoration_has_a_finite_psnr(tmp_path: Path) -> None:
    plan = tiny_plan("pseudo-inverse", tasks=("denoise:sigma=0",))
    found = evaluate_and_report(plan, tmp_path)["tasks"]["denoise:sigma=0"]["methods"]["pseudo-inverse"]
    assert found["values"]["PSNR"] == [scoring.PSNR_CAP] * 7


def test_frechet_interval() -> None:
    generator = keyed_generator("features")
    a, b = (torch.randn(60, 4, generator=generator, dtype=torch.float64) + shift for shift in (0.0, 1.0))
    interval = results.frechet_interval(a, b)
    low, estimate, high = (interval[key] for key in ("low", "estimate", "high"))
    assert low is not None and estimate is not None and high is not None  # noqa: PT018
    assert low < 4 < high  # ‖μ₁ − μ₂‖² of the laws themselves
    assert estimate == pytest.approx(0.5 * (low + high))
    assert interval == results.frechet_interval(a, b)


def test_features_are_named_and_chosen() -> None:
    assert measures.features_for(EvaluationSetting(features="pixels"), (28, 28)).name == "pixels"
    assert measures.features_for(EvaluationSetting(features="auto"), (8, 8)).name == "pixels"
    with pytest.raises(ValueError, match="features are"):
        EvaluationSetting(features="inception")
    with pytest.raises(ValueError, match="features math:pi is a float"):
        measures.features_for(EvaluationSetting(features="math:pi"), (8, 8))


FEATURES = """
import torch

def rows(images):
    return images.mean(dim=(1, 3))

def inception(images):
    return images.flatten(1).repeat(1, 32)

def false_inception(images):
    return images.flatten(1)

inception.name = false_inception.name = "Inception-v3"
"""


def test_features_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named after themselves; Inception's 2048, and nothing else, make an FID."""
    (tmp_path / "my_features.py").write_text(FEATURES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for function, name in (("rows", "Fréchet-rows"), ("inception", "FID")):
        plan = tiny_plan("pseudo-inverse", features=f"my_features:{function}")
        evaluate_and_report(plan, tmp_path / name)
        assert f"| {name} ↓ |" in (tmp_path / name / "table.md").read_text()
    plan = tiny_plan("pseudo-inverse", features="my_features:false_inception")
    with pytest.raises(ValueError, match="64 dimensions; FID is defined on Inception's 2048"):
        evaluate_and_report(plan, tmp_path / "none")
    assert not (tmp_path / "none").exists()  # before any work


def test_what_the_networks_make_of_the_truth_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Computed once a batch, up to the budget, and the values are those of the metric itself, bit for bit."""
    made: list[int] = []

    class Kept:
        bytes = 100

        def __init__(self, reference: Tensor) -> None:
            made.append(len(reference))
            self.reference = reference

        def __call__(self, x: Tensor) -> Tensor:
            return (x - self.reference).square().mean(dim=(1, 2, 3))

    monkeypatch.setitem(scoring.PREPARED, "DISTS", Kept)
    plan = tiny_plan("pseudo-inverse", "posterior-mean", tasks=("box", "superres"), metrics=("PSNR", "DISTS"))
    units = [unit for unit in plan.units() if unit.contender is not None]
    assert len(units) == 8
    for budget, wanted in ((1000, 2), (100, 1 + 4), (99, 8)):
        made.clear()
        scorer = scoring.Scorer(plan, budget)
        for unit in units:
            found = scorer(unit, plan.images(unit) + 0.1)
            torch.testing.assert_close(
                found["PSNR"], torch.full((len(plan.images(unit)),), 20.0).double(), rtol=1e-4, atol=0
            )
            torch.testing.assert_close(found["DISTS"], torch.full((len(plan.images(unit)),), 0.01), rtol=1e-4, atol=0)
        assert len(made) == wanted


def test_measures_are_tried_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from linverse import metrics

    def absent(x: Tensor, reference: Tensor) -> Tensor:
        raise metrics.MissingWeights("install the weights")

    monkeypatch.setitem(metrics.METRICS, "DISTS", metrics.Metric(absent, "lower"))
    with pytest.raises(metrics.MissingWeights, match="install the weights"):
        evaluate_and_report(tiny_plan(metrics=("PSNR", "DISTS")), tmp_path / "out")
    with pytest.raises(ValueError, match="at least 16 pixels"):
        evaluate_and_report(tiny_plan(features="vgg16"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_negative_number_of_pictures_is_refused(tmp_path: Path) -> None:
    plan = tiny_plan()
    with pytest.raises(ValueError, match="number of images in a grid"):
        write_report(plan, EvaluationFolder(tmp_path, plan), -1)


def test_the_mosaic_puts_every_image_into_its_cell() -> None:
    large, small = torch.zeros(3, 1, 8, 8), torch.arange(3.0).reshape(3, 1, 1, 1).expand(3, 1, 2, 2) / 2
    image, cell = comparison.mosaic([large, small])
    assert image.shape == (1, 3 * cell, 2 * cell)
    for row in range(3):
        middle = row * cell + cell // 2
        assert float(image[0, middle, cell // 2]) == 0.0
        assert float(image[0, middle, cell + cell // 2]) == row / 2


def test_missing_pixels_are_not_black(tmp_path: Path) -> None:
    plan = tiny_plan("pseudo-inverse", tasks=("box", "denoise"))
    box, noise = plan.tasks
    raw = plan.raw(Unit(box, None, 0))
    seen = comparison.as_seen(box, raw)
    assert seen.shape == (4, 3, 8, 8)
    torch.testing.assert_close(seen[0, :, 4, 4], torch.tensor(pictures_missing()))
    torch.testing.assert_close(seen[0, :, 0, 0], raw[0, 0, 0, 0].clamp(0, 1).expand(3))
    assert torch.equal(comparison.as_seen(noise, raw), raw)
    image, _ = comparison.mosaic([plan.truth[:4], seen])  # grey beside colour
    assert image.shape[0] == 3


def pictures_missing() -> tuple[float, float, float]:
    from linverse.report.style import MISSING

    return MISSING


def test_a_hopeless_method_does_not_flatten_the_histograms() -> None:
    truth = torch.linspace(-10, 10, 50, dtype=torch.float64)
    low, high = comparison.histogram_range({TRUTH: truth, "bad": truth - 1e6, "good": truth + 1})
    assert -200 < low < -10
    assert 10 < high < 100


def test_failures_are_told_when_they_happen(tmp_path: Path) -> None:
    def broken(model: object, degradation: object, y_raw: Tensor, generator: torch.Generator) -> Tensor:
        raise RuntimeError("out of luck")

    plan, said = tiny_plan(own("broken", broken), "pseudo-inverse", tasks=("box", "superres")), []

    def progress(task: str, done: int, total: int) -> None:
        said.append(f"{done}/{total}")

    count = run_units(plan, EvaluationFolder(tmp_path, plan), progress=progress, tell=said.append)
    told = [text for text in said if "broken" in text]
    assert len(told) == 2  # each once, though there are several batches
    assert told[0] == "broken on box failed, the others go on: RuntimeError: out of luck"
    assert told[1].startswith("broken on superres failed")
    assert said.index(told[0]) < said.index(told[1]) < said.index(f"{count}/{count}")


def test_the_printed_table_fits_a_terminal() -> None:
    from rich.cells import cell_len
    from rich.console import Console

    names = ["PSNR", "SSIM", "LPIPS-Alex@56", "DISTS", "Fréchet-VGG16", PRIOR, POSTERIOR]
    values = dict(zip(names, (21.114, 0.7311, 0.07093, 0.1046, 12.345, -1043.52, -1109.31), strict=True))
    summary = {name: {"estimate": value} for name, value in values.items()}
    done = {"status": "done", "summary": summary, "evaluations": 1001}
    console = Console(width=80, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    console.print(view.means_table({"posterior-mean": done, "my_solvers:solve:steps=20": done}, names))
    text = console.export_text()
    assert max(map(cell_len, text.splitlines())) <= 80
    for shown in (
        "21.11",
        "0.731",
        "0.071",
        "0.105",
        "12.3",
        "-1043.5",
        "-1109.3",
        "1001",
        "Alex@56",
        "posterior-mean",
    ):
        assert text.count(shown) >= 1, shown


def test_slugs_are_file_names() -> None:
    assert slug("gauss:std=1.2,sigma=0.02") == "gauss-std=1.2,sigma=0.02"
    assert slug("my.module:solve/../x") == "my.module-solve-..-x"


# --- the command -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Saved tiny models: energy, score, palette."""
    root = tmp_path_factory.mktemp("models")
    tiny_energy().save_pretrained(root / "energy")
    tiny_denoiser().save_pretrained(root / "score")
    tiny_denoiser(2).save_pretrained(root / "palette")
    return root


def arguments(folders: Path, out: Path, *more: str) -> list[str]:
    base = ["evaluate", "--model", str(folders / "energy"), "--data", "digits", "--images", "4", "--batch", "4"]
    return [*base, "--metric", "PSNR", "--metric", "SSIM", "--out", str(out), *more]


def test_command_end_to_end(folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = ["--score-model", str(folders / "score"), "--palette-model", f"box={folders / 'palette'}"]
    methods = [f"--method={name}:steps=3" for name in ("ours", "dps", "red-diff", "pigdm", "diffpir", "palette")]
    methods += ["--method", "daps:steps=2,langevin_steps=3", "--method", "posterior-mean"]
    tasks = ["--task", "box", "--task", "gauss:std=0.5", "--task", "superres"]
    cli.main(arguments(folders, tmp_path / "out", *models, *methods, *tasks))
    printed = capsys.readouterr().out
    assert "palette:steps=3 skipped" in printed
    found = values_of(tmp_path / "out")["tasks"]
    assert list(found) == ["box", "gauss:std=0.5", "superres"]
    done = {
        task: [m for m, r in content["methods"].items() if r["status"] == "done"] for task, content in found.items()
    }
    assert [len(done[task]) for task in found] == [9, 8, 8]
    assert (tmp_path / "out/grid-gauss-std=0.5.png").stat().st_size > 1000
    cli.main(arguments(folders, tmp_path / "out", *models, *methods, *tasks))  # again: nothing to do, the same table


def test_command_with_a_broken_method_fails_in_the_end(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_broken_solver.py").write_text(
        "def solve(model, degradation, y_raw, generator):\n    return 1 / 0\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    more = ("--task", "box", "--method", "my_broken_solver:solve", "--method", "pseudo-inverse")
    with pytest.raises(SystemExit, match="1"):
        cli.main(arguments(folders, tmp_path / "out", *more))
    assert "ZeroDivisionError" in capsys.readouterr().out
    assert values_of(tmp_path / "out")["tasks"]["box"]["methods"]["pseudo-inverse"]["status"] == "done"


@pytest.mark.parametrize("given", [(), ("--score-model", "energy")])
def test_command_uses_the_energy_as_a_denoiser(
    given: tuple[str, ...], folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ("--task", "box", "--method", "diffpir:steps=2", "--pictures", "0")
    cli.main(arguments(folders, tmp_path / "out", *given, *more))
    method = values_of(tmp_path / "out")["tasks"]["box"]["methods"]["diffpir:steps=2"]
    assert (method["evaluations"], method["gradients"]) == (3, 3)
    assert method["network"] == AS_DENOISER
    printed = capsys.readouterr().out
    assert printed.index("diffpir:steps=2 uses the energy itself") < printed.index("box (")  # before the work


def test_command_tells_of_missing_models_before_the_work(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = ("--task", "box", "--method", "pseudo-inverse", "--pictures", "0")
    palette = f"box={folders / 'palette'}"
    for more, complaint in (
        (("--method", "palette:steps=2"), "palette:steps=2 cannot be run: it needs a conditional network"),
        (("--score-model", str(folders / "palette")), "the score network is conditional"),
        (("--score-model", str(folders / "energy")), "--score-model"),
        (("--palette-model", str(folders / "score")), "the Palette network is not conditional"),
    ):
        with pytest.raises(SystemExit, match="1"):
            cli.main(arguments(folders, tmp_path / "out", *quick, *more))
        assert complaint in capsys.readouterr().err
        assert not (tmp_path / "out").exists()
    cli.main(
        arguments(
            folders,
            tmp_path / "out",
            *quick,
            "--task",
            "superres",
            "--method",
            "palette:steps=2",
            "--palette-model",
            palette,
        )
    )
    printed = capsys.readouterr().out
    assert printed.index("note: palette:steps=2 is left out on superres") < printed.index("box (")


def test_command_complains_to_the_user(folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more, complaint in (
        (("--task", "bokeh"), "there is no task 'bokeh'"),
        (("--method", "dsp"), "there is no method 'dsp'"),
        (("--images", "99999"), "99999 are needed"),
        (("--images", "0"), "--images is 0; it must be at least 1"),
        (("--pictures", "-1"), "--pictures is -1"),
        (("--threads", "0"), "--threads is 0"),
        (("--task", "box:side=nan"), "side is a number"),
        (("--task", "motion:size=9"), "smaller kernel"),
    ):
        with pytest.raises(SystemExit, match="1"):
            cli.main(arguments(folders, tmp_path / "out", *more))
        assert complaint in capsys.readouterr().err
    with pytest.raises(SystemExit, match="1"):
        cli.main(["evaluate", "--task", "box"])
    assert "--model is missing" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="1"):
        cli.main(["evaluate", "--model", str(folders / "energy"), "--out", str(tmp_path / "out")])
    assert "--data NAME" in capsys.readouterr().err


def test_command_lists(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["evaluate", "--list"])
    printed = capsys.readouterr().out
    assert all(
        name in printed for name in (*METHODS, "box", "right-half", "motion", "superres", "PSNR", "DISTS", "vgg16")
    )
    assert "E[x|y]" in printed
    assert "side=20, sigma=0.001" in printed
    assert "steps=100, weight=1.0, cap=2.0, sigma_max=25.0" in printed


def test_command_lists_for_the_images_of_a_model(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["evaluate", "--list", "--model", str(folders / "energy")])
    printed = capsys.readouterr().out
    assert "options for 8×8 images" in printed
    assert "side=6, sigma=0.001" in printed


def test_default_methods_are_those_whose_models_are_there() -> None:
    energy = tiny_energy()
    names = [c.label for c in default_contenders(Models(energy))]
    assert names == ["pseudo-inverse", "posterior-mean", "ours"]
    full = Models(energy, tiny_denoiser(), (PaletteModel(tiny_denoiser(2)),))
    assert {"dps", "pigdm", "red-diff", "daps", "diffpir", "palette"} < {c.label for c in default_contenders(full)}


def test_times_are_readable() -> None:
    spent = {"solving": 93.0, "metrics": 5.0, "densities": 1.5, "tables and pictures": 0.5}
    assert view.time_text(spent) == "solving 93.0 %, metrics 5.0 %, densities 1.5 %, tables and pictures 0.5 % of 100 s"
    assert Task.of("box", tiny_energy()).label == "box"


TELLTALE = """
import os, pathlib, uuid

def solve(model, degradation, y_raw, generator):
    pathlib.Path(f"process-{os.environ.get('RANK', 'alone')}-{uuid.uuid4()}").touch()
    return y_raw.new_full((len(y_raw), *model.shape), 0.5)
"""


@pytest.mark.slow
def test_two_launched_processes_share_the_work(folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--multi_gpu` starts two processes on CPUs, too (gloo); `--cpu --num_processes 2` starts one."""
    (tmp_path / "my_telltale.py").write_text(TELLTALE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    more = ("--task", "box", "--method", "ours:steps=2", "--method", "my_telltale:solve", "--batch", "1")
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    launch += ["--num_machines", "1", "--main_process_port", "0"]
    launch += ["--mixed_precision", "no", "--dynamo_backend", "no", "-m", "linverse"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([*launch, *arguments(folders, tmp_path / "two", *more)], check=True, env=environment, timeout=500)
    assert [len(list(tmp_path.glob(f"process-{rank}-*"))) for rank in (0, 1)] == [
        2,
        2,
    ]  # of four batches, each done once
    cli.main(arguments(folders, tmp_path / "one", *more))
    assert (tmp_path / "one/results.json").read_bytes() == (tmp_path / "two/results.json").read_bytes()

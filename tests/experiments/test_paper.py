"""The paper item by item: rules that judge, records that are current, the page that shows them, and every item on tiny models."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import linverse as lv
from linverse.analytic import DenseGaussian, DiagonalGaussian
from linverse.cli import main
from linverse.covariance import SpatialCovariance, VarianceRange
from linverse.experiments import (
    EXPERIMENTS,
    code_length,
    correctors,
    cost,
    experiment_options,
    guided_boxes,
    gumbel,
    large_images,
    local_geometry,
    measurement_design,
    one_shot,
    posterior_samples,
    scale,
    scale_step,
    sliced_training,
    solvers,
)
from linverse.experiments.claims import (
    CONFIRMED,
    NOT_JUDGED,
    REFUTED,
    UNTESTABLE,
    Claim,
    Condition,
    correlation,
    interval_metrics,
    interval_of,
    jackknife_intervals,
    mean_interval,
    share_interval,
)
from linverse.experiments.framework import model_files
from linverse.experiments.paper import ITEMS, PaperItem, is_current, items_named, missing_models
from linverse.experiments.tables import ResultTable
from linverse.metrics import Interval, squared_mmd
from linverse.metrics.distribution import cubic_kernel
from linverse.models.bases import image_moments, mean_and_variance
from linverse.models.bases.moments import ImageMoments
from linverse.models.classifier import ClassifierConfig, DigitClassifier
from linverse.models.losses import score_errors
from linverse.progress import silent
from linverse.report import paper as page
from linverse.report.experiments import write_experiment
from linverse.report.experiments.solvers import draw as draw_solvers
from linverse.rng import keyed_generator
from linverse.training.batches import draw_parts
from linverse.training.presets import PRESETS
from oracles import random_spd
from tiny import Pictures, awaken, tiny_energy

Z = 4.5

# --- rules -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "relation", "verdict"),
    [
        (0.1, 0.3, "above", CONFIRMED),
        (-0.3, -0.1, "above", REFUTED),
        (-0.1, 0.2, "above", UNTESTABLE),
        (0.1, 0.3, "below", REFUTED),
        (-0.3, -0.1, "below", CONFIRMED),
        (-0.1, 0.2, "below", UNTESTABLE),
    ],
)
def test_an_interval_decides(low: float, high: float, relation: Any, verdict: str) -> None:
    metrics = interval_metrics("gain", Interval(0.5 * (low + high), low, high))
    claim = Claim("it gains", (Condition("gain", relation),))
    assert claim.verdict(metrics, quick=False) == verdict
    assert claim.verdict(metrics, quick=True) == NOT_JUDGED


def test_all_comparisons_must_hold_and_one_refutes() -> None:
    metrics = interval_metrics("a", Interval(1, 0.5, 1.5)) | interval_metrics("b", Interval(0, -1, 1))
    metrics |= interval_metrics("c", Interval(-1, -1.5, -0.5))
    above = {name: Condition(name, "above") for name in "abcd"}
    verdicts = {
        names: Claim("all are above", tuple(above[name] for name in names)).verdict(metrics, False)
        for names in ("a", "ab", "ac", "abc", "ad")
    }
    assert verdicts == {"a": CONFIRMED, "ab": UNTESTABLE, "ac": REFUTED, "abc": REFUTED, "ad": UNTESTABLE}
    assert "was not measured" in Claim("", (above["d"],)).judge(metrics, False)["because"]
    untestable = Claim("no such thing", untestable="there are none").judge(metrics, False)
    assert (untestable["verdict"], untestable["because"]) == (UNTESTABLE, "there are none")


def test_intervals_of_shares_means_and_ranks() -> None:
    # Wilson (1927): 0 of 10 and 8 of 10, by his formula
    none, most = (share_interval(torch.arange(10) < count) for count in (0, 8))
    assert (none.low, none.high) == pytest.approx((0.0, 0.27753), abs=1e-4)
    assert (most.low, most.high) == pytest.approx((0.49016, 0.94332), abs=1e-4)
    assert mean_interval(torch.tensor([2.0, 2.0])) == Interval(2.0, 2.0, 2.0)
    values = torch.randn(400, generator=keyed_generator(1), dtype=torch.float64)
    left = torch.stack([values[torch.arange(400) % 20 != block].mean() for block in range(20)])
    (found,) = jackknife_intervals(left[:, None], values.mean()[None])
    # the standard error of a mean, itself known to 1/√(2·19) from twenty blocks
    assert found.high - found.low == pytest.approx(2 * 1.96 / 20, rel=Z / 38**0.5)
    ranked = torch.stack([values, values**3], dim=1)
    assert float(correlation(ranked)) == pytest.approx(1.0)
    assert float(correlation(ranked * torch.tensor([1.0, -1.0]))) == pytest.approx(-1.0)


def test_rows_fit_their_columns() -> None:
    with pytest.raises(ValueError, match="2 columns; a row has 1"):
        ResultTable("short", ("a", "b"), (("x",),))


# --- records and the page --------------------------------------------------------------------------------------------------------------


def record(quick: bool = False, verdicts: tuple[str, ...] = (CONFIRMED,), **options: Any) -> dict[str, Any]:
    table = ResultTable(
        "Numbers", ("method", "PSNR", "log p(x|y)"), (("ours", Interval(20.25, 19.5, 21.0), 1), ("paper", None, 2))
    )
    return {
        "metrics": {"a": 1.0},
        "paper": {"departures": ["smaller images"]},
        "tables": [table.to_record()],
        "verdicts": [{"claim": "it leads", "rule": "a above 0", "verdict": v, "because": "a is 1"} for v in verdicts],
        "provenance": {
            "quick": quick, "options": options, "models": {}, "weights": {"model": "f" * 64}, "linverse": "0", "processor_seconds": 3.2,
        },
    }  # fmt: skip


def test_page_shows_every_item_and_only_what_the_records_say(tmp_path: Path) -> None:
    (tmp_path / "gumbel.json").write_text(json.dumps(record(verdicts=(CONFIRMED, REFUTED))))
    (tmp_path / "blind.json").write_text(json.dumps({"metrics": {}}))  # a record of an earlier version
    text = page.render_page(tmp_path, "../results")
    assert all(f"linverse paper --only {item.name}" in text for item in ITEMS)
    assert "1 confirmed, 1 refuted" in text
    assert "![Log-probabilities of all test images](../results/gumbel.png)" in text
    assert "| method | PSNR | log p(x\\|y) |" in text
    assert "| ours | 20.25 [19.5, 21] | 1 |" in text
    assert "smaller images" in text
    assert '<a id="gumbel"></a>' in text
    assert "](#gumbel)" in text
    assert "](#blind)" not in text
    assert (
        "left out: the model cifar10 is not bundled" in text
        or (Path(page.__file__).parents[1] / "weights/cifar10").exists()
    )
    assert text == page.render_page(tmp_path, "../results")


def test_page_says_which_records_are_of_earlier_weights(tmp_path: Path) -> None:
    known = {item.name: item for item in ITEMS}
    made = record()
    made["provenance"]["models"] = model_files(asdict(known["gumbel"].chosen({})))
    (tmp_path / "gumbel.json").write_text(json.dumps(made))
    assert "earlier weights" not in page.render_page(tmp_path, ".")
    made["provenance"]["models"] = {"model": "0" * 64}
    (tmp_path / "gumbel.json").write_text(json.dumps(made))
    text = page.render_page(tmp_path, ".")
    assert text.count("confirmed (of earlier weights)") == 1
    assert text.count("the weights have changed since") == 1


def test_a_quick_record_is_not_judged_on_the_page(tmp_path: Path) -> None:
    (tmp_path / "gumbel.json").write_text(json.dumps(record(quick=True, verdicts=(NOT_JUDGED, NOT_JUDGED))))
    text = page.render_page(tmp_path, ".")
    assert "A quick run: not judged" in text
    assert "2 claims: not judged" in text


def test_records_are_current_for_the_same_options_and_weights(tmp_path: Path) -> None:
    options = gumbel.GumbelOptions(model=str(tmp_path / "none"))
    made = record(model=options.model, data=options.data)
    made["provenance"]["models"] = {"model": None}
    assert is_current(made, options, quick=False)
    assert not is_current(made, options, quick=True)
    assert not is_current(made, replace(options, data="mnist"), quick=False)
    assert not is_current(None, options, quick=False)
    made["provenance"]["models"] = {"model": "0" * 64}
    assert not is_current(made, options, quick=False)


def test_items_are_experiments_with_options_that_exist() -> None:
    assert len({item.name for item in ITEMS}) == len(ITEMS)
    for item in ITEMS:
        assert item.experiment in EXPERIMENTS
        options = item.chosen({"fashion-mnist": "mine"})
        assert (options is None) == (experiment_options(item.experiment) is None)
        assert options is None or getattr(options, "model", "") != "fashion-mnist"
    swapped = items_named(("main-table",))[0].chosen({"fashion-mnist": "mine"})
    assert (swapped.model, swapped.companions) == ("mine", "fashion-mnist")
    assert "fashion-mnist-score" in model_files(asdict(swapped))
    with pytest.raises(ValueError, match="no item gumble; there are main-table"):
        items_named(("gumble",))


def test_items_without_their_model_are_left_out(tmp_path: Path) -> None:
    item = items_named(("cifar10-code-length",))[0]
    assert missing_models(item.chosen({"cifar10": str(tmp_path / "nothing")})) == [str(tmp_path / "nothing")]
    outcome = page.run_item(item, tmp_path, True, instead={"cifar10": str(tmp_path / "nothing")})
    assert outcome.record is None
    assert "is not there" in outcome.verdict
    single = items_named(("blind",))[0].chosen({"fashion-mnist-single": str(tmp_path / "nothing")})
    assert missing_models(single) == []  # the comparison with it can be left out


def test_an_item_that_fails_does_not_end_the_others(tmp_path: Path) -> None:
    broken = PaperItem("broken", "gumbel", "Broken", "nowhere", {"data": "no-such-data"})
    told: list[str] = []
    good = items_named(("covariances",))[0]
    outcomes = page.run_items([broken, good], tmp_path, True, tell=told.append)
    assert outcomes[0].verdict.startswith("failed: ")
    assert outcomes[1].verdict == "shown"
    assert (tmp_path / "covariances.png").read_bytes().startswith(b"\x89PNG")
    assert any("covariances" in line for line in told)
    before = (tmp_path / "covariances.json").stat().st_mtime_ns
    page.run_items([good], tmp_path, True)
    assert (tmp_path / "covariances.json").stat().st_mtime_ns == before  # current: not run again


def test_command_lists_runs_and_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "records")
    main(["paper", "--quick", "--only", "covariances", "--out", out])
    text = (tmp_path / "records" / "paper.md").read_text()
    assert "![The covariances, and paths through them](./covariances.png)" in text
    main(["paper", "--list", "--out", out])
    assert "linverse paper --only gumbel" in capsys.readouterr().out.replace("\n", " ").replace("  ", " ")
    with pytest.raises(SystemExit):
        main(["paper", "--model", "cifar10", "--out", out])
    assert "NAME=FOLDER" in capsys.readouterr().err


# --- the measurements, on what is known ------------------------------------------------------------------------------------------------


def test_kernel_distance_is_the_unbiased_mmd() -> None:
    x, y = (torch.randn(12, 5, generator=keyed_generator(seed), dtype=torch.float64) for seed in (1, 2))
    tables = cubic_kernel(x, x), cubic_kernel(x, y), cubic_kernel(y, y)
    everything = torch.ones(12, dtype=torch.bool)
    exact = squared_mmd(x, y, cubic_kernel, unbiased=True)
    assert float(solvers.kernel_distance(*tables, everything)) == pytest.approx(float(exact), rel=1e-9)
    part = torch.arange(12) < 7
    exact = squared_mmd(x[:7], y[:7], cubic_kernel, unbiased=True)
    assert float(solvers.kernel_distance(*tables, part)) == pytest.approx(float(exact), rel=1e-9)
    x, y = (torch.randn(80, 5, generator=keyed_generator(seed), dtype=torch.float64) for seed in (1, 2))
    metrics = solvers.kernel_metrics("box", {"ours": x, "dps": x + 2}, y)
    assert metrics["box: KID of ours less dps_high"] < 0
    assert metrics["box: KID of dps"] > metrics["box: KID of ours"]


def test_gumbel_is_recovered_and_told_from_a_normal() -> None:
    uniform = torch.rand(4000, generator=keyed_generator(3), dtype=torch.float64)
    values = 5 - 2 * torch.log(-torch.log(uniform))  # of the maximum: location 5, scale 2
    for side in (1, -1):
        fit = gumbel.fit_gumbel(side * values)
        assert fit.side == side
        assert (fit.location, fit.scale) == pytest.approx((side * 5, 2), rel=0.06)
        assert float(gumbel.distance(side * values, fit)) < 1.63 / 4000**0.5  # Kolmogorov's 1 in 100
    normal = torch.randn(4000, generator=keyed_generator(4), dtype=torch.float64)
    assert float(gumbel.distance(normal, gumbel.fit_gumbel(normal))) > 0.05
    x = torch.rand(3, 3, 4, 4)
    x[1] = x[1, :1]
    assert gumbel.grey_images(x).tolist() == [False, True, False]


def gaussian_prior() -> DiagonalGaussian:
    """Pixels whose variances double from one to the next, up to 0.4."""
    spread = 0.4 * 0.5 ** torch.arange(15, -1, -1, dtype=torch.float64).reshape(1, 1, 4, 4)
    return DiagonalGaussian(
        SpatialCovariance(spread.log()), torch.full((1, 4, 4), 0.5, dtype=torch.float64), VarianceRange(1e-6, 1e3)
    )


def test_tangents_of_a_gaussian_are_its_widest_axes() -> None:
    prior: Any = gaussian_prior()
    setting = local_geometry.LocalGeometrySetting(tangents=3, iterations=80)
    y, sigma = torch.full((1, 1, 4, 4), 0.4, dtype=torch.float64), 0.3
    tangents, values = local_geometry.tangents_at(prior, y, sigma, setting, 0)
    widths = prior.prior.variance.flatten()
    exact = (widths / (widths + sigma**2)).sort(descending=True).values
    assert torch.allclose(values, exact[:3], atol=1e-3)
    assert int(tangents[0].flatten().abs().argmax()) == 15
    assert torch.allclose(local_geometry.curvatures(prior, y, sigma, tangents), 1 - values, atol=1e-3)
    assert local_geometry.local_dimension(prior, y, sigma, 4, 0) == pytest.approx(float(exact.sum()), rel=1e-6)


def test_sliced_loss_is_the_square_of_both_errors_along_random_signs() -> None:
    """With signs v, s: (⟨v, e−ε⟩ + √(w·d/G)⟨s, κ−τ⟩)²/d, whose mean over signs is ‖e−ε‖²/d + w‖κ−τ‖²/G: A-DSM + w·A-CSM."""
    config, weight = PRESETS["digits"][1], 0.7
    backbone = replace(config.model.backbone, channels=4, embedding=4, stem_channels=4, middle=1)
    energy = replace(config.model, shape=(3, 8, 8), backbone=backbone).build().double()
    awaken(energy, size=0.1)
    energy.fit(Pictures(shape=(3, 8, 8)))
    x = torch.rand(4, 3, 8, 8, generator=keyed_generator(5), dtype=torch.float64)
    parts = draw_parts(replace(config, model=energy.config), x, keyed_generator(6))
    found = sliced_training.sliced_loss(energy, parts, weight, keyed_generator(7))
    scores = energy.scores([(part.noisy_coefficients(), part.cov) for part in parts])
    generator, squares = keyed_generator(7), []
    for part, score in zip(parts, scores, strict=True):
        data, covariance = score_errors(score, part.cov, part.noise)
        v, s = (sliced_training._signs(like, generator) for like in (data, covariance))
        ratio = (weight * data[0].numel() / covariance[0].numel()) ** 0.5
        along = (v * data).sum(dim=(1, 2, 3)) + ratio * (s * covariance).sum(dim=(1, 2, 3))
        squares.append(along.square() / data[0].numel())
    assert float(found) == pytest.approx(float(torch.cat(squares).mean()), rel=1e-6)


def test_share_of_the_variance_that_is_kept() -> None:
    generator = keyed_generator(8)
    samples = torch.randn(6, 40, 1, 4, 4, generator=generator, dtype=torch.float64)
    hidden = torch.zeros(40, 1, 4, 4, dtype=torch.bool)
    hidden[..., :2] = True
    halved = samples.clone()
    halved[..., :2] *= 0.5**0.5
    exact, kept = (guided_boxes.hidden_variance(s, hidden) for s in (samples, halved))
    assert guided_boxes.ratio_interval(kept, exact).estimate == pytest.approx(0.5)
    assert float(exact.mean()) == pytest.approx(1.0, abs=Z * (2 / 5 / (40 * 8)) ** 0.5)


def test_codecs_count_the_bits_of_their_files() -> None:
    x = torch.randint(0, 256, (5, 3, 8, 8), generator=keyed_generator(9)) / 255
    whole = code_length.sheet(x)
    assert whole.shape == (1, 3, 8, 40)
    assert torch.equal(whole[0, :, :, 8:16], x[1])
    files, sheet = code_length.codec_bits(code_length.encoders()["PNG"], x)
    assert float(files.min()) > sheet > 8.0  # noise does not shrink, and headers count


def test_scalar_moments_need_no_covariance() -> None:
    source = Pictures(shape=(3, 4, 4))
    full = image_moments(source)
    mean, variance = mean_and_variance(source, chunk=7)
    assert torch.allclose(mean, full.mean)
    assert variance == pytest.approx(full.variance)


def test_the_best_linear_estimate_is_that_of_a_gaussian_energy() -> None:
    """On a Gaussian prior both are the posterior: the same means, and error bars that hold the truth as often as they say."""
    mean, covariance = torch.full((36,), 0.4).double(), random_spd(keyed_generator(0), 1, 36, 0.01)[0]
    energy = DenseGaussian(mean, covariance, (1, 6, 6), VarianceRange(1e-8, 1e4))
    x = energy.sample(400, keyed_generator("one-shot"))
    moments = ImageMoments(mean.reshape(1, 6, 6), covariance)
    for degradation in (lv.Denoising(0.1), lv.Box(4, sigma=0.05), lv.GaussianBlur(0.7, sigma=0.05, size=5)):
        found = one_shot.judge_noise(energy, moments, x, degradation, one_shot.OneShotSetting(least_std=1e-3))
        torch.testing.assert_close(found.psnr, found.linear_psnr, rtol=1e-3, atol=1e-3)
        metrics = one_shot.metrics_of(found)
        assert abs(metrics["linear_coverage_90"] - 0.9) < 0.02
        if not isinstance(degradation, lv.GaussianBlur):  # the pixels of a frequency basis have approximate error bars
            torch.testing.assert_close(found.ratio, found.linear_ratio, rtol=1e-2, atol=1e-2)
        assert metrics["zeros"] == 0


def test_arithmetic_of_scale() -> None:
    cost_here = scale.Cost(1, seconds=2.0, operations=1e9, megabytes=10.0, fixed_megabytes=24.0, share=0.5)
    costs = {"celeba-64": cost_here}
    training = next(t for t in scale.TRAININGS if t.preset == "afhq-192")
    found = scale.extrapolate(training, costs)
    operations = 9e9 * 64 * 100_000
    assert found["operations of the training"] == pytest.approx(operations)
    assert found["device days"] == pytest.approx(operations / (0.5 * scale.A100) / 86400)
    assert found["gigabytes of a device"] == pytest.approx((24 + 90 * 8) / 1024)
    assert training.command() == "accelerate launch --num_processes 8 -m linverse train afhq-192 --data folder:afhq"


def test_a_step_is_measured() -> None:
    found = scale_step.measure("digits", 1, 1)
    assert found["operations"] > 1e6
    assert found["seconds"] > 0
    assert found["megabytes"] > 50


# --- every item on tiny models ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Tiny untrained models for 8×8 digits, an any-size one, and folders of pictures."""
    root = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    bases = ("spatial", "fourier", "block-dct-4")
    tiny_energy((1, 8, 8), bases=bases, size=0.05).float().save_pretrained(root / "energy")
    photos = PRESETS["photographs"][1].model
    backbone = replace(photos.backbone, channels=4, multipliers=(1, 2), embedding=4, stem_channels=4, middle=1)
    replace(photos, backbone=backbone).build().save_pretrained(root / "photographs")
    DigitClassifier(ClassifierConfig(width=4)).save_pretrained(root / "classifier")
    generator = np.random.default_rng(0)
    for name, shape in (("small", (8, 8)), ("large", (40, 40, 3))):
        for split in ("train", "test"):
            (root / name / split).mkdir(parents=True)
            for number in range(4):
                pixels = generator.integers(0, 256, shape, dtype=np.uint8)
                Image.fromarray(pixels).save(root / name / split / f"{number}.png")
    return {name: str(root / name) for name in ("energy", "classifier", "photographs", "small", "large")}


SMALL: dict[str, tuple[Any, dict[str, Any]]] = {
    "correctors": (correctors, {"images": 2, "levels": 3, "steps": (0, 1, 8), "pilots": 1, "warm_up": 2, "shown": 2}),
    "posterior-samples": (posterior_samples, {"samples": 3, "images": 3, "steps": 3}),
    "gumbel": (gumbel, {"images": 12, "shown": 6}),
    "one-shot": (one_shot, {"images": 3}),
    "guided-boxes": (guided_boxes, {"images": 2, "samples": 2, "evaluations": 4, "reference": 5, "shown": 2}),
    "cost": (cost, {"steps": 2, "repetitions": 2, "channels": 4, "side": 8, "embedding_images": 1}),
    "measurement-design": (measurement_design, {"counts": (4, 8), "images": 3, "each": 4, "spacing": 1, "shown": 2}),
    "local-geometry": (local_geometry, {"images": 2, "tangents": 2, "iterations": 1, "probes": 1, "shown": 2}),
    "sliced-training": (sliced_training, {"seconds": 0.05, "seeds": 2, "batch": 4, "held_out": 4, "readings": 1}),
    "code-length": (code_length, {"images": 4, "draws": 2, "floor_images": 2, "levels": 3}),
    "large-images": (large_images, {"side": 16, "boxes": (4,), "images": 2, "steps": 2, "blind_images": 1, "blind_box": 4}),
    "solvers": (solvers, {}),
    "covariances": (None, {}),
}  # fmt: skip


def chosen_options(name: str, models: dict[str, str]) -> Any:
    """The options of an experiment for tiny models."""
    kind = experiment_options(name)
    if kind is None:
        return None
    given = {"model": "energy", "digits_model": "energy", "classifier": "classifier"}
    swapped = {field: models[which] for field, which in given.items() if hasattr(kind(), field)}
    data = {field: "digits" for field in ("data", "digits_data") if hasattr(kind(), field)}
    if name == "large-images":
        swapped, data = {"model": models["photographs"]}, {"data": f"folder:{models['large']}"}
    if name == "code-length":
        data = {"data": f"folder:{models['small']}"}
    if name == "solvers":
        swapped |= {"table": "unseen"}
    return replace(kind(), **swapped, **data)


@pytest.mark.filterwarnings("ignore:.*")
@pytest.mark.parametrize("name", SMALL)
def test_experiment_gives_record_picture_tables_and_verdicts(
    name: str, models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, changes = SMALL[name]
    if changes:
        monkeypatch.setattr(module, "QUICK", replace(module.QUICK, **changes))
    for each in (correctors, guided_boxes, large_images, solvers):  # 8×8 pictures are too small for the others
        monkeypatch.setattr(each, "available_metrics", lambda: ["PSNR"])
    if name == "solvers":
        monkeypatch.setattr(
            solvers, "QUICK_METHODS", ("posterior-mean", "dps:steps=3", "ours:steps=3", "ours-surrogate:steps=3")
        )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = write_experiment(name, tmp_path, True, options=chosen_options(name, models), label="item")
    assert (tmp_path / "item.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "item.json").read_text()) == json.loads(json.dumps(found))
    assert not (tmp_path / "item.cache").exists()
    assert all(verdict["verdict"] == NOT_JUDGED for verdict in found["verdicts"])
    rendered = page.render_item(page.Outcome(ITEMS[0], found), ".")
    assert all(
        row[0] is None or page.cell_text(row[0]).replace("|", "\\|") in rendered
        for table in found["tables"]
        for row in table["rows"]
    )
    claimed = {c.quantity for claim in claims_of(name) for c in claim.rule}
    if name not in (
        "solvers",
        "correctors",
        "guided-boxes",
        "large-images",
        "measurement-design",
    ):  # other counts and metrics here
        assert all(f"{quantity}_low" in found["metrics"] for quantity in claimed)


@pytest.mark.filterwarnings("ignore:.*")
def test_images_that_may_not_be_passed_on_are_not_drawn(
    models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solvers, "available_metrics", lambda: ["PSNR"])
    monkeypatch.setattr(solvers, "QUICK_METHODS", ("posterior-mean", "dps:steps=3", "ours:steps=3"))
    monkeypatch.setattr(solvers, "may_be_shown", lambda data: data != "digits")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = solvers.run(tmp_path, True, silent, chosen_options("solvers", models))
    for task in found.found:
        images = (task.truth, task.measured, task.missing, *task.restored.values())
        assert all(len(x) == 0 for x in images)
        shown = task.measures["PSNR"]
        assert set(shown) == {"posterior-mean", "dps", "ours"}
        assert all(value.low <= value.estimate <= value.high for value in shown.values())
    figure = draw_solvers(found.found)
    labels = {text.get_text() for axes in figure.axes for text in axes.get_yticklabels()}
    assert "ours" in labels


def claims_of(name: str) -> tuple[Claim, ...]:
    module = SMALL[name][0]
    return tuple(getattr(module, "CLAIMS", ()))


def test_every_claim_of_the_tables_speaks_of_something_measured() -> None:
    """Quantities of claims are named as `task_metrics` and `kernel_metrics` name them."""
    for table in solvers.TABLES.values():
        methods = {solvers.short(name) for name in table.methods}
        for claim in table.claims:
            for comparison in claim.rule:
                task, _, rest = comparison.quantity.partition(": ")
                metric, _, rival = rest.partition(" of ours less ")
                assert task in table.tasks
                assert metric in ("PSNR", "LPIPS", "DISTS", "KID")
                assert rival in methods


def test_interval_of_is_the_inverse() -> None:
    interval = Interval(1.0, 0.5, 2.0)
    assert interval_of(interval_metrics("x", interval), "x") == interval

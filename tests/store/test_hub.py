"""Saving and loading: every bit comes back, and what is cut short, changed or of another kind is refused by name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.torch import load_file, save_file

import linverse
from linverse.files.saving import (
    CARD,
    CONFIG,
    LICENCE,
    MANIFEST,
    PAGE,
    REFERENCE,
    WEIGHTS,
    ModelFileError,
)
from linverse.models.denoiser import Denoiser, DenoiserConfig
from linverse.models.energies.learned import EnergyConfig, LearnedEnergy
from linverse.store import hub
from linverse.store.card import card_of
from linverse.store.references import references_of
from small import write_manifest
from tiny import BACKBONE, awaken, noisy_pair, pretend_hub


def make_energy(seed: int = 0) -> LearnedEnergy:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        energy = LearnedEnergy(EnergyConfig((3, 8, 8), 1e-5, 1e2, ("spatial", "dct"), backbone=BACKBONE))
    awaken(energy)
    energy.fit_gaussian(torch.rand(3, 8, 8), 0.05)
    energy.constant.fill_(123.456789012345678)
    return energy.eval()


def make_denoiser() -> Denoiser:
    return Denoiser(DenoiserConfig((1, 8, 8), backbone=BACKBONE, condition_channels=1)).eval()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    make_energy().save_pretrained(tmp_path / "energy")
    return tmp_path / "energy"


# --- a round trip ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reader", [hub.load, LearnedEnergy.from_pretrained, lambda p: linverse.load(str(p))])
@pytest.mark.parametrize("double", [False, True], ids=["float32", "float64"])
def test_every_bit_comes_back(tmp_path: Path, reader: Callable[[Path], LearnedEnergy], double: bool) -> None:
    energy = make_energy().double() if double else make_energy()
    energy.save_pretrained(tmp_path)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    back = reader(tmp_path)
    assert torch.equal(torch.rand(3), expected)  # loading leaves the user's random stream alone
    assert back.config == energy.config
    assert not back.training
    before, after = energy.state_dict(), back.state_dict()
    assert before.keys() == after.keys()
    assert all(before[key].dtype == after[key].dtype and torch.equal(before[key], after[key]) for key in before)
    y, cov = noisy_pair("dct", (3, 8, 8), True)
    y, cov = (y, cov) if double else (y.float(), cov.to(torch.float32))
    assert torch.equal(back(y, cov), energy(y, cov))
    assert not back(y, cov).requires_grad  # frozen: no graph behind a log-density
    assert back.range == energy.range


def test_denoisers_come_back_too(tmp_path: Path) -> None:
    denoiser = make_denoiser()
    denoiser.save_pretrained(tmp_path)
    back = hub.load_denoiser(tmp_path)
    assert back.config == denoiser.config
    assert isinstance(back.config, DenoiserConfig)
    assert all(torch.equal(value, back.state_dict()[key]) for key, value in denoiser.state_dict().items())


def test_saving_twice_keeps_the_manifest_right(saved: Path) -> None:
    make_energy(seed=1).save_pretrained(saved)
    hub.load(saved)


def test_the_configuration_says_which_kind_of_model_it_is(saved: Path) -> None:
    assert json.loads((saved / CONFIG).read_text())["kind"] == "energy"
    assert set(json.loads((saved / MANIFEST).read_text())["files"]) == {WEIGHTS, CONFIG}


# --- what is refused ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reader", [hub.load, LearnedEnergy.from_pretrained])
@pytest.mark.parametrize("name", [WEIGHTS, CONFIG])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_a_truncated_file_is_refused(saved: Path, reader: Callable[[Path], object], name: str, share: float) -> None:
    content = (saved / name).read_bytes()
    (saved / name).write_bytes(content[: int(share * len(content))])
    with pytest.raises(
        ModelFileError, match=rf"{name} has \d+ bytes where {len(content)} were saved: it was cut short"
    ):
        reader(saved)


@pytest.mark.parametrize("reader", [hub.load, LearnedEnergy.from_pretrained])
@pytest.mark.parametrize("name", [WEIGHTS, CONFIG])
def test_a_changed_file_is_refused(saved: Path, reader: Callable[[Path], object], name: str) -> None:
    content = bytearray((saved / name).read_bytes())
    content[-3] ^= 1  # one bit
    (saved / name).write_bytes(bytes(content))
    with pytest.raises(ModelFileError, match=f"{name} is not the file that was saved: its sha256 is"):
        reader(saved)


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG, MANIFEST])
def test_a_missing_file_is_refused(saved: Path, name: str) -> None:
    (saved / name).unlink()
    with pytest.raises(ModelFileError, match=f"has no {name}: it is not a model saved by linverse"):
        hub.load(saved)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"files": {}}', '{"files": {"model.safetensors": 1}}'])
def test_a_broken_manifest_is_refused(saved: Path, content: str) -> None:
    (saved / MANIFEST).write_text(content)
    with pytest.raises(ModelFileError, match=r"manifest\.json"):
        hub.load(saved)


def test_another_kind_of_model_is_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="holds a model of the kind 'energy', where 'denoiser' was asked for"):
        hub.load_denoiser(saved)
    make_denoiser().save_pretrained(tmp_path / "denoiser")
    with pytest.raises(ModelFileError, match="holds a model of the kind 'denoiser', where 'energy' was asked for"):
        hub.load(tmp_path / "denoiser")


def test_weights_of_another_configuration_are_refused(saved: Path) -> None:
    """Even with a manifest to match: loading is strict."""
    config = json.loads((saved / CONFIG).read_text())
    config["backbone"]["channels"] = 8
    rewrite(saved, config)
    with pytest.raises(ModelFileError, match="does not fit its configuration"):
        hub.load(saved)


@pytest.mark.parametrize("change", ["missing", "added", "reshaped"])
def test_weights_that_are_not_all_there_are_refused(saved: Path, change: str) -> None:
    weights = load_file(saved / WEIGHTS)
    name = sorted(weights)[-1]
    if change == "added":
        weights["another"] = torch.zeros(3)
    elif change == "missing":
        del weights[name]
    else:
        weights[name] = torch.zeros(7)
    save_file(weights, saved / WEIGHTS)
    write_manifest(saved)
    with pytest.raises(ModelFileError, match="does not fit its configuration"):
        hub.load(saved)


def rewrite(folder: Path, config: dict[str, object]) -> None:
    (folder / CONFIG).write_text(json.dumps(config))
    write_manifest(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": 1}, "no field colour"),
        ({"shape": [3, 7, 8]}, "multiples of 2"),
        ({"kind": None}, "kind None"),
        ({"backbone": None}, "does not describe a model"),
    ],
)
def test_a_configuration_of_another_version_is_refused(saved: Path, change: dict[str, object], message: str) -> None:
    rewrite(saved, {**json.loads((saved / CONFIG).read_text()), **change})
    with pytest.raises(ModelFileError, match=message):
        hub.load(saved)


def test_weights_that_are_not_safetensors_are_refused(saved: Path) -> None:
    torch.save({"w": torch.zeros(3)}, saved / WEIGHTS)
    write_manifest(saved)
    with pytest.raises(ModelFileError, match="does not fit its configuration"):
        hub.load(saved)


def test_options_of_the_model_cannot_be_given_while_loading(saved: Path) -> None:
    with pytest.raises(TypeError, match="shape cannot be given"):
        LearnedEnergy.from_pretrained(saved, shape=(1, 8, 8))


# --- names -------------------------------------------------------------------------------------------------------------------------


def test_names_mean_bundled_models_then_folders(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "weights"
    shutil.copytree(saved, root / "small")
    (root / "empty").mkdir()
    assert hub.bundled(root) == ["small"]
    monkeypatch.chdir(tmp_path)
    shutil.copytree(saved, tmp_path / "small")
    assert hub.find_model("small", root) == root / "small"
    assert hub.find_model("./small", root) == Path("small")
    assert hub.find_model("energy", root) == Path("energy")


@pytest.mark.parametrize("name", ["nothing-of-the-kind", "./nothing", "/nowhere/at/all", "a/b/c", Path("a/b")])
def test_a_name_that_means_nothing_is_refused(name: str | Path) -> None:
    with pytest.raises(ModelFileError, match=r"there is no model .*: no folder of that name, and the bundled ones are"):
        hub.load(name)


def test_a_hub_id_is_downloaded_and_checked(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def snapshot(repo_id: str, allow_patterns: list[str], **_: object) -> str:
        asked.append((repo_id, tuple(allow_patterns)))
        return str(saved)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert isinstance(hub.load("someone/some-model"), LearnedEnergy)
    assert isinstance(LearnedEnergy.from_pretrained("someone/some-model"), LearnedEnergy)
    assert {repo for repo, _ in asked} == {"someone/some-model"}
    assert not any(pattern.endswith((".bin", ".pt", ".pkl", "*")) for _, patterns in asked for pattern in patterns)
    (saved / WEIGHTS).write_bytes(b"")
    with pytest.raises(ModelFileError, match="cut short"):
        hub.load("someone/some-model")


def test_a_hub_that_cannot_be_reached_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def snapshot(*_: object, **__: object) -> str:
        raise LocalEntryNotFoundError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    with pytest.raises(ModelFileError, match=r"no folder 'someone/some-model', and the hub gave no model.*no network"):
        hub.load("someone/some-model")


def test_what_is_pushed_to_the_hub_can_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_hub(monkeypatch, tmp_path / "pushed")
    energy = make_energy()
    energy.push_to_hub("someone/some-model")
    assert torch.equal(hub.load(tmp_path / "pushed").constant, energy.constant)


def test_everything_that_travels_with_a_model_comes_back_from_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pushed and fetched by id through a hub that is a folder, and hands out only what it is asked for."""
    model = hub.load("mnist")
    assert set(model.attachments) == {CARD, PAGE, LICENCE, REFERENCE}
    pretend_hub(monkeypatch, tmp_path / "pushed")
    model.push_to_hub("someone/digits")

    def snapshot(repo_id: str, allow_patterns: list[str], **_: object) -> str:
        assert repo_id == "someone/digits"
        for file in (tmp_path / "pushed").iterdir():
            if file.name in allow_patterns:
                (tmp_path / "fetched").mkdir(exist_ok=True)
                shutil.copy(file, tmp_path / "fetched")
        return str(tmp_path / "fetched")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    again = hub.load("someone/digits")
    assert again.attachments == model.attachments
    card, references = card_of(again), references_of(again)
    assert card is not None
    assert card.self_test
    assert references is not None
    assert len(references) == 128
    assert all(torch.equal(value, again.state_dict()[key]) for key, value in model.state_dict().items())


def test_the_network_is_asked_last_and_not_in_silence(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[bool] = []

    def snapshot(*_: object, local_files_only: bool = False, **__: object) -> str:
        asked.append(local_files_only)
        if local_files_only:
            raise LocalEntryNotFoundError("not in the cache")
        return str(saved)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    hub.load("someone/some-model")
    assert asked == [True, False]
    assert "there is no folder 'someone/some-model': asking the Hugging Face hub" in caplog.text
    asked.clear()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "fashion").mkdir(parents=True)
    with pytest.raises(ModelFileError, match=r"no folder 'runs/fashon' in 'runs'; there is runs/fashion"):
        hub.load("runs/fashon")
    assert not asked


def test_a_cached_model_loads_without_a_network(tmp_path: Path) -> None:
    """HF_HUB_OFFLINE with the hub's own cache, and every connection refused."""
    make_energy().save_pretrained(tmp_path / "hub" / "models--someone--small" / "snapshots" / ("0" * 40))
    refs = tmp_path / "hub" / "models--someone--small" / "refs"
    refs.mkdir()
    (refs / "main").write_text("0" * 40)
    code = (
        "import socket\n"
        "def refuse(*_, **__): raise AssertionError('the network was asked')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        "import linverse as lv\n"
        "assert lv.load('someone/small').shape == (3, 8, 8)\n"
        "try: lv.load('someone/other')\n"
        "except ValueError as error: print(error)\n"
    )
    environment = os.environ | {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "there is no folder 'someone/other', and the hub gave no model" in done.stdout


def test_companions_of_a_model_are_said_to_be_elsewhere(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "weights" / "small")
    with pytest.raises(ModelFileError, match="companions of a model are in the repository"):
        hub.find_model("small-score", tmp_path / "weights")


def test_importing_the_library_stays_light() -> None:
    """`linverse.load` is there, and the hub's client, the trainer's and the plots' libraries are not until they are used."""
    code = (
        "import sys, linverse\n"
        "heavy = {'huggingface_hub', 'safetensors', 'accelerate', 'tyro', 'rich', 'matplotlib', 'sklearn', 'scipy'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "assert linverse.load('mnist').shape == (1, 28, 28) and 'huggingface_hub' not in sys.modules\n"
        "assert not hasattr(linverse, 'lod')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

"""What once ended in a traceback, a hang or a wrong answer: one clear line each, an exit code, and nothing lost."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from linverse.cli.streams import SPELLINGS, patient_streams
from linverse.files.saving import CARD, CONFIG, MANIFEST, WEIGHTS, ModelFileError, hash_weights
from linverse.models.energies.learned import EnergyConfig, LearnedEnergy
from linverse.store.card import Card
from linverse.store.hub import load
from robustness.commands import make_files, typed
from robustness.models import change, saved_model
from small import SHAPE, write_manifest
from tiny import tiny_energy

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def one_line(words: list[str], folder: Path) -> str:
    """What a command that must fail says: one line, and an exit code of its own choice."""
    code, _, complained = typed(words, folder)
    assert code in (1, 2), (words, code, complained)
    assert "Traceback" not in complained
    if code == 1:  # the parser of options draws boxes
        assert "\n" not in complained.strip(), complained
    return complained


# --- models --------------------------------------------------------------------------------------------------------------------------

FORGED: list[tuple[tuple[str, ...], Any, str]] = [
    (("backbone", "channels"), "32", "channels is int; got '32'"),
    (("backbone", "multipliers"), [], "multipliers are 1 to 8 numbers"),
    (("backbone", "stem"), 0, "stem is 0; it can be 1, 2 or 4"),
    (("bases",), [1, 2], "bases is"),
    (("backbone", "middle"), 10**9, "middle of a network is 0 to 256"),
    (("backbone", "blocks"), 10**7, "blocks of a network is 0 to 64"),
    (("backbone", "blocks"), 10**9, "blocks of a network is 0 to 64"),
    (("backbone", "blocks"), 64, "does not fit its configuration"),
    (("backbone", "channels"), 4096, "does not fit its configuration"),
    (("rank",), 10**9, "rank"),
    (("shape",), [1, 10**9, 8], "shape is"),
    (("minimum",), -1.0, "variance range"),
    (("maximum",), float("nan"), "maximum is float"),
    (("backbone",), None, "backbone is an object"),
    (("parameterisation",), "new", "parameterisation is"),
]


@pytest.mark.parametrize(
    ("place", "value", "complaint"), FORGED, ids=[f"{'.'.join(p)}={v!r:.20}" for p, v, _ in FORGED]
)
def test_a_forged_configuration_is_refused_before_anything_is_built(
    place: tuple[str, ...], value: Any, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(saved_model(), tmp_path / "model")
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(change(config, place, value)))
    write_manifest(folder)
    monkeypatch.setattr(LearnedEnergy, "load_state_dict", lambda *_, **__: pytest.fail("a network was built"))
    started = time.process_time()
    with pytest.raises(ModelFileError, match=complaint):
        load(folder)
    assert time.process_time() - started < 5


@pytest.mark.parametrize("files", [None, [], "x", {WEIGHTS: None}])
def test_a_manifest_of_nothing_is_refused(files: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(saved_model(), tmp_path / "model")
    (folder / MANIFEST).write_text(json.dumps({"files": files}))
    with pytest.raises(ModelFileError, match="manifest"):
        load(folder)


def test_cards_of_others_are_shown_as_they_are(tmp_path: Path) -> None:
    folder = shutil.copytree(saved_model(), tmp_path / "model")
    (folder / CARD).write_text(json.dumps({"name": "[/bold]x", "about": "[red]", "tests": [["[a]", "[/]", "c"]]}))
    code, said, _ = typed(["info", str(folder)], tmp_path)
    assert code == 0
    assert "[/bold]x" in said
    assert "[red]" in said
    for content in ([], {"name": 3}, {"name": "x", "held_out": {"loss": "low"}}, {"name": "x", "tests": [["a"]]}, "x"):
        (folder / CARD).write_text(json.dumps(content))
        assert "no card of this version" in one_line(["info", str(folder)], tmp_path)
    assert Card.decode(json.dumps({"name": "x", "held_out": {"loss": 1}}).encode()).held_out == {"loss": 1}


def test_a_full_disk_leaves_the_model_that_was_there(tmp_path: Path) -> None:
    """The kernel refuses files of more than a few bytes, as it does on a full disk."""
    energy = tiny_energy(SHAPE).float()
    energy.save_pretrained(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"cannot write .*model.safetensors"):
            tiny_energy(SHAPE, size=0.5).float().save_pretrained(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert hash_weights(load(tmp_path)) == hash_weights(energy)


def test_files_have_ordinary_modes(tmp_path: Path) -> None:
    tiny_energy(SHAPE).float().save_pretrained(tmp_path)
    umask = os.umask(0)
    os.umask(umask)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o666 & ~umask}


def test_the_sizes_of_a_real_model_pass() -> None:
    config = EnergyConfig((3, None, None), parameterisation="spectral")
    assert EnergyConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


# --- options and files ---------------------------------------------------------------------------------------------------------------

REFUSED = [
    ("restore bomb.npy --task denoise", "at most .* are read"),
    ("restore overflow.npy --task denoise", "overflow.npy cannot be read"),
    ("restore deep.npy --task denoise", "deep.npy cannot be read"),
    ("restore good.png --mask bomb.png", "more than the"),
    ("restore good.png --mask tall.png", "pixels"),
    ("restore good.png --task denoise --samples 1000000000", "--samples is at most 1000"),
    ("restore good.png --task denoise --steps 1000000000000", "take fewer steps"),
    ("restore good.png --task superres:factor=1000000", "smaller factor|do not tile"),
    ("blind good.png --family noise --grid 0.1 1 1000000000", "at most 10,000 points"),
    ("blind good.png --family noise-box --grid 0.1 1 1000000000", "at most 10,000 points"),
    ("blind nan.npy --family noise", "NaN"),
    ("score nan.npy", "NaN"),
    ("blind huge.npy --family gaussian-blur", "pixels live in"),
    ("evaluate --data digits --method bad:solve", "SyntaxError"),
    ("evaluate --data digits --method exits:solve", "SystemExit"),
    ("evaluate --data digits --images 0", "at least 1"),
    ("train digits --steps 0", "--steps is at least 1"),
    ("train digits --evaluate-every 0", "evaluate-every is at least 1"),
    ("train digits --self-test-images 0", "self-test-images is at least 2"),
    ("train digits --batch 1000000000", "batch smaller"),
    ("train mnist-classifier --epochs 0", "at least 1"),
]


@pytest.mark.parametrize(("words", "complaint"), REFUSED, ids=[words for words, _ in REFUSED])
def test_senseless_options_and_hostile_files(words: str, complaint: str, tmp_path: Path) -> None:
    make_files(tmp_path)
    (tmp_path / "bad.py").write_text("def solve(:")
    (tmp_path / "exits.py").write_text("import sys; sys.exit(0)")
    model = [] if words.startswith("train") else ["--model", str(saved_model())]
    said = one_line([*words.split(), *model], tmp_path)
    with pytest.raises(ValueError, match=complaint):
        raise ValueError(" ".join(said.split()))


def test_a_blur_wider_than_the_picture_takes_no_memory(tmp_path: Path) -> None:
    make_files(tmp_path)
    words = ["restore", "good.png", "--task", "gauss:std=1e5", "--samples", "0", "--model", str(saved_model())]
    assert typed(words, tmp_path)[0] == 0


def test_names_that_are_no_text(tmp_path: Path) -> None:
    make_files(tmp_path)
    name = os.fsdecode(b"n\xf8t-text.png")
    rest = ["--model", str(saved_model())]
    for words in (
        ["restore", name, "--task", "denoise", "--samples", "1", "--steps", "2"],
        ["score", name],
        ["info", name],
    ):
        code, _, complained = typed([*words, *(rest if words[0] != "info" else [])], tmp_path)
        assert code == (1 if words[0] == "info" else 0), complained
    record = json.loads((tmp_path / f"{name[:-4]}-restored" / "result.json").read_text())
    assert record["image"] == name
    assert "n" in one_line(["restore", os.fsdecode(b"g\xf8ne.png"), "--task", "denoise", *rest], tmp_path)


def test_a_forged_record_does_not_delete_through_links(tmp_path: Path) -> None:
    make_files(tmp_path)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("precious")
    out = tmp_path / "out"
    out.mkdir()
    (out / "link").symlink_to(precious)
    (out / "samples").symlink_to(precious)
    files = ["link/file", "samples/file", "../precious/file", str(precious / "file"), "a\0b", "link", "", "."]
    (out / "result.json").write_text(json.dumps({"command": "linverse restore", "files": files}))
    words = ["restore", "good.png", "--task", "denoise", "--model", str(saved_model()), "--out", "out", "--steps", "1"]
    assert "a part of it is a link" in one_line([*words, "--samples", "1"], tmp_path)
    assert typed([*words, "--samples", "0"], tmp_path)[0] == 0
    assert (precious / "file").read_text() == "precious"
    assert [path.name for path in precious.iterdir()] == ["file"]


# --- numbers and names -----------------------------------------------------------------------------------------------------------------


def test_pixels_to_measure_next_are_at_most_all(tmp_path: Path) -> None:
    make_files(tmp_path)
    words = ["restore", "good.png", "--task", "box", "--model", str(saved_model()), "--samples", "0", "--resize"]
    assert "--measure-next is a number of pixels" in one_line([*words, "--measure-next=-1"], tmp_path)
    code, _, complained = typed([*words, "--measure-next=1000000", "--out=all"], tmp_path)
    assert code == 0, complained
    places = json.loads((tmp_path / "all" / "result.json").read_text())["measure_next"]
    assert len({tuple(place) for place in places}) == len(places) > 3


def test_a_folder_without_a_model_has_no_card(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "empty has no model.safetensors, config.json, manifest.json" in one_line(["info", "empty"], tmp_path)


# --- evaluation ----------------------------------------------------------------------------------------------------------------------


def test_damaged_parts_of_an_evaluation_are_named(tmp_path: Path) -> None:
    words = [
        "evaluate",
        "--model",
        str(saved_model()),
        "--data",
        "digits",
        "--images",
        "2",
        "--batch",
        "2",
        "--task",
        "box",
    ]
    words += ["--method", "pseudo-inverse", "--metric", "PSNR", "--features", "pixels", "--pictures", "0", "--out", "e"]
    code, _, complained = typed(words, tmp_path)
    if "there is no method" in complained:
        words[words.index("pseudo-inverse")] = "ours:steps=2"
        code, _, complained = typed(words, tmp_path)
    assert code == 0, complained
    table = (tmp_path / "e" / "table.csv").read_bytes()
    parts = sorted(p for p in (tmp_path / "e" / "parts").rglob("0000.*") if "truth" not in str(p))
    assert len(parts) == 3
    for path in parts:
        whole = path.read_bytes()
        flipped = bytearray(whole)
        flipped[next(i for i in reversed(range(len(whole))) if chr(whole[i]).isdigit())] ^= 1  # another digit
        damaged = [whole[: len(whole) // 2], b"", b"[]", b"{}"]
        if "timing" not in path.name:  # seconds are no result
            damaged.append(bytes(flipped))
        for content in damaged:
            path.write_bytes(content)
            assert path.name in one_line(words, tmp_path)
        path.write_bytes(whole)
    assert typed(words, tmp_path)[0] == 0
    assert (tmp_path / "e" / "table.csv").read_bytes() == table


# --- output --------------------------------------------------------------------------------------------------------------------------


def run(code: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=300, check=False, **options)


PRINTING = "import sys; from linverse.cli.streams import patient_streams\nwith patient_streams('x'):\n"


@pytest.mark.parametrize("encoding", ["ascii", "cp437", "cp1252", "latin-1", "utf-8"])
def test_every_encoding_can_say_everything(encoding: str) -> None:
    code = PRINTING + " for c in '×→λΣ≥…−😀\\udcff': print(c); print(c, file=sys.stderr)"
    answer = run(code, env={**ENVIRONMENT, "PYTHONIOENCODING": encoding})
    assert answer.returncode == 0, answer.stderr
    lines = answer.stdout.decode(encoding).splitlines()
    assert lines == answer.stderr.decode(encoding).splitlines()
    assert len(lines) == 9
    if encoding == "ascii":
        assert lines[:7] == [SPELLINGS[c] for c in "×→λΣ≥…−"]
        assert lines[7:] == ["?", "?"]


@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_a_bare_locale_and_no_terminal(locale: str, tmp_path: Path) -> None:
    """The commands themselves, in a pipe, where Python's own rescue (UTF-8 in place of C) is turned off."""
    make_files(tmp_path)
    bare = {"LC_ALL": locale, "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "TERM": "dumb"}
    model = str(saved_model())
    for words in (["info", model], ["score", "good.png", "--model", model]):
        command = [sys.executable, "-m", "linverse", *words]
        answer = subprocess.run(
            command, capture_output=True, cwd=tmp_path, timeout=300, check=False, env=ENVIRONMENT | bare
        )
        assert answer.returncode == 0, answer.stderr
        assert answer.stdout.decode("ascii").strip()
        assert b"\x1b" not in answer.stdout  # no colours for a pipe


def test_work_goes_on_when_nobody_reads() -> None:
    read, write = os.pipe()
    os.close(read)
    code = PRINTING + " [print('line', flush=True) for _ in range(99)]\n print('done', file=sys.stderr)"
    answer = subprocess.run(
        [sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, timeout=300, check=False, env=ENVIRONMENT
    )
    os.close(write)
    assert answer.returncode == 0
    said = answer.stderr.decode().splitlines()
    assert len(said) == 2, said
    assert "nobody reads the output any more" in said[0]
    assert said[1] == "done"


def test_a_restoration_is_written_though_its_reader_is_gone(tmp_path: Path) -> None:
    """`linverse restore … | true`, really."""
    make_files(tmp_path)
    words = f"restore good.png --task denoise --samples 1 --steps 1 --model {saved_model()}".split()
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "linverse", *words]
    answer = subprocess.run(
        command, stdout=write, stderr=subprocess.PIPE, cwd=tmp_path, timeout=300, check=False, env=ENVIRONMENT
    )
    os.close(write)
    assert answer.returncode == 0, answer.stderr
    assert b"nobody reads" in answer.stderr
    assert json.loads((tmp_path / "good-restored" / "result.json").read_text())["completed"]


@pytest.mark.parametrize("columns", ["1", "7", "20"])
def test_narrow_terminals(columns: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for words in (["info", str(saved_model())], ["restore", "--help"]):
        code, said, _ = typed(words, tmp_path)
        assert code == 0
        assert said.strip()


def test_no_output_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with patient_streams("x"):
        print("nobody hears this")


@pytest.mark.slow
def test_ctrl_c_at_the_start_is_no_traceback(tmp_path: Path) -> None:
    """At random moments of the first second, while modules are imported."""
    make_files(tmp_path)
    dice = random.Random(0)
    words = f"score good.png --model {saved_model()}".split()
    code = "import sys; from linverse.cli import main; print('ready', flush=True); main(sys.argv[1:])"
    for _ in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", code, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env=ENVIRONMENT,
        )
        assert process.stdout is not None
        process.stdout.readline()  # before that Python itself is starting
        time.sleep(dice.random())
        process.send_signal(signal.SIGINT)
        _, complained = process.communicate(timeout=100)
        assert b"Traceback" not in complained, complained.decode()
        assert process.returncode in (0, 130), complained.decode()


def test_arrays_that_are_written_can_be_read(tmp_path: Path) -> None:
    make_files(tmp_path)
    words = ["restore", "good.png", "--task", "denoise", "--samples", "0", "--model", str(saved_model())]
    assert typed(words, tmp_path)[0] == 0
    mean = np.load(tmp_path / "good-restored" / "mean.npy")
    assert mean.shape == SHAPE
    assert torch.isfinite(torch.from_numpy(mean)).all()

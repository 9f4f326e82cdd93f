"""What is installed: the main models, one version, and a core that imports nothing of the extras."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import linverse
from linverse.extras import MissingExtra, require
from linverse.store.hub import bundled

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CORE = {"torch", "numpy", "safetensors", "tyro", "rich", "matplotlib", "pillow"}
EXTRAS = (
    "accelerate",
    "huggingface_hub",
    "tensorboard",
    "sklearn",
    "scipy",
    "torchmetrics",
    "arviz_stats",
    "tifffile",
    "astropy",
    "pydicom",
)


def test_the_version_is_said_once() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "linverse.__version__"}
    assert f"version: {linverse.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_core_needs_what_inference_needs() -> None:
    assert {line.partition(">")[0] for line in PROJECT["project"]["dependencies"]} == CORE


def test_the_wheel_holds_the_main_models_and_stays_small() -> None:
    package = ROOT / "src" / "linverse"
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["linverse"]
    files = [file for pattern in patterns for file in package.glob(pattern) if file.is_file()]
    models = {file.parent.name for file in files if file.name == "manifest.json"}
    assert {"mnist", "fashion-mnist"} <= models
    assert sum(file.stat().st_size for file in files) < 30_000_000
    # what is left out belongs to a model that is in, or is for the tables of the paper alone
    left = set(bundled()) - models - {"cifar10"}
    assert all(any(name.startswith(f"{main}-") for main in models) for name in left)


def test_restoring_a_picture_imports_none_of_the_extras() -> None:
    code = (
        "import sys\n"
        f"for name in {EXTRAS!r}: sys.modules[name] = None\n"  # as if they were not installed
        "import torch, linverse as lv\n"
        "import linverse.cli.restore, linverse.cli.demo, linverse.cli.blind, linverse.cli.score, linverse.cli.train\n"
        "posterior = lv.Posterior(lv.load('mnist'), lv.Box(8, 0.1).measure(torch.rand(1, 1, 28, 28)))\n"
        "posterior.mean(), posterior.sample(1, 2)\n"
        "scan = lv.Tomography((28, 28), 3, 0.5).measure(torch.rand(1, 1, 28, 28))\n"
        "import warnings; warnings.simplefilter('ignore')\n"
        "lv.Posterior(lv.load('mnist'), scan).draw(2, 2, sweeps=8)\n"
        "from linverse.training.loop import make_accelerator\n"
        "try: make_accelerator()\n"
        "except ImportError as error: print(error)\n"
        "try: lv.load('someone/some-model')\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    missing = {"accelerate": "train", "huggingface_hub": "hub"}
    said = "this needs the package {}, which is not installed: pip install 'linverse[{}]'"
    assert done.stdout.splitlines() == [said.format(*one) for one in missing.items()]


def test_every_extra_that_is_named_exists() -> None:
    import re

    sources = "".join(file.read_text() for file in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r'require\([^)]*?"(\w+)"\)', sources)) | set(re.findall(r"linverse\[(\w+)\]", sources))
    assert named <= set(PROJECT["project"]["optional-dependencies"])


def test_a_module_that_is_broken_inside_speaks_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "halfway.py").write_text("import something_that_is_not_there")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="something_that_is_not_there"):
        require("halfway", "train")
    with pytest.raises(MissingExtra, match=r"nowhere.*pip install 'linverse\[science\]'"):
        require("nowhere.at_all", "science")

"""What every experiment shares: a name, a record of numbers with their provenance, and a picture.

An experiment NAME is a module here with `run(out, quick, progress) -> ExperimentResult`; if it has options of its own (which model,
how many steps), a frozen dataclass with a default for each, then `run(out, quick, progress, options)`.
`run_experiment` calls it and makes the record:
    metrics      a flat dictionary of named finite numbers
    paper        the paper's figures or claims, and where we depart from its recipe
    tables       the paper's numbers beside ours (tables.py)
    verdicts     what becomes of each claim, by its rule (claims.py)
    provenance   revision, version, configuration, weight hashes, seeds, seconds
`report.experiments` writes it, and draws the figure. A long experiment keeps what it has finished so far (cache.py), so that the same
command goes on after an interruption. Adding an experiment = a module here, one of the same name in `report.experiments`, and one line in
`EXPERIMENTS`.
"""

from __future__ import annotations

import hashlib
import importlib
import math
import os
import platform
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import torch

import linverse
from linverse.experiments.claims import Claim
from linverse.experiments.tables import ResultTable
from linverse.files import make_folder
from linverse.files.saving import WEIGHTS, ModelFileError
from linverse.progress import Progress, silent
from linverse.store.hub import bundled, find_model

EXPERIMENTS = {
    "digits": "from nothing to a normalised energy of 8×8 digits in four CPU minutes, and the noise of single images",
    "parameterisations": "the paper's form of the energy against ours at equal steps, on 8×8 digits",
    "gsm": "the normalisation constant on a 1000-dimensional Gaussian scale mixture, dual against single score matching",
    "self-test": "are the trained energies normalised? entropy, agreement of bases, covariance score, ratios, heat equation",
    "blind": "which degradation made this image? noise levels, boxes and blurs from the evidence, dual against single",
    "mmse": "one-shot denoising against the noise in a box, dual against single",
    "energy-guided": "digits from a few pixels: guided paths against the geometric one, judged by a classifier",
    "any-order": "digits generated patch by patch in three orders, from the same noise",
    "one-shot": "means and error bars of one evaluation against the best linear estimate, kind of noise by kind",
    "solvers": "the paper's tables of inverse problems: all methods on the same measurements, with intervals and galleries",
    "correctors": "ULA against MALA at 1, 5 and 8 corrector steps per level",
    "posterior-samples": "how probable are the samples of DPS, RED-Diff and ours, before and after the measurement?",
    "gumbel": "log p of all test images, a Gumbel fit, and images from low to high",
    "guided-boxes": "guided paths on large boxes and on digits, and the share of the posterior variance that each keeps",
    "cost": "seconds, evaluations and gradients of a sample; what the embedding of Σ adds to a network",
    "covariances": "illustrations: covariances of training, of patches, and paths through covariance space",
    "large-images": "192×192 photographs: boxes of 30 and 50 pixels, and their size and noise from the evidence",
    "measurement-design": "digits named from k chosen pixels against k random ones",
    "local-geometry": "tangent directions and curvature of the prior at an image, from the energy",
    "sliced-training": "sliced, forward-mode score matching against the double backward at equal time",
    "code-length": "bits per dimension beside PNG, WebP, JPEG-XL and published likelihoods",
    "scale": "memory and seconds of a training step here, and what they come to at the paper's scale",
    "calibration": "are 90 % credible intervals right 90 % of the time? samples and one-shot variances against the truth",
}


@dataclass(frozen=True)
class ExperimentResult:
    """What an experiment hands back.

    `found` is what the figure shows (`report.experiments` draws it); `configuration` is all that is needed to repeat the run; `weights`
    maps the name of each model to its hash (`hash_weights`); `seeds` names what was random.
    """

    metrics: dict[str, float]
    paper: dict[str, Any]
    found: Any
    configuration: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, str] = field(default_factory=dict)
    seeds: dict[str, int] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    tables: tuple[ResultTable, ...] = ()


def load_experiment(name: str) -> Callable[..., ExperimentResult]:
    """The `run` of a named experiment, imported when it is asked for."""
    if name not in EXPERIMENTS:
        raise ValueError(f"there is no experiment {name!r}; there are {', '.join(EXPERIMENTS)}")
    run: Callable[..., ExperimentResult] = importlib.import_module(f"linverse.experiments.{name.replace('-', '_')}").run
    return run


def experiment_options(name: str) -> type[Any] | None:
    """The dataclass of a named experiment's own options, if it has any: what its `run` calls `options`."""
    options: type[Any] | None = get_type_hints(load_experiment(name)).get("options")
    return options


def processor_time() -> float:
    """Seconds of processors that this process and those it has started and waited for have used."""
    return sum(os.times()[:4])


def run_experiment(
    name: str, out: Path, quick: bool = False, progress: Progress = silent, options: Any = None
) -> tuple[dict[str, Any], ExperimentResult]:
    """Run; the record (what NAME.json holds) and the result behind it. Only unfinished work is kept in `out`.

    `options` are an instance of the experiment's own; by default all of their defaults.
    """
    run = load_experiment(name)
    chosen = checked_options(name, experiment_options(name), options)
    make_folder(out)  # before the work: a folder that cannot be written must not cost an hour
    revision()  # that of the code which runs, whatever is committed meanwhile
    wall, processor = time.monotonic(), processor_time()
    result = run(out, quick, progress) if chosen is None else run(out, quick, progress, chosen)
    seconds = {"seconds": time.monotonic() - wall, "processor_seconds": processor_time() - processor}
    record = {
        "experiment": name,
        "metrics": checked_metrics(result.metrics),
        "paper": result.paper,
        "tables": [table.to_record() for table in result.tables],
        "verdicts": [claim.judge(result.metrics, quick) for claim in result.claims],
        "provenance": provenance(result, quick, chosen) | {key: round(value, 1) for key, value in seconds.items()},
    }
    return record, result


def checked_options(name: str, own: type[Any] | None, options: Any) -> Any:
    """The given options or the defaults; those of another experiment are refused."""
    if options is None:
        return None if own is None else own()
    if own is None or not isinstance(options, own):
        raise ValueError(f"the experiment {name} takes {'no options' if own is None else own.__name__}; got {options}")
    return options


def checked_metrics(metrics: dict[str, float]) -> dict[str, float]:
    """A flat dictionary of finite numbers, or an error that names what is not (and keeps the rest readable)."""
    numbers = {key: value for key, value in metrics.items() if isinstance(value, int | float) and math.isfinite(value)}
    bad = {key: value for key, value in metrics.items() if key not in numbers}
    if bad or not numbers:
        raise ValueError(f"metrics are finite numbers; got {bad or 'none at all'} beside {numbers}")
    return {key: float(value) for key, value in numbers.items()}


def provenance(result: ExperimentResult, quick: bool, options: Any = None) -> dict[str, Any]:
    """Where the numbers come from."""
    return {
        "linverse": linverse.__version__,
        "revision": revision(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "quick": quick,
        "options": {} if options is None else asdict(options),
        "models": {} if options is None else model_files(asdict(options)),
        "configuration": result.configuration,
        "weights": result.weights,
        "seeds": result.seeds,
    }


def named_models(options: dict[str, Any]) -> dict[str, str]:
    """The options that name a model (those whose names end so), and what they name."""
    kinds = ("model", "classifier")
    return {key: value for key, value in options.items() if key.endswith(kinds) and isinstance(value, str) and value}


def model_files(options: dict[str, Any]) -> dict[str, str | None]:
    """The hash of each model's weights as they lie there, by the option that names it; None where there are none.

    Bundled companions of a model that an experiment uses (companions.py) go by their own names.
    """
    out: dict[str, str | None] = {}
    wanted = named_models(options)
    if "companions" in options:
        beside = tuple(f"{options['companions'] or options['model']}-{kind}" for kind in ("score", "palette"))
        wanted |= {name: name for name in bundled() if name.startswith(beside)}
    for key, name in wanted.items():
        try:
            out[key] = hashlib.sha256((find_model(name) / WEIGHTS).read_bytes()).hexdigest()
        except (ModelFileError, OSError):
            out[key] = None
    return out


@cache
def revision() -> str | None:
    """The git revision of the library's own source ("-dirty" if changed) when it was first asked for, None where it is not under git.

    A library installed inside somebody else's checkout is not tracked there: that checkout's revision would be a lie.
    """
    folder = Path(linverse.__file__).parent
    commands = (
        ["git", "ls-files", "--error-unmatch", "__init__.py"],
        ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
    )
    text = ""
    for command in commands:
        try:
            answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=20, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
        text = answer.stdout.strip()
    return text or None

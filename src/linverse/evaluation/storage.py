"""The folder of an evaluation: a part per unit, written whole when it is done, so that rerunning the command goes on.

DIR/configuration.json                     what all parts share; another evaluation is refused
DIR/parts/TASK/METHOD/pair.json            settings, operator and network of the pair, likewise
DIR/parts/TASK/METHOD/0003.json            one value per image and metric, evaluations, warnings; the last file of a unit: its mark.
                                           It holds the sha256 of the restorations, and its own: what was damaged since is refused
DIR/parts/TASK/METHOD/0003.timing.json     seconds of solving, metrics and densities: apart, because only they differ from run to run
DIR/parts/TASK/METHOD/0003.safetensors     the restorations, and their features for the Fréchet distance
DIR/parts/TASK/METHOD/0003.error.json      instead, where the method failed; it is tried again next time
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from torch import Tensor

from linverse.evaluation.contenders import TRUTH
from linverse.evaluation.plan import Plan, Unit
from linverse.files import make_folder, read_object, write_json, write_whole

REMEDY = ": remove all files of that number beside it, and run the command again"
OWN, TENSORS = "sha256", "sha256 of the restorations"
OUTPUTS = ("results.json", "timings.json", "table.md", "table.csv")


def slug(text: str) -> str:
    """A label as a folder's name."""
    return re.sub(r"[^\w.=,+-]+", "-", text)


def brief(value: object) -> str:
    """A value for a sentence: of a hash the first digits."""
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{52}\b", r"\1…", repr(value))


def read_json(path: Path) -> dict[str, Any]:
    """A file of ours."""
    return read_object(path, remedy=REMEDY)


class EvaluationFolder:
    """Reads and writes the parts of one evaluation."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        """Opens the folder, and refuses one that holds something else."""
        self.folder = folder
        make_folder(folder)
        self._check_empty()
        self._agree(folder / "configuration.json", plan.configuration, f"{folder} holds another evaluation")
        skipped = plan.skipped()
        for task in plan.tasks:
            for contender in (None, *plan.contenders):
                label = TRUTH if contender is None else contender.label
                if (task.label, label) not in skipped:
                    place = self.pair_folder(task.label, label)
                    make_folder(place)
                    wanted = plan.pair_configuration(task, contender)
                    complaint = f"{folder} holds other results of {label} on {task.label}"
                    self._agree(place / "pair.json", wanted, complaint, f"remove {place}")

    def _check_empty(self) -> None:
        """Refuse a folder in which somebody else's files would be overwritten."""
        taken = [name for name in OUTPUTS if (self.folder / name).exists()]
        if taken and not (self.folder / "configuration.json").exists():
            raise ValueError(f"{self.folder} has a {taken[0]} that no evaluation wrote; give another --out")

    def _agree(self, path: Path, wanted: dict[str, Any], complaint: str, remedy: str = "") -> None:
        """Write the configuration, or compare it with the one that is there."""
        wanted = json.loads(json.dumps(wanted))
        if not path.exists():
            write_json(path, wanted, 1)
            return
        there = read_json(path)
        names = [key for key in {**there, **wanted} if there.get(key) != wanted.get(key)]
        if "images" in names and "images_sha256" in names:
            names.remove("images_sha256")  # another number of images has another hash: one reason is enough
        if names:
            changes = "; ".join(f"{key} was {brief(there.get(key))} and is {brief(wanted.get(key))}" for key in names)
            advice = f"Run it as before,{f' {remedy},' if remedy else ''} or give another --out"
            raise ValueError(f"{complaint}: {changes}. {advice}")

    # --- places ------------------------------------------------------------------------------------------------------------

    def pair_folder(self, task: str, method: str) -> Path:
        return self.folder / "parts" / slug(task) / slug(method)

    def _file(self, unit: Unit, ending: str) -> Path:
        return self.pair_folder(unit.task.label, unit.label) / f"{unit.batch:04d}.{ending}"

    # --- units -------------------------------------------------------------------------------------------------------------

    def done(self, unit: Unit) -> bool:
        return self._file(unit, "json").exists()

    def error(self, unit: Unit) -> dict[str, Any] | None:
        """Why a unit failed, if it did."""
        path = self._file(unit, "error.json")
        return read_json(path) if path.exists() and not self.done(unit) else None

    def save(self, unit: Unit, record: dict[str, Any], timing: dict[str, float], tensors: dict[str, Tensor]) -> None:
        """All of a finished unit; `timing` says the seconds of what, `tensors` are its samples and features."""
        from safetensors.torch import save

        content = save({name: value.contiguous() for name, value in tensors.items()})
        write_whole(self._file(unit, "safetensors"), content)
        write_json(self._file(unit, "timing.json"), timing, 1)
        sealed = record | {TENSORS: hashlib.sha256(content).hexdigest()}
        write_json(self._file(unit, "json"), sealed | {OWN: own_digest(sealed)}, 1)
        self._file(unit, "error.json").unlink(missing_ok=True)

    def save_error(self, unit: Unit, error: dict[str, Any]) -> None:
        write_json(self._file(unit, "error.json"), error, 1)

    def record(self, unit: Unit) -> dict[str, Any]:
        path = self._file(unit, "json")
        record = read_json(path)
        if record.pop(OWN, None) != own_digest(record):
            raise ValueError(f"{path} is damaged{REMEDY}")
        return record

    def timing(self, unit: Unit) -> dict[str, float]:
        path = self._file(unit, "timing.json")
        timing = read_json(path)
        if not _numbers(list(timing.values()), len(timing)) or "seconds" not in timing:
            raise ValueError(f"{path} is damaged{REMEDY}")
        return {name: float(value) for name, value in timing.items()}

    def tensors(self, unit: Unit) -> dict[str, Tensor]:
        from safetensors.torch import load

        path = self._file(unit, "safetensors")
        content = path.read_bytes() if path.exists() else b""
        if hashlib.sha256(content).hexdigest() != self.record(unit)[TENSORS]:
            raise ValueError(f"{path} is damaged{REMEDY}")
        return load(content)


def own_digest(record: dict[str, Any]) -> str:
    """The sha256 of a record as its file holds it."""
    return hashlib.sha256(json.dumps(record).encode()).hexdigest()


def _numbers(values: Any, count: int) -> bool:
    """Whether something read from JSON is a list of so many numbers."""
    return isinstance(values, list) and len(values) == count and all(type(value) in (int, float) for value in values)

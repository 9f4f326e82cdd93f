"""`make fuzz MINUTES=30`: random commands, models, checkpoints and calls, for as long as you like. Every failure names the seed that
repeats it.

    PYTHONPATH=tests python -m robustness.fuzz --minutes 30
    PYTHONPATH=tests python -m robustness.fuzz --kind command --seed 17
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import NamedTemporaryFile, mkdtemp
from typing import Any, TextIO

from linverse.store.hub import load
from robustness.calls import call
from robustness.cases import Case, Wrong, repeat, run_case
from robustness.checkpoints import damaged_state
from robustness.commands import command
from robustness.models import damaged_file, damaged_header, forged_object, saved_model

KINDS: dict[str, Case] = {
    "command": command,
    "call": call,
    "forged-model": forged_object,
    "damaged-model": damaged_file,
    "forged-weights": damaged_header,
    "checkpoint": damaged_state,
}


def campaign(
    seconds: float, kinds: list[str], first: int = 0, journal: TextIO | None = None
) -> tuple[Counter[str], list[str]]:
    """Cases of all kinds in turn until the time is over; how many went how, and the failures.

    The journal is told before each case which one it is, and after it how it went.
    """
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    load(saved_model())  # imports cost seconds, and are no part of a case
    root, end = Path(mkdtemp(prefix="linverse-fuzz-")), time.monotonic() + seconds
    try:
        for seed in itertools.count(first):
            for kind in kinds:
                if time.monotonic() > end:
                    return outcomes, failures
                folder = root / f"{kind}-{seed}"
                note(journal, {"kind": kind, "seed": seed})
                try:
                    outcome, failure = f"{kind}: {run_case(kind, KINDS[kind], seed, folder)}", None
                except Wrong as error:
                    outcome, failure = f"{kind}: FAILED", str(error)
                    failures.append(failure)
                outcomes[outcome] += 1
                note(journal, {"outcome": outcome, "failure": failure})
                shutil.rmtree(folder, ignore_errors=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return outcomes, failures


def note(journal: TextIO | None, entry: dict[str, Any]) -> None:
    """A line of the journal, on the disk before anything else happens."""
    if journal is not None:
        journal.write(json.dumps(entry) + "\n")
        journal.flush()


def watched(seconds: float, kinds: list[str], first: int = 0) -> tuple[Counter[str], list[str]]:
    """A campaign in a process of its own: a case that ends the process (no memory for threads, a signal) is a failure with a name, too."""
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        with NamedTemporaryFile("r", prefix="linverse-fuzz-", suffix=".jsonl") as journal:
            told = ("--minutes", str(left / 60), "--first", str(first), "--journal", journal.name)
            chosen = [word for kind in kinds for word in ("--kind", kind)]
            code = subprocess.run([sys.executable, "-m", "robustness.fuzz", *told, *chosen]).returncode
            begun, entries = None, [json.loads(line) for line in journal]
        for entry in entries:
            begun = entry if "kind" in entry else None
            if begun is None:
                outcomes[entry["outcome"]] += 1
                failures += [entry["failure"]] if entry["failure"] else []
        if begun is None:
            break
        outcomes[f"{begun['kind']}: FAILED"] += 1
        failures.append(
            f"{begun['kind']} {begun['seed']}: the process ended (exit code {code}); {repeat(begun['kind'], begun['seed'])}"
        )
        first = begun["seed"] + 1
    return outcomes, failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--kind", choices=tuple(KINDS), action="append")
    parser.add_argument("--seed", type=int, help="run this one case and let its error through")
    parser.add_argument("--first", type=int, default=0, help="the first seed of a campaign")
    parser.add_argument("--journal", type=Path, help="run the campaign in this process, and write down each case here")
    options = parser.parse_args()
    os.environ.setdefault("COLUMNS", "200")
    kinds = options.kind or list(KINDS)
    if options.seed is not None:
        folder = Path(mkdtemp(prefix="linverse-fuzz-"))
        print(run_case(kinds[0], KINDS[kinds[0]], options.seed, folder), f"(in {folder})")
        return
    if options.journal is not None:
        with options.journal.open("a") as journal:
            campaign(60 * options.minutes, kinds, options.first, journal)
        return
    outcomes, failures = watched(60 * options.minutes, kinds, options.first)
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:7}  {outcome}")
    print(f"{sum(outcomes.values())} cases, {len(failures)} failures")
    for failure in failures:
        print(failure)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

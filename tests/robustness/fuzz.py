"""`make fuzz MINUTES=30`: random commands, models, checkpoints and calls, for as long as you like. Every failure names the seed that
repeats it.

    PYTHONPATH=tests python -m robustness.fuzz --minutes 30
    PYTHONPATH=tests python -m robustness.fuzz --kind command --seed 17
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import mkdtemp

from robustness.calls import call
from robustness.cases import Case, Wrong, run_case
from robustness.checkpoints import damaged_state
from robustness.commands import command
from robustness.models import damaged_file, damaged_header, forged_object

KINDS: dict[str, Case] = {
    "command": command,
    "call": call,
    "forged-model": forged_object,
    "damaged-model": damaged_file,
    "forged-weights": damaged_header,
    "checkpoint": damaged_state,
}


def campaign(seconds: float, kinds: list[str], first: int = 0) -> tuple[Counter[str], list[str]]:
    """Cases of all kinds in turn until the time is over; how many went how, and the failures."""
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    root, end = Path(mkdtemp(prefix="linverse-fuzz-")), time.monotonic() + seconds
    try:
        for seed in itertools.count(first):
            for kind in kinds:
                if time.monotonic() > end:
                    return outcomes, failures
                folder = root / f"{kind}-{seed}"
                try:
                    outcomes[f"{kind}: {run_case(kind, KINDS[kind], seed, folder)}"] += 1
                except Wrong as error:
                    outcomes[f"{kind}: FAILED"] += 1
                    failures.append(str(error))
                shutil.rmtree(folder, ignore_errors=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return outcomes, failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--kind", choices=tuple(KINDS))
    parser.add_argument("--seed", type=int, help="run this one case and let its error through")
    parser.add_argument("--first", type=int, default=0, help="the first seed of a campaign")
    options = parser.parse_args()
    os.environ.setdefault("COLUMNS", "200")
    if options.seed is not None:
        kind = options.kind or "command"
        folder = Path(mkdtemp(prefix="linverse-fuzz-"))
        print(run_case(kind, KINDS[kind], options.seed, folder), f"(in {folder})")
        return
    outcomes, failures = campaign(60 * options.minutes, [options.kind] if options.kind else list(KINDS), options.first)
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:7}  {outcome}")
    print(f"{sum(outcomes.values())} cases, {len(failures)} failures")
    for failure in failures:
        print(failure)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

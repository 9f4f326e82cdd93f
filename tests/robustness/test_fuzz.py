"""The fuzzer, within a minute: the same seeds every time, so that a failure is a change of ours. `make fuzz` takes new ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from robustness.cases import Wrong, run_case
from robustness.fuzz import KINDS, campaign, watched

CASES = {"command": 60, "call": 400, "forged-model": 100, "damaged-model": 40, "forged-weights": 40, "checkpoint": 150}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_breaks(kind: str, tmp_path: Path) -> None:
    outcomes = {run_case(kind, KINDS[kind], seed, tmp_path / str(seed)) for seed in range(CASES[kind])}
    assert len(outcomes) > 1, outcomes  # some are taken and some refused, or nothing was tested


def test_a_failure_names_the_seed_that_repeats_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(dice: object, folder: Path) -> str:
        raise KeyError("oops")

    with pytest.raises(Wrong, match=r"call 7: KeyError: 'oops'; repeat it by: .*--kind call --seed 7"):
        run_case("call", broken, 7, tmp_path)
    monkeypatch.setitem(KINDS, "call", broken)
    outcomes, failures = campaign(0.2, ["call"])
    assert outcomes["call: FAILED"] == len(failures) > 0


def test_a_case_without_an_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from robustness import cases

    monkeypatch.setattr(cases.time_limit.__wrapped__, "__defaults__", (1,))  # type: ignore[attr-defined]

    def endless(dice: object, folder: Path) -> str:
        while True:
            try:
                sum(range(1000))
            except Exception:  # a hang must not be swallowed by such a line
                continue

    with pytest.raises(Wrong, match="no end after"):
        run_case("call", endless, 1, tmp_path)


def test_a_case_that_ends_the_process_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As OpenMP does where it finds no memory for its threads."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, random\n"
        "from robustness import calls\n"
        "deadly = random.Random('call 3').random()\n"
        "calls.call = lambda dice, folder: os._exit(1) if dice.random() == deadly else 'answered'\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(Path(__file__).parents[1])]))
    outcomes, failures = watched(1.0, ["call"])
    assert outcomes["call: answered"] >= 3
    (failure,) = failures
    assert failure.startswith("call 3: the process ended (exit code 1); repeat it by: ")

"""The fuzzer, within a minute: the same seeds every time, so that a failure is a change of ours. `make fuzz` takes new ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from robustness.cases import Wrong, run_case
from robustness.fuzz import KINDS, campaign

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

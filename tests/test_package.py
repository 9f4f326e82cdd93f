"""`import linverse` itself: what it sets, and what it leaves alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


@pytest.mark.parametrize(
    ("given", "imports", "policy"),
    [
        ({}, "linverse", "PASSIVE"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "linverse", "ACTIVE"),
        ({"GOMP_SPINCOUNT": "100"}, "linverse", "None"),
        ({}, "sys; sys.modules['torch'] = sys; import linverse", "None"),  # torch is there: too late to say
    ],
)
def test_waiting_threads_sleep_unless_the_user_or_torch_came_first(
    given: dict[str, str], imports: str, policy: str
) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES} | given
    script = f"import os, {imports}; print(os.environ.get('OMP_WAIT_POLICY'))"
    answer = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == policy

"""What do waiting threads cost? One posterior sample with every waiting policy, on an idle machine and beside other work.

    python benchmarks/threads.py [--rounds 3] [--patience 60]

torch's OpenMP threads wait for each other several thousand times a sample. By default they spin while they wait, which is fast if every
thread has a core of its own, and burns the cores if it has not. Each policy runs in a process of its own, because OpenMP reads it once;
policies take turns, so that whatever else the machine does meets all of them alike. "busy" keeps as many processes counting as there are
cores. A time that reaches the patience is a lower bound.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator

VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
POLICIES: dict[str, dict[str, str]] = {
    "torch's own": {"FIRST": "torch"},
    "linverse's (passive)": {},
    "passive, 1 000 spins": {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"},
    "passive, 10 000 spins": {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "10000"},
    "passive, 100 000 spins": {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "100000"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}
WORKER = """
import importlib, os, time
importlib.import_module(os.environ.get("FIRST", "linverse"))  # torch first: linverse then sets nothing
import linverse as lv
import torch
from linverse.data.examples import load_examples
energy, x = lv.load("fashion-mnist"), load_examples("fashion-mnist").batch(torch.arange(1))
post = lv.Posterior(energy, lv.Box(14, sigma=0.01).measure(x))
post.sample(1, 2)
begun = time.perf_counter()
post.sample(1, 30)
print(time.perf_counter() - begun)
"""
COUNT = "while True: pass"


def seconds(policy: dict[str, str], patience: float) -> float:
    """Of one sample of 30 steps in a fresh process, or the patience."""
    inherited = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    command = [sys.executable, "-c", WORKER]
    begun = time.perf_counter()
    try:
        done = subprocess.run(
            command, env=inherited | policy, capture_output=True, text=True, timeout=patience, check=True
        )
    except subprocess.TimeoutExpired:
        return time.perf_counter() - begun
    return float(done.stdout)


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Other work on every core."""
    others = [subprocess.Popen([sys.executable, "-c", COUNT]) for _ in range(processes)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def measure(rounds: int, patience: float) -> dict[str, list[float]]:
    """Policy → seconds of every round."""
    found: dict[str, list[float]] = {name: [] for name in POLICIES}
    for _ in range(rounds):
        for name, policy in POLICIES.items():
            found[name].append(seconds(policy, patience))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--patience", type=float, default=60.0)
    options = parser.parse_args()
    cores = os.cpu_count() or 1
    print(f"{cores} cores, load before: {os.getloadavg()[0]:.1f}; one sample of 30 steps, median of {options.rounds}")
    idle = measure(options.rounds, options.patience)
    with busy(cores):
        beside = measure(options.rounds, options.patience)
    print(f"{'policy':<24}{'idle, s':>10}{'busy, s':>10}")
    for name in POLICIES:
        middle = [sorted(times[name])[options.rounds // 2] for times in (idle, beside)]
        print(f"{name:<24}{middle[0]:>10.2f}{middle[1]:>10.2f}")


if __name__ == "__main__":
    main()

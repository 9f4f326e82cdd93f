"""`linverse studio` in a process of its own, as tests and benchmarks see it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Server:
    """Where it listens, its process, its folder for temporary files, and the seconds (and CPU seconds) until it answered."""

    address: str
    process: int
    temporary: Path
    start_seconds: float
    start_cpu: float

    def memory(self) -> int:
        """Bytes that the process holds now."""
        for line in Path(f"/proc/{self.process}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) * 1024
        raise OSError("the server is gone")

    def cpu(self) -> float:
        """CPU seconds of the process so far."""
        return cpu_seconds(self.process)

    def uploads(self) -> list[Path]:
        """The files that the server keeps for the moment."""
        return [path for path in self.temporary.rglob("*") if path.is_file()]


def cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def served(model: str, temporary: Path) -> Iterator[Server]:
    """The command, until it answers; ended as hosts end it (SIGTERM)."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "linverse", "studio", "--model", model, "--port", str(port), "--no-browser"]
    environment = os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    begun = time.monotonic()
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    address = f"http://127.0.0.1:{port}"
    try:
        while not answers(address):
            assert process.poll() is None, "the studio ended by itself"
            assert time.monotonic() - begun < 240, "the studio does not answer"
            time.sleep(0.1)
        seconds = time.monotonic() - begun
        yield Server(address, process.pid, temporary, seconds, cpu_seconds(process.pid))
    finally:
        process.terminate()
        process.wait(60)


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as page:
            return bool(page.status == 200)
    except (urllib.error.URLError, OSError):
        return False

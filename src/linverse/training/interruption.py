"""Ctrl-C, SIGTERM and SIGHUP (a terminal that was closed) end a run between two steps, where its state is whole.

A second Ctrl-C or SIGTERM ends it at once. A second SIGHUP does not: a closing terminal sends two.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class StopRequest:
    """A context in which a signal only sets `requested`."""

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python lets no other thread handle signals
            heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup means it
            self._before = {number: signal.signal(number, self._request) for number in heard}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore(*self._before)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        self._restore(*(kind for kind in self._before if kind.name != "SIGHUP"))

    def _restore(self, *kinds: signal.Signals) -> None:
        for kind in kinds:
            signal.signal(kind, self._before.pop(kind))

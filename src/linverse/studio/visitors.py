"""What the server keeps of its visitors, and for how long: a flag that stops their work, their last answer, a zip file. All bounded."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

from linverse.question import Question
from linverse.restoration import Restoration

MOST_BYTES = 512 * 2**20  # of all answers that are kept


@dataclass(frozen=True, eq=False)
class Answer:
    """What was asked of which model, how, and what came back."""

    question: Question
    result: Restoration
    model: str
    steps: int
    seed: int

    @property
    def nbytes(self) -> int:
        """About the memory that it takes."""
        return self.result.samples.nbytes + 8 * self.result.mean.nbytes


@dataclass
class Visitors:
    """By the name of the session; the answer that was not used for longest goes when there are too many."""

    folder: Path  # of files on their way to a visitor
    most_bytes: int = MOST_BYTES
    flags: dict[str, threading.Event] = field(default_factory=dict)
    waiting: dict[str, threading.Event] = field(default_factory=dict)
    answers: OrderedDict[str, Answer] = field(default_factory=OrderedDict)
    files: dict[str, Path] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def press(self, visitor: str) -> None:
        """A button was pressed: from now on Stop means the work that waits in the queue; what is still going on is stopped."""
        with self.lock:
            self.stop(visitor)
            self.waiting[visitor] = threading.Event()

    def begin(self, visitor: str) -> threading.Event:
        """The flag of work that begins now, raised already where Stop was pressed while it waited; earlier work is stopped."""
        with self.lock:
            flag = self.waiting.pop(visitor, None) or threading.Event()
            self.stop(visitor)
            self.flags[visitor] = flag
            return flag

    def stop(self, visitor: str) -> None:
        """Raise the flags, if there are any."""
        for flags in (self.flags, self.waiting):
            if flag := flags.get(visitor):
                flag.set()

    def keep(self, visitor: str, answer: Answer) -> None:
        """The visitor's answer; those of others are dropped, oldest first, while all of them take too much."""
        with self.lock:
            self.answers[visitor] = answer
            self.answers.move_to_end(visitor)
            while len(self.answers) > 1 and sum(one.nbytes for one in self.answers.values()) > self.most_bytes:
                self.answers.popitem(last=False)

    def answer(self, visitor: str) -> Answer:
        """The last one, or a word that there is none."""
        with self.lock:
            if visitor not in self.answers:
                raise ValueError("there is no restoration yet, or it is no longer kept here: press Restore")
            self.answers.move_to_end(visitor)
            return self.answers[visitor]

    def hand_out(self, visitor: str, name: str, content: bytes) -> Path:
        """A file for the visitor, in place of an earlier one."""
        with self.lock:
            self._take_back(visitor)
            path = self.folder / uuid.uuid4().hex / name
            path.parent.mkdir(parents=True)
            path.write_bytes(content)
            self.files[visitor] = path
            return path

    def _take_back(self, visitor: str) -> None:
        if path := self.files.pop(visitor, None):
            path.unlink(missing_ok=True)
            path.parent.rmdir()

    def leave(self, visitor: str) -> None:
        """The page was closed: nothing of it stays."""
        with self.lock:
            self.stop(visitor)
            self.flags.pop(visitor, None)
            self.waiting.pop(visitor, None)
            self.answers.pop(visitor, None)
            self._take_back(visitor)

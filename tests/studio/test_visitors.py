"""Many visitors at once: everybody gets their own answers, the queue says how long it is, and the server's memory stays.

`make test` does it for a few seconds; `make test-all` with 50 visitors for three minutes (LINVERSE_VISITORS, LINVERSE_SECONDS).
"""

from __future__ import annotations

import itertools
import os
import re
import threading
import time
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import pytest
from PIL import Image

pytest.importorskip("gradio", reason="the extra `studio` (gradio) is not installed")

from studio_server import Server
from studio_visitor import Reply, Visitor

VISITORS = int(os.environ.get("LINVERSE_VISITORS", "6"))
SECONDS = float(os.environ.get("LINVERSE_SECONDS", "8"))
KIND = "noise of a known level"


def own_picture(number: int) -> bytes:
    """A bar at a place and of a brightness of its own."""
    image = Image.new("L", (28, 28))
    image.paste(255 - 2 * number, (4 + number % 5, 3, 9 + number % 7, 25 - number % 6))
    stream = BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


@dataclass
class Diary:
    """What one visitor saw: the picture that it was told, a fingerprint of each answer, replies, refusals, and trouble."""

    number: int
    fingerprints: set[str] = field(default_factory=set)
    replies: list[Reply] = field(default_factory=list)
    refused: int = 0
    trouble: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"visitor-{self.number}.png"


def visit(server: Server, diary: Diary, end: float) -> None:
    """Come, ask again and again, leave; and come again as a new session."""
    while time.monotonic() < end:
        try:
            with Visitor(server.address) as visitor:
                taken = visitor.take(diary.name, own_picture(diary.number), "mnist")
                if taken.error is None and diary.name not in taken.outputs[2]:
                    diary.trouble.append(f"told of another picture: {taken.outputs[2]}")
                for _ in range(3):
                    if taken.error is None and time.monotonic() < end:
                        note(diary, visitor.restore("mnist", KIND, sigma=0.1, seed=diary.number))
        except Exception as error:
            diary.trouble.append(f"{type(error).__name__}: {error}")


def note(diary: Diary, reply: Reply) -> None:
    if reply.error is not None:
        if "queue" in reply.error.lower():  # full: it says so, and one comes again
            diary.refused += 1
        else:
            diary.trouble.append(reply.error)
        return
    seen = re.search(r"log p\(y\) = [-0-9.]+ nats", str(reply.first[0]))
    diary.fingerprints.add(seen.group(0) if seen else "none")
    diary.replies.append(reply)
    if diary.name not in str(reply.outputs):
        diary.trouble.append(f"an answer that does not speak of {diary.name}")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_visitors_get_their_own_answers_and_memory_stays(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with Visitor(server.address) as visitor:  # warm: what the first answer allocates stays allocated
        visitor.take("warm.png", own_picture(0), "mnist")
        first = visitor.restore("mnist", KIND, sigma=0.1)
    diaries = [Diary(number) for number in range(VISITORS)]
    begun, cpu = time.monotonic(), server.cpu()
    threads = [threading.Thread(target=visit, args=(server, diary, begun + SECONDS)) for diary in diaries]
    for thread in threads:
        thread.start()
    memory: list[tuple[float, int]] = []
    while any(thread.is_alive() for thread in threads):
        memory.append((time.monotonic() - begun, server.memory()))
        time.sleep(1)
    lasted = time.monotonic() - begun
    replies = [reply for diary in diaries for reply in diary.replies]
    with capsys.disabled():
        print(summary(server, first, diaries, replies, memory, lasted, server.cpu() - cpu))
    assert [trouble for diary in diaries for trouble in diary.trouble] == []
    assert all(len(diary.fingerprints) <= 1 for diary in diaries)  # the same question has the same answer every time
    answered = [next(iter(diary.fingerprints)) for diary in diaries if diary.fingerprints]
    assert len(set(answered)) == len(answered) > VISITORS / 2  # and everybody's is another
    places = [place for reply in replies for place in reply.queue]
    assert any(place["queue_size"] > 1 and place["rank_eta"] is not None for place in places)
    if SECONDS >= 60:  # what is held between two pieces of work: the least of a while, not what work takes for a moment
        second, last = (
            min(size for after, size in memory if lasted * part / 3 <= after <= lasted * (part + 1) / 3)
            for part in (1, 2)
        )
        assert last < 1.1 * second


def summary(server: Server, first: Reply, diaries: list[Diary], replies: list[Reply], *rest: Any) -> str:
    memory, lasted, cpu = rest
    waits, sizes = sorted(reply.waited for reply in replies), [size for _, size in memory]
    longest = max((place["queue_size"] for reply in replies for place in reply.queue), default=0)
    ends = [len(sizes) * part // 3 for part in range(4)]
    thirds = [sizes[low:high] or sizes for low, high in itertools.pairwise(ends)]
    return (
        f"\nstart {server.start_seconds:.1f} s ({server.start_cpu:.1f} CPU s); first answer {first.first_after:.2f} s\n"
        f"{len(diaries)} visitors, {lasted:.0f} s, {cpu:.0f} CPU s: {len(replies)} answers, {sum(d.refused for d in diaries)} told that "
        f"the queue is full, {sum(len(d.trouble) for d in diaries)} in trouble\n"
        f"queue up to {longest}; waited {waits[len(waits) // 2]:.1f} s (median), {waits[-1]:.1f} s (longest)\n"
        f"memory in each third of it: {', '.join(f'{min(one) / 2**20:.0f} to {max(one) / 2**20:.0f} MB' for one in thirds)}"
    )

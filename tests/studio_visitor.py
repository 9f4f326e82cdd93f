"""A visitor of the studio without a browser: the requests that a browser makes, and those that it would not make."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import httpx

PATIENCE = 600.0  # seconds


@dataclass
class Reply:
    """What came back: the last outputs, the visitor's error (None: it worked), places in the queue, and the seconds that it waited."""

    outputs: list[Any] = field(default_factory=list)
    error: str | None = None
    first: list[Any] = field(default_factory=list)
    first_after: float = 0.0
    queue: list[dict[str, Any]] = field(default_factory=list)
    waited: float = 0.0
    took: float = 0.0


class Visitor:
    """One session; `with` it the page is open, and left at the end."""

    def __init__(self, address: str) -> None:
        self.client = httpx.Client(base_url=address, timeout=PATIENCE, trust_env=False)
        self.session = uuid.uuid4().hex[:12]
        config = self.client.get("/config").json()
        self.functions = {one["api_name"]: one["id"] for one in config["dependencies"]}

    def __enter__(self) -> Visitor:
        self.heart = self.client.stream("GET", f"/gradio_api/heartbeat/{self.session}")
        self.heart.__enter__()
        return self

    def __exit__(self, *stop: object) -> None:
        self.heart.__exit__(None, None, None)
        self.client.close()

    def upload(self, name: str, content: bytes, mime: str = "image/png") -> httpx.Response:
        return self.client.post("/gradio_api/upload", files=[("files", (name, content, mime))])

    def call(self, function: str, *data: Any, event: dict[str, Any] | None = None) -> Reply:
        """A call through the queue, to its end; a queue that is full is an error."""
        begun, reply = time.monotonic(), Reply()
        body = {"data": list(data), "fn_index": self.functions[function], "session_hash": self.session}
        body |= {} if event is None else {"event_data": event}
        joined = self.client.post("/gradio_api/queue/join", json=body)
        if joined.status_code != 200:
            reply.error = f"{joined.status_code}: {joined.text}"
            return reply
        with self.client.stream("GET", "/gradio_api/queue/data", params={"session_hash": self.session}) as stream:
            for line in stream.iter_lines():
                if line.startswith("data:"):
                    self._hear(json.loads(line[5:]), reply, time.monotonic() - begun)
        reply.took = time.monotonic() - begun
        return reply

    @staticmethod
    def _hear(message: dict[str, Any], reply: Reply, after: float) -> None:
        kind = message["msg"]
        if kind == "estimation":
            reply.queue.append({key: message.get(key) for key in ("rank", "queue_size", "rank_eta")})
        elif kind == "process_starts":
            reply.waited = after
        elif kind == "process_generating" and not reply.first:
            reply.first, reply.first_after = message["output"].get("data", []), after
        elif kind == "process_completed":
            reply.outputs = message["output"].get("data", [])
            reply.error = None if message["success"] else str(message["output"].get("error"))

    def take(self, name: str, content: bytes, model: str, mime: str = "image/png") -> Reply:
        """Upload a file, and have it taken for a picture."""
        sent = self.upload(name, content, mime)
        if sent.status_code != 200:
            return Reply(error=f"{sent.status_code}: {sent.text}")
        return self.call("take", file_data(sent.json()[0]), model)

    def restore(self, model: str, kind: str, *, sigma: float, seed: int = 0, samples: int = 1, steps: int = 2) -> Reply:
        manner = "simulate on a clean picture"
        return self.call("restore", model, None, kind, 0, sigma, manner, None, seed, samples, steps)


def file_data(path: str, **more: Any) -> dict[str, Any]:
    """A file as gradio's pages name it."""
    return {"path": path, "meta": {"_type": "gradio.FileData"}, **more}

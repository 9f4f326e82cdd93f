"""The page as a stranger finds it: hostile uploads and forged requests get words, nothing of them is executed, and nothing is left."""

from __future__ import annotations

import os
import pickle
import random
import re
import zipfile
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("gradio", reason="the extra `studio` (gradio) is not installed")

from studio_server import Server
from studio_visitor import Visitor, file_data

UPLOADS = 200


class Harm:
    """What unpickling would do."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.canary),)


def picture(dice: random.Random, kind: str) -> bytes:
    """A file of some format, with several frames where it can have them."""
    stream = BytesIO()
    frames = [Image.new("RGB", (dice.randint(1, 40), dice.randint(1, 40)), (i * 60, 9, 9)) for i in range(3)]
    several = {"save_all": True, "append_images": [frame.resize(frames[0].size) for frame in frames[1:]]}
    frames[0].save(stream, kind, **(several if kind in ("GIF", "WEBP", "TIFF", "PNG") else {}))
    return stream.getvalue()


def chunk(name: bytes, content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + name + content + zlib.crc32(name + content).to_bytes(4, "big")


def png_bomb(side: int) -> bytes:
    """A valid PNG of side × side black pixels, a thousand times smaller than what it unpacks to."""
    head = side.to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0])
    rows = zlib.compressobj(9)
    packed = b"".join(rows.compress(bytes(1 + 3 * side)) for _ in range(min(side, 6000))) + rows.flush()
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def zip_bomb() -> bytes:
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("picture.png", bytes(10_000_000))
    return stream.getvalue()


def array(values: Any, *, objects: bool = False) -> bytes:
    stream = BytesIO()
    np.save(stream, values, allow_pickle=objects)
    return stream.getvalue()


def made_to_harm(canary: Path) -> list[tuple[str, bytes, str]]:
    """Names, contents and types, each with a purpose."""
    svg = (
        b"<!DOCTYPE svg [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><svg xmlns='http://www.w3.org/2000/svg'><script>1</script>&x;"
        b"<image href='http://example.org/x.png'/></svg>"
    )
    good = picture(random.Random(1), "PNG")
    loads = pickle.dumps(Harm(canary))
    return [
        ("page.svg", svg, "image/svg+xml"),
        ("picture.png", svg, "image/png"),
        ("bomb.png", png_bomb(20_000), "image/png"),
        ("large.png", png_bomb(3000), "image/png"),
        ("bomb.zip", zip_bomb(), "application/zip"),
        ("bomb.png", zip_bomb(), "image/png"),
        ("page.html", b"<script>alert(1)</script>", "text/html"),
        ("picture.png", b"<script>alert(1)</script>", "text/html"),
        ("run.py", b"import os; os.mkdir('harm')", "text/x-python"),
        ("run.sh", b"#!/bin/sh\nmkdir harm\n", "image/png"),
        ("loads.npy", array(np.array([Harm(canary)], dtype=object), objects=True), "application/octet-stream"),
        ("loads.npz", loads, "application/octet-stream"),
        ("loads.png", loads, "image/png"),
        ("nan.npy", array(np.full((8, 8), np.nan)), "application/octet-stream"),
        ("empty.npy", array(np.zeros((0, 4))), "application/octet-stream"),
        ("deep.npy", array(np.zeros((2, 2, 2, 2, 2))), "application/octet-stream"),
        ("empty.png", b"", "image/png"),
        ("../../escaped.png", good, "image/png"),
        ("/etc/escaped.png", good, "image/png"),
        ("..\\..\\escaped.png", good, "image/png"),
        ("%2e%2e%2fescaped.png", good, "image/png"),
        ("a" * 300 + ".png", good, "image/png"),
        (".htaccess", good, "image/png"),
        ("<img src=x onerror=alert(1)>.png", good, "image/png"),
        ("'; rm -rf harm; '.png", good, "image/png"),
        ("picture.png", good, "text/html; charset=../../etc/passwd"),
    ]


def damaged(dice: random.Random) -> tuple[str, bytes, str]:
    """A picture that was cut, changed, or given the name of another format."""
    content = bytearray(picture(dice, dice.choice(["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP"])))
    for _ in range(dice.randint(0, 12)):
        content[dice.randrange(len(content))] = dice.randrange(256)
    kept = content[: dice.randint(0, len(content))] if dice.random() < 0.5 else content
    suffix = dice.choice(["png", "svg", "jpg", "npy", "zip", "tif", "fits", "dcm"])
    return f"{dice.randint(0, 9999)}.{suffix}", bytes(kept), dice.choice(["image/png", "text/plain", "image/svg+xml"])


def test_two_hundred_hostile_uploads_get_words_and_leave_nothing(server: Server, tmp_path: Path) -> None:
    dice, canary = random.Random(0), tmp_path / "canary"
    files = made_to_harm(canary)
    files += [damaged(dice) for _ in range(UPLOADS - len(files))]
    before, refused, taken = set(server.uploads()), 0, 0
    with Visitor(server.address) as visitor:
        for name, content, mime in files:
            reply = visitor.take(name, content, "mnist", mime)
            if reply.error is None:
                taken += 1
                assert re.search("grey|colour|channels", reply.outputs[2]), name
                assert not re.search(r"<(script|img)\b", reply.outputs[2]), name
            else:
                refused += 1
                assert re.search("picture|file|size|name", reply.error), (name, reply.error)
                assert "Traceback" not in reply.error
                assert str(server.temporary) not in reply.error
        assert visitor.call("take_example", "mnist 1", "mnist").error is None  # alive, and well
    assert refused > 80
    assert taken > 10
    assert not canary.exists()
    assert not list(server.temporary.parent.rglob("harm"))  # a folder that scripts would make
    assert not list(server.temporary.parent.glob("escaped*"))
    assert not Path("/etc/escaped.png").exists()
    sent = {Path(name).name for name, _, _ in files}
    left = [path for path in set(server.uploads()) - before if path.name in sent]
    assert len(left) <= taken, left  # what was refused is gone; what was taken goes with gradio's next round


def test_a_file_beyond_the_limit_is_refused_while_it_comes(server: Server) -> None:
    with Visitor(server.address) as visitor:
        assert visitor.upload("large.png", bytes(31 * 2**20)).status_code in (400, 413)


@pytest.mark.parametrize("path", ["/etc/passwd", "pyproject.toml", str(Path(__file__).resolve()), "../../etc/passwd"])
def test_no_file_of_the_server_can_be_read(server: Server, path: str) -> None:
    with Visitor(server.address) as visitor:
        for route in ("gradio_api/file=", "file=", "gradio_api/proxy=", "gradio_api/proxy=http://127.0.0.1:1/"):
            found = visitor.client.get(f"/{route}{path}")
            assert found.status_code >= 400
            assert "root:" not in found.text
        reply = visitor.call("take", file_data(path), "mnist")
        assert reply.error is not None
        assert str(Path.cwd()) not in reply.error


def test_an_address_in_place_of_a_file_is_not_fetched(server: Server) -> None:
    with Visitor(server.address) as visitor:
        reply = visitor.call("take", file_data("https://example.org/x.png"), "mnist")
        assert "not named by an address" in str(reply.error)
        assert visitor.call("take", file_data("ftp://example.org/x.png"), "mnist").error is not None


def test_values_that_no_browser_sends_get_words(server: Server) -> None:
    kind, manner = "noise of a known level", "simulate on a clean picture"
    usual = ["mnist", None, kind, 0, 0.1, manner, None, 0, 1, 2]
    with Visitor(server.address) as visitor:
        assert visitor.call("take_example", "mnist 1", "mnist").error is None
        for place, value in [(0, "../../etc"), (2, "magic"), (4, None), (4, -1), (4, 1e308), (5, 7), (7, None)]:
            asked = [*usual[:place], value, *usual[place + 1 :]]
            reply = visitor.call("restore", *asked)
            assert reply.error, (place, value)
            assert "Traceback" not in reply.error
        for samples, steps in [(10**9, 2), (1, 10**9), (-1, 2), (1, 0)]:
            assert visitor.call("restore", *usual[:8], samples, steps).error
        assert visitor.call("restore", *usual).error is None


def test_the_programming_routes_are_shut(server: Server) -> None:
    with Visitor(server.address) as visitor:
        answer = visitor.client.post("/gradio_api/run/restore", json={"data": []})
        assert answer.status_code >= 400


def test_blind_answers_who_asks_and_by_itself_who_looks(server: Server) -> None:
    asked = ["mnist", None, None, "simulate on a clean picture", "noise", 0.2, 0, 0]
    with Visitor(server.address) as visitor:
        assert visitor.call("take_example", "mnist 1", "mnist").error is None
        drawn, words = visitor.call("blind", *asked).outputs
        assert "<img" in drawn
        assert "sigma = 0." in words
        unseen = visitor.call("blind_1", *asked, True, None)
        assert unseen.error is None
        assert "<img" not in str(unseen.outputs)
        assert visitor.call("_is_blind", event={"value": "Blind", "index": 1}).error is None  # the tab is chosen
        assert "<img" in visitor.call("blind_1", *asked, True, None).outputs[0]
        assert "<img" not in str(visitor.call("blind_1", *asked, False, None).outputs)

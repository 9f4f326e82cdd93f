"""Commands with sensible and senseless options and files: they do their work, or say in words why not."""

from __future__ import annotations

import io
import json
import os
import random
import struct
import sys
import zlib
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
from PIL import Image

from linverse import cli
from robustness.cases import NUMBERS, WORDS, Wrong
from robustness.models import damaged_file, forged_object, saved_model

TASKS = (
    "denoise",
    "box",
    "half",
    "right-half",
    "random-pixels",
    "gauss",
    "motion",
    "defocus",
    "superres",
    "demosaic",
    "nope",
)
TASK_OPTIONS = ("sigma", "side", "std", "depth", "missing", "seed", "size", "intensity", "radius", "factor", "x")
FAMILIES = ("noise", "noise-box", "gaussian-blur", "line-blur", "nope")


# --- files ---------------------------------------------------------------------------------------------------------------------------


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_bomb(width: int, height: int) -> bytes:
    """A PNG of a hundred bytes that announces any number of pixels."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(bytes(1000))), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def npy_bomb(shape: str, kind: str = "<f4") -> bytes:
    """A .npy header without its data."""
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def make_files(folder: Path) -> list[str]:
    """Good and bad pictures, masks, arrays and folders; their names."""
    grey = np.arange(64, dtype=np.uint8).reshape(8, 8) * 3
    Image.fromarray(grey).save(folder / "good.png")
    Image.fromarray(np.dstack([grey, grey, 255 - grey])).save(folder / "colour.png")
    Image.fromarray(np.dstack([grey, grey, grey, grey])).save(folder / "clear.png")
    Image.fromarray(grey.astype(np.uint16) * 300).save(folder / "deep.png")
    Image.fromarray(np.zeros((5, 13), np.uint8)).save(folder / "wide.png")
    Image.fromarray((grey > 90).astype(np.uint8) * 255).save(folder / "mask.png")
    Image.fromarray(grey).save(folder / "small.png", format="PNG")
    np.save(folder / "good.npy", grey[None] / np.float32(255))
    np.save(folder / "nan.npy", np.full((8, 8), np.nan))
    np.save(folder / "huge.npy", np.full((8, 8), 1e30))
    np.save(folder / "whole.npy", grey.astype(np.int64))
    np.save(folder / "object.npy", np.array([{}], dtype=object), allow_pickle=True)
    bad = {
        "bomb.npy": npy_bomb("(1000000000, 1000000000)"),
        "overflow.npy": npy_bomb("(99999999999999999999, 8)"),
        "deep.npy": npy_bomb("(" * 2000),
        "word.npy": npy_bomb("(8, 8)", "O"),
        "bomb.png": png_bomb(200_000, 200_000),
        "tall.png": png_bomb(1, 2_000_000_000),
        "none.png": png_bomb(0, 0),
        "text.png": b"no picture",
        "empty.png": b"",
        "cut.png": (folder / "good.png").read_bytes()[:50],
        "bad.tif": b"II*\0\x08\0\0\0\xff\xff" + bytes(range(200)),
        "[bold]markup[].png": (folder / "good.png").read_bytes(),
    }
    for name, content in bad.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir(exist_ok=True)
    strange = os.fsdecode(b"n\xf8t-text.png")  # no UTF-8
    (folder / strange).write_bytes((folder / "good.png").read_bytes())
    return ["good.png"] * 12 + ["good.npy", "colour.png", "clear.png", "deep.png", "wide.png", "mask.png", "nan.npy", "huge.npy"] + [
        "whole.npy", "object.npy", *bad, "folder", "gone.png", strange
    ]  # fmt: skip


# --- commands ------------------------------------------------------------------------------------------------------------------------


def some(dice: random.Random, share: float, *options: Callable[[], list[str]]) -> list[str]:
    """A few of the options."""
    return [word for option in options if dice.random() < share for word in option()]


def number(dice: random.Random, *good: str) -> str:
    return dice.choice(good) if good and dice.random() < 0.7 else dice.choice(NUMBERS)


def task(dice: random.Random) -> str:
    name = dice.choice(TASKS)
    pairs = [f"{dice.choice(TASK_OPTIONS)}={number(dice, '1', '2', '0.1')}" for _ in range(dice.choice((0, 0, 1, 2)))]
    return name + (":" + ",".join(pairs) if pairs else "") if dice.random() < 0.97 else dice.choice(WORDS)


def restore(dice: random.Random, files: list[str], model: str) -> list[str]:
    degraded = ["--task", task(dice)] if dice.random() < 0.7 else ["--mask", dice.choice(["mask.png", *files])]
    return [
        *("restore", dice.choice(files), *degraded, "--model", model, "--samples", number(dice, "0", "1", "2")),
        *("--steps", number(dice, "1", "2")),
        *some(dice, 0.3, lambda: ["--simulate"], lambda: ["--resize"], lambda: ["--sigma", number(dice, "0.1")]),
        *some(dice, 0.2, lambda: ["--measure-next", number(dice, "1")], lambda: ["--seed", number(dice)]),
        *some(dice, 0.1, lambda: ["--out", dice.choice(["out", *WORDS])], lambda: ["--device", dice.choice(WORDS)]),
    ]


def score(dice: random.Random, files: list[str], model: str) -> list[str]:
    names = [dice.choice(files) for _ in range(dice.choice((0, 1, 1, 2, 3)))]
    options = (lambda: ["--resize"], lambda: ["--seed", number(dice)], lambda: ["--out", dice.choice(["s", *WORDS])])
    return ["score", *names, "--model", model, *some(dice, 0.3, *options)]


def blind(dice: random.Random, files: list[str], model: str) -> list[str]:
    axes = {"noise": "sigma", "noise-box": "side=3,sigma", "gaussian-blur": "std", "line-blur": "angle=10,length"}
    family = dice.choice(FAMILIES)
    grid = ["--grid", number(dice, "0.1", "1"), number(dice, "1", "2"), number(dice, "3", "5")]
    truth = f"{axes.get(family, 'x')}={number(dice, '0.3', '2')}"
    return [
        *("blind", dice.choice(files), "--family", family, "--model", model, *(grid if dice.random() < 0.8 else [])),
        *some(dice, 0.2, lambda: ["--sigma", number(dice, "0.1")], lambda: ["--simulate", truth], lambda: ["--resize"]),
    ]


def other(dice: random.Random, files: list[str], model: str) -> list[str]:
    train = ["train", dice.choice(("digits", "digits", "nope", "mnist-classifier")), "--dry-run"]
    sizes = (
        "--steps",
        "--batch",
        "--evaluate-every",
        "--self-test-images",
        "--seed",
        "--model.backbone.channels",
        "--threads",
    )
    evaluate = [
        "evaluate",
        "--model",
        model,
        "--data",
        dice.choice(("digits", "nope", "folder:folder", "npz:gone", "idx:.")),
    ]
    return dice.choice(
        (
            ["info", dice.choice((model, "nope", *WORDS))],
            ["info", model],
            ["bundle", model, dice.choice(("Name", "", "../x", "é"))],
            ["data", dice.choice(("nope", "folder:folder", "folder:gone", "npz:good.npy", "idx:folder", *WORDS))],
            [*train, dice.choice(sizes), number(dice)],
            [*train, "--data", dice.choice(("folder:folder", "npz:good.npy", "idx:folder", *WORDS))],
            [
                *evaluate,
                "--images",
                number(dice),
                "--method",
                dice.choice(("nope", "ours:steps=x", "bad:solve", "os:getcwd", *WORDS)),
            ],
            [*evaluate, "--task", task(dice), "--metric", dice.choice(WORDS), "--batch", number(dice)],
            ["experiment", dice.choice(("nope", *WORDS))],
            [dice.choice(WORDS), dice.choice(WORDS)],
            [dice.choice(tuple(cli.COMMANDS)), "--help"],
        )
    )


def command(dice: random.Random, folder: Path) -> str:
    """A command, typed in a folder full of traps."""
    files = make_files(folder)
    (folder / "bad.py").write_text(
        dice.choice(("def solve(:", "raise RuntimeError('x')", "import sys; sys.exit(3)", "solve = 1"))
    )
    model = str(saved_model())
    if dice.random() < 0.1:
        dice.choice((forged_object, damaged_file))(dice, folder / "model")
        model = str(folder / "model")
    words = dice.choice((restore, restore, score, blind, other))(dice, files, model)
    if words[:2] == ["train", "mnist-classifier"]:
        words = ["train", "digits", *words[2:]]  # it has no dry run
    code, said, complained = typed(words, folder)
    told = f"`linverse {' '.join(words)}` (exit code {code}): {complained[-400:]}"
    if code == 70 or "Traceback" in said + complained or "DefaultCPUAllocator" in complained:
        raise Wrong(told)
    if code != 0 and not (complained.strip() or said.strip()):
        raise Wrong(f"{told} ended without a word")
    if code == 0 and words[0] in ("restore", "score", "blind") and "--help" not in words:
        check_results(folder, told)
    return f"{words[0] if words[0] in cli.COMMANDS else 'no command'}, exit code {code}"


def typed(words: list[str], folder: Path) -> tuple[int, str, str]:
    """Exit code, output and complaints of a command typed in a folder."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    before, paths = Path.cwd(), list(sys.path)
    os.chdir(folder)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            cli.main(words)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    finally:
        os.chdir(before)
        sys.path[:] = paths
        sys.modules.pop("bad", None)
    texts = (stream.buffer.getvalue().decode(errors="replace") for stream in (out, err))  # type: ignore[attr-defined]
    said, complained = texts
    return code, said, complained


def check_results(folder: Path, told: str) -> None:
    """What was written is finite, and says that it is complete."""
    for path in folder.rglob("result.json"):
        if not json.loads(path.read_text())["completed"]:
            raise Wrong(f"{told}: {path} is not complete, and the exit code is 0")
    for path in (*folder.rglob("mean.npy"), *folder.rglob("std.npy"), *folder.rglob("restored.npy")):
        if not np.isfinite(np.load(path)).all():
            raise Wrong(f"{told}: {path.name} is not finite")

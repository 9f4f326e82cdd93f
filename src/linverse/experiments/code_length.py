"""How many bits does a picture take? The energy's code length beside PNG, WebP, JPEG-XL and published likelihoods (mathematics §13).

    −log₂ P(x) ≤ E_q[U(y, λI) + log q(y|x)] / log 2,   q inside of each byte's cell,
is a true bound if exp(−U) integrates to one at the floor; how far that holds is told by the gap of E[U] to the bound of the model's own
denoiser, which needs no normalisation (mathematics §15), on the same images. Codecs are lossless, at their best effort, in two ways: a
file for each image, and one sheet of all images, in which headers are shared and neighbours help.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linverse.code_length import code_length
from linverse.energy import fixed_shape
from linverse.evaluation.models import held_out, load_energy
from linverse.experiments.cache import Cache
from linverse.experiments.claims import (
    Claim,
    Condition,
    from_standard_error,
    interval_metrics,
    interval_of,
    mean_interval,
)
from linverse.experiments.framework import ExperimentResult
from linverse.experiments.tables import ResultTable
from linverse.files.saving import hash_weights
from linverse.progress import Progress
from linverse.rng import keyed_generator
from linverse.training.floor import floor_test

PUBLISHED = {"RealNVP": 3.49, "Glow": 3.35, "PixelCNN++": 2.92, "VDM": 2.65}  # CIFAR-10, bits/dim
TARGET = 4.0
PER_ROW = 32  # images in a row of the sheet
Encoder = Callable[[Any], bytes]


@dataclass(frozen=True)
class CodeLengthOptions:
    """The model and the images."""

    model: str = "cifar10"
    """the energy: a bundled name or a folder"""
    data: str = "cifar10"
    """whose test images"""


@dataclass(frozen=True)
class CodeLengthSetting:
    """Images, draws of y inside of the cells, images and levels of the test at the floor."""

    images: int = 1024
    draws: int = 4
    floor_images: int = 256
    levels: int = 48
    seed: int = 0


FULL = CodeLengthSetting()
QUICK = replace(FULL, images=8, draws=2, floor_images=4, levels=6)


def claims_of(has_jxl: bool, data: str) -> tuple[Claim, ...]:
    """The target of CIFAR-10, and the codec."""
    below = Claim("below JPEG-XL on the same images, one file each", (Condition("ours less JPEG-XL, files", "below"),))
    sheet = Claim("below JPEG-XL of one sheet of all images", (Condition("ours less JPEG-XL, sheet", "below"),))
    missing = "no encoder of JPEG-XL is installed (imagecodecs, or pillow-jxl-plugin)"
    return (
        Claim(f"at most {TARGET:g} bits/dim", (Condition("bits/dim", "below", TARGET),)),
        below if has_jxl else replace(below, rule=(), untestable=missing),
        sheet if has_jxl else replace(sheet, rule=(), untestable=missing),
        Claim(
            "normalised at the floor: the gap to the denoiser's bound is within 0.05 bits/dim",
            (
                Condition("gap at the floor, bits/dim", "above", -0.05),
                Condition("gap at the floor, bits/dim", "below", 0.05),
            ),
        ),
    )


# --- codecs ----------------------------------------------------------------------------------------------------------------------------


def _pillow(**options: Any) -> Encoder:
    def encode(pixels: Any) -> bytes:
        from PIL import Image

        buffer = BytesIO()
        Image.fromarray(pixels).save(buffer, **options)
        return buffer.getvalue()

    return encode


def jxl_encoder() -> Encoder | None:
    """An encoder of JPEG-XL, if one is installed."""
    if find_spec("imagecodecs") is not None:
        codecs: Any = import_module("imagecodecs")
        return lambda pixels: bytes(codecs.jpegxl_encode(pixels, lossless=True, effort=9))
    if find_spec("pillow_jxl") is not None:
        import_module("pillow_jxl")  # registers itself with Pillow
        return _pillow(format="JXL", lossless=True, effort=9)
    return None


def encoders() -> dict[str, Encoder]:
    """The codecs that run here."""
    found: dict[str, Encoder] = {
        "PNG": _pillow(format="PNG", optimize=True),
        "WebP": _pillow(format="WEBP", lossless=True, quality=100, method=6, exact=True),
    }
    jxl = jxl_encoder()
    return found if jxl is None else found | {"JPEG-XL": jxl}


def as_bytes(x: Tensor) -> Any:
    """[B, C, H, W] in [0, 1] → [B, H, W, C] or [B, H, W] bytes."""
    pixels = (255 * x).round().to(torch.uint8)
    return (pixels[:, 0] if pixels.shape[1] == 1 else pixels.permute(0, 2, 3, 1)).contiguous().numpy()


def sheet(x: Tensor) -> Tensor:
    """All images in one, in rows; the last row is filled up with copies of its first images."""
    rows = math.ceil(len(x) / PER_ROW)
    columns = min(PER_ROW, len(x))
    filled = torch.cat([x, x[: rows * columns - len(x)]])
    grid = filled.unflatten(0, (rows, columns))
    return torch.cat([torch.cat(list(row), dim=-1) for row in grid], dim=-2)[None]


def codec_bits(encode: Encoder, x: Tensor) -> tuple[Tensor, float]:
    """Bits per dimension of each image in a file of its own, [B], and of one sheet."""
    files = torch.tensor([8 * len(encode(image)) for image in as_bytes(x)], dtype=torch.float64) / x[0].numel()
    whole = sheet(x)
    return files, 8 * len(encode(as_bytes(whole)[0])) / whole.numel()


# --- the experiment --------------------------------------------------------------------------------------------------------------------


def run(out: Path, quick: bool, progress: Progress, options: CodeLengthOptions) -> ExperimentResult:
    """The model, then the codecs."""
    setting = QUICK if quick else FULL
    energy = load_energy(options.model)
    x = held_out(options.data, setting.images, fixed_shape(energy)).x
    weights = {"model": hash_weights(energy)}
    cache = Cache.of("code-length", out)
    made_from = weights | asdict(options) | asdict(setting)
    generator = keyed_generator(setting.seed, "code-length")
    bits = cache.get(
        "bits", made_from, lambda: code_length(energy, x, setting.draws, generator=generator).bits.double()
    )
    progress("code length", 1, 3)
    floor = cache.get(
        "floor", made_from, lambda: floor_test(energy, x[: setting.floor_images], setting.levels).to_dict()
    )
    progress("code length", 2, 3)
    codecs = {name: cache.get(name, made_from, partial(codec_bits, encode, x)) for name, encode in encoders().items()}
    progress("code length", 3, 3)
    metrics = interval_metrics("bits/dim", mean_interval(bits))
    gap = from_standard_error(floor["gap"] / math.log(2), floor["gap_error"] / math.log(2))
    metrics |= interval_metrics("gap at the floor, bits/dim", gap)
    for name, (files, whole) in codecs.items():
        metrics |= interval_metrics(f"{name}, files", mean_interval(files)) | {f"{name}, sheet": whole}
        metrics |= interval_metrics(f"ours less {name}, files", mean_interval(bits - files))
        metrics |= interval_metrics(f"ours less {name}, sheet", mean_interval(bits - whole))
    claims = claims_of("JPEG-XL" in codecs, options.data)
    paper = {
        "source": "beyond the paper",
        "claims": [],
        "figures": PUBLISHED if options.data == "cifar10" else {},
        "departures": ["the paper prints no likelihoods; the claims are ours"],
    }
    found = {"ours": bits, **{name: files for name, (files, _) in codecs.items()}}
    tables = (table_of(metrics, [*codecs], options.data),)
    return ExperimentResult(
        metrics, paper, (found, metrics), asdict(setting), weights, {"seed": setting.seed}, claims, tables
    )


def table_of(metrics: dict[str, float], codecs: list[str], data: str) -> ResultTable:
    """Ours, codecs, and what is published of the same data."""
    rows: list[Any] = [("ours (an upper bound)", interval_of(metrics, "bits/dim"), None)]
    rows.append(
        ("ours: gap at the floor to its denoiser's bound", interval_of(metrics, "gap at the floor, bits/dim"), None)
    )
    rows += [(name, interval_of(metrics, f"{name}, files"), metrics[f"{name}, sheet"]) for name in codecs]
    if data == "cifar10":
        rows += [(f"{name} (published, the whole test set)", value, None) for name, value in PUBLISHED.items()]
    return ResultTable("Bits per dimension", ("code", "one file each", "one sheet"), tuple(rows))

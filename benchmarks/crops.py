"""How long a batch of training crops takes.

python benchmarks/crops.py            # the photographs, where they are gathered; else 40 pictures of noise
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from linverse.data import PhotographCrops, load_crops
from linverse.data.photographs import INDEX, photographs_home

BATCH, REPEATS = 32, 200


def noise_pictures(folder: Path) -> PhotographCrops:
    generator = np.random.default_rng(0)
    for split, count in (("train", 40), ("test", 1)):
        (folder / split).mkdir()
        for number in range(count):
            pixels = generator.integers(0, 256, (512, 768, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / split / f"{number}.png", compress_level=0)
    return load_crops(f"folder:{folder}", cache=folder / "cache")


def report(crops: PhotographCrops) -> None:
    print(f"{len(crops)} pictures, {crops.megapixels:.0f} megapixels; batches of {BATCH}, one core, processor time")
    for size in (48, 64, 96, 128):
        crops.crops(0, 0, BATCH, size)
        start = time.process_time()
        for step in range(REPEATS):
            crops.crops(0, step, BATCH, size)
        print(f"{size}×{size}: {(time.process_time() - start) / REPEATS * 1e3:.2f} ms")


def main() -> None:
    torch.set_num_threads(1)
    if (photographs_home() / INDEX).is_file():
        report(load_crops())
        return
    with tempfile.TemporaryDirectory() as folder:
        report(noise_pictures(Path(folder)))


if __name__ == "__main__":
    main()

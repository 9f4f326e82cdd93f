"""One training step of a preset in a process of its own, so that its peak memory is its own: `python -m linverse.experiments.scale_step`.

Images are random: what a step costs does not depend on them. Operations are counted by torch (multiplications and additions of
convolutions and products, the double backward included), and set against a matrix product on the same thread.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from linverse.data.images import ImageSet
from linverse.rng import keyed_generator
from linverse.training.loop import Trainer, parameter_count
from linverse.training.presets import PRESETS

IMAGES = 64
PRODUCT = 1024  # side of the matrices


def measure(preset: str, batch: int, steps: int) -> dict[str, Any]:
    """Parameters, processor seconds of a step (the least of several), operations, megabytes at the peak, and those of a product."""
    from torch.utils.flop_counter import FlopCounterMode

    torch.set_num_threads(1)
    config = replace(PRESETS[preset][1], batch=batch, steps=steps + 1, evaluation_images=0, precision="no", flips=False)
    pixels = torch.randint(
        0, 256, (IMAGES, *config.sample_shape), generator=keyed_generator("scale"), dtype=torch.uint8
    )
    images = ImageSet("random", pixels)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(config, images, images, Path(folder))
        seconds = []
        for _ in range(steps):
            begun = time.process_time()
            trainer.train_step()
            seconds.append(time.process_time() - begun)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        with FlopCounterMode(display=False) as counter:
            trainer.train_step()
    return {
        "parameters": parameter_count(trainer.model),
        "seconds": min(seconds),
        "operations": counter.get_total_flops(),
        "megabytes": peak,
        "product": product_rate(),
    }


def product_rate(repetitions: int = 5) -> float:
    """Operations per second of a product of matrices."""
    a, b = torch.rand(PRODUCT, PRODUCT), torch.rand(PRODUCT, PRODUCT)
    seconds = []
    for _ in range(repetitions):
        begun = time.process_time()
        a @ b
        seconds.append(time.process_time() - begun)
    return 2 * PRODUCT**3 / min(seconds)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))

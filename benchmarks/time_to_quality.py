"""Time to quality: what loss on held-out images a recipe reaches in how much CPU time.

    python benchmarks/time_to_quality.py --recipe plain --minutes 60 --out plain.json    # 30 minutes of two cores
    python benchmarks/time_to_quality.py --recipe ours --minutes 30 --out ours.json

Everything runs on one thread and is timed in CPU seconds of this process, so that other work on the machine disturbs little; evaluations
do not count. All recipes see the same images, covariances and noise at every step.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from linverse.data import load_images
from linverse.models.energies.learned import EnergyConfig
from linverse.models.networks.unet import UNetConfig
from linverse.training.config import OptimiserConfig, TrainConfig
from linverse.training.loop import Trainer, parameter_count
from linverse.training.presets import FASHION

assert isinstance(FASHION.model, EnergyConfig)
# NCSN++ blocks with GroupNorm, about as large as ours
PLAIN_BACKBONE = UNetConfig(
    channels=32, multipliers=(1, 2), blocks=1, attention_levels=(), embedding=64, dropout=0.0, stem=2, norm="group"
)
INNER_PRODUCT = replace(FASHION.model, parameterisation="inner-product")
# five times the paper's rate, which is meant for 400 000 steps
PLAIN_OPTIMISER = OptimiserConfig(kind="adamw", rate=1e-3, betas=(0.9, 0.999), warmup=200, ema=0.999)

RECIPES: dict[str, TrainConfig] = {
    "ours": FASHION,
    "ours, inner product": replace(FASHION, model=INNER_PRODUCT),
    "plain": replace(
        FASHION,
        model=replace(INNER_PRODUCT, embedding="two-branch", backbone=PLAIN_BACKBONE),
        optimiser=PLAIN_OPTIMISER,
        loss=replace(FASHION.loss, image_weight=0.0, mean_power=0.0),
    ),
}


def run(name: str, minutes: float, every: float) -> dict[str, object]:
    """Train for so many CPU minutes; the losses on held-out images on the way."""
    config = replace(RECIPES[name], evaluation_images=512)
    train, test = load_images(config.data, "train"), load_images(config.data, "test")
    curve: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(config, train, test, Path(folder))
        print(f"{name}: {parameter_count(trainer.model):,} parameters", flush=True)
        spent, due = 0.0, every
        while spent < minutes:
            start = time.process_time()
            trainer.train_step()
            spent += (time.process_time() - start) / 60
            if spent >= min(due, minutes):
                due += every
                losses = trainer.evaluate()
                curve.append({"minutes": round(spent, 2), "step": trainer.step, **losses})
                text = "  ".join(f"{key} {value:.4f}" for key, value in losses.items())
                print(f"{spent:6.1f} CPU minutes  step {trainer.step:5d}  {text}", flush=True)
    return {"recipe": name, "parameters": parameter_count(trainer.model), "curve": curve}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", choices=RECIPES, default="ours")
    parser.add_argument("--minutes", type=float, default=30.0, help="CPU minutes of training")
    parser.add_argument("--every", type=float, default=2.5, help="CPU minutes between evaluations")
    parser.add_argument("--out", type=Path, help="write the curve there as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    result = run(options.recipe, options.minutes, options.every)
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""What the paper's models cost here: parameters, seconds and memory of training steps, and what their embedding of Σ adds.

    python benchmarks/paper_presets.py                       # celeba-64: real steps; afhq-192: one forward and backward
    python benchmarks/paper_presets.py --preset celeba-64 --network isotropic

Images are crops of the photographs that come with scikit-learn. Each measurement runs in a process of its own, so that its peak memory
is its own. `isotropic` is the same network with one embedding vector from the mean of log λ, as a denoiser for white noise has.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from linverse.covariance import Covariance
from linverse.models.energies.learned import EnergyConfig, LearnedEnergy
from linverse.models.networks.unet import conv
from linverse.training.config import TrainConfig
from linverse.training.loop import Trainer, parameter_count
from linverse.training.presets import PRESETS

MEASUREMENTS = (("celeba-64", "paper", 3), ("celeba-64", "isotropic", 3), ("afhq-192", "paper", 1))


class Crops:
    """Crops of two photographs, as a data set."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        from sklearn.datasets import load_sample_images

        _, height, width = shape
        photographs = [torch.tensor(p).permute(2, 0, 1).float() / 255 for p in load_sample_images().images]
        tiles = [p.unfold(1, height, height).unfold(2, width, width).flatten(1, 2).movedim(1, 0) for p in photographs]
        self.images = torch.cat(tiles)

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, indices: Tensor) -> Tensor:
        return self.images[indices]


class IsotropicEmbedding(nn.Module):
    """The mean of log λ → one vector for all levels and pixels."""

    bank: Tensor

    def __init__(self, width: int, levels: int, features: int = 256) -> None:
        super().__init__()
        self.levels = levels
        self.register_buffer("bank", torch.logspace(-2, 3, features // 2, base=2.0), persistent=False)
        self.first, self.second = conv(features, width, 1), conv(width, width, 1)

    def maps(self, cov: Covariance, log_prior: Tensor) -> Tensor:
        return (cov.log_variance - log_prior).mean(dim=(1, 2, 3), keepdim=True) / 10

    def forward(self, maps: Tensor) -> list[Tensor]:
        phase = math.pi * maps * self.bank.reshape(1, -1, 1, 1)
        hidden = F.silu(self.first(torch.cat([phase.cos(), phase.sin()], dim=1)))
        return [F.silu(self.second(hidden))] * self.levels


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def build(config: TrainConfig, network: str, folder: Path) -> Trainer:
    assert isinstance(config.model, EnergyConfig)
    crops = Crops(config.model.shape)
    mean = crops.images.mean(dim=0)
    trainer = Trainer(config, crops, crops, folder, (mean, float((crops.images - mean).square().mean())))
    if network == "isotropic":
        backbone = config.model.backbone
        for model in (trainer.model, trainer.averaged):
            assert isinstance(model, LearnedEnergy)
            model.form.embedding = IsotropicEmbedding(backbone.embedding, len(backbone.multipliers))
    return trainer


def measure(preset: str, network: str, steps: int, batch: int) -> dict[str, object]:
    """Train a few steps; the first one warms up where there are several."""
    config = replace(PRESETS[preset][1], batch=batch, steps=steps)
    with tempfile.TemporaryDirectory() as folder:
        trainer = build(config, network, Path(folder))
        before, times, losses = megabytes(), [], []
        for _ in range(steps):
            start = time.perf_counter()
            losses.append(trainer.train_step()["loss"])
            times.append(time.perf_counter() - start)
    return {
        "preset": preset,
        "network": network,
        "parameters": parameter_count(trainer.model),
        "batch": batch,
        "seconds per image-step": min(times) / batch,
        "megabytes of weights and start": round(before),
        "megabytes at the peak": round(megabytes()),
        "losses": losses,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=[name for name in PRESETS if name in {m[0] for m in MEASUREMENTS}])
    parser.add_argument("--network", choices=("paper", "isotropic"), default="paper")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--batch", type=int, default=2)
    options = parser.parse_args()
    if options.preset:
        print(json.dumps(measure(options.preset, options.network, options.steps, options.batch), indent=1))
        return
    for preset, network, steps in MEASUREMENTS:
        size = options.batch if preset == "celeba-64" else 1
        arguments = ["--preset", preset, "--network", network, "--steps", str(steps), "--batch", str(size)]
        subprocess.run([sys.executable, __file__, *arguments], check=True)


if __name__ == "__main__":
    main()

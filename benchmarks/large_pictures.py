"""What a picture costs as it grows: processor time, time and memory of one evaluation, and of a sampling step.

python benchmarks/large_pictures.py                                 # 128² to 1024²; the largest take minutes on a busy machine
python benchmarks/large_pictures.py --sides 512 2048 --task gauss    # of a model that is not bundled: --model FOLDER

Each size runs in a process of its own, because the peak of memory is a process's. Cost is linear in pixels but for what tiles share:
from 640² pixels on the network runs in tiles of 512² with margins of 64. The last lines compare a picture in tiles with the whole.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import torch

import linverse as lv
from linverse.degradations.tasks import mirrored, parse_task
from linverse.energy import evaluate_in_basis
from linverse.memory import keep_freed_memory
from linverse.models.energies import network_residual
from linverse.rng import keyed_generator


def picture(side: int, channels: int) -> torch.Tensor:
    """Something with coarse and fine structure."""
    generator = keyed_generator("large picture")
    coarse = torch.rand(1, channels, 1 + side // 32, 1 + side // 32, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, (side, side), mode="bicubic").clamp(0, 1)
    return (0.9 * smooth + 0.1 * torch.rand(smooth.shape, generator=generator)).clamp(0, 1)


def cost(model: str, task: str, side: int, threads: int) -> dict[str, float]:
    """Seconds of one evaluation and megabytes at most, in this process."""
    torch.set_num_threads(threads)
    keep_freed_memory()  # as every command does
    energy = lv.load(model)
    degradation = mirrored(parse_task(task, (side, side)))
    posterior = lv.Posterior(energy, degradation.measure(picture(side, energy.shape[0]), keyed_generator(0)))
    z, cov = posterior._lifted.coefficients, posterior._lifted.cov
    if side <= 1024:
        evaluate_in_basis(energy, z, cov)  # tables are made once
    wall, processor = time.monotonic(), time.process_time()
    evaluate_in_basis(energy, z, cov)
    wall, processor = time.monotonic() - wall, time.process_time() - processor
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"side": side, "wall": wall, "processor": processor, "megabytes": peak}


def tiles_against_the_whole(model: str) -> None:
    energy, side = lv.load(model), 512
    posterior = lv.Posterior(energy, lv.Denoising(0.1).measure(picture(side, energy.shape[0]), keyed_generator(0)))
    z, cov = posterior._lifted.coefficients, posterior._lifted.cov
    whole = evaluate_in_basis(energy, z, cov)
    network_residual.TILED_FROM, network_residual.TILE = 0, 256
    tiled = evaluate_in_basis(energy, z, cov)
    print(f"tiles against the whole, {side}²: mean within {float((tiled.mean - whole.mean).abs().max()):.1e}, ", end="")
    print(f"U within {float((tiled.energy - whole.energy).abs()):.1e} of {float(whole.energy):.0f} nats")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="photographs")
    parser.add_argument("--task", default="denoise")
    parser.add_argument("--sides", type=int, nargs="+", default=[128, 256, 512, 1024])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(cost(given.model, given.task, given.sides[0], given.threads)))
        return
    print(f"{given.model}, {given.task}, {given.threads} threads; one evaluation (energy, mean, variance)")
    print("    side   seconds   processor s   µs/pixel   peak MB")
    for side in given.sides:
        command = [sys.executable, __file__, "--one", "--sides", str(side), "--model", given.model]
        command += ["--task", given.task, "--threads", str(given.threads)]
        one = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        share = 1e6 * one["processor"] / side**2
        print(
            f"{side:8d}  {one['wall']:8.2f}  {one['processor']:12.2f}  {share:9.1f}  {one['megabytes']:8.0f}",
            flush=True,
        )
    tiles_against_the_whole(given.model)


if __name__ == "__main__":
    main()

"""Any linear operator: how good are one sample and the mean of several, are the data explained, and what does it cost?

    python benchmarks/operators.py [--images 16] [--samples 8] [--tasks tomography projections] [--tune 8] [--model fashion-mnist]

Held-out garments; ‖H‖ = 1 and σ = 0.05 for tomography from 30 angles and 200 of 784 random projections; box and blur at σ = 0.01. Ours,
and the rivals that take any operator (DiffPIR, MMPS, ΠGDM, DPS), DDRM besides where a basis diagonalises H, each at its original setting
and, with `--tune N`, at the best of a small search on N *training* images (PSNR of one sample). Columns:
    PSNR of one sample (mean over samples) and of the mean of all of them (ours: also in one shot), dB
    LPIPS of one sample, where its weights are installed
    ‖y − Hx‖/(σ√m) of one sample, and its range
    coverage of the 90 % intervals mean ± 1.645·spread·√(1+1/n), over pixels whose spread is not negligible
    seconds per image for all samples, measured side by side in this run; evaluations of the network per sample
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from linverse.baselines import METHODS, EnergyDenoiser, NotApplicable
from linverse.degradations import Box, CompressedSensing, Degradation, GaussianBlur, LinearOperator, Tomography
from linverse.evaluation.models import held_out, load_energy
from linverse.metrics import METRICS, available_metrics
from linverse.operator_measurement import OperatorMeasurement
from linverse.posterior import Posterior
from linverse.rng import keyed_generator
from linverse.store.hub import load_denoiser

SHAPE = (1, 28, 28)
SEARCH: dict[str, dict[str, tuple[Any, ...]]] = {
    "diffpir": {"weight": (0.3, 1.0, 3.0), "renoise": (0.3, 1.0)},
    "mmps": {"iterations": (1, 3, 10)},
    "pigdm": {"prior_variance": (0.03, 0.1, 1.0)},
    "dps": {"weight": (0.3, 1.0, 3.0)},
    "ddrm": {"eta": (0.5, 0.85, 1.0), "eta_data": (0.5, 1.0)},
}


def unit_norm(degradation: Degradation, sigma: float) -> Degradation:
    """The operator scaled to ‖H‖ = 1."""
    seen = degradation.measure(torch.zeros(1, *SHAPE))
    assert isinstance(seen, OperatorMeasurement)
    linear, scale = seen.linear, math.sqrt(1.05 / seen.linear.gain)
    return LinearOperator(lambda x: scale * linear.forward(x), lambda r: scale * linear.adjoint(r), sigma)


TASKS: dict[str, Callable[[], Degradation]] = {
    "tomography": lambda: unit_norm(Tomography(SHAPE[1:], 30, 0.05), 0.05),
    "projections": lambda: unit_norm(CompressedSensing(SHAPE[1:], 200 / 784, 0.05), 0.05),
    "box": lambda: Box(20, 0.01),
    "blur": lambda: GaussianBlur(0.8, 0.01),
}


@dataclass(frozen=True)
class Drawn:
    """Samples [n, N, C, H, W], what they cost, and a better mean where there is one."""

    samples: Tensor
    seconds: float
    evaluations: int
    mean: Tensor | None = None


def psnr(x: Tensor, truth: Tensor) -> Tensor:
    return -10 * (x.clamp(0, 1) - truth).square().flatten(-3).mean(-1).log10()


def ours(energy: Any, degradation: Degradation, raw: Tensor, n: int, sweeps: int, metropolis: bool = False) -> Drawn:
    post, begun = Posterior(energy, degradation.from_raw(raw)), time.perf_counter()
    if not isinstance(post.measurement, OperatorMeasurement):
        found = post.draw(n, 100, generator=keyed_generator("ours"))
        return Drawn(found.samples.unflatten(0, (n, -1)), time.perf_counter() - begun, found.evaluations)
    drawn: Any = post.draw(n, sweeps=sweeps, metropolis=metropolis, generator=keyed_generator("ours"))  # type: ignore[call-arg]
    seconds = time.perf_counter() - begun
    worst = post.convergence.r_hat  # type: ignore[attr-defined]
    moved = "" if drawn.acceptance is None else f", acceptance {float(drawn.acceptance.mean()):.2f}"
    print(f"  (R-hat of the images {float(worst.median()):.2f}, at most {float(worst.max()):.2f}{moved})")
    mean = post.mean()
    return Drawn(drawn.samples.unflatten(0, (n, -1)), seconds, drawn.evaluations, mean)


def rival(name: str, network: Any, degradation: Degradation, raw: Tensor, n: int, settings: dict[str, Any]) -> Drawn:
    rows = raw.repeat(n, *[1] * (raw.ndim - 1))
    found = METHODS[name].solve(network, degradation, rows, keyed_generator(name), **settings)
    return Drawn(found.samples.unflatten(0, (n, -1)), found.seconds, found.evaluations)


def report(label: str, drawn: Drawn, truth: Tensor, degradation: Degradation, raw: Tensor) -> None:
    samples = drawn.samples
    n, count = samples.shape[:2]
    flat = samples.flatten(0, 1)
    seen = degradation.from_raw(raw.repeat(n, *[1] * (raw.ndim - 1)))
    weight = (
        1 / seen.noise.expand_as(seen.residual(flat)) if not isinstance(seen, OperatorMeasurement) else 1 / seen.noise
    )
    measured = seen.numbers if isinstance(seen, OperatorMeasurement) else int(seen.measured.expand_as(flat[:1]).sum())
    misfit = ((seen.residual(flat).square() * weight).flatten(1).sum(1) / measured).sqrt()
    mean, spread = samples.mean(0), samples.std(0)
    inside = (mean - truth).abs() <= 1.645 * spread * math.sqrt(1 + 1 / n)
    known = spread > 1e-3
    better = "" if drawn.mean is None else f" (one shot {float(psnr(drawn.mean, truth).mean()):.2f})"
    name = "LPIPS-Alex"
    lpips = (
        float(METRICS[name].function(samples[0].clamp(0, 1), truth).mean()) if name in available_metrics() else math.nan
    )
    print(
        f"  {label:42s} one {float(psnr(samples, truth).mean()):5.2f}  mean of {n} {float(psnr(mean, truth).mean()):5.2f}{better}  "
        f"LPIPS {lpips:.3f}  residual {float(misfit.mean()):.2f} [{float(misfit.min()):.2f}, {float(misfit.max()):.2f}]  "
        f"90 % covers {float(inside[known].double().mean()):.2f}  {drawn.seconds / count:.1f} s, {drawn.evaluations} evaluations",
        flush=True,
    )


def settings_of(name: str) -> Iterator[dict[str, Any]]:
    grid = SEARCH[name]
    for values in product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def tuned(name: str, network: Any, degradation: Degradation, count: int, data: str) -> dict[str, Any]:
    """The setting of the search with the best PSNR of one sample on training images."""
    truth = held_out(data, count, SHAPE, split="train").x
    raw = degradation.measure(truth, keyed_generator("tune")).raw
    scores = {}
    for settings in settings_of(name):
        found = rival(name, network, degradation, raw, 1, settings)
        score = float(psnr(found.samples, truth).mean())
        scores[score if math.isfinite(score) else -math.inf] = settings
    return scores[max(scores)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--sweeps", type=int, default=0)
    parser.add_argument("--tune", type=int, default=0, help="training images of the search; 0: original settings only")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--rivals", nargs="*", choices=SEARCH, default=list(SEARCH))
    parser.add_argument("--model", default="fashion-mnist")
    parser.add_argument("--score-model", default="fashion-mnist-score", help='"energy" for the energy itself')
    parser.add_argument("--data", default="fashion-mnist")
    parser.add_argument("--metropolis", action="store_true", help="ours with Metropolis moves besides")
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    energy = load_energy(options.model)
    network = EnergyDenoiser(energy) if options.score_model == "energy" else load_denoiser(options.score_model)
    truth = held_out(options.data, options.images, SHAPE).x
    for task in options.tasks:
        degradation = TASKS[task]()
        raw = degradation.measure(truth, keyed_generator("benchmark", task)).raw
        print(f"{task}: {len(truth)} images, data of {'×'.join(map(str, raw.shape[1:]))}, σ = {degradation.sigma:g}")
        for metropolis in (False, True)[: 1 + options.metropolis]:
            drawn = ours(energy, degradation, raw, options.samples, options.sweeps, metropolis)
            report(f"ours, {options.sweeps} sweeps{', Metropolis' * metropolis}", drawn, truth, degradation, raw)
        for name in options.rivals:
            try:
                report(name, rival(name, network, degradation, raw, options.samples, {}), truth, degradation, raw)
                if options.tune:
                    best = tuned(name, network, degradation, options.tune, options.data)
                    label = f"{name} ({', '.join(f'{k}={v}' for k, v in best.items())})"
                    report(
                        label, rival(name, network, degradation, raw, options.samples, best), truth, degradation, raw
                    )
            except NotApplicable as reason:
                print(f"  {name:42s} {reason}")


if __name__ == "__main__":
    main()

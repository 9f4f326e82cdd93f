"""Any linear operator: how good are one sample and the mean of several, are the data explained, and what does it cost?

    python benchmarks/operators.py [--images 16] [--samples 8] [--tasks tomography projections] [--tune 8] [--model fashion-mnist]
    python benchmarks/operators.py --images 64 --tasks box blur --tune 16 --out build/operators.json

Held-out garments; ‖H‖ = 1 and σ = 0.05 for tomography from 30 angles and 200 of 784 random projections; box and blur at σ = 0.01. Ours,
and the rivals that take any operator (DiffPIR, MMPS, ΠGDM, DPS), DDRM besides where a basis diagonalises H, each at its original setting
and, with `--tune N`, at the best of a small search on N *training* images (PSNR of one sample), where that is another one. Columns:
    PSNR of one sample (mean over samples) and of the mean of all of them (ours: also in one shot), dB
    LPIPS of one sample, where its weights are installed, and by how much that is above ours, image by image, ± 2 standard errors
    ‖y − Hx‖/(σ√m) of one sample, and its range
    coverage of the 90 % intervals mean ± t·spread·√(1+1/n), t of Student's law, over pixels whose spread is not negligible
    seconds per image for all samples, measured side by side in this run; evaluations of the network per sample
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import signature
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linverse.baselines import METHODS, EnergyDenoiser, NotApplicable
from linverse.degradations import Box, CompressedSensing, Degradation, GaussianBlur, LinearOperator, Tomography
from linverse.evaluation.models import held_out, load_energy
from linverse.metrics import METRICS, available_metrics, student_interval
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
    if bool(worst.isfinite().any()):  # there are chains
        print(f"  (R-hat of the images {float(worst.median()):.2f}, at most {float(worst.max()):.2f}{moved})")
    mean = post.mean()
    return Drawn(drawn.samples.unflatten(0, (n, -1)), seconds, drawn.evaluations, mean)


def rival(name: str, network: Any, degradation: Degradation, raw: Tensor, n: int, settings: dict[str, Any]) -> Drawn:
    rows = raw.repeat(n, *[1] * (raw.ndim - 1))
    found = METHODS[name].solve(network, degradation, rows, keyed_generator(name), **settings)
    return Drawn(found.samples.unflatten(0, (n, -1)), found.seconds, found.evaluations)


def paired(values: Tensor, ours: Tensor | None) -> str:
    """Their mean, and by how much they are above ours."""
    if ours is None:
        return f"{float(values.mean()):.3f}"
    more = values - ours
    return (
        f"{float(values.mean()):.3f} ({float(more.mean()):+.3f} ± {2 * float(more.std()) / math.sqrt(len(more)):.3f})"
    )


def report(
    label: str, drawn: Drawn, truth: Tensor, degradation: Degradation, raw: Tensor, ours: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Print a line, and return its numbers; LPIPS is set beside that of `ours`."""
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
    low, high = student_interval(samples.movedim(0, 1))
    inside = (low <= truth) & (truth <= high)
    known = spread > 1e-3
    better = "" if drawn.mean is None else f" (one shot {float(psnr(drawn.mean, truth).mean()):.2f})"
    name = "LPIPS-Alex"
    lpips = torch.full((count,), math.nan)
    if name in available_metrics():
        lpips = METRICS[name].function(samples[0].clamp(0, 1), truth)
    found = {
        "method": label,
        "psnr of one": psnr(samples, truth).mean(0).tolist(),
        "psnr of the mean": psnr(mean, truth).tolist(),
        "lpips": lpips.tolist(),
        "residual": misfit.tolist(),
        "coverage": float(inside[known].double().mean()),
        "seconds": drawn.seconds / count,
        "evaluations": drawn.evaluations,
    }
    beside = paired(lpips, None if ours is None else torch.tensor(ours["lpips"]))
    print(
        f"  {label:42s} one {float(psnr(samples, truth).mean()):5.2f}  mean of {n} {float(psnr(mean, truth).mean()):5.2f}{better}  "
        f"LPIPS {beside}  residual {float(misfit.mean()):.2f} [{float(misfit.min()):.2f}, {float(misfit.max()):.2f}]  "
        f"90 % covers {found['coverage']:.2f}  {drawn.seconds / count:.1f} s, {drawn.evaluations} evaluations",
        flush=True,
    )
    return found


def settings_of(name: str) -> Iterator[dict[str, Any]]:
    grid = SEARCH[name]
    for values in product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def defaults(name: str) -> dict[str, Any]:
    """The original settings of what is searched."""
    parameters = signature(METHODS[name].solve).parameters
    return {key: parameters[key].default for key in SEARCH[name]}


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
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers of every image")
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    energy = load_energy(options.model)
    network = EnergyDenoiser(energy) if options.score_model == "energy" else load_denoiser(options.score_model)
    truth = held_out(options.data, options.images, SHAPE).x
    found: dict[str, list[dict[str, Any]]] = {}
    for task in options.tasks:
        degradation = TASKS[task]()
        raw = degradation.measure(truth, keyed_generator("benchmark", task)).raw
        print(f"{task}: {len(truth)} images, data of {'×'.join(map(str, raw.shape[1:]))}, σ = {degradation.sigma:g}")
        rows = found[task] = []
        for metropolis in (False, True)[: 1 + options.metropolis]:
            drawn = ours(energy, degradation, raw, options.samples, options.sweeps, metropolis)
            label = f"ours, {options.sweeps} sweeps{', Metropolis' * metropolis}"
            rows.append(report(label, drawn, truth, degradation, raw))
        for name in options.rivals:
            try:
                settings = {"": {}}
                if options.tune:
                    best = tuned(name, network, degradation, options.tune, options.data)
                    if best != defaults(name):
                        settings[f" ({', '.join(f'{k}={v}' for k, v in best.items())})"] = best
                for words, chosen in settings.items():
                    drawn = rival(name, network, degradation, raw, options.samples, chosen)
                    rows.append(report(name + words, drawn, truth, degradation, raw, rows[0]))
            except NotApplicable as reason:
                print(f"  {name:42s} {reason}")
        if options.out:
            options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""How many evaluations of the energy does an accurate posterior sample cost, and what does the sampler add to them?

    python benchmarks/sampling.py [--quick] [--only-time]

1. Gaussian priors, without Monte Carlo: a sampler is then a linear map of y and of its noises, so that its law is found exactly from unit
   impulses. The error is ‖L⁻¹VL⁻ᵀ − I‖/√d, V the sampler's covariance and LLᵀ the exact one (means are exact at any step).
   Priors diagonal and *not* diagonal in Q, for posteriors and for generation (where the probability flow is valid too).
2. A mixture of three Gaussians, by Monte Carlo: errors of mean and covariance, and the energy distance to exact samples.
3. The time of a sampler against that of the evaluations (network and base) that it makes, and how often Σ's basis is changed in one.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from linverse import load
from linverse.analytic import DenseGaussian, GaussianMixture
from linverse.covariance import BlockDCTCovariance, Covariance, FourierCovariance, SpatialCovariance, VarianceRange
from linverse.energy import Energy, Evaluation, evaluate_in_basis
from linverse.rng import keyed_generator
from linverse.sampling import (
    Ancestral,
    Euler,
    Matched,
    Path,
    Predictor,
    ProbabilityFlowHeun,
    TwoStepAncestral,
    geometric,
    sample,
)
from linverse.sampling.evaluator import Evaluator
from linverse.sampling.run import planned_steps

SHAPE, DIM = (1, 2, 4), 8
FLOOR = 1e-6
NOISY: tuple[Predictor, ...] = (Euler(), Ancestral(), Matched(), TwoStepAncestral())
Problem = tuple[str, Tensor, Covariance]


def eye(n: int = DIM) -> Tensor:
    return torch.eye(n, dtype=torch.float64)


# --- priors and measurements -------------------------------------------------------------------------------------------------


def correlated(key: str, scale: float = 0.1) -> Tensor:
    factor = torch.randn(DIM, DIM, generator=keyed_generator(key), dtype=torch.float64) / math.sqrt(DIM)
    return scale * (factor @ factor.mT + 0.1 * eye())


def stationary() -> Tensor:
    """A covariance that Fourier diagonalises: power falls with frequency."""
    basis = FourierCovariance(torch.zeros(1, *SHAPE, dtype=torch.float64))
    power = -3 * basis.frequencies().square().sum(dim=0).sqrt() * 4
    return basis.with_log_variance(power[None, None]).dense()[0]


def levels(family: Callable[[Tensor], Covariance], *variances: float) -> Covariance:
    return family(torch.tensor(variances, dtype=torch.float64).log().reshape(1, *SHAPE))


def block_dct(log_variance: Tensor) -> Covariance:
    return BlockDCTCovariance(log_variance, 1, 2)


def problems() -> list[Problem]:
    top, low = 1e3, 1e-2
    mask = levels(SpatialCovariance, low, top, top, low, top, top, low, top)
    blur = levels(FourierCovariance, low, 0.1, 2.0, 0.1, 0.1, 1.0, top, 1.0)
    blocks = levels(block_dct, low, top, low, top, top, top, top, top)
    flat = levels(SpatialCovariance, *[top] * DIM)
    white = torch.diag(torch.linspace(0.02, 0.2, DIM, dtype=torch.float64))
    return [
        ("diagonal prior, mask", white, mask),
        ("stationary prior, blur (diagonal)", stationary(), blur),
        ("correlated prior, mask", correlated("a"), mask),
        ("correlated prior, blur", correlated("b"), blur),
        ("correlated prior, super-resolution", correlated("c"), blocks),
        ("correlated prior, generation", correlated("d"), flat),
    ]


# --- the exact law of a sampler on a Gaussian ----------------------------------------------------------------------------------


def exact_law(energy: Energy, predictor: Predictor, path: Path) -> tuple[Tensor, Tensor]:
    """A and V of the result N(Ay, V) for a zero-mean Gaussian prior."""
    noises = path.steps if predictor.noisy else 0
    rows = DIM * (noises + 1)
    impulses = torch.eye(rows, dtype=torch.float64).reshape(noises + 1, DIM, rows).movedim(2, 1)
    evaluator, change = Evaluator(energy, path.template), None
    here = evaluator(impulses[0].reshape(rows, *SHAPE), path.log_variance[0])
    for step, size in enumerate(planned_steps(path), start=1):
        noise = impulses[step].reshape(rows, *SHAPE) if predictor.noisy else here.z
        ahead = evaluator(predictor.step(here, size, change, noise, evaluator), size.log_next)
        change, here = ahead.mean - here.mean, ahead
    out = path.template.synthesis(here.mean).flatten(1)
    start = path.template.analysis(eye().reshape(DIM, *SHAPE)).flatten(1)
    return (start @ out[:DIM]).mT, out[DIM:].mT @ out[DIM:]


def relative_error(covariance: Tensor, exact: Tensor) -> float:
    factor = torch.linalg.cholesky(exact)
    half = torch.linalg.solve_triangular(factor, covariance, upper=False)
    white = torch.linalg.solve_triangular(factor, half.mT, upper=False)
    return float((white - eye()).norm()) / math.sqrt(DIM)


def gaussian_error(problem: Problem, predictor: Predictor, evaluations: int) -> float:
    """Of the posterior covariance; for generation, of the covariance of what is generated from y ~ p(y|Σ)."""
    name, spread, cov = problem
    steps = (evaluations - 1) // (1 + predictor.evaluations)
    energy = DenseGaussian(torch.zeros(DIM), spread, SHAPE)
    linear_map, covariance = exact_law(energy, predictor, geometric(cov, FLOOR, steps))
    total = spread + cov.dense()[0]
    if name.endswith("generation"):
        return relative_error(covariance + linear_map @ total @ linear_map.mT, spread)
    gain = torch.linalg.solve(total, spread).mT
    return relative_error(covariance, spread - gain @ spread)


def gaussian_table(budgets: list[int]) -> list[tuple[str, float, float]]:
    """Prints the errors; returns (problem, default at 50, Euler at 600)."""
    claims = []
    for problem in problems():
        print(f"\n{problem[0]}: error of the covariance at so many evaluations")
        print(f"{'':24s}" + "".join(f"{budget:>10d}" for budget in budgets))
        valid = (*NOISY, ProbabilityFlowHeun()) if problem[0].endswith("generation") else NOISY
        errors = {}
        for predictor in valid:
            name = type(predictor).__name__
            errors[name] = [gaussian_error(problem, predictor, budget) for budget in budgets]
            print(f"{name:24s}" + "".join(f"{error:10.4f}" for error in errors[name]))
        claims.append((problem[0], errors["TwoStepAncestral"][budgets.index(50)], errors["Euler"][-1]))
    return claims


# --- a mixture, by Monte Carlo ---------------------------------------------------------------------------------------------------


def mixture() -> GaussianMixture:
    means = torch.rand(3, DIM, generator=keyed_generator("means"), dtype=torch.float64)
    spread = torch.stack([correlated(key, 0.05) for key in "efg"])
    return GaussianMixture(torch.tensor([0.5, 0.3, 0.2]), means, spread, SHAPE)


def energy_distance(a: Tensor, b: Tensor) -> float:
    """√(2E‖a−b‖ − E‖a−a'‖ − E‖b−b'‖), the diagonal left out."""

    def within(x: Tensor) -> Tensor:
        return torch.cdist(x, x).sum() / (len(x) * (len(x) - 1))

    return float((2 * torch.cdist(a, b).mean() - within(a) - within(b)).clamp_min(0).sqrt())


def mixture_errors(x: Tensor, mean: Tensor, covariance: Tensor, reference: Tensor) -> tuple[float, float, float]:
    factor = torch.linalg.cholesky(covariance)
    white = torch.linalg.solve_triangular(factor, (x - mean).mT, upper=False)
    scale = math.sqrt(DIM)
    subset = slice(0, 4000)
    return (
        float(white.mean(dim=1).norm()) / scale,
        float((torch.cov(white) - eye()).norm()) / scale,
        energy_distance(x[subset], reference[subset]),
    )


def mixture_table(budgets: list[int], chains: int) -> None:
    energy, cov = mixture(), problems()[2][2] * 3.0
    generator = keyed_generator("mixture")
    y = energy.sample(1, generator) + cov.sample_noise(generator)
    exact = energy.posterior(y, cov)
    mean, covariance = exact.mean.flatten(), exact.covariance[0]
    reference, other = (exact.sample(chains, generator)[0].flatten(1) for _ in range(2))
    print(f"\nmixture of three, mask: errors of {chains} samples (mean, covariance, energy distance)")
    print(
        f"{'exact samples':24s}{'':>6s}"
        + "".join(f"{e:10.4f}" for e in mixture_errors(other, mean, covariance, reference))
    )
    for predictor in NOISY:
        for budget in budgets:
            rows = y.expand(chains, -1, -1, -1)
            result = sample(energy, rows, cov, budget - 1, predictor, floor=FLOOR, generator=generator)
            errors = mixture_errors(result.samples.flatten(1), mean, covariance, reference)
            print(f"{type(predictor).__name__:24s}{result.evaluations:>6d}" + "".join(f"{e:10.4f}" for e in errors))


# --- time --------------------------------------------------------------------------------------------------------------------------


class StandIn(nn.Module):
    """A small network in an energy's clothes: U = ½‖y‖² + ⟨y, s(y, log λ)⟩/100, differentiated as a learned energy is."""

    range = VarianceRange(1e-6, 1e3)
    shape = (1, 28, 28)

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        layers = [nn.Conv2d(2, width, 3, padding=1), nn.SiLU()]
        for _ in range(4):
            layers += [nn.Conv2d(width, width, 3, padding=1), nn.SiLU()]
        self.network = nn.Sequential(*layers, nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, y: Tensor, cov: Covariance) -> Tensor:
        level = cov.log_variance.expand(len(y), -1, -1, -1)
        out = self.network(torch.cat([torch.tanh(y), 0.1 * level], dim=1))
        return (
            (0.5 * y.square() / (1 + cov.variance) + 0.01 * torch.tanh(y) * out).flatten(1).sum(1, dtype=torch.float64)
        )

    def gaussian(self, cov: Covariance) -> tuple[Tensor, Tensor]:
        return torch.zeros(1), torch.ones(1)


class Transforms(TorchDispatchMode):
    """Counts Fourier transforms as they are carried out, forwards and in gradients: of the samples, and of single images (the base's)."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch, self.of_samples, self.of_the_base = batch, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if "_fft_" in func.__name__:
            single = args[0].shape[0] != self.batch
            self.of_samples, self.of_the_base = self.of_samples + (not single), self.of_the_base + single
        return func(*args, **(kwargs or {}))


def count_changes(energy: Energy, steps: int = 10, batch: int = 8) -> None:
    """Per evaluation; y's own analysis and the synthesis of the samples are taken off."""
    cov = FourierCovariance(torch.full((1, 1, 28, 28), math.log(1e2)))
    y = 10 * torch.randn(batch, 1, 28, 28, generator=keyed_generator("count"))
    with Transforms(batch) as counted:
        result = sample(energy, y, cov, steps, floor=1e-4, generator=keyed_generator("noise"))
    changes, own = (counted.of_samples - 2) / result.evaluations, counted.of_the_base / result.evaluations
    print(f"{type(energy).__name__:16s} changes of Σ's basis per evaluation: {changes:.1f}, the base's own: {own:.1f}")


class Timed:
    """An energy that adds up the processor time of its evaluations."""

    def __init__(self, energy: Energy) -> None:
        self.energy, self.range, self.shape, self.gaussian = energy, energy.range, energy.shape, energy.gaussian
        self.seconds = 0.0

    def __call__(self, y: Tensor, cov: Covariance) -> Tensor:
        return self.energy(y, cov)

    def evaluate_in_basis(self, z: Tensor, cov: Covariance, *, create_graph: bool = False) -> Evaluation:
        begin = time.process_time()
        result = evaluate_in_basis(self.energy, z, cov, create_graph=create_graph)
        self.seconds += time.process_time() - begin
        return result


def overhead(energy: Energy, family: type[Covariance], batch: int, steps: int, repeats: int) -> None:
    """Processor time of `sample` outside of the evaluations (network and base) over that inside of them, in the same runs.

    Measured within one run, so that what else the machine does cannot come between the two.
    """
    cov = family(torch.full((1, 1, 28, 28), math.log(1e2)))
    y = 10 * torch.randn(batch, 1, 28, 28, generator=keyed_generator("time"))
    ratios, times = [], []
    for _ in range(repeats + 1):  # the first one warms up
        timed, begin = Timed(energy), time.process_time()
        sample(timed, y, cov, steps, floor=1e-4, generator=keyed_generator("noise"))
        ratios.append((time.process_time() - begin) / timed.seconds - 1)
        times.append(timed.seconds / (steps + 1))
    ratios, times = sorted(ratios[1:]), sorted(times[1:])
    print(
        f"{type(energy).__name__:16s} {cov.basis:8s} batch {batch:2d}: sampler +{100 * ratios[repeats // 2]:.1f} % "
        f"(median of {repeats}; {100 * ratios[0]:.1f} to {100 * ratios[-1]:.1f}); {1e3 * times[repeats // 2]:.1f} ms an evaluation"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only-time", action="store_true", help="skip the accuracy of the predictors")
    options = parser.parse_args()
    quick = options.quick
    if not options.only_time:
        accuracy_tables(quick)
    time_table(quick)


def accuracy_tables(quick: bool) -> None:
    claims = gaussian_table([25, 50, 100, 600] if quick else [12, 25, 50, 100, 200, 600])
    mixture_table([50, 200] if quick else [25, 50, 100, 600], 4000 if quick else 10000)
    print("\ndefault at 50 evaluations against Euler at 600")
    for name, default, euler in claims:
        print(f"{name:40s}{default:10.4f}{euler:10.4f}   {'default better' if default < euler else 'EULER BETTER'}")


def time_table(quick: bool) -> None:
    print("\nwhat the sampler adds to its evaluations, 28×28 (a small stand-in network, and the bundled fashion-mnist)")
    energies = (StandIn().requires_grad_(False), load("fashion-mnist"))
    for energy in energies:
        count_changes(energy)
    for energy in energies:
        for family in (SpatialCovariance, FourierCovariance):
            for batch in (1, 8):
                overhead(energy, family, batch, 20 if quick else 50, 5 if quick else 15)


if __name__ == "__main__":
    main()

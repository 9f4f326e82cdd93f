"""A measurement by any linear operator as if a basis diagonalised it: expectation propagation (mathematics §14; Minka 2001).

The likelihood N(y; Hx, σ²I) is replaced by a Gaussian of x whose covariance Σ₁ is diagonal in a basis that the energy knows,
    N(r; x, Σ₁),   1/λ₁ = p = s·d/σ²,   d = diag(QᵀHᵀHQ),
so that p(x)·N(r; x, Σ₁), a question that the energy answers by itself, has the moments of the posterior. The image r and the number s are
free. Beside it stands a Gaussian of precision t for the prior. The four are right if each Gaussian agrees with what its partner's true law
says, in the mean x̂ and, on average, in the variance v:
    energy       x̂ = E[x|r, Σ₁],                          v = Var[x|r, Σ₁]:        mean 1/(p+t) = mean v
    data         x̂ = r − Σ₁Hᵀ(y − Hx̂)/σ²,                 v = (HᵀH/σ² + t)⁻¹:      mean d/(p+t) = mean d·v
Where HᵀH is diagonal in Q, s = 1 at once and nothing is approximate; for a Gaussian prior x̂ is the posterior mean whatever H; for random
projections it is the best that is known of large images (Rangan, Schniter & Fletcher 2019).

The means are brought together by Douglas–Rachford steps in the metric of Σ₁, over-relaxed, for which x̂ of the energy is a proximal map:
    x̂ = E[x | z − Σ₁q, Σ₁],   z = (HᵀH/σ² + p)⁻¹(Hᵀy/σ² + px̂ + q),   q ← q + p(x̂ − z).
(The messages of expectation propagation are faster where they converge; with coin flips for H they explode.) Variances of the energy
come from x̂ at displaced r, those of the data from conjugate gradients, both by random signs.

Q is the basis in which HᵀH is most nearly diagonal: Σd² is largest there.

A sample x of p(x)·N(r; x, Σ₁) has nearly the covariance (P + t)⁻¹, P = 1/Σ₁; the posterior has nearly that of the data's law,
(HᵀH/σ² + t)⁻¹. `moved` takes the one to the other, samples to samples, and leaves them alone where HᵀH is diagonal:
    x ← z + D^{−½}(D^{−½}(HᵀH/σ² + t)D^{−½})^{−½}D^{½}(x − z),   D = P + t.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from linverse.conjugate_gradients import conjugate_gradients
from linverse.covariance import Covariance, identity
from linverse.energy import Energy, evaluate_in_basis
from linverse.operator_measurement import OperatorMeasurement
from linverse.rng import keyed_generator, normal_like
from linverse.sampling.coupling import seen_gains
from linverse.sampling.lanczos import inverse_root

BASES = ("fourier", "dct", "spatial")  # of which the best is taken, if the energy knows several
CLEARLY = 1.05  # by how much Σd² has to be larger for a basis that is not the first
ROUNDS = 16  # in the first half of which variances are matched
PROBES = 2  # of either variance: the same in every round, so that the rounds converge
SHIFT = 0.1  # of r by each probe, in standard deviations of its noise
KEPT = 0.3  # of log s, in every round
RELAXATION = 1.6
HALVINGS = 40


@dataclass(frozen=True)
class Surrogate:
    """r = x + N(0, Σ₁): coefficients [B, C, H, W] and Σ₁, one of each row.

    `mean` z by the data, coefficients, and the prior's `precision` t [B, 1, 1, 1] are what `moved` needs. `gap` [B] is how far both
    partners' means still are from each other, rms, in units of the posterior's standard deviation: 0 when the rounds have converged.
    `evaluations` of the energy that it took.
    """

    coefficients: Tensor
    cov: Covariance
    mean: Tensor
    precision: Tensor
    gap: Tensor
    evaluations: int

    def __getitem__(self, rows: slice | Tensor | list[int]) -> Surrogate:
        z, mean, t, gap = (part[rows] for part in (self.coefficients, self.mean, self.precision, self.gap))
        return Surrogate(z, self.cov[rows], mean, t, gap, self.evaluations)


def joined(parts: list[Surrogate]) -> Surrogate:
    """The rows of several."""
    cov = parts[0].cov.with_log_variance(torch.cat([part.cov.log_variance for part in parts]))
    rows = [(part.coefficients, part.mean, part.precision, part.gap) for part in parts]
    z, mean, t, gap = (torch.cat(column) for column in zip(*rows, strict=True))
    return Surrogate(z, cov, mean, t, gap, parts[0].evaluations)


def moved(start: Surrogate, seen: OperatorMeasurement, x: Tensor) -> Tensor:
    """Samples [B, C, H, W] of p(x)·N(r; x, Σ₁) with the spread that the data leave."""
    cov, t = start.cov, start.precision
    root = (1 / cov.variance + t).sqrt()

    def matrix(v: Tensor) -> Tensor:
        z = v / root
        back = cov.analysis(seen.adjoint(seen.forward(cov.synthesis(z)))) / seen.variance
        return (back + t * z) / root

    return cov.synthesis(start.mean + inverse_root(matrix, root * (cov.analysis(x) - start.mean)) / root)


@torch.no_grad()
def surrogate(
    energy: Energy,
    seen: OperatorMeasurement,
    rounds: int = ROUNDS,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Surrogate:
    """r and Σ₁ for each row of a measurement, in so many rounds of one evaluation, or 1 + `PROBES` in the first half."""
    if rounds < 1:
        raise ValueError(f"the number of rounds is at least 1; got {rounds}")
    matching, first = Matching(energy, seen), (rounds + 1) // 2
    for done in range(rounds):
        matching.step(variances=done < first)
        report(done + 1, rounds)
    z, cov = matching.question()
    return Surrogate(z, cov, matching.z.to(z), matching.t.to(z), matching.gap.to(z), rounds + PROBES * first)


class Matching:
    """Where the two Gaussians stand: s, t [B, 1, 1, 1] and z, q [B, C, H, W], coefficients in Q, float64."""

    def __init__(self, energy: Energy, seen: OperatorMeasurement) -> None:
        """From the energy's own Gaussian."""
        self.energy, self.seen = energy, seen
        basis, gains = best_basis(energy, seen)
        self.cov, self.gains = basis.expand(seen.batch), gains.double()
        self.data = self.cov.analysis(seen.adjoint(seen.raw)).double() / seen.variance
        random = normal_like(self.data.expand(PROBES, *self.data.shape), keyed_generator("surrogate"))
        self.signs = random.sign()  # [P, B, C, H, W]
        mean, variance = (t.double().expand_as(self.data) for t in energy.gaussian(self.cov))
        self.t = 1 / _mean(variance)
        self.z = self._solve(self.t, self.data + self.t * mean)
        self.q = self.t * (mean - self.z)
        self.s, self.gap = self._match(), self.t[:, 0, 0, 0]

    def question(self) -> tuple[Tensor, Covariance]:
        """r and Σ₁ within what the energy knows."""
        limits, like = self.energy.range, self.cov.log_variance
        variance = (self.seen.variance / (self.s * self.gains)).clamp(limits.minimum, limits.maximum)
        return (self.z - variance * self.q).to(like), self.cov.with_log_variance(variance.log().to(like))

    def step(self, variances: bool) -> None:
        """Bring the means nearer to each other, and the variances, too."""
        r, cov = self.question()
        p, mean = 1 / cov.variance.double(), self._answer(r, cov)
        if variances:
            self.t = self._prior_precision(r, cov, mean)
        z = self._solve(p, self.data + torch.lerp(p * self.z, p * mean, RELAXATION) + self.q)
        self.q = self.q + torch.lerp(p * self.z, p * mean, RELAXATION) - p * z
        self.gap = (_mean((mean - z).square()) / _mean(1 / (p + self.t))).sqrt()[:, 0, 0, 0]
        self.z = z
        if variances:
            self.s = torch.lerp(self._match().log(), self.s.log(), KEPT).exp()

    def _answer(self, r: Tensor, cov: Covariance) -> Tensor:
        return evaluate_in_basis(self.energy, r, cov).mean_coefficients.double()

    def _prior_precision(self, r: Tensor, cov: Covariance, mean: Tensor) -> Tensor:
        """t from the energy's variance."""
        variance = torch.zeros_like(mean)
        for probe in self.signs.to(r) * torch.exp(0.5 * cov.log_variance):
            variance += (self._answer(r + SHIFT * probe, cov) - mean) * probe / (SHIFT * PROBES)
        p, limits = 1 / cov.variance.double(), self.energy.range
        return _root(lambda t: _mean(1 / (p + t)), _mean(variance), 1 / limits.maximum, 1 / limits.minimum)

    def _match(self) -> Tensor:
        """s from the data's variance, which random signs tell beyond that of a diagonal HᵀH."""
        precisions = self.gains / self.seen.variance
        rows = self.t.repeat(PROBES, 1, 1, 1)
        beyond = self._solve(rows, self.signs.flatten(0, 1)) * self.signs.flatten(0, 1) - 1 / (precisions + rows)
        variance = 1 / (precisions + self.t) + beyond.unflatten(0, (PROBES, -1)).mean(0)
        goal = _mean(self.gains * variance)
        return _root(lambda s: _mean(self.gains / (s * precisions + self.t)), goal, 1e-6, 1e2)

    def _solve(self, precision: Tensor, right: Tensor) -> Tensor:
        """(HᵀH/σ² + precision)⁻¹ of coefficients [n·B, C, H, W]."""
        like, noise = self.cov.log_variance, self.seen.variance
        cov, p = self.cov[[0]].expand(len(right)), precision.to(like)
        rough = 1 / (self.gains.to(like) / noise + p)

        def matrix(z: Tensor) -> Tensor:
            return cov.analysis(self.seen.adjoint(self.seen.forward(cov.synthesis(z)))) / noise + p * z

        return conjugate_gradients(matrix, right.to(like), precondition=lambda r: rough * r).solution.double()


def _mean(values: Tensor) -> Tensor:
    """Of each row, [B, 1, 1, 1]."""
    return values.mean(dim=(1, 2, 3), keepdim=True)


def _root(falling: Callable[[Tensor], Tensor], goal: Tensor, least: float, most: float) -> Tensor:
    """The x in [`least`, `most`] at which a falling function is the goal, by halving of log x; one of its ends where it never is."""
    low, high = torch.full_like(goal, math.log(least)), torch.full_like(goal, math.log(most))
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        above = falling(middle.exp()) > goal
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return (0.5 * (low + high)).exp()


def best_basis(energy: Energy, seen: OperatorMeasurement) -> tuple[Covariance, Tensor]:
    """The identity in the basis where HᵀH is most nearly diagonal, of those that the energy knows, and d there, [1, 1, H, W]."""
    known = energy.range.bases or BASES
    names = [name for name in BASES if name in known] or [known[0]]
    found = [(identity(name, seen.linear.shape, seen.raw), seen_gains(seen.linear, name)) for name in names]
    best = found[0]
    for candidate in found[1:]:
        if float(candidate[1].square().mean()) > CLEARLY * float(best[1].square().mean()):
            best = candidate
    return best

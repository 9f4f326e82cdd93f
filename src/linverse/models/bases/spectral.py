"""A stationary Gaussian for pictures of any size: a spectrum for each opponent colour (mathematics §11).

C is diagonal in the DCT of the whole picture: power C_k at the frequency k/2N of a coefficient, one smooth function of frequency (cycles
per pixel) for every opponent colour, so that it knows no size. The DCT, not the Fourier basis, because photographs do not repeat: a
periodic Gaussian charges every picture thousands of nats for the jump from its right edge to its left.

C+Σ is diagonal for isotropic noise and for Σ in the DCT only. For all others the base is an energy close to the Gaussian's: one with a
single variance C̄ for all coefficients, w = √C̄(y−m)/(C̄+λ) and φ = C̄/(C̄+λ) in Σ's own basis, plus the correction
    Δ = ½ Σ_k { ŵ_k² A_k + log(1 − φ̄_k + φ̄_kρ_k) },   A_k = (1−ρ_k)/(1 − φ̄_k + φ̄_kρ_k),   ρ_k = C_k/C̄
with ŵ the DCT of w in opponent colours and φ̄_k = d_kᵀ(Q diag φ Qᵀ)d_k what is left of the DCT vector d_k (for a mask the mean of φ).
It is exact where it can be, the same at isotropic noise in every basis, and vanishes as Σ → ∞. Its mean is x̂₀ = m + √C̄(w − (1−φ)Aw).

Three families have a correction Δ' of their own, which is exact for a Gaussian close to C. Δ = Δ'(w, φ) + c(Δ_D(w̃, φ̃) − Δ'(w̃, φ̃)) adds what
it differs by from the one above at isotropic noise as loud as Σ's loudest, λ̃ = (mean λ⁴)^¼ with w̃ = w(C̄+λ)/(C̄+λ̃): all bases agree there.
- *Periodic noise* may be loud at one frequency and faint at the next; a DCT vector mixes the two, and A, 10⁴ for a fine wave that is well
  measured, would put thousands of its standard deviations into one that is not. Δ' is diagonal in Fourier, with the power C_k as a periodic
  picture would show it.
- *Noise of two levels on blocks*, as in super-resolution, is exact (`blocks`).
- *Noise that differs from pixel to pixel*: masks have holes that the mean of φ knows nothing of. Δ' is exact but for log det (`pixels`),
  which is that of quadtrees (`tree`), and at every pixel what these are off by under isotropic noise as loud as its own: their details are
  white, so that by themselves they are wrong about every fine wave, holes or none. It counts b = 1 − exp(mean log λ − log λ̃), which is
  0 with its derivatives where all λ are alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from linverse.covariance import BlockDCTCovariance, Covariance, FourierCovariance, SpatialCovariance
from linverse.models.bases.blocks import (
    BlockLevels,
    at_means,
    block_variances,
    known_by_others,
    solve_blocks,
    two_levels,
)
from linverse.models.bases.frames import DCT, HARTLEY, Shrinkage, on_dct_grid, opponent, opponent_colours, spread_over
from linverse.models.bases.pixels import gaussian_energy, sum_of_logs
from linverse.models.bases.spectrum import ANGLES, OCTAVES, fitted_table, knot_weights, read_table
from linverse.models.bases.tree import (
    SHIFTS,
    SIDE,
    ByColour,
    Mixing,
    TreeAnswer,
    TreeVariances,
    even_logs,
    even_variance,
    solve_tree,
    tree_levels,
    tree_variances,
)

UNMEASURED = 8  # the power of 1−G by which what trees hardly know is taken away, see `SpectralBase`
QUANTILES, POWER_SIDE = 16, 64  # of the power, and pixels a side of the picture whose coefficients they are


@dataclass(frozen=True)
class LinearAnswer:
    """Δ [B], float64, ∂Δ/∂w as an image, tr C(C+Σ)⁻¹/d, and x̂₀ ↦ x̂₀ less what is hardly known of it (in units of √C̄, less m).

    `neighbours`, for Σ that is diagonal in pixels, is log V'/V ≥ 0, V' a pixel's variance if all were as noisy as it: what less noisy ones
    around it tell. On blocks of two levels it is one number for all pixels.
    """

    delta: Tensor
    gradient: Tensor
    measured: Tensor
    steadied: Callable[[Tensor], Tensor]
    neighbours: Tensor | None = None


@dataclass(frozen=True)
class Evened:
    """y under isotropic noise λ̃: w̃, w̃/w = (C̄+λ)/(C̄+λ̃) and (φ̃, 1−φ̃)."""

    white: Tensor
    gain: Tensor
    shares: tuple[Tensor, Tensor]


@dataclass(frozen=True)
class TreeMeans:
    """log det(C+Σ) [B], float64, and, as images, what is hardly known in units of √C̄, and log V'/V ≥ 0."""

    log_det: Tensor
    unsteady: Tensor
    neighbours: Tensor


class SpectralBase(nn.Module):
    """N(m, C) with a constant colour m and a spectrum by opponent colour, for pictures of `channels` colours and any size.

    A tree knows a pixel that was measured although it hardly knows the coarse nodes above it: to take these away leaves the pixel hanging
    on the hole beside it, so that what a network says of the pixel moves the hole. Less is taken away the more was measured.
    """

    colour: Tensor
    log_power: Tensor
    log_prior: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("colour", torch.zeros(channels))
        self.register_buffer("log_power", torch.zeros(channels, len(OCTAVES) * ANGLES))
        self.register_buffer("log_prior", torch.zeros(()))  # log C̄
        self._tree: tuple[tuple[object, ...], TreeVariances] | None = None

    @property
    def mean(self) -> Tensor:
        """m, [C, 1, 1]."""
        return self.colour.reshape(-1, 1, 1)

    @torch.no_grad()
    def fit(self, samples: list[Tensor]) -> None:
        """Take over mean colour and spectrum from crops [n, C, H, W] of several sizes."""
        self.colour.copy_(torch.stack([x.double().mean(dim=(0, 2, 3)) for x in samples]).mean(0))
        variances = [(x - self.mean).double().square().mean() for x in samples]
        self.log_prior.copy_(torch.stack(variances).mean().log())
        squares = [DCT.coefficients((x - self.mean).double()).square().mean(0).flatten(1) for x in samples]
        weights = [knot_weights(x.shape[2], x.shape[3]).flatten(1) for x in samples]
        counts = [len(x) for x in samples]
        self.log_power.copy_(
            torch.stack([fitted_table([q[c] for q in squares], weights, counts) for c in range(len(self.colour))])
        )

    def log_ratio(self, size: tuple[int, int], like: Tensor) -> Tensor:
        """log ρ = log C_k/C̄ on the DCT grid, [C, H, W] by opponent colour: the table, bilinearly (see `knot_weights`)."""
        return read_table(self.log_power.to(like), size) - self.log_prior.to(like)

    def marginal(self, cov: Covariance) -> tuple[Tensor, Tensor]:
        """m and the variance of the images' coefficients in Σ's eigenbasis, [1, C, H, W]; for masks and blocks those of a mean block."""
        like = cov.log_variance
        power = (self.log_ratio(cov.size, like) + self.log_prior.to(like)).exp()
        mixed = torch.einsum("oc,oyx->cyx", opponent_colours(len(power)).to(like).square(), power)[None]
        centre = cov.analysis(self.mean.to(like).expand(1, -1, *cov.size))
        return centre, spread_over(mixed, cov)

    def correction(self, white: Tensor, cov: Covariance, phi: Tensor, rest: Tensor) -> LinearAnswer:
        """Δ, ∂Δ/∂w and what is known of the picture, for w as an image and φ, 1−φ of log λ's shape."""
        ratio = self.log_ratio(cov.size, white).exp()
        if isinstance(cov, FourierCovariance):
            return self._periodic(white, cov, ratio, phi, rest)
        left, lost = (self._opponent_mean(on_dct_grid(values, cov), cov) for values in (phi, rest))
        known = Shrinkage(DCT, ratio, left, lost)
        if isinstance(cov, BlockDCTCovariance) and (levels := two_levels(cov)):
            return self._by_block(white, cov, known, levels)
        pixels = isinstance(cov, SpatialCovariance)
        if pixels and not alike(cov.log_variance):
            return self._by_pixel(white, cov, known)
        told = white.new_zeros(()) if pixels else None
        return LinearAnswer(*known.correction(white), known.measured, known.steadied, told)

    def _periodic(self, white: Tensor, cov: Covariance, ratio: Tensor, phi: Tensor, rest: Tensor) -> LinearAnswer:
        """Fourier Σ: each frequency by itself."""
        repeated = spread_over(ratio[None], cov)
        known = Shrinkage(HARTLEY, repeated, *(self._opponent_mean(values, cov) for values in (phi, rest)))
        even = self._evened(white, cov)
        delta, gradient = known.correction(white)
        for frame, power, sign in ((DCT, ratio, 1), (HARTLEY, repeated, -1)):
            flat, turned = Shrinkage(frame, power, *even.shares).correction(even.white)
            delta = delta + sign * flat
            gradient = gradient + sign * cov.synthesis(cov.analysis(turned) * even.gain)
        return LinearAnswer(delta, gradient, known.measured, known.steadied)

    def _by_block(self, white: Tensor, cov: BlockDCTCovariance, known: Shrinkage, levels: BlockLevels) -> LinearAnswer:
        """Noise of two levels on blocks: exact (`blocks`)."""
        log_prior = self.log_prior.to(white)
        log_total = torch.logaddexp(log_prior, cov.log_variance)
        w = cov.analysis(white)
        shift = DCT.coefficients(cov.synthesis(w * torch.exp(log_total - 0.5 * log_prior)))
        power = known.ratio * log_prior.exp()
        answer, log_det = solve_blocks(shift, power, levels, cov.block)
        u = cov.analysis(DCT.image(answer))
        gradient = u * torch.exp(log_total - 0.5 * log_prior) - w * torch.exp(log_total - log_prior)
        plain = log_total.expand_as(w).flatten(1).sum(dim=1, dtype=torch.float64)
        first_order = levels.spread(cov.block, cov.size).exp() * levels.excess * u.square()
        quadratic = (w * gradient - first_order).flatten(1).sum(dim=1, dtype=torch.float64)
        delta, told = 0.5 * (quadratic + log_det - plain), known_by_others(power, levels, cov.block)
        return LinearAnswer(delta, cov.synthesis(gradient), known.measured, known.steadied, told)

    def block_variance(self, cov: Covariance) -> Tensor | None:
        """The posterior variance of coefficients of blocks of two levels, [B, C, H, W], the mean over each level; None for other Σ."""
        if not isinstance(cov, BlockDCTCovariance) or not (levels := two_levels(cov)):
            return None
        like = cov.log_variance
        power = (self.log_ratio(cov.size, like) + self.log_prior.to(like)).exp()
        mix = opponent_colours(len(power)).to(like).square()
        means, rest = (torch.einsum("oc,boyx->bcyx", mix, v) for v in block_variances(power, levels, cov.block))
        return torch.where(at_means(cov.block, cov.size, like.device), means, rest)

    def _by_pixel(self, white: Tensor, cov: Covariance, known: Shrinkage) -> LinearAnswer:
        """Σ that is diagonal in pixels: exact but for log det (`pixels`), to the degree b that its pixels differ."""
        log_prior = self.log_prior.to(white)
        log_total = torch.logaddexp(log_prior, cov.log_variance)
        gain, inverse = torch.exp(log_total - 0.5 * log_prior), torch.exp(log_total - log_prior)  # δ = gain·w, and 1/φ
        power = known.ratio * log_prior.exp()
        energy, u = gaussian_energy(white * gain, cov.log_variance, power, opponent_colours(white.shape[1]))
        trees, flat = self._trees(white, cov.log_variance), known.correction(white)
        plain = (white.square() * inverse + log_total).flatten(1).sum(dim=1, dtype=torch.float64)
        exact = energy + 0.5 * (self._log_det(cov, trees.log_det) - plain)
        b = self._differing(cov.log_variance)
        taken = b * (1 - known.measured) ** UNMEASURED
        alone = white - self._shares(cov.log_variance)[1] * flat[1]
        hardly = taken * trees.unsteady + (1 - b) * (alone - known.steadied(alone))
        return LinearAnswer(
            torch.lerp(flat[0], exact, b.flatten().double()),
            torch.lerp(flat[1], gain * u - white * inverse, b.expand_as(white)),
            known.measured,
            lambda shift: shift - hardly,
            b * trees.neighbours,
        )

    def _differing(self, log_variance: Tensor) -> Tensor:
        """b = 1 − exp(mean log λ − log λ̃), [B, 1, 1, 1]: 0 with its derivatives where all λ are alike."""
        return -torch.expm1(log_variance.mean(dim=(1, 2, 3), keepdim=True) - power_mean(log_variance))

    def _log_det(self, cov: Covariance, by_trees: Tensor) -> Tensor:
        """log det(C+Σ), [B], float64: the trees', and at every pixel what they are off by under isotropic noise as loud as its own."""
        values, weights = even_logs(self.tree_variances(), tree_levels(cov.size))
        powers = self._quantiles()
        values, weights = (
            torch.cat([powers, values]),
            torch.cat([weights.new_full((QUANTILES,), 1 / QUANTILES), -weights]),
        )
        colours = opponent_colours(cov.channels).to(weights).square()  # [opponent, channel]
        each = torch.einsum("oc,j->cjo", colours, weights).flatten(1)
        each = each if cov.log_variance.shape[1] > 1 else each.sum(0, keepdim=True)
        return by_trees + sum_of_logs(
            cov.log_variance, values.flatten().to(cov.log_variance), each.to(cov.log_variance)
        )

    def _quantiles(self) -> Tensor:
        """The power of the coefficients of a picture, sorted, in groups of equal number: their geometric means, [QUANTILES, C]."""
        side = self.log_power.new_zeros(1, 1, POWER_SIDE, POWER_SIDE)
        powers = self.log_ratio((POWER_SIDE, POWER_SIDE), side).double() + self.log_prior
        return powers.flatten(1).sort(dim=1).values.unflatten(1, (QUANTILES, -1)).mean(2).exp().mT

    def _shares(self, log_variance: Tensor) -> tuple[Tensor, Tensor]:
        """φ and 1−φ."""
        log_prior = self.log_prior.to(log_variance)
        return torch.sigmoid(log_prior - log_variance), torch.sigmoid(log_variance - log_prior)

    def _evened(self, white: Tensor, cov: Covariance) -> Evened:
        """The same y under isotropic noise that is as loud as Σ's loudest."""
        loud = power_mean(cov.log_variance)
        log_prior = self.log_prior.to(loud)
        gain = torch.exp(torch.logaddexp(log_prior, cov.log_variance) - torch.logaddexp(log_prior, loud))
        shares = torch.sigmoid(log_prior - loud), torch.sigmoid(loud - log_prior)
        return Evened(cov.synthesis(cov.analysis(white) * gain), gain, shares)

    # --- noise that differs from pixel to pixel -----------------------------------------------------------------------------

    def tree_variances(self) -> TreeVariances:
        """Those of the spectrum; found once."""
        key = (self.log_power.data_ptr(), self.log_power._version, self.log_power.dtype)
        if self._tree is None or self._tree[0] != key:
            with torch.no_grad():
                power = (self.log_ratio((SIDE, SIDE), self.log_power) + self.log_prior).exp()
                self._tree = key, tree_variances(power)
        return self._tree[1]

    def solve_trees(self, shift: Tensor, log_variance: Tensor) -> list[TreeAnswer]:
        """What each tree says of δ = y−m in pixels, all by colour channel, for log λ [B, 1 or C, H, W]."""
        variances, colours = self.tree_variances(), opponent_colours(shift.shape[1])
        if log_variance.shape[1] > 1:  # matrices of colours, whose entries may differ by a factor of 10⁹
            mixing = Mixing(variances, colours.to(shift.device))
            answers = [solve_tree(shift.double(), log_variance.double().exp(), mixing, offset) for offset in SHIFTS]
            return [TreeAnswer(a.u.to(shift), a.variance.to(shift), a.log_det, a.unsteady.to(shift)) for a in answers]
        nodes, z = ByColour(variances, shift), opponent(shift)
        answers = [solve_tree(z, log_variance.exp(), nodes, offset) for offset in SHIFTS]
        mix = colours.to(shift).square()
        return [
            TreeAnswer(
                opponent(a.u, back=True),
                torch.einsum("oc,boyx->bcyx", mix, a.variance),
                a.log_det,
                opponent(a.unsteady, back=True),
            )
            for a in answers
        ]

    def _trees(self, white: Tensor, log_variance: Tensor) -> TreeMeans:
        """Means over trees, `neighbours` the least of them."""
        log_prior = self.log_prior.to(white)
        shift = white * torch.exp(torch.logaddexp(log_prior, log_variance) - 0.5 * log_prior)
        answers = self.solve_trees(shift, log_variance)
        log_det, unsteady = (
            torch.stack(each).mean(0) for each in zip(*((a.log_det, a.unsteady) for a in answers), strict=True)
        )
        size = white.shape[2], white.shape[3]
        known = [self._even_variance(log_variance, tree_levels(size, offset)).log() for offset in SHIFTS]
        better = torch.stack([even - a.variance.log() for even, a in zip(known, answers, strict=True)])
        return TreeMeans(log_det, unsteady * torch.exp(-0.5 * log_prior), better.amin(0).clamp_min(0))

    def _even_variance(self, log_variance: Tensor, levels: int) -> Tensor:
        """V of each pixel and colour channel if all were as noisy as it, [B, C, H, W]."""
        colours = opponent_colours(len(self.colour)).to(log_variance).square()
        each = even_variance(log_variance.exp()[:, None], self.tree_variances(), levels)  # [B, opponent, 1 or C, H, W]
        return torch.einsum("oc,bocyx->bcyx", colours, each.expand(-1, -1, len(self.colour), -1, -1))

    def _opponent_mean(self, values: Tensor, cov: Covariance) -> Tensor:
        """Values by colour channel → by opponent colour, as the diagonal of a covariance is."""
        if values.shape[1] == 1:
            return values
        return torch.einsum("oc,bcyx->boyx", opponent_colours(values.shape[1]).to(values).square(), values)


def alike(log_variance: Tensor) -> bool:
    """Whether every image has one λ: then the trees count nothing, nor do their derivatives in λ."""
    rows = log_variance.detach().flatten(1)
    return bool((rows == rows[:, :1]).all())


def power_mean(log_variance: Tensor) -> Tensor:
    """log of (mean λ⁴)^¼, [B, 1, 1, 1]: near the loudest noise, and λ where all are alike."""
    count = math.log(log_variance[0].numel())
    return 0.25 * (torch.logsumexp(4 * log_variance, dim=(1, 2, 3), keepdim=True) - count)

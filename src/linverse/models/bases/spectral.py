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
  0 with its derivatives where all λ are alike. Models without `fills` were trained with trees for the mean, too (c = (1−b)⁴; periodic
  noise: 1): 31.4 dB in scratches of 16 held-out crops where the Gaussian itself has 36.1.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from linverse.covariance import BlockDCTCovariance, Covariance, FourierCovariance, SpatialCovariance
from linverse.covariance.dct import block_dct_matrix, dct2, dct_frequencies, dct_matrix, inverse_dct2
from linverse.covariance.fourier import grid_frequencies, hartley
from linverse.models.bases.blocks import (
    BlockLevels,
    at_means,
    block_variances,
    known_by_others,
    solve_blocks,
    two_levels,
)
from linverse.models.bases.pixels import gaussian_energy, sum_of_logs
from linverse.models.bases.tree import (
    COARSE_SIDE,
    SHIFTS,
    SIDE,
    TOLERATED,
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

OCTAVES = torch.arange(-11.0, 0.01, 0.5)  # log₂ of the radial frequencies at which the spectrum is tabulated
ANGLES = 3  # horizontal, diagonal, vertical
COARSE = 1 / COARSE_SIDE  # see `log_tolerance`; cycles per pixel
NO_SHARE = 1e-5  # of the evened trees: not worth a second sweep
Correction = tuple[Tensor, Tensor]  # Δ [B], float64, and ∂Δ/∂w as an image
FAINT = 0.3  # weight of the wishes for f⁻² and equal angles, see `faint_wishes`
UNMEASURED = 8  # the power of 1−G by which what trees hardly know is taken away, see `SpectralBase`
QUANTILES, POWER_SIDE = 16, 64  # of the power, and pixels a side of the picture whose coefficients they are
MEAN_RADIUS = 0.18  # the mean of a picture of N pixels a side counts as a wave of this many cycles per N pixels


@lru_cache(maxsize=8)
def opponent_colours(channels: int) -> Tensor:
    """[C, C] orthonormal, float64: luma and two chromas for colour, the identity otherwise."""
    if channels != 3:
        return torch.eye(channels, dtype=torch.float64)
    rows = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, -2.0, 1.0]], dtype=torch.float64)
    return rows / rows.norm(dim=1, keepdim=True)


@lru_cache(maxsize=8)
def table_positions(height: int, width: int) -> tuple[Tensor, Tensor]:
    """Where each DCT coefficient lies in the table, [H, W] each: in octaves' and in angles' entries, float64."""
    vertical, horizontal = dct_frequencies(height, width, torch.zeros((), dtype=torch.float64))
    radius = torch.hypot(vertical, horizontal)
    radius[0, 0] = MEAN_RADIUS / math.sqrt(height * width)
    octave = ((radius.log2() - float(OCTAVES[0])) / 0.5).clamp(0, len(OCTAVES) - 1)
    angle = torch.atan2(vertical, horizontal.clamp_min(1e-12)) / (0.5 * math.pi) * (ANGLES - 1)
    return octave, angle


@lru_cache(maxsize=16)
def knot_weights(height: int, width: int) -> Tensor:
    """[octaves·angles, H, W]: how much each entry of the table counts for each DCT coefficient; they add up to one."""
    octave, angle = table_positions(height, width)
    radial, turning = (
        (1 - (position[None] - torch.arange(count, dtype=torch.float64)[:, None, None]).abs()).clamp_min(0)
        for position, count in ((octave, len(OCTAVES)), (angle, ANGLES))
    )
    return (radial[:, None] * turning[None]).flatten(0, 1)


@lru_cache(maxsize=64)
def block_shares(size: int, block: int) -> Tensor:
    """[N, b]: the share of a DCT vector of length N that lies in coefficient u of its b-blocks, over all blocks; rows add up to one."""
    double, cpu = torch.float64, torch.device("cpu")
    overlap = dct_matrix(size, double, cpu) @ block_dct_matrix(size, block, double, cpu).mT
    return overlap.square().unflatten(1, (-1, block)).sum(1)


@lru_cache(maxsize=64)
def fourier_shares(size: int) -> Tensor:
    """[N, N]: the share of a DCT vector of length N that lies at each DFT frequency; rows add up to one."""
    return torch.fft.fft(dct_matrix(size, torch.float64, torch.device("cpu")), norm="ortho").abs().square()


def opponent(x: Tensor, *, back: bool = False) -> Tensor:
    """Colour channels [B, C, H, W] → opponent colours, or back."""
    return torch.einsum("co,bcyx->boyx" if back else "oc,bcyx->boyx", opponent_colours(x.shape[1]).to(x), x)


class Frame(ABC):
    """A basis in which C counts as diagonal: images ↔ coefficients of opponent colours, and the radius of their frequencies."""

    @abstractmethod
    def coefficients(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def image(self, z: Tensor) -> Tensor: ...

    @abstractmethod
    def radius(self, size: tuple[int, int]) -> Tensor: ...


class DctFrame(Frame):
    """The DCT of the whole picture."""

    def coefficients(self, x: Tensor) -> Tensor:
        return dct2(opponent(x))

    def image(self, z: Tensor) -> Tensor:
        return opponent(inverse_dct2(z), back=True)

    def radius(self, size: tuple[int, int]) -> Tensor:
        return torch.hypot(*dct_frequencies(*size, torch.zeros((), dtype=torch.float64)))


class HartleyFrame(Frame):
    """The basis of periodic noise."""

    def coefficients(self, x: Tensor) -> Tensor:
        return hartley(opponent(x))

    def image(self, z: Tensor) -> Tensor:
        return opponent(hartley(z), back=True)

    def radius(self, size: tuple[int, int]) -> Tensor:
        return torch.hypot(*grid_frequencies(*size, torch.zeros((), dtype=torch.float64)))


DCT, HARTLEY = DctFrame(), HartleyFrame()


@lru_cache(maxsize=16)
def log_tolerance(frame: Frame, size: tuple[int, int]) -> Tensor:
    """log of how much less than the mean coefficient one may be known before it is damped, [H, W], float64.

    4 from a wavelength of 16 pixels on, and 4(16f)² below: what a network errs by is alike over some pixels around, so that it adds up in
    coarser waves; without the square the mean grey value of a picture of d pixels would be moved by √d times that.
    """
    radius = frame.radius(size)
    radius[0, 0] = MEAN_RADIUS / math.sqrt(math.prod(size))
    return math.log(TOLERATED) + 2 * (radius / COARSE).clamp_max(1).log()


@dataclass(frozen=True)
class Shrinkage:
    """What a diagonal Gaussian of variances ρC̄ makes of noise with φ and 1−φ (each of its frame's shape, by opponent colour)."""

    frame: Frame
    ratio: Tensor
    left: Tensor
    lost: Tensor

    @property
    def denominator(self) -> Tensor:
        return self.lost + self.left * self.ratio

    def turned(self, z: Tensor) -> Tensor:
        """A ŵ of coefficients ŵ."""
        return z * ((1 - self.ratio) / self.denominator)

    def energy(self, z: Tensor, turned: Tensor) -> Tensor:
        """½ Σ_k { ŵ_k² A_k + log(1 − φ_k + φ_kρ_k) }, [B], float64."""
        quadratic = (z * turned).flatten(1).sum(dim=1, dtype=torch.float64)
        return 0.5 * (quadratic + self.denominator.log().expand_as(z).flatten(1).sum(dim=1, dtype=torch.float64))

    def correction(self, white: Tensor) -> Correction:
        """Δ and ∂Δ/∂w of an image w."""
        z = self.frame.coefficients(white)
        turned = self.turned(z)
        return self.energy(z, turned), self.frame.image(turned)

    @property
    def measured(self) -> Tensor:
        """tr C(C+Σ)⁻¹/d, [B, 1, 1, 1]."""
        return (self.left * self.ratio / self.denominator).mean(dim=(1, 2, 3), keepdim=True)

    def steadied(self, x: Tensor) -> Tensor:
        """An image less what of it is hardly known: each coefficient times (1 + (V·V/C ÷ t·V̄)⁴)^(−⅛).

        V is its posterior variance, V̄ the mean of V, t the tolerance at its frequency.
        """
        unknown = self.lost / self.denominator
        variance = self.ratio * unknown
        excess = (variance * unknown).log() - variance.mean(dim=(1, 2, 3), keepdim=True).log()
        tolerated = log_tolerance(self.frame, (x.shape[2], x.shape[3])).to(x)
        return self.frame.image(self.frame.coefficients(x) * torch.exp(-0.125 * F.softplus(4 * (excess - tolerated))))


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
    """y under isotropic noise λ̃: w̃, log λ̃, w̃/w = (C̄+λ)/(C̄+λ̃), (φ̃, 1−φ̃), and λ/λ̃."""

    white: Tensor
    log_variance: Tensor
    gain: Tensor
    shares: tuple[Tensor, Tensor]
    louder: Tensor


@dataclass(frozen=True)
class TreeCorrection:
    """Δ' and log det(C+Σ) [B], float64, ∂Δ'/∂w = (C̄+λ)u/√C̄ − w/φ, what is hardly known in units of √C̄, and log V'/V ≥ 0, as images."""

    delta: Tensor
    log_det: Tensor
    gradient: Tensor
    unsteady: Tensor
    neighbours: Tensor


class SpectralBase(nn.Module):
    """N(m, C) with a constant colour m and a spectrum by opponent colour, for pictures of `channels` colours and any size.

    `fills` (models trained before do without) is about what was not measured. Blocks of two levels are exact. And a tree knows a pixel that
    was measured although it hardly knows the coarse nodes above it: to take these away leaves the pixel hanging on the hole beside it, so
    that what a network says of the pixel moves the hole. Less is taken away the more was measured.
    """

    colour: Tensor
    log_power: Tensor
    log_prior: Tensor

    def __init__(self, channels: int, *, fills: bool = True) -> None:
        super().__init__()
        self.fills = fills
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
        octave, angle = table_positions(*size)
        table = self.log_power.to(like).unflatten(1, (len(OCTAVES), ANGLES))
        total = like.new_zeros(len(table), *size)
        for up in (0, 1):
            row = (octave.floor() + up).clamp_max(len(OCTAVES) - 1)
            for turned in (0, 1):
                column = (angle.floor() + turned).clamp_max(ANGLES - 1)
                down = (1 - (octave - octave.floor() - up).abs()) * (1 - (angle - angle.floor() - turned).abs())
                rows, columns = row.long().to(like.device), column.long().to(like.device)
                total += table[:, rows, columns] * down.to(like)
        return total - self.log_prior.to(like)

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
        if self.fills and isinstance(cov, BlockDCTCovariance) and (levels := two_levels(cov)):
            return self._by_block(white, cov, known, levels)
        pixels = isinstance(cov, SpatialCovariance)
        if pixels and not alike(cov.log_variance):
            return self._by_pixel(white, cov, known) if self.fills else self._by_tree(white, cov, known)
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
        if not self.fills or not isinstance(cov, BlockDCTCovariance) or not (levels := two_levels(cov)):
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

    def _by_tree(self, white: Tensor, cov: Covariance, known: Shrinkage) -> LinearAnswer:
        """Σ that is diagonal in pixels: trees, to the degree b that its pixels differ (models without `fills`)."""
        even = self._evened(white, cov)
        trees = self._evened_trees(white, cov, known, even)
        plain = known.correction(white)
        b = self._differing(cov.log_variance)
        by_mean = self._shares(cov.log_variance)[1] * plain[1]  # what the estimate by the mean of φ takes away from w

        def steadied(shift: Tensor) -> Tensor:
            """Of the mean of both estimates each is steadied by itself."""
            alone = white - by_mean
            return shift - b * trees.unsteady - (1 - b) * (alone - known.steadied(alone))

        return LinearAnswer(
            torch.lerp(plain[0], trees.delta, b.flatten().double()),
            torch.lerp(plain[1], trees.gradient, b.expand_as(white)),
            known.measured,
            steadied,
            b * trees.neighbours,
        )

    def _evened_trees(self, white: Tensor, cov: Covariance, known: Shrinkage, even: Evened) -> TreeCorrection:
        """Those of the trees, plus (1−b)⁴ of what they differ by from the DCT's at isotropic noise as loud as Σ's loudest."""
        trees = self._trees(white, cov.log_variance)
        share = torch.exp(4 * (cov.log_variance.mean(dim=(1, 2, 3), keepdim=True) - even.log_variance))
        share = torch.where(share > NO_SHARE, share, 0.0)
        if not bool(share.any()):
            return trees
        less = self._trees(even.white, even.log_variance.expand(-1, -1, *cov.size))
        common = Shrinkage(DCT, known.ratio, *even.shares)
        flat, turned = common.correction(even.white)
        shift = even.white - even.shares[1] * turned
        return TreeCorrection(
            trees.delta + share.flatten().double() * (flat - less.delta),
            trees.log_det,
            trees.gradient + share * (turned - less.gradient) * even.gain,
            trees.unsteady + share * even.louder * (shift - common.steadied(shift) - less.unsteady),
            trees.neighbours,
        )

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
        return Evened(cov.synthesis(cov.analysis(white) * gain), loud, gain, shares, torch.exp(cov.log_variance - loud))

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

    def _trees(self, white: Tensor, log_variance: Tensor) -> TreeCorrection:
        """Δ' = ½wᵀ∂Δ'/∂w + ½ log det(C+Σ)(C̄+Σ)⁻¹ and the rest of `TreeCorrection`: means over trees, the last the least of them."""
        log_prior = self.log_prior.to(white)
        log_total = torch.logaddexp(log_prior, log_variance)
        gain = torch.exp(log_total - 0.5 * log_prior)  # δ = gain·w
        answers = self.solve_trees(white * gain, log_variance)
        u, unsteady = (torch.stack(each).mean(0) for each in zip(*((a.u, a.unsteady) for a in answers), strict=True))
        gradient = gain * u - white * torch.exp(log_total - log_prior)
        plain = log_total.expand_as(white).flatten(1).sum(dim=1, dtype=torch.float64)
        log_det = torch.stack([answer.log_det for answer in answers]).mean(0)
        energy = 0.5 * ((white * gradient).flatten(1).sum(dim=1, dtype=torch.float64) + log_det - plain)
        size = white.shape[2], white.shape[3]
        known = [self._even_variance(log_variance, tree_levels(size, offset)).log() for offset in SHIFTS]
        better = torch.stack([even - a.variance.log() for even, a in zip(known, answers, strict=True)])
        return TreeCorrection(
            energy, log_det, gradient, unsteady * torch.exp(-0.5 * log_prior), better.amin(0).clamp_min(0)
        )

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


def on_dct_grid(values: Tensor, cov: Covariance) -> Tensor:
    """d_kᵀ(Q diag(v) Qᵀ)d_k for every DCT vector d_k: values of log λ's shape → [B, c, H, W] on the DCT grid."""
    height, width = cov.size
    if isinstance(cov, FourierCovariance):
        rows, columns = (fourier_shares(n).to(values) for n in (height, width))
        return rows @ mirrored_mean(values) @ columns.mT
    bh, bw = cov.frequencies().shape[1:]
    rows, columns = block_shares(height, bh).to(values), block_shares(width, bw).to(values)
    return rows @ cov.blocks(values).mean(dim=(2, 4)) @ columns.mT


def alike(log_variance: Tensor) -> bool:
    """Whether every image has one λ: then the trees count nothing, nor do their derivatives in λ."""
    rows = log_variance.detach().flatten(1)
    return bool((rows == rows[:, :1]).all())


def power_mean(log_variance: Tensor) -> Tensor:
    """log of (mean λ⁴)^¼, [B, 1, 1, 1]: near the loudest noise, and λ where all are alike."""
    count = math.log(log_variance[0].numel())
    return 0.25 * (torch.logsumexp(4 * log_variance, dim=(1, 2, 3), keepdim=True) - count)


def spread_over(power: Tensor, cov: Covariance) -> Tensor:
    """The adjoint: powers on the DCT grid [1, c, H, W] → variances of the coefficients in Σ's basis (those of a mean block)."""
    height, width = cov.size
    if isinstance(cov, FourierCovariance):
        rows, columns = (fourier_shares(n).to(power) for n in (height, width))
        return mirrored_mean(rows.mT @ power @ columns)
    bh, bw = cov.frequencies().shape[1:]
    rows, columns = block_shares(height, bh).to(power), block_shares(width, bw).to(power)
    block = rows.mT @ power @ columns * (bh * bw / (height * width))
    return block.tile(1, 1, height // bh, width // bw)


def mirrored_mean(values: Tensor) -> Tensor:
    """The mean of a function on the DFT grid over (±k_y, ±k_x): a DCT vector does not know the sign of its frequencies."""
    across = torch.roll(values.flip(-1), 1, -1)
    both = 0.5 * (values + across)
    return 0.5 * (both + torch.roll(both.flip(-2), 1, -2))


def faint_wishes() -> tuple[Tensor, Tensor]:
    """The precision [K, K] and its product with the mean [K] of the table where nothing is known.

    Straight lines alone carry a slope of the coarsest two coefficients on through ten octaves: e¹³² from crops of 16 pixels.
    """
    count, double = len(OCTAVES), torch.float64
    first = torch.diff(torch.eye(count, dtype=double), dim=0)
    second = torch.diff(first, dim=0)
    turned = torch.diff(torch.eye(ANGLES, dtype=double), dim=0)
    radial = torch.kron(second.mT @ second + FAINT * first.mT @ first, torch.eye(ANGLES, dtype=double))
    angular = torch.kron(torch.eye(count, dtype=double), turned.mT @ turned)
    falling = first.mT @ torch.full(
        (count - 1,), -math.log(2.0), dtype=double
    )  # of f⁻² from one half octave to the next
    return radial + FAINT * angular, FAINT * falling.repeat_interleave(ANGLES)


def fitted_table(squares: list[Tensor], weights: list[Tensor], counts: list[int], rounds: int = 30) -> Tensor:
    """The table of log power under which mean squares are most probable (Whittle's likelihood), by Fisher scoring.

    Each of several sizes gives mean squares [n], the weights of the table's entries [K, n], and the number of pictures. Faint wishes decide
    entries that no coefficient speaks of: straight lines in log frequency, the 1/f² of photographs, all angles alike.
    """
    smooth, wished = faint_wishes()
    level = sum(float(q.sum()) for q in squares) / sum(q.numel() for q in squares)
    table = torch.full((len(weights[0]),), math.log(level), dtype=torch.float64)
    normal = smooth + sum(n * (w @ w.mT) for w, n in zip(weights, counts, strict=True))
    for _ in range(rounds):
        excess = sum(
            n * (w @ (q * torch.exp(-table @ w) - 1).clamp_max(4.0))
            for q, w, n in zip(squares, weights, counts, strict=True)
        )
        table = table + torch.linalg.solve(normal, excess + wished - smooth @ table)
    return table

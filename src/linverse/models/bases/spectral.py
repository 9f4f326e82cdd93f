"""A stationary Gaussian for pictures of any size: a spectrum for each opponent colour (mathematics §11).

C is diagonal in the DCT of the whole picture: power C_k at the frequency k/2N of a coefficient, one smooth function of frequency (cycles
per pixel) for every opponent colour, so that it knows no size. The DCT, not the Fourier basis, because photographs do not repeat: a
periodic Gaussian charges every picture thousands of nats for the jump from its right edge to its left.

C+Σ is diagonal for isotropic noise and for Σ in the DCT only. For all others the base is an energy close to the Gaussian's: one with a
single variance C̄ for all coefficients, w = √C̄(y−m)/(C̄+λ) and φ = C̄/(C̄+λ) in Σ's own basis, plus the correction
    Δ = ½ Σ_k { ŵ_k² A_k + log(1 − φ̄_k + φ̄_kρ_k) },   A_k = (1−ρ_k)/(1 − φ̄_k + φ̄_kρ_k),   ρ_k = C_k/C̄
with ŵ the DCT of w in opponent colours and φ̄_k = d_kᵀ(Q diag φ Qᵀ)d_k what is left of the DCT vector d_k (for a mask the mean of φ).
It is exact where it can be, the same at isotropic noise in every basis, and vanishes as Σ → ∞. Its mean is x̂₀ = m + √C̄(w − (1−φ)Aw).
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor, nn

from linverse.covariance import Covariance, FourierCovariance
from linverse.covariance.dct import block_dct_matrix, dct_frequencies, dct_matrix

OCTAVES = torch.arange(-11.0, 0.01, 0.5)  # log₂ of the radial frequencies at which the spectrum is tabulated
ANGLES = 3  # horizontal, diagonal, vertical
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


class SpectralBase(nn.Module):
    """N(m, C) with a constant colour m and a spectrum by opponent colour, for pictures of `channels` colours and any size."""

    colour: Tensor
    log_power: Tensor
    log_prior: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("colour", torch.zeros(channels))
        self.register_buffer("log_power", torch.zeros(channels, len(OCTAVES) * ANGLES))
        self.register_buffer("log_prior", torch.zeros(()))  # log C̄

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
        squares = [self._coefficients((x - self.mean).double()).square().mean(0).flatten(1) for x in samples]
        weights = [knot_weights(x.shape[2], x.shape[3]).flatten(1) for x in samples]
        counts = [len(x) for x in samples]
        self.log_power.copy_(
            torch.stack([fitted_table([q[c] for q in squares], weights, counts) for c in range(len(self.colour))])
        )

    def _coefficients(self, x: Tensor) -> Tensor:
        """DCT coefficients of the opponent colours of an image."""
        rows, columns = (dct_matrix(n, x.dtype, x.device) for n in x.shape[2:])
        return rows @ torch.einsum("oc,bcyx->boyx", opponent_colours(x.shape[1]).to(x), x) @ columns.mT

    def _image(self, z: Tensor) -> Tensor:
        """The inverse of `_coefficients`."""
        rows, columns = (dct_matrix(n, z.dtype, z.device) for n in z.shape[2:])
        return torch.einsum("oc,boyx->bcyx", opponent_colours(z.shape[1]).to(z), rows.mT @ z @ columns)

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

    def correction(self, white: Tensor, cov: Covariance, phi: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
        """Δ [B], float64, and Aw as an image, for w as an image and φ, 1−φ of log λ's shape."""
        ratio = self.log_ratio(cov.size, white).exp()
        left, lost = (self._opponent_mean(on_dct_grid(values, cov), cov) for values in (phi, rest))
        denominator = lost + left * ratio
        coefficients = self._coefficients(white)
        scaled = coefficients * ((1 - ratio) / denominator)
        quadratic = (coefficients * scaled).flatten(1).sum(dim=1, dtype=torch.float64)
        log_volume = denominator.log().expand_as(scaled).flatten(1).sum(dim=1, dtype=torch.float64)
        return 0.5 * (quadratic + log_volume), self._image(scaled)

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


def fitted_table(squares: list[Tensor], weights: list[Tensor], counts: list[int], rounds: int = 30) -> Tensor:
    """The table of log power under which mean squares are most probable (Whittle's likelihood), by Fisher scoring.

    Each of several sizes gives mean squares [n], the weights of the table's entries [K, n], and the number of pictures. A faint wish
    for a straight line in log frequency decides entries that no coefficient speaks of.
    """
    second = torch.zeros(len(OCTAVES) - 2, len(OCTAVES), dtype=torch.float64)
    for row in range(len(second)):
        second[row, row : row + 3] = torch.tensor([1.0, -2.0, 1.0])
    smooth = torch.kron(second.mT @ second, torch.eye(ANGLES, dtype=torch.float64))
    level = sum(float(q.sum()) for q in squares) / sum(q.numel() for q in squares)
    table = torch.full((len(weights[0]),), math.log(level), dtype=torch.float64)
    normal = smooth + sum(n * (w @ w.mT) for w, n in zip(weights, counts, strict=True))
    for _ in range(rounds):
        excess = sum(
            n * (w @ (q * torch.exp(-table @ w) - 1).clamp_max(4.0))
            for q, w, n in zip(squares, weights, counts, strict=True)
        )
        table = table + torch.linalg.solve(normal, excess - smooth @ table)
    return table

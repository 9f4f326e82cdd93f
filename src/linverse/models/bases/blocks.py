"""The stationary Gaussian under noise of two levels on b×b blocks: λ₀ on their means, λ₁ on all else, as in super-resolution.

C is diagonal in the DCT of the picture. The mean over blocks of a DCT vector is e_k times a DCT vector of the picture of blocks, namely
the one that its frequency folds to, so that with D = C + λ₁, E the folding (E Eᵀ = 1, one entry e_k in column k) and β = λ₀ − λ₁,
    C + Σ = D + βEᵀE,    (C+Σ)⁻¹ = D⁻¹ − D⁻¹Eᵀ(β/t)ED⁻¹,    log det = Σ_k log D_k + Σ_κ log t_κ,
    t_κ = Σ_{k→κ} e_k²(C_k+λ₀)/(C_k+λ₁):
aliases are told apart by their power alone, one fraction for each coarse frequency. (With C at each frequency by itself instead, the
means of ×2 were 3 dB below Lanczos's.)

V = C − C(C+Σ)⁻¹C has the diagonal C_kλ₁/D_k + (β/t)e_k²C_k²/D_k², and λ₀(1−λ₁s)/t, s = Σe²/D, on the means of blocks.

λ₀ and λ₁ are geometric means over their coefficients. Where coefficients differ from them by a factor 1+η_i, U is continued to first
order, −½ Σ_i λη_i u_i², so that every single covariance score is that of the Gaussian, with diag (C+Σ)⁻¹ as it is on average.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from linverse.covariance import BlockDCTCovariance
from linverse.covariance.dct import dct_matrix


@lru_cache(maxsize=64)
def folding(size: int, block: int) -> Tensor:
    """E in one axis, [N/b, N], float64: the coarse DCT of the means over blocks (times √b) of each DCT vector."""
    double, cpu = torch.float64, torch.device("cpu")
    means = torch.eye(size // block, dtype=double).repeat_interleave(block, dim=1) / block**0.5
    return dct_matrix(size // block, double, cpu) @ means @ dct_matrix(size, double, cpu).mT


@dataclass(frozen=True)
class BlockLevels:
    """Σ as two levels: log λ₀ and log λ₁, [B, 1, 1, 1], and log λ_i/λ of every coefficient: 0 up to rounding, but with derivatives."""

    means: Tensor
    rest: Tensor
    excess: Tensor

    def spread(self, block: int, size: tuple[int, int]) -> Tensor:
        """log λ of every coefficient by its level."""
        return torch.where(at_means(block, size, self.means.device), self.means, self.rest)


def at_means(block: int, size: tuple[int, int], device: torch.device) -> Tensor:
    """[H, W]: which coefficients are means of blocks."""
    rows, columns = (torch.arange(n, device=device) % block == 0 for n in size)
    return rows[:, None] & columns[None, :]


def two_levels(cov: BlockDCTCovariance) -> BlockLevels | None:
    """The levels of Σ; None where it has more than two."""
    log, inside = cov.log_variance, at_means(cov.block, cov.size, cov.log_variance.device)
    means, rest = (log[..., chosen].mean(dim=(1, 2))[:, None, None, None] for chosen in (inside, ~inside))
    levels = torch.where(inside, means, rest)
    excess = log - levels
    return BlockLevels(means, rest, excess) if float(excess.detach().abs().max()) < 1e-4 else None


def solve_blocks(z: Tensor, power: Tensor, levels: BlockLevels, block: int) -> tuple[Tensor, Tensor]:
    """(C+Σ)⁻¹δ from the DCT of δ by opponent colour [B, C, H, W], and log det(C+Σ) [B], float64, for powers [C, H, W]."""
    rows, columns = (folding(n, block).to(z) for n in z.shape[2:])
    quiet, loud = levels.means.exp(), levels.rest.exp()
    total = power + loud
    t = rows.square() @ ((power + quiet) / total) @ columns.square().mT
    common = (rows @ (z / total) @ columns.mT) * ((quiet - loud) / t)
    u = (z - rows.mT @ common @ columns) / total
    return u, total.log().flatten(1).sum(1, dtype=torch.float64) + t.log().flatten(1).sum(1, dtype=torch.float64)


def block_variances(power: Tensor, levels: BlockLevels, block: int) -> tuple[Tensor, Tensor]:
    """Mean posterior variances of the means of blocks and of the other coefficients, by opponent colour, [B, C, 1, 1] each."""
    rows, columns = (folding(n, block).to(power) for n in power.shape[1:])
    quiet, loud = levels.means.exp(), levels.rest.exp()
    total, over = power + loud, (2, 3)
    left, right = rows.square(), columns.square().mT
    t, told = (left @ (part / total) @ right for part in (power + quiet, power))
    means = (quiet * told / t).mean(dim=over, keepdim=True)
    learned = left.mT @ ((loud - quiet) / t) @ right.mT * (power / total).square()
    every = (power * loud / total - learned).mean(dim=over, keepdim=True)
    rest = (every - means / block**2) / (1 - 1 / block**2)
    return means, torch.maximum(rest, 1e-6 * power.mean(dim=(1, 2))[None, :, None, None])


def known_by_others(power: Tensor, levels: BlockLevels, block: int) -> Tensor:
    """log V'/V ≥ 0, [B, 1, 1, 1]: V is the mean variance, V' what it would be if each coefficient were told by those as noisy as itself."""
    share = 1 / block**2
    means, rest = (v.mean(dim=1, keepdim=True) for v in block_variances(power, levels, block))
    apart = [
        (power * v / (power + v)).mean(dim=(1, 2, 3), keepdim=True) for v in (levels.means.exp(), levels.rest.exp())
    ]
    together = share * means + (1 - share) * rest
    return ((share * apart[0] + (1 - share) * apart[1]) / together).log().clamp_min(0)

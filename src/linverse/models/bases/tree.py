"""A Gaussian on a quadtree, for noise that differs from pixel to pixel (masks, maps of noise levels, colour filter arrays).

A pixel is the value of the 2×2 block around it plus a detail of variance v₀, that block the value of its own 2×2 block plus one of variance
v₁, and so on up to roots of variance τ_L. Under noise that is diagonal in pixels C+Σ is then solved *exactly* by one sweep up and one down,
whatever the mask, in time proportional to the pixels. With a and S the mean and variance of a node given all that was measured below it,
s = S + v, and W = Σ s⁻¹ over its four children,
    up:    parent's S = W⁻¹,  a = W⁻¹ Σ s⁻¹a                log det(C+Σ) = Σ_nodes log s + Σ_parents log W
    down:  x = x_parent + v s⁻¹(a − x_parent)               u = (C+Σ)⁻¹δ = s₀⁻¹(δ − x_parent) at the pixels.
v and τ are the variances of block means under the spectrum of `spectral.SpectralBase`: τ_l, the mean covariance of pixels whose smallest
common block has the side 2^l, is (4B_l − B_{l−1})/3 with B_l the variance of a block mean; v_l = τ_l − τ_{l+1}.

Colours: where they share λ everything is diagonal in opponent colours; where each has its own, a node has a matrix [C, C].

A tree sees edges where its blocks meet. The base takes the mean of the energies of several trees, shifted against each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

LEVELS = 7  # roots have a side of 128 pixels
SHIFTS = ((0, 0), (85, 42))  # of each tree, in rows and columns: a third and two thirds of a block, whatever its size
TOLERATED, COARSE_SIDE = (
    4.0,
    16,
)  # how much less than a pixel a block may be known before it is damped, up to which wavelength in pixels
SIDE = 512  # of the picture whose block means tell the variances


@dataclass(frozen=True)
class TreeVariances:
    """By opponent colour: variances of the details, [levels, C], and τ of a root at each level, [levels + 1, C]."""

    details: Tensor
    roots: Tensor


def tree_variances(power: Tensor) -> TreeVariances:
    """From the power of each DCT coefficient of a large picture, [C, H, W]."""
    means = power.double().new_zeros(LEVELS + 1, len(power))
    for level in range(LEVELS + 1):
        rows, columns = (_block_response(size, 2**level, power.device) for size in power.shape[1:])
        means[level] = torch.einsum("cyx,y,x->c", power.double(), rows, columns) / power[0].numel()
    least = 1e-3 * float(means[0].amin())  # white noise has nothing in common
    roots = torch.cat([means[:1], (4 * means[1:] - means[:-1]) / 3]).clamp_min(least)
    details = (roots[:-1] - roots[1:]).clamp_min(least)
    return TreeVariances(details, roots)


def _block_response(size: int, block: int, device: torch.device) -> Tensor:
    """What the mean of `block` pixels in a row leaves of the power of each DCT frequency, [size], float64."""
    angle = math.pi * torch.arange(size, dtype=torch.float64, device=device) / (2 * size)
    response = torch.sin(angle * block) / (block * torch.sin(angle).clamp_min(1e-12))
    response[0] = 1.0
    return response.square()


@dataclass(frozen=True)
class TreeAnswer:
    """u, diag V = λ(C+Σ)⁻¹C and `unsteady` of the pixels, [B, C, H, W], and log det(C+Σ), [B], float64.

    `unsteady` is what of the mean is hardly known: a network that errs alike in all pixels of a block would move it by many of its standard
    deviations.
    """

    u: Tensor
    variance: Tensor
    log_det: Tensor
    unsteady: Tensor


class ByColour:
    """Arithmetic of nodes whose colours do not mix: [B, C, h, w]."""

    def __init__(self, variances: TreeVariances, like: Tensor) -> None:
        self.details = variances.details.to(like)[:, None, :, None, None].unbind()
        self.roots = variances.roots.to(like)[:, None, :, None, None].unbind()

    def noise(self, variance: Tensor) -> Tensor:
        return variance

    def inverse(self, s: Tensor) -> Tensor:
        return s.reciprocal()

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        return a * b

    def log_det(self, s: Tensor) -> Tensor:
        return s.log().flatten(1).sum(dim=1, dtype=torch.float64)

    def diagonal(self, s: Tensor) -> Tensor:
        return s


class Mixing(ByColour):
    """Arithmetic of nodes with a matrix of colours: vectors [B, C, h, w], matrices [B, C·C, h, w]."""

    def __init__(self, variances: TreeVariances, colours: Tensor) -> None:
        """`colours` are the opponent colours, orthonormal rows."""
        self.size = len(colours)

        def matrix(values: Tensor) -> list[Tensor]:
            full = torch.einsum("oc,lo,od->lcd", colours, values.to(colours), colours)
            return [one.reshape(1, -1, 1, 1) for one in full]

        self.details, self.roots = tuple(matrix(variances.details)), tuple(matrix(variances.roots))

    def _matrices(self, s: Tensor) -> Tensor:
        return s.unflatten(1, (self.size, self.size)).permute(0, 3, 4, 1, 2)

    def _planes(self, s: Tensor) -> Tensor:
        return s.permute(0, 3, 4, 1, 2).flatten(1, 2)

    def noise(self, variance: Tensor) -> Tensor:
        return self._planes(torch.diag_embed(variance.permute(0, 2, 3, 1)))

    def inverse(self, s: Tensor) -> Tensor:
        return self._planes(torch.linalg.inv(self._matrices(s)))

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """Of a matrix and a vector or a matrix."""
        left = a.unflatten(1, (self.size, self.size))
        if b.shape[1] == self.size:
            return (left * b[:, None]).sum(2)
        return torch.einsum("bijyx,bjkyx->bikyx", left, b.unflatten(1, (self.size, self.size))).flatten(1, 2)

    def log_det(self, s: Tensor) -> Tensor:
        return torch.linalg.slogdet(self._matrices(s)).logabsdet.flatten(1).sum(dim=1, dtype=torch.float64)

    def diagonal(self, s: Tensor) -> Tensor:
        return s[:, :: self.size + 1]


def solve_tree(shift: Tensor, variance: Tensor, nodes: ByColour, offset: tuple[int, int] = (0, 0)) -> TreeAnswer:
    """(C+Σ)u = δ for images δ [B, C, H, W] and λ of the same shape (or one channel), by one sweep up and one down."""
    levels = tree_levels((shift.shape[2], shift.shape[3]), offset)
    a, s = shift, nodes.noise(variance)
    passed: list[tuple[Tensor, Tensor, Tensor]] = []  # a, S and s⁻¹ of each level
    log_det = shift.new_zeros(len(shift), dtype=torch.float64)
    for level in range(levels):
        total = s + nodes.details[level]
        weight = nodes.inverse(total)
        log_det = log_det + nodes.log_det(total.expand(-1, max(total.shape[1], shift.shape[1]), -1, -1))
        passed.append((a, s, weight))
        margin = _margin(offset, level)
        above = four(weight.expand(len(shift), -1, -1, -1), margin)
        s = nodes.inverse(above)
        a = nodes.product(s, four(nodes.product(weight, a), margin))
        log_det = log_det + nodes.log_det(above)
    root = nodes.roots[levels]
    log_det = log_det + nodes.log_det(s + root)
    weight = nodes.inverse(s + root)
    x, left = nodes.product(root, nodes.product(weight, a)), nodes.product(s, nodes.product(weight, root))
    moves = [(x, nodes.diagonal(left), levels)]  # x − x_parent and V of each level, from the roots down
    for level in reversed(range(levels)):
        a, s, weight = passed[level]
        margin = _margin(offset, level)
        parent, left = children(x, a, margin), children(left, a, margin)
        u = nodes.product(weight, a - parent)
        detail = nodes.details[level]
        move = nodes.product(detail, u)
        x = parent + move
        kept = nodes.product(s, weight)
        left = nodes.product(kept, detail.expand_as(left)) + _congruent(nodes, kept, left)
        moves.append((move, nodes.diagonal(left), level))
    return TreeAnswer(u, nodes.diagonal(left), log_det, _unsteady(moves, nodes, offset))


def even_logs(tree: TreeVariances, levels: int) -> tuple[Tensor, Tensor]:
    """v [levels + 1, C] and w [levels + 1] with log det(C+λ) = Σ_l w_l log(λ + v_l) for every pixel of a tree without edges."""
    size = 4.0 ** torch.arange(levels + 1, dtype=tree.details.dtype, device=tree.details.device)
    own = torch.cat([tree.details[:levels], tree.roots[levels : levels + 1]]) * size[:, None]
    return own.cumsum(0), torch.cat([0.75 / size[:-1], 1 / size[-1:]])


def even_variance(variance: Tensor, tree: TreeVariances, levels: int) -> Tensor:
    """V of a pixel if all were as noisy as it: λ [B, 1, …] → [B, C, …] by opponent colour.

    That of a tree without edges; near an edge pixels are known no better.
    """
    details, roots = (
        values.to(variance).reshape(*values.shape, *[1] * (variance.ndim - 2)) for values in (tree.details, tree.roots)
    )
    own = [variance]
    for level in range(levels):
        own.append(0.25 * (own[-1] + details[level]))
    left = own[-1] * roots[levels] / (own[-1] + roots[levels])
    for level in reversed(range(levels)):
        kept = own[level] / (own[level] + details[level])
        left = kept * details[level] + kept.square() * left
    return left


def tree_levels(size: tuple[int, int], offset: tuple[int, int] = (0, 0)) -> int:
    """How many times pixels are joined by four, up to one root if that is no larger than the largest."""
    return min(LEVELS, math.ceil(math.log2(max(size[0] + offset[0], size[1] + offset[1], 2))))


def _margin(offset: tuple[int, int], level: int) -> tuple[int, int]:
    """Rows and columns of nothing above and left of the nodes of a level: the offset's bits."""
    return offset[0] >> level & 1, offset[1] >> level & 1


def _unsteady(moves: list[tuple[Tensor, Tensor, int]], nodes: ByColour, offset: tuple[int, int]) -> Tensor:
    """Σ_l (1−a_l)(x_l − x_parent) with a = (1 + (4^l V·V/τ ÷ t·V̄)⁴)^(−⅛), at the pixels.

    4^l V is the variance of the block's coefficient, V̄ the mean variance of its pixels, t the tolerance at its wavelength, as for DCT
    coefficients (`spectral.Shrinkage.steadied`).
    """
    leaf = moves[-1][1]
    sums, counts = leaf, torch.ones_like(leaf[:1, :1])
    means = [leaf]
    for level in range(len(moves) - 1):
        sums, counts = (four(values, _margin(offset, level)) for values in (sums, counts))
        means.append(sums / counts)
    total = None
    for move, variance, level in moves:
        prior = nodes.diagonal(nodes.roots[level])
        known = math.log(4.0**level / TOLERATED) - 2 * math.log(min(1.0, COARSE_SIDE / 2.0 ** (level + 1)))
        excess = 2 * variance.log() - prior.log() - means[level].log() + known
        lost = -torch.expm1(-0.125 * F.softplus(4 * excess)) * move
        total = lost if total is None else lost + children(total, move, _margin(offset, level))
    assert total is not None
    return total


def _congruent(nodes: ByColour, a: Tensor, b: Tensor) -> Tensor:
    """a b aᵀ."""
    if not isinstance(nodes, Mixing):
        return a * a * b
    turned = a.unflatten(1, (nodes.size, nodes.size)).transpose(1, 2)
    return nodes.product(nodes.product(a, b), turned.flatten(1, 2))


def four(x: Tensor, margin: tuple[int, int]) -> Tensor:
    """Sums over 2×2 blocks; what is missing at the edges counts nothing."""
    top, left = margin
    height, width = x.shape[2] + top, x.shape[3] + left
    return 4 * F.avg_pool2d(F.pad(x, (left, width % 2, top, height % 2)), 2)


def children(x: Tensor, like: Tensor, margin: tuple[int, int]) -> Tensor:
    """Every node's parent, where the nodes are those of `like`."""
    top, left = margin
    height, width = like.shape[2:]
    return F.interpolate(x, scale_factor=2, mode="nearest")[..., top : top + height, left : left + width]

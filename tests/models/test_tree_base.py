"""The quadtree's Gaussian against its covariance matrix written out, and against the spectrum that it stands for."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from linverse.covariance.dct import dct_frequencies
from linverse.models.bases.frames import opponent_colours
from linverse.models.bases.tree import (
    LEVELS,
    SHIFTS,
    ByColour,
    Mixing,
    TreeVariances,
    even_logs,
    solve_tree,
    tree_variances,
)
from linverse.rng import keyed_generator


def variances(channels: int) -> TreeVariances:
    generator = keyed_generator("tree", channels)
    details = torch.rand(LEVELS, channels, generator=generator, dtype=torch.float64) + 0.1
    roots = torch.rand(LEVELS + 1, channels, generator=generator, dtype=torch.float64) + 0.5
    return TreeVariances(details, roots)


def shared_blocks(size: tuple[int, int], level: int, offset: tuple[int, int]) -> Tensor:
    """[n, n]: which pixels lie in one block of side 2^level."""
    rows, columns = torch.meshgrid(*(torch.arange(n) for n in size), indexing="ij")
    moved = [
        axis + sum((o >> bit & 1) << bit for bit in range(level))
        for axis, o in zip((rows, columns), offset, strict=True)
    ]
    block = (moved[0] >> level).flatten() * 1000 + (moved[1] >> level).flatten()
    return (block[:, None] == block).double()


def dense(tree: TreeVariances, size: tuple[int, int], offset: tuple[int, int]) -> list[Tensor]:
    """The covariance of the pixels, [n, n], one for each opponent colour."""
    levels = math.ceil(math.log2(max(size[0] + offset[0], size[1] + offset[1])))
    levels = min(LEVELS, levels)
    blocks = [shared_blocks(size, level, offset) for level in range(levels + 1)]
    return [
        sum(tree.details[level, c] * blocks[level] for level in range(levels)) + tree.roots[levels, c] * blocks[levels]
        for c in range(tree.details.shape[1])
    ]


@pytest.mark.parametrize("mixing", [False, True], ids=["shared", "own"])
@pytest.mark.parametrize("offset", SHIFTS, ids=str)
@pytest.mark.parametrize("size", [(8, 8), (5, 7)], ids=str)
def test_one_sweep_up_and_one_down_solve_the_dense_system(size, offset, mixing) -> None:
    channels, pixels = 3, math.prod(size)
    generator = keyed_generator("noise", *size)
    tree, colours = variances(channels), opponent_colours(channels)
    shift = torch.randn(2, channels, *size, generator=generator, dtype=torch.float64)
    shape = (2, channels if mixing else 1, *size)
    variance = torch.exp(4 * torch.randn(shape, generator=generator, dtype=torch.float64))
    answer = solve_tree(shift, variance, Mixing(tree, colours) if mixing else ByColour(tree, shift), offset)
    blocks = torch.block_diag(*dense(tree, size, offset))
    if mixing:
        turn = torch.kron(colours, torch.eye(pixels, dtype=torch.float64))
        blocks = turn.mT @ blocks @ turn
    for row in range(2):
        noise = torch.diag(variance[row].expand(channels, *size).flatten())
        expected = torch.linalg.solve(blocks + noise, shift[row].flatten())
        torch.testing.assert_close(answer.u[row].flatten(), expected, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(answer.log_det[row], torch.logdet(blocks + noise), rtol=1e-9, atol=1e-9)
        left = noise @ torch.linalg.solve(blocks + noise, blocks)
        torch.testing.assert_close(answer.variance[row].flatten(), left.diagonal(), rtol=1e-8, atol=1e-10)


def test_its_variances_are_those_of_block_means_under_the_spectrum() -> None:
    """White noise has nothing in common; a power of f⁻² has the same share at every scale."""
    white = tree_variances(torch.full((1, 256, 256), 0.3, dtype=torch.float64))
    assert float(white.roots[0]) == pytest.approx(0.3)
    assert float(white.roots[1:].abs().max()) < 0.003  # the rim of the frequency plane
    assert float(white.details[0]) == pytest.approx(0.3, rel=0.01)
    radius = torch.hypot(*dct_frequencies(512, 512, torch.zeros((), dtype=torch.float64))).clamp_min(1e-3)
    pink = tree_variances(radius[None] ** -2.0)
    assert float(pink.details.amin()) > 0  # of a spectrum that falls every scale has its share
    assert float(pink.details[1:].amax() / pink.details[1:].amin()) < 3  # ∝ f⁻²: the same share in every octave
    assert float(pink.details.sum() + pink.roots[-1]) == pytest.approx(float(pink.roots[0]), rel=1e-6)


def test_values_far_apart_stay_right_in_single_precision() -> None:
    generator = keyed_generator("far apart")
    tree = variances(1)
    shift = torch.randn(1, 1, 16, 16, generator=generator)
    hidden = torch.rand(1, 1, 16, 16, generator=generator) < 0.5
    variance = torch.where(hidden, 1e3, 1e-6)
    shift = shift + variance.sqrt() * torch.randn(1, 1, 16, 16, generator=generator)
    exact = solve_tree(shift.double(), variance.double(), ByColour(tree, shift.double()))
    ours = solve_tree(shift, variance, ByColour(tree, shift))
    means = [s - v * a.u for s, v, a in ((shift, variance, ours), (shift.double(), variance.double(), exact))]
    assert float((means[0] - means[1]).abs().div(exact.variance.sqrt()).max()) < 0.01


def test_log_det_at_isotropic_noise_is_a_sum_of_logs() -> None:
    """Of a picture of whole blocks; by opponent colour."""
    tree, side, level = variances(3), 16, 0.03
    noise = torch.full((1, 1, side, side), level, dtype=torch.float64)
    blank = torch.zeros(1, 3, side, side, dtype=torch.float64)
    swept = solve_tree(blank, noise, ByColour(tree, blank)).log_det
    values, weights = even_logs(tree, 4)
    torch.testing.assert_close(weights.sum(), torch.ones_like(weights[0]))
    each = ((values + level).log() * weights[:, None]).sum(0)
    torch.testing.assert_close(swept[0], each.sum() * side**2, rtol=1e-10, atol=0)

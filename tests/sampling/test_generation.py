"""Images drawn patch by patch, in any order."""

from __future__ import annotations

import torch

from linverse.experiments.demo import exact_digits
from linverse.rng import keyed_generator
from linverse.sampling import prior_start
from linverse.sampling.generation import GenerationStage, generate_patches


def drawn(order: str) -> tuple[GenerationStage, ...]:
    energy, generator = exact_digits(), keyed_generator(0, "patches")
    start = prior_start(energy, 2, generator)
    return generate_patches(energy, start, order, patch=4, levels=6, stops=4, generator=generator)


def test_images_are_drawn_patch_by_patch() -> None:
    start, first, second, *_, last = stages = drawn("reading")
    floor = exact_digits().range.minimum
    assert [int(stage.waiting(floor).sum()) for stage in stages] == [64, 48, 32, 16, 0]
    assert not first.waiting(floor)[0, :4, :4].any()  # the first patch is done
    assert torch.equal(first.x[:, :, :4, :4], second.x[:, :, :4, :4])  # and stays
    assert not torch.equal(first.x[:, :, :4, 4:], second.x[:, :, :4, 4:])
    assert not drawn("reversed")[1].waiting(floor)[0, 4:, 4:].any()  # here the last patch comes first
    assert torch.equal(drawn("reading")[-1].x, last.x)
    assert start.x.shape == last.x.shape

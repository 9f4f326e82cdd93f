"""The backbones: second derivatives of every operation, shapes, and the pieces against plain formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from linverse.models.networks.backbone import build_backbone
from linverse.models.networks.compact import CompactBlock, CompactUNet
from linverse.models.networks.unet import Attention, Block, Resample, UNetConfig, normalisation
from linverse.rng import keyed_generator
from tiny import BACKBONE, awaken

VARIANTS = {
    "group norm": BACKBONE,
    "no norm": replace(BACKBONE, norm="none"),
    "average pooling": replace(BACKBONE, filter=(1, 1)),
    "attention at the top": replace(BACKBONE, attention_levels=(0,)),
    "stem 2": replace(BACKBONE, stem=2),
    "stem 4": replace(BACKBONE, stem=4, norm="none"),
    "compact": replace(BACKBONE, style="compact"),
    "compact, stem 2": replace(BACKBONE, style="compact", stem=2),
    "compact, stem 4": replace(BACKBONE, style="compact", stem=4),
}


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    """Networks draw their first weights from torch's own stream."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def random_like(shape: tuple[int, ...], name: str) -> Tensor:
    return torch.randn(shape, generator=keyed_generator("unet", name), dtype=torch.float64)


def inputs(config: UNetConfig, channels: int = 2, batch: int = 2) -> tuple[Tensor, list[Tensor]]:
    """An image, wider than high, and its embeddings, one a level."""
    height, width = config.divisor, 2 * config.divisor
    sizes = [(height // config.stem // 2**k, width // config.stem // 2**k) for k in range(len(config.multipliers))]
    maps = [random_like((batch, config.embedding, *size), f"map {size}") for size in sizes]
    return random_like((batch, channels, height, width), "image"), maps


def flat(module: nn.Module, tensors: list[Tensor], call: Callable[..., Tensor]) -> tuple[Callable[..., Tensor], Tensor]:
    """A function of one vector that holds all inputs and all weights: one comparison then covers every pair of them."""
    names, weights = zip(*module.named_parameters(), strict=True) if list(module.parameters()) else ((), ())
    pieces = (*tensors, *weights)

    def run(everything: Tensor) -> Tensor:
        parts = everything.split([t.numel() for t in pieces])
        shaped = [part.reshape(t.shape) for part, t in zip(parts, pieces, strict=True)]
        given = dict(zip(names, shaped[len(tensors) :], strict=True))
        return call(given, *shaped[: len(tensors)])

    return run, torch.cat([t.detach().flatten() for t in pieces]).requires_grad_()


@pytest.mark.parametrize("name", VARIANTS)
def test_the_whole_network_has_a_right_second_derivative(name: str) -> None:
    config = VARIANTS[name]
    network = build_backbone(config, 2, 2).double()
    awaken(network, size=0.3)
    x, maps = inputs(config, batch=1)
    run, leaf = flat(network, [x, *maps], lambda given, x, *maps: functional_call(network, given, (x, list(maps))))
    assert torch.autograd.gradcheck(run, leaf, fast_mode=True, atol=1e-7, rtol=1e-5)
    assert torch.autograd.gradgradcheck(run, leaf, fast_mode=True, atol=1e-7, rtol=1e-5)


PIECES: dict[str, Callable[[], tuple[nn.Module, list[Tensor]]]] = {
    "attention": lambda: (Attention(4, BACKBONE), [random_like((1, 4, 2, 3), "x")]),
    "attention, no norm": lambda: (Attention(4, VARIANTS["no norm"]), [random_like((1, 4, 2, 3), "x")]),
    "block": lambda: (Block(2, 2, BACKBONE), [random_like((1, 2, 2, 3), "x"), random_like((1, 4, 2, 3), "e")]),
    "block down": lambda: (
        Block(2, 2, VARIANTS["no norm"], Resample((1, 3, 3, 1), up=False)),
        [random_like((1, 2, 4, 4), "x"), random_like((1, 4, 2, 2), "e")],
    ),
    "block up": lambda: (
        Block(2, 2, BACKBONE, Resample((1, 3, 3, 1), up=True)),
        [random_like((1, 2, 2, 2), "x"), random_like((1, 4, 4, 4), "e")],
    ),
    "compact block": lambda: (
        CompactBlock(2, UNetConfig(embedding=4)),
        [random_like((1, 2, 2, 3), "x"), random_like((1, 4, 2, 3), "e")],
    ),
    "compact block, bounded": lambda: (
        CompactBlock(2, UNetConfig(embedding=4, bounded_gains=True, bounded_inputs=True)),
        [random_like((1, 2, 2, 3), "x"), random_like((1, 4, 2, 3), "e")],
    ),
    "down": lambda: (Resample((1, 3, 3, 1), up=False), [random_like((1, 2, 4, 4), "x")]),
    "up": lambda: (Resample((1, 3, 3, 1), up=True), [random_like((1, 2, 2, 2), "x")]),
}


@pytest.mark.parametrize("name", PIECES)
def test_every_piece_has_a_right_second_derivative(name: str) -> None:
    module, tensors = PIECES[name]()
    module.double()
    awaken(module, size=1.0)  # large, so that no piece is drowned by the identity beside it
    run, leaf = flat(module, tensors, lambda given, *inputs: functional_call(module, given, inputs))
    # squared: the second derivative of a linear piece is not only zeros then
    assert torch.autograd.gradgradcheck(lambda v: run(v).square().sum(), leaf, fast_mode=True, rtol=1e-5)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("name", VARIANTS)
def test_any_size_that_the_levels_divide_and_up_to_four_channels(name: str, channels: int) -> None:
    config = VARIANTS[name]
    network = build_backbone(config, channels, channels + 1).double()
    x, maps = inputs(config, channels)
    assert network(x, maps).shape == (2, channels + 1, config.divisor, 2 * config.divisor)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_network_starts_silent_and_wakes_to_its_embedding(name: str) -> None:
    config = VARIANTS[name]
    network = build_backbone(config, 2, 2).double()
    x, maps = inputs(config)
    assert not network(x, maps).any()
    awaken(network)
    louder = [maps[0], *(2 * m for m in maps[1:])]
    assert not torch.allclose(network(x, maps), network(x, louder), rtol=1e-4)  # the lowest level listens too
    assert not torch.allclose(network(x, maps), network(x, [2 * maps[0], *maps[1:]]), rtol=1e-4)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_memory_layout_changes_nothing(name: str) -> None:
    network = build_backbone(VARIANTS[name], 2, 2).double()
    awaken(network)
    x, maps = inputs(VARIANTS[name])
    plain = network(x, maps)
    network.to(memory_format=torch.channels_last)
    last = network(*(_channels_last(t) for t in (x, maps)))
    torch.testing.assert_close(last, plain, rtol=1e-10, atol=1e-12)


def _channels_last(x: Tensor | list[Tensor]) -> Tensor | list[Tensor]:
    if isinstance(x, list):
        return [t.contiguous(memory_format=torch.channels_last) for t in x]
    return x.contiguous(memory_format=torch.channels_last)


def test_samples_of_a_batch_do_not_see_each_other() -> None:
    network = build_backbone(BACKBONE, 2, 2).double()
    awaken(network)
    x, maps = inputs(BACKBONE)
    alone = network(x[:1], [m[:1] for m in maps])
    torch.testing.assert_close(network(x, maps)[:1], alone, rtol=1e-10, atol=1e-12)


# --- pieces ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("taps", [(1, 1), (1, 3, 3, 1), (1, 5, 10, 10, 5, 1)])
def test_resampling_halves_and_doubles_and_keeps_constants(taps: tuple[int, ...]) -> None:
    x = torch.full((1, 3, 12, 16), 0.7, dtype=torch.float64)
    half, double = (Resample(taps, up=up).double()(x) for up in (False, True))
    assert half.shape == (1, 3, 6, 8)
    assert double.shape == (1, 3, 24, 32)
    for out in (half, double):
        torch.testing.assert_close(out[..., 3:-3, 3:-3], torch.full_like(out[..., 3:-3, 3:-3], 0.7))


def test_resampling_up_is_four_times_the_transpose_of_down() -> None:
    small, large = random_like((1, 2, 4, 6), "small"), random_like((1, 2, 8, 12), "large")
    down, up = (Resample((1, 3, 3, 1), up=up).double() for up in (False, True))
    torch.testing.assert_close((up(small) * large).sum(), 4 * (small * down(large)).sum())


def test_the_plain_filter_is_pooling_and_nearest_neighbours() -> None:
    x = random_like((1, 2, 4, 6), "x")
    for up in (False, True):
        shortcut, general = (Resample((1, 1), up=up).double() for _ in range(2))
        general.plain = False
        torch.testing.assert_close(shortcut(x), general(x))


def test_attention_is_softmax_attention_over_pixels() -> None:
    attention = Attention(4, BACKBONE).double()
    awaken(attention)
    x = random_like((2, 4, 3, 5), "x")
    q, k, v = attention.qkv(attention.norm(x)).flatten(2).mT.chunk(3, dim=2)  # [B, pixels, c]
    mixed = F.scaled_dot_product_attention(q, k, v).mT.reshape(x.shape)
    torch.testing.assert_close(attention(x), (x + attention.out(mixed)) * 0.5**0.5)


def test_a_block_is_the_paper_s_formula() -> None:
    block = Block(4, 8, BACKBONE).double()
    awaken(block)
    x, e = random_like((2, 4, 6, 6), "x"), random_like((2, 4, 6, 6), "e")
    h = block.conv0(F.silu(block.norm0(x)))
    h = F.silu(block.norm1(h) * (1 + block.gain(e)))
    torch.testing.assert_close(block(x, e), (block.skip(x) + block.conv1(h)) * 0.5**0.5)


def test_dropout_acts_in_training_only() -> None:
    block = Block(4, 4, replace(BACKBONE, dropout=0.5)).double()
    awaken(block)
    x, e = random_like((2, 4, 6, 6), "x"), random_like((2, 4, 6, 6), "e")
    assert not torch.equal(block.train()(x, e), block(x, e))
    assert torch.equal(block.eval()(x, e), block(x, e))


@pytest.mark.parametrize(
    ("channels", "groups"), [(4, 1), (32, 8), (128, 32), (256, 32), (24, 6), (20, 5), (28, 7), (22, 2)]
)
def test_group_norm_has_min_32_c_over_4_groups(channels: int, groups: int) -> None:
    layer = normalisation("group", channels)
    assert isinstance(layer, nn.GroupNorm)
    assert layer.num_groups == groups
    assert layer.eps == 1e-6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm": "batch"}, '"group" or "none"'),
        ({"stem": 3}, "1, 2 or 4"),
        ({"filter": (1, 2, 1)}, "even number of taps"),
        ({"style": "resnet"}, '"ncsn\\+\\+" or "compact"'),
    ],
)
def test_what_is_not_a_backbone_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_backbone(replace(BACKBONE, **changes), 1, 1)  # type: ignore[arg-type]


def test_layers_at_full_resolution_may_be_left_out_of_a_compact_network_alone() -> None:
    config = UNetConfig(
        channels=4, multipliers=(1, 2), blocks=1, embedding=4, stem=2, stem_channels=0, style="compact", middle=1
    )
    torch.manual_seed(0)
    network = CompactUNet(config, 3, 5)
    torch.nn.init.normal_(network.exit.weight)
    x = torch.randn(2, 3, 8, 12)
    maps = [torch.randn(2, 4, 4, 6), torch.randn(2, 4, 2, 3)]
    out = network(x, maps)
    assert out.shape == (2, 5, 8, 12)
    changed = (network(x + torch.nn.functional.pad(torch.ones(1, 1, 1, 1), (5, 6, 3, 4)), maps) - out).abs().sum((0, 1))
    assert (changed > 0).sum() > 4  # a pixel is felt by others than its own block
    with pytest.raises(ValueError, match="only a compact network"):
        UNetConfig(stem=2, stem_channels=0)

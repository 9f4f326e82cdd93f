"""A U-Net for CPUs: the paper's gain-controlled blocks, arranged so that few of them do much.

What it leaves out of NCSN++, because measurement said that it does not pay at 28×28: normalisation (its second derivative costs as much
as a convolution), concatenated skips (they triple the decoder's cost; here they are added), blocks at the higher resolution with the
lower one's width, and blocks that only resample. One block is x ← x + conv₁(SiLU(conv₀(SiLU(x/√(1 + mean x²)))·(1 + e))), the mean
over channels: small activations pass as they are, large ones cannot multiply from block to block. Between levels they can, unless
`bounded_levels`: in a run on photographs the stream grew from 75 to 18 000 within 400 steps, blocks and skips were drowned, and R vanished.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from linverse.models.networks.twice import bounded, join, silu
from linverse.models.networks.unet import UNetConfig, conv, zero_init


class CompactBlock(nn.Module):
    """A residual block with a gain from the embedding and no normalisation."""

    def __init__(self, channels: int, config: UNetConfig) -> None:
        super().__init__()
        self.bounded, self.scaled = config.bounded_gains, config.bounded_inputs
        self.conv0 = conv(channels, channels, 3)
        self.gain = zero_init(conv(config.embedding, channels, 1))
        self.conv1 = zero_init(conv(channels, channels, 3))

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        h = self.conv0(silu(bounded(x) if self.scaled else x))
        gain = self.gain(embedding)
        h = silu(torch.addcmul(h, h, torch.tanh(gain) if self.bounded else gain))
        return x + self.conv1(h)


class CompactUNet(nn.Module):
    """[B, in, H, W] and one embedding map a level → [B, out, H, W]. `blocks` a level on either side, `middle` at the bottom."""

    def __init__(self, config: UNetConfig, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.config = config
        full, stem = config.stem_channels, config.stem
        widths = [config.channels * m for m in config.multipliers]
        self.enter_full = conv(in_channels, full, 3) if full else None
        seen = full or in_channels
        self.enter = (
            conv(seen, widths[0], 2 * stem, stride=stem, padding=stem // 2) if stem > 1 else conv(seen, widths[0], 3)
        )
        self.encoder = nn.ModuleList(self._level(width, config.blocks) for width in widths[:-1])
        self.bottom = self._level(widths[-1], config.middle)
        self.decoder = nn.ModuleList(self._level(width, config.blocks) for width in widths[:-1])
        self.down = nn.ModuleList(conv(a, b, 2, stride=2, padding=0) for a, b in itertools.pairwise(widths))
        self.up = nn.ModuleList(conv(b, a, 1) for a, b in itertools.pairwise(widths))
        if full:
            self.exit_up = conv(widths[0], stem * stem * full, 1)
            self.full_gain = zero_init(conv(config.embedding, full, 1))
            self.exit = zero_init(conv(2 * full, out_channels, 3))
        else:
            self.exit = zero_init(conv(widths[0], stem * stem * out_channels, 3))

    @property
    def reach(self) -> int:
        """How far, in pixels, an output may look: half of the receptive field, generously."""
        strides = [self.config.stem * 2**level for level in range(len(self.config.multipliers))]
        blocks = [2 * self.config.blocks] * (len(strides) - 1) + [self.config.middle]
        convolutions = sum(2 * count * stride for count, stride in zip(blocks, strides, strict=True))
        return 3 + 2 * sum(strides) + convolutions

    def _between(self, h: Tensor) -> Tensor:
        return bounded(h) if self.config.bounded_levels else h

    def _level(self, width: int, blocks: int) -> nn.ModuleList:
        return nn.ModuleList(CompactBlock(width, self.config) for _ in range(blocks))

    def forward(self, x: Tensor, embeddings: list[Tensor]) -> Tensor:
        full = None if self.enter_full is None else silu(self.enter_full(x))
        h = self.enter(x if full is None else full)
        skips = []
        for level, (blocks, down) in enumerate(zip(self.encoder, self.down, strict=True)):
            h = _run(blocks, h, embeddings[level])
            skips.append(h)
            h = down(self._between(h))
        h = _run(self.bottom, h, embeddings[-1])
        for level in reversed(range(len(self.decoder))):
            h = skips[level] + F.interpolate(self.up[level](self._between(h)), scale_factor=2, mode="nearest")
            h = _run(self.decoder[level], h, embeddings[level])
        h = bounded(h) if self.config.bounded_inputs else h
        if full is None:
            return F.pixel_shuffle(self.exit(silu(h)), self.config.stem)
        up = silu(F.pixel_shuffle(self.exit_up(silu(h)), self.config.stem))
        gain = self.full_gain(embeddings[0])
        gain = torch.tanh(gain) if self.config.bounded_gains else gain
        gain = F.interpolate(gain, scale_factor=float(self.config.stem), mode="nearest")
        return self.exit(join([up, torch.addcmul(full, full, gain)]))


def _run(blocks: nn.Module, h: Tensor, embedding: Tensor) -> Tensor:
    for block in blocks:  # type: ignore[attr-defined]
        h = block(h, embedding)
    return h

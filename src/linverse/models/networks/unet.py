"""The backbone: an NCSN++ U-Net (Song et al. 2021, as in EDM) whose blocks are gain-controlled by maps of the noise.

A block is x ← √½·(x + conv₁(SiLU(GN(conv₀(SiLU(GN x)))·(1 + e)))) with e a 1×1 projection of the embedding at that level (the
paper's §3.3 and table "SongUNet Architecture Summary"). Every operation here has a second derivative, since the training loss
differentiates the energy's gradient: attention is written with plain products because the fused kernels have none.

A `stem` of 2 or 4 lowers the resolution first: a full-resolution convolution, then an overlapping one of stride 2 or 4, and the way
back mixes with the full-resolution features (without that, means of small images show a checkerboard). A compact network may do without
both (`stem_channels` of 0): what that gives on photographs is told in docs/training-notes.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from linverse.models.networks.twice import Conv2d, silu

LIMITS = {  # generous: the paper's largest network has 128 channels
    "channels": (1, 4096),
    "blocks": (0, 64),
    "embedding": (1, 8192),
    "dropout": (0.0, 0.99),
    "stem_channels": (0, 4096),
    "middle": (0, 256),
}
MOST_LEVELS = 8


@dataclass(frozen=True)
class UNetConfig:
    """Sizes of the backbone. Resolution halves between levels (and is divided by `stem` before the first).

    `style`: "ncsn++" (the paper's) or "compact" (ours for CPUs, which has `middle` blocks at the bottom and uses neither attention,
    norm, dropout nor filter).
    """

    channels: int = 128
    multipliers: tuple[int, ...] = (1, 2, 2, 2)
    blocks: int = 4
    attention_levels: tuple[int, ...] = (2,)
    embedding: int = 512
    dropout: float = 0.1
    filter: tuple[int, ...] = (1, 3, 3, 1)
    stem: int = 1
    stem_channels: int = 16
    norm: str = "group"
    style: str = "ncsn++"
    middle: int = 2
    bounded_gains: bool = False
    """gains within 0…2 (compact only): unbounded ones multiply from block to block, and may grow without limit"""
    bounded_inputs: bool = False
    """blocks see x/√(1 + mean x²) over channels (compact only): without a bound activations multiply from block to block, die or explode"""
    bounded_levels: bool = False
    """so do the layers between levels (compact only): else what comes up from below grows until it drowns what is added to it"""

    def __post_init__(self) -> None:
        """Sizes beyond all networks are refused here, before anything is built."""
        for name, (least, most) in LIMITS.items():
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} of a network is {least} to {most}; got {getattr(self, name)}")
        if not 1 <= len(self.multipliers) <= MOST_LEVELS or not all(1 <= m <= 64 for m in self.multipliers):
            raise ValueError(f"multipliers are 1 to {MOST_LEVELS} numbers from 1 to 64; got {self.multipliers!r:.60}")
        if self.stem not in (1, 2, 4):
            raise ValueError(f"stem is {self.stem}; it can be 1, 2 or 4")
        if self.stem_channels == 0 and self.style != "compact":
            raise ValueError("only a compact network does without stem_channels")
        if len(self.attention_levels) > MOST_LEVELS or not 2 <= len(self.filter) <= 16 or sum(self.filter) == 0:
            raise ValueError(
                f"attention_levels are at most {MOST_LEVELS}, a filter has 2 to 16 taps that do not cancel; "
                f"got {self.attention_levels!r:.60} and {self.filter!r:.60}"
            )

    @property
    def divisor(self) -> int:
        """Height and width must be multiples of this."""
        return self.stem * 2 ** (len(self.multipliers) - 1)


def zero_init(layer: nn.Conv2d) -> nn.Conv2d:
    """A layer that starts silent."""
    nn.init.zeros_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def conv(inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int | None = None) -> nn.Conv2d:
    """A convolution with PyTorch's fan-in initialisation and, unless told otherwise, an output of the input's size."""
    return Conv2d(inputs, outputs, kernel, stride, (kernel - 1) // 2 if padding is None else padding)


def normalisation(kind: str, channels: int) -> nn.Module:
    """GroupNorm with min(32, c/4) groups (or the next smaller divisor of c) and ε = 1e-6, or none."""
    if kind == "group":
        most = max(1, min(32, channels // 4))
        return nn.GroupNorm(next(g for g in range(most, 0, -1) if channels % g == 0), channels, eps=1e-6)
    if kind == "none":
        return nn.Identity()
    raise ValueError(f'norm is {kind!r}; it can be "group" or "none"')


class Resample(nn.Module):
    """Halve or double the resolution with a separable filter; [1, 1] is average pooling and nearest neighbours."""

    kernel: Tensor

    def __init__(self, taps: tuple[int, ...], up: bool) -> None:
        super().__init__()
        if len(taps) % 2:
            raise ValueError(f"a resampling filter has an even number of taps; got {taps}")
        self.up, self.plain = up, taps == (1, 1)
        weights = torch.tensor(
            taps, dtype=torch.float32, device="cpu"
        )  # a few numbers, also where only shapes are asked for
        kernel = torch.outer(weights, weights) / weights.sum() ** 2
        self.register_buffer("kernel", kernel * (4 if up else 1), persistent=False)
        self.padding = (len(taps) - 1) // 2

    def forward(self, x: Tensor) -> Tensor:
        if self.plain:
            return F.interpolate(x, scale_factor=2, mode="nearest") if self.up else F.avg_pool2d(x, 2)
        weight = self.kernel.to(x.dtype).expand(x.shape[1], 1, -1, -1)
        if self.up:
            return F.conv_transpose2d(x, weight, stride=2, padding=self.padding, groups=x.shape[1])
        return F.conv2d(x, weight, stride=2, padding=self.padding, groups=x.shape[1])


class Block(nn.Module):
    """A residual block with a gain from the embedding."""

    def __init__(
        self, inputs: int, outputs: int, config: UNetConfig, resample: Resample | None = None, attention: bool = False
    ) -> None:
        super().__init__()
        self.norm0 = normalisation(config.norm, inputs)
        self.conv0 = conv(inputs, outputs, 3)
        self.norm1 = normalisation(config.norm, outputs)
        self.gain = zero_init(conv(config.embedding, outputs, 1))
        self.conv1 = zero_init(conv(outputs, outputs, 3))
        self.skip = conv(inputs, outputs, 1) if inputs != outputs else nn.Identity()
        self.resample = resample
        self.dropout = config.dropout
        self.attention = Attention(outputs, config) if attention else None

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        h = silu(self.norm0(x))
        if self.resample is not None:
            h, x = self.resample(h), self.resample(x)
        h = self.norm1(self.conv0(h))
        h = silu(torch.addcmul(h, h, self.gain(embedding)))
        if self.dropout and self.training:
            h = F.dropout(h, self.dropout)
        x = (self.skip(x) + self.conv1(h)) * math.sqrt(0.5)
        return self.attention(x) if self.attention is not None else x


class Attention(nn.Module):
    """Single-head self-attention over pixels, with a second derivative."""

    def __init__(self, channels: int, config: UNetConfig) -> None:
        super().__init__()
        self.norm = normalisation(config.norm, channels)
        self.qkv = conv(channels, 3 * channels, 1)
        self.out = zero_init(conv(channels, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).flatten(2).chunk(3, dim=1)  # [B, c, HW]
        weights = torch.softmax(q.mT @ k / math.sqrt(q.shape[1]), dim=-1)
        attended = (v @ weights.mT).reshape(x.shape)
        return (x + self.out(attended)) * math.sqrt(0.5)


class UNet(nn.Module):
    """[B, in, H, W] and one embedding map a level → [B, out, H, W]."""

    def __init__(self, config: UNetConfig, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.config = config
        widths = [config.channels * m for m in config.multipliers]
        self._build_stem(widths[0], in_channels, out_channels)
        self._build_encoder(widths)
        self._build_decoder(widths)

    @property
    def reach(self) -> None:
        """Everywhere: normalisation and attention look at the whole picture."""

    def _build_stem(self, width: int, in_channels: int, out_channels: int) -> None:
        config = self.config
        if config.stem == 1:
            self.enter = conv(in_channels, width, 3)
            self.exit_norm = normalisation(config.norm, width)
            self.exit = zero_init(conv(width, out_channels, 3))
            return
        full, stem = config.stem_channels, config.stem
        self.enter_full = conv(in_channels, full, 3)
        self.enter = conv(full, width, 2 * stem, stride=stem, padding=stem // 2)
        self.exit_up = conv(width, stem * stem * full, 1)
        self.exit = zero_init(conv(2 * full, out_channels, 3))

    def _build_encoder(self, widths: list[int]) -> None:
        config = self.config
        self.encoder = nn.ModuleList()
        self.down = nn.ModuleList()
        self.skips = [widths[0]]
        current = widths[0]
        for level, width in enumerate(widths):
            if level:
                self.down.append(Block(current, current, config, Resample(config.filter, up=False)))
                self.skips.append(current)
            blocks = nn.ModuleList()
            for _ in range(config.blocks):
                blocks.append(Block(current, width, config, attention=level in config.attention_levels))
                current = width
                self.skips.append(current)
            self.encoder.append(blocks)

    def _build_decoder(self, widths: list[int]) -> None:
        config, skips, current = self.config, list(self.skips), widths[-1]
        bottom = len(widths) - 1
        self.middle = nn.ModuleList([Block(current, current, config, attention=True), Block(current, current, config)])
        self.decoder = nn.ModuleList()
        self.up = nn.ModuleList()
        for level in range(bottom, -1, -1):
            width = widths[level]
            if level < bottom:
                self.up.append(Block(current, current, config, Resample(config.filter, up=True)))
            blocks = nn.ModuleList()
            for index in range(config.blocks + 1):
                last = index == config.blocks and level in config.attention_levels
                blocks.append(Block(current + skips.pop(), width, config, attention=last))
                current = width
            self.decoder.append(blocks)

    def forward(self, x: Tensor, embeddings: list[Tensor]) -> Tensor:
        full = None
        if self.config.stem > 1:
            full = silu(self.enter_full(x))
            x = full
        x = self.enter(x)
        skips = [x]
        for level, blocks in enumerate(self.encoder):
            if level:
                x = self.down[level - 1](x, embeddings[level])
                skips.append(x)
            for block in blocks:  # type: ignore[attr-defined]
                x = block(x, embeddings[level])
                skips.append(x)
        for block in self.middle:
            x = block(x, embeddings[-1])
        for index, blocks in enumerate(self.decoder):
            level = len(embeddings) - 1 - index
            if index:
                x = self.up[index - 1](x, embeddings[level])
            for block in blocks:  # type: ignore[attr-defined]
                x = block(torch.cat([x, skips.pop()], dim=1), embeddings[level])
        if full is None:
            return self.exit(silu(self.exit_norm(x)))
        up = silu(F.pixel_shuffle(self.exit_up(silu(x)), self.config.stem))
        return self.exit(torch.cat([up, full], dim=1))

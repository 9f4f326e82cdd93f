"""Which network a configuration names."""

from __future__ import annotations

from linverse.models.networks.compact import CompactUNet
from linverse.models.networks.unet import UNet, UNetConfig


def build_backbone(config: UNetConfig, in_channels: int, out_channels: int) -> UNet | CompactUNet:
    """The network of a configuration's `style`."""
    if config.style == "compact":
        return CompactUNet(config, in_channels, out_channels)
    if config.style == "ncsn++":
        return UNet(config, in_channels, out_channels)
    raise ValueError(f'style is {config.style!r}; it can be "ncsn++" or "compact"')

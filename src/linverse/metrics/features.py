"""The convolutional features that perceptual metrics look at, and feature vectors [N, D] for distances between sets of images.

AlexNet (Krizhevsky's "one weird trick" variant) and VGG16, both trained on ImageNet and cut after the last ReLU. Their input is
(x − μ)/σ per channel with ImageNet's μ and σ for x in [0, 1]. LPIPS' own scaling of an image in [−1, 1], (2x − 1 − s)/t, has s = 2μ − 1
and t = 2σ: it is the same map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linverse.metrics.images import check_images, to_rgb
from linverse.metrics.weights import read_convolutions

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
VGG16_STAGES = (2, 2, 3, 3, 3)  # convolutions between two poolings
NetworkName = Literal["alexnet", "vgg16"]
Pool = Callable[[Tensor], Tensor]


def normalise(images: Tensor) -> Tensor:
    """[0, 1] → the networks' input."""
    mean = images.new_tensor(IMAGENET_MEAN).reshape(1, 3, 1, 1)
    std = images.new_tensor(IMAGENET_STD).reshape(1, 3, 1, 1)
    return (images - mean) / std


def frozen_convolution(kernel: Tensor, bias: Tensor, stride: int, padding: int) -> nn.Conv2d:
    """A convolution with given weights that are not trained."""
    out_channels, in_channels, height, width = kernel.shape
    layer = nn.Conv2d(in_channels, out_channels, (height, width), stride, padding)
    layer.load_state_dict({"weight": kernel, "bias": bias})
    return layer.requires_grad_(False)


def max_pool(x: Tensor) -> Tensor:
    """VGG's own pooling."""
    return F.max_pool2d(x, 2)


class AlexNet(nn.Module):
    """The five ReLU layers of AlexNet; images of at least 31 pixels a side."""

    channels = (64, 192, 384, 256, 256)
    smallest = 31

    def __init__(self, convolutions: Sequence[tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        shapes = ((4, 2), (1, 2), (1, 1), (1, 1), (1, 1))  # stride, padding
        self.layers = nn.ModuleList(
            frozen_convolution(*weights, *shape) for weights, shape in zip(convolutions, shapes, strict=True)
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        outputs = []
        for index, layer in enumerate(self.layers):
            if index in (1, 2):
                x = F.max_pool2d(x, 3, 2)
            x = F.relu(layer(x))
            outputs.append(x)
        return outputs


class VGG16(nn.Module):
    """The last ReLU before each pooling of VGG16: relu1_2, 2_2, 3_3, 4_3, 5_3; at least 16 pixels a side. DISTS brings its own pooling."""

    channels = (64, 128, 256, 512, 512)
    smallest = 16

    def __init__(self, convolutions: Sequence[tuple[Tensor, Tensor]], pool: Pool = max_pool) -> None:
        super().__init__()
        layers = iter([frozen_convolution(kernel, bias, 1, 1) for kernel, bias in convolutions])
        self.stages = nn.ModuleList(nn.ModuleList(next(layers) for _ in range(n)) for n in VGG16_STAGES)
        self.pool = pool

    def forward(self, x: Tensor) -> list[Tensor]:
        outputs: list[Tensor] = []
        for stage in self.stages:
            x = self.pool(x) if outputs else x
            for layer in stage:  # type: ignore[attr-defined]  # a ModuleList of ModuleLists
                x = F.relu(layer(x))
            outputs.append(x)
        return outputs


@cache
def load_network(name: NetworkName, device: str = "cpu") -> AlexNet | VGG16:
    """AlexNet or VGG16 with ImageNet weights. Kept: the weights are constants, 10 and 59 MB."""
    network = {"alexnet": AlexNet, "vgg16": VGG16}[name](read_convolutions(name))
    return network.eval().to(device)


def in_chunks(count: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` that make up range(count): bounds the memory of the first layers."""
    return (slice(start, start + size) for start in range(0, count, size))


@dataclass(frozen=True)
class Features:
    """A named map from images [B, C, H, W] in [0, 1] to vectors [B, D]. The name appears in every result computed with it."""

    name: str
    function: Callable[[Tensor], Tensor]
    batch_size: int = 64

    def __call__(self, images: Tensor) -> Tensor:
        """Feature vectors [N, D], float64, without gradients."""
        check_images(images)
        with torch.no_grad():
            parts = [self.function(images[part]) for part in in_chunks(len(images), self.batch_size)]
        vectors = torch.cat(parts).double()
        if vectors.ndim != 2 or len(vectors) != len(images):
            raise ValueError(
                f"features {self.name!r} gave {tuple(vectors.shape)} for {len(images)} images; [N, D] is needed"
            )
        return vectors


@dataclass(frozen=True)
class FeatureDistance:
    """A distance between two sets of images: its full name (with the features'), its value, the number of images and features."""

    name: str
    value: float
    counts: tuple[int, int]
    dim: int


def pixel_features() -> Features:
    """The pixels themselves; needs no network."""
    return Features("pixels", lambda images: images.flatten(1))


def network_features(name: NetworkName = "vgg16") -> Features:
    """The last layer's channels, averaged over the image: 512 features of VGG16 ("VGG16") or 256 of AlexNet ("AlexNet")."""

    def function(images: Tensor) -> Tensor:
        network = load_network(name, str(images.device))
        if min(images.shape[-2:]) < network.smallest:
            size = "×".join(map(str, images.shape[-2:]))
            raise ValueError(f"images are {size}; {name} takes at least {network.smallest} pixels a side: enlarge them")
        last: Tensor = network(normalise(to_rgb(images).float()))[-1]
        return last.mean(dim=(2, 3))

    return Features({"vgg16": "VGG16", "alexnet": "AlexNet"}[name], function)

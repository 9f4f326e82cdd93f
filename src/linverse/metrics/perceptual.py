"""Perceptual distances, one value per image; both are better when lower and 0 for equal images.

LPIPS v0.1 (Zhang et al., CVPR 2018), f̂_l the features of layer l scaled to unit length at each pixel, w_l ≥ 0 learned:
    d = Σ_l mean_{h,w} Σ_c w_lc (f̂_lc − f̂⁰_lc)²,
DISTS (Ding et al., TPAMI 2022), the image itself as layer 0 and VGG16 with Hann-weighted L2 pooling, μ and σ the means and
(co)variances of a channel over the image:
    d = 1 − Σ_lc [α_lc (2μμ⁰ + c)/(μ² + μ⁰² + c) + β_lc (2σ₁₂ + c)/(σ² + σ⁰² + c)],   Σ(α + β) = 1, c = 10⁻⁶.
Images are in [0, 1]; LPIPS' networks see them as in [−1, 1] (`features.normalise`), grey is repeated to three channels. Images too
small for LPIPS' network are enlarged 2, 4, … times by nearest neighbour, and the metric's name says so: LPIPS-Alex@56 for 28×28.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linverse.metrics.features import VGG16, AlexNet, in_chunks, load_network, normalise
from linverse.metrics.images import check_images, check_pair, to_rgb
from linverse.metrics.weights import read_convolutions, read_dists_weights, read_lpips_weights

DISTS_C = 1e-6
LPIPS_EPS = 1e-10  # the authors' floor of the features' length
Backbone = Literal["Alex", "VGG"]
Layers = list[Tensor]
_NETWORKS: dict[Backbone, tuple[Literal["alexnet", "vgg16"], int]] = {
    "Alex": ("alexnet", AlexNet.smallest),
    "VGG": ("vgg16", VGG16.smallest),
}


def enlargement(backbone: Backbone, size: tuple[int, int]) -> int:
    """The power of two by which images of this size are enlarged for LPIPS."""
    factor = 1
    while min(size) * factor < _NETWORKS[backbone][1]:
        factor *= 2
    return factor


def lpips_name(backbone: Backbone, size: tuple[int, int]) -> str:
    """ "LPIPS-Alex", or with the size at which it was measured, "LPIPS-Alex@56", if the images had to be enlarged."""
    factor = enlargement(backbone, size)
    if factor == 1:
        return f"LPIPS-{backbone}"
    height, width = size[0] * factor, size[1] * factor
    return f"LPIPS-{backbone}@{height}" if height == width else f"LPIPS-{backbone}@{height}x{width}"


def unit_length(features: Tensor) -> Tensor:
    """Features [B, C, H, W] of length one at each pixel."""
    return features / (features.square().sum(1, keepdim=True).sqrt() + LPIPS_EPS)


class LPIPS(nn.Module):
    """LPIPS of checked RGB images in [0, 1] on a given network."""

    def __init__(self, network: AlexNet | VGG16, weights: list[Tensor]) -> None:
        """`weights` are w_l, [C_l] for each layer."""
        super().__init__()
        if tuple(len(w) for w in weights) != network.channels:
            raise ValueError(f"weights have {[len(w) for w in weights]} channels; the network has {network.channels}")
        self.network = network
        self.weights = nn.ParameterList([nn.Parameter(w, requires_grad=False) for w in weights])

    def forward(self, x: Tensor, reference: Tensor) -> Tensor:
        return self.compare(self.layers(x), self.layers(reference))

    def layers(self, x: Tensor) -> Layers:
        """f̂_l, [B, C_l, H_l, W_l] for each layer."""
        return [unit_length(features) for features in self.network(normalise(x))]

    def compare(self, one: Layers, other: Layers) -> Tensor:
        """d from the layers of both, [B]."""
        total = one[0].new_zeros(len(one[0]))
        for a, b, w in zip(one, other, self.weights, strict=True):
            difference = (a - b).square()
            total = total + torch.einsum("bchw,c->b", difference, w) / difference[0, 0].numel()
        return total


def hann_pool(x: Tensor) -> Tensor:
    """√(h ∗ x²) at every second pixel, h the 3×3 Hann window: pooling without aliasing. The floor is the authors'."""
    window = x.new_tensor([0.25, 0.5, 0.25])
    kernel = torch.outer(window, window).expand(x.shape[1], 1, 3, 3)
    return (F.conv2d(x.square(), kernel, stride=2, padding=1, groups=x.shape[1]) + 1e-12).sqrt()


class DISTS(nn.Module):
    """DISTS of checked RGB images in [0, 1]."""

    def __init__(self, network: VGG16, alpha: Tensor, beta: Tensor) -> None:
        """α, β of the 3 channels of the image and of each layer; they are divided by their sum here."""
        super().__init__()
        total = alpha.sum() + beta.sum()
        self.network = network
        self.alpha = nn.Parameter(alpha / total, requires_grad=False)
        self.beta = nn.Parameter(beta / total, requires_grad=False)

    def forward(self, x: Tensor, reference: Tensor) -> Tensor:
        return self.compare(self.layers(x), self.layers(reference))

    def layers(self, x: Tensor) -> Layers:
        """The image itself and the network's layers."""
        return [x, *self.network(normalise(x))]

    def compare(self, one: Layers, other: Layers) -> Tensor:
        """d from the layers of both, [B]."""
        parts = [_similarities(a, b) for a, b in zip(one, other, strict=True)]
        texture = torch.cat([part[0] for part in parts], dim=1)
        structure = torch.cat([part[1] for part in parts], dim=1)
        return 1 - texture @ self.alpha - structure @ self.beta


def _similarities(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Texture and structure terms of one layer, [B, C] each."""
    mean_a, mean_b = a.mean((2, 3), keepdim=True), b.mean((2, 3), keepdim=True)
    variances = (a - mean_a).square().mean((2, 3)) + (b - mean_b).square().mean((2, 3))
    covariance = ((a - mean_a) * (b - mean_b)).mean((2, 3))
    m, n = mean_a[:, :, 0, 0], mean_b[:, :, 0, 0]
    texture = (2 * m * n + DISTS_C) / (m.square() + n.square() + DISTS_C)
    return texture, (2 * covariance + DISTS_C) / (variances + DISTS_C)


@cache
def load_lpips(backbone: Backbone = "Alex", device: str = "cpu") -> LPIPS:
    """LPIPS v0.1 with its published weights (kept: they are constants)."""
    network = _NETWORKS[backbone][0]
    return LPIPS(load_network(network, device), read_lpips_weights(network)).eval().to(device)


@cache
def load_dists(device: str = "cpu") -> DISTS:
    """DISTS with its published weights (kept: they are constants)."""
    return DISTS(VGG16(read_convolutions("vgg16"), hann_pool), *read_dists_weights()).eval().to(device)


def _network_input(images: Tensor, factor: int = 1) -> Tensor:
    """RGB in float32, enlarged by nearest neighbour."""
    rgb = to_rgb(images).float()
    return F.interpolate(rgb, scale_factor=factor, mode="nearest") if factor > 1 else rgb


def _per_image(metric: LPIPS | DISTS, x: Tensor, reference: Tensor, batch_size: int) -> Tensor:
    """The metric in chunks that fit into memory, [B], float64."""
    return torch.cat([metric(x[part], reference[part]) for part in in_chunks(len(x), batch_size)]).double()


def lpips(x: Tensor, reference: Tensor, backbone: Backbone = "Alex", batch_size: int = 64) -> Tensor:
    """LPIPS, [B]; `lpips_name` tells its name at this image size."""
    check_pair(x, reference)
    factor = enlargement(backbone, (x.shape[-2], x.shape[-1]))
    large, other = (_network_input(images, factor) for images in (x, reference))
    return _per_image(load_lpips(backbone, str(x.device)), large, other, batch_size)


def lpips_alex(x: Tensor, reference: Tensor) -> Tensor:
    """LPIPS on AlexNet, the authors' default as a metric, [B]."""
    return lpips(x, reference, "Alex")


def lpips_vgg(x: Tensor, reference: Tensor) -> Tensor:
    """LPIPS on VGG16, [B]."""
    return lpips(x, reference, "VGG")


def dists(x: Tensor, reference: Tensor, batch_size: int = 64) -> Tensor:
    """DISTS at the images' own size, [B]."""
    check_pair(x, reference)
    return _per_image(load_dists(str(x.device)), _network_input(x), _network_input(reference), batch_size)


# --- many images against the same reference ---------------------------------------------------------------------------------------


class Against:
    """A perceptual distance to given images, whose layers are computed once: half the work when many restorations are compared.

    `bytes` is the memory that the layers take; calling it with images [B, C, H, W] gives [B], float64, as the metric itself does.
    """

    def __init__(self, metric: LPIPS | DISTS, reference: Tensor, factor: int = 1) -> None:
        check_images(reference, "reference")
        self.metric, self.reference, self.factor = metric, reference, factor
        with torch.no_grad():
            self.layers = metric.layers(_network_input(reference, factor))

    @property
    def bytes(self) -> int:
        return sum(layer.numel() * layer.element_size() for layer in self.layers)

    def __call__(self, x: Tensor) -> Tensor:
        check_pair(x, self.reference)
        return self.metric.compare(self.metric.layers(_network_input(x, self.factor)), self.layers).double()


def lpips_against(reference: Tensor, backbone: Backbone = "Alex") -> Against:
    """LPIPS with its second image fixed."""
    factor = enlargement(backbone, (reference.shape[-2], reference.shape[-1]))
    return Against(load_lpips(backbone, str(reference.device)), reference, factor)


def dists_against(reference: Tensor) -> Against:
    """DISTS with its second image fixed."""
    return Against(load_dists(str(reference.device)), reference)

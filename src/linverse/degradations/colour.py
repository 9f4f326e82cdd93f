"""Grey pictures of coloured scenes: y = wᵀ(r, g, b) + σv at every pixel. Two thirds of the image are not measured, in colour rather than in
space: HᵀH = wwᵀ mixes the channels, which no basis of ours does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from linverse.degradations.operators import GeneralOperator, Shape, positive_sigma

LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601, on gamma-encoded values


@dataclass(frozen=True)
class Decolorise(GeneralOperator):
    """The grey value of every pixel of an RGB image, by default its luma: data are [B, 1, H, W].

    >>> import torch, linverse as lv
    >>> lv.Decolorise(sigma=0.01).operator(torch.ones(1, 3, 2, 2))
    tensor([[[[1., 1.],
              [1., 1.]]]])
    """

    sigma: float = 0.01
    weights: tuple[float, float, float] = LUMA

    def __post_init__(self) -> None:
        positive_sigma(self.sigma)
        if len(self.weights) != 3 or not all(map(math.isfinite, self.weights)) or not any(self.weights):
            raise ValueError(f"weights are three numbers, of red, green and blue, not all 0; got {self.weights}")

    def operator(self, x: Tensor) -> Tensor:
        if x.shape[1] != 3:
            raise ValueError(f"a grey value is made of 3 channels (RGB); this image has {x.shape[1]}")
        return (x * self._column(x)).sum(dim=1, keepdim=True)

    def adjoint(self, r: Tensor) -> Tensor:
        if r.ndim != 4 or r.shape[1] != 1:
            raise ValueError(f"a grey picture is [batch, 1, height, width]; got {tuple(r.shape)}")
        return r * self._column(r)

    def _column(self, like: Tensor) -> Tensor:
        return like.new_tensor(self.weights).reshape(1, 3, 1, 1)

    def image_shape(self, raw: Tensor) -> Shape:
        return 3, raw.shape[2], raw.shape[3]

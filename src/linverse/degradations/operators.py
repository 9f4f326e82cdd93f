"""Any linear operator H, diagonal in no basis we have, given by Hx and Hᵀr (scanners, spatially varying blurs, …).

Its measurements have no coefficients and no λ (`operator_measurement`); their posterior is sampled from H and Hᵀ alone (mathematics §14).
An adjoint need not be written: for a linear H made of torch's functions it is the gradient of ⟨Hx, r⟩ by x, exactly.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from linverse.degradations.base import Degradation, ImageLike, as_image, as_tensor
from linverse.measurement import Measurement
from linverse.operator_measurement import Linear, LinearMap, OperatorMeasurement
from linverse.units import variance_from_sigma

Shape = tuple[int, int, int]


def positive_sigma(sigma: float) -> float:
    """The standard deviation of noise that there must be."""
    if variance_from_sigma(sigma) == 0:
        raise ValueError(
            "sigma is 0; data without noise are a hard constraint, which no sampler for a general operator can keep. Give the "
            "standard deviation of their error, e.g. that of their rounding"
        )
    return float(sigma)


def transposed(forward: Linear, r: Tensor, shape: Shape) -> Tensor:
    """Hᵀr for images of `shape`, by automatic differentiation of ⟨Hx, r⟩."""
    with torch.enable_grad():
        x = r.new_zeros(len(r), *shape, requires_grad=True)
        (image,) = torch.autograd.grad(forward(x), x, r)
    return image


class GeneralOperator(Degradation):
    """A degradation that is known by its operator and the operator's adjoint."""

    @abstractmethod
    def image_shape(self, raw: Tensor) -> Shape:
        """[C, H, W] of the images that such data are of."""

    def adjoint(self, r: Tensor) -> Tensor:
        """Hᵀr: images [B, C, H, W] from data [B, …]."""
        return transposed(self.operator, r, self.image_shape(r))

    def measure(
        self, x: ImageLike, generator: torch.Generator | None = None, *, exact_fill: bool = False
    ) -> Measurement:
        """Simulate a measurement of x."""
        if exact_fill:
            raise ValueError("exact_fill is for operators that a basis diagonalises: there is nothing to fill here")
        return self.encode(self.add_noise(self.operator(as_image(x)), generator))

    def from_raw(self, data: ImageLike) -> Measurement:
        """A measurement from real data [B, …], of whatever size and range the operator gives."""
        raw = as_tensor(data, "measurement")
        if raw.ndim < 2 or raw.numel() == 0:
            raise ValueError(f"measurement has shape {tuple(raw.shape)}; it must be [batch, …], with something in it")
        if not bool(torch.isfinite(raw).all()):
            raise ValueError(f"measurement has {int((~torch.isfinite(raw)).sum())} NaN or infinite entries")
        return self.encode(raw)

    def encode(self, raw: Tensor) -> OperatorMeasurement:
        return general_measurement(self.operator, self.adjoint, raw, self.sigma)


def general_measurement(forward: Linear, adjoint: Linear, raw: Tensor, sigma: float) -> OperatorMeasurement:
    """A measurement by H and Hᵀ, or an error that says why they do not fit the data or each other."""
    variance = positive_sigma(sigma) ** 2
    linear = LinearMap(forward, adjoint, _image_like(forward, adjoint, raw))
    linear.check_adjoint()
    return OperatorMeasurement(raw, linear, variance)


def _image_like(forward: Linear, adjoint: Linear, raw: Tensor) -> Tensor:
    """An image of the shape that such data are of."""
    try:
        like = torch.zeros_like(adjoint(raw[:1]))
        made = forward(like)
    except (RuntimeError, IndexError, TypeError) as error:
        raise ValueError(f"the operator does not take data of shape {tuple(raw.shape)}: {error}") from error
    if like.ndim != 4 or len(like) != 1:
        raise ValueError(
            f"the adjoint gives {tuple(like.shape)} for one measurement; it must give an image [1, channels, height, width]"
        )
    if made.shape[1:] != raw.shape[1:]:
        raise ValueError(
            f"the measurement has shape {tuple(raw.shape)}; for images of {'×'.join(map(str, like.shape[1:]))} the operator "
            f"gives [batch, {', '.join(map(str, made.shape[1:]))}]"
        )
    return like


class LinearOperator(GeneralOperator):
    """Your own scanner: y_raw = Hx + σv with `forward` x → Hx, images [B, C, H, W] to data [B, …], and `adjoint` r → Hᵀr back.

    The adjoint says what shape images have; that it is one is checked.

    >>> import torch, linverse as lv
    >>> from linverse.analytic import DenseGaussian
    >>> matrix = torch.randn(6, 16, generator=torch.Generator().manual_seed(0))
    >>> scanner = lv.LinearOperator(lambda x: x.flatten(1) @ matrix.T, lambda r: (r @ matrix).reshape(-1, 1, 4, 4), sigma=0.1)
    >>> energy = DenseGaussian(torch.full((16,), 0.5), 0.04 * torch.eye(16), (1, 4, 4), lv.VarianceRange(1e-6, 1e3))
    >>> post = lv.Posterior(energy, scanner.from_raw(torch.ones(1, 6)))
    >>> post.sample(2, sweeps=4).shape
    torch.Size([2, 1, 1, 4, 4])
    """

    def __init__(self, forward: Linear, adjoint: Linear, sigma: float) -> None:
        self.forward, self.transpose, self.sigma = forward, adjoint, positive_sigma(sigma)

    def __repr__(self) -> str:
        return f"LinearOperator({getattr(self.forward, '__qualname__', type(self.forward).__name__)}, sigma={self.sigma:g})"

    def operator(self, x: Tensor) -> Tensor:
        return self.forward(x)

    def adjoint(self, r: Tensor) -> Tensor:
        return self.transpose(r)

    def image_shape(self, raw: Tensor) -> Shape:
        channels, height, width = self.transpose(raw[:1]).shape[1:]
        return channels, height, width


class Composed(GeneralOperator):
    """One after the other: y_raw = H_n … H_1 x + σv for the given `parts`, first to last, on images of `shape`. Noise is added in the end.

    >>> import linverse as lv
    >>> lv.Composed([lv.GaussianBlur(1.0), lv.RandomPixels(0.5)], (1, 28, 28), sigma=0.01)
    Composed(GaussianBlur, RandomPixels, sigma=0.01)
    """

    def __init__(self, parts: Sequence[Degradation], shape: Shape, sigma: float) -> None:
        self.parts, self.shape, self.sigma = _checked(parts), shape, positive_sigma(sigma)

    def __repr__(self) -> str:
        return f"Composed({', '.join(type(part).__name__ for part in self.parts)}, sigma={self.sigma:g})"

    def operator(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part.operator(x)
        return x

    def image_shape(self, raw: Tensor) -> Shape:
        return self.shape


class Stacked(GeneralOperator):
    """Several measurements of one image of `shape`, each of its own sigma, at once.

    The data are one vector [B, m]: `join` makes it of the parts' own data. Parts are scaled to the noise of the first one, so that all
    is white: (σ_1/σ_i)·(H_ix + σ_iv) = (σ_1/σ_i)H_ix + σ_1v.

    >>> import torch, linverse as lv
    >>> both = lv.Stacked([lv.Box(4, sigma=0.1), lv.SuperResolution(4, sigma=0.01)], (1, 8, 8))
    >>> both.operator(torch.rand(2, 1, 8, 8)).shape
    torch.Size([2, 68])
    """

    def __init__(self, parts: Sequence[Degradation], shape: Shape) -> None:
        self.parts, self.shape = _checked(parts), shape
        self.sigma = positive_sigma(parts[0].sigma)

    def __repr__(self) -> str:
        return f"Stacked({', '.join(map(repr, self.parts))})"

    def join(self, raws: Sequence[Tensor]) -> Tensor:
        """The parts' data [B, …] each as one vector [B, m], all of the first one's noise."""
        if len(raws) != len(self.parts):
            raise ValueError(f"there are {len(raws)} measurements for {len(self.parts)} operators; give one for each")
        scaled = [
            (self.sigma / positive_sigma(p.sigma)) * raw.flatten(1) for p, raw in zip(self.parts, raws, strict=True)
        ]
        return torch.cat(scaled, dim=1)

    def operator(self, x: Tensor) -> Tensor:
        return self.join([part.operator(x) for part in self.parts])

    def image_shape(self, raw: Tensor) -> Shape:
        return self.shape


def _checked(parts: Sequence[Degradation]) -> tuple[Degradation, ...]:
    if not parts or not all(isinstance(part, Degradation) for part in parts):
        raise TypeError("parts are degradations, at least one of them (lv.GaussianBlur(1.0), lv.RandomPixels(0.5), …)")
    return tuple(parts)

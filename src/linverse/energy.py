"""Energies U(y, Σ) = −log p(y|Σ), learned and analytic alike, and what their derivatives tell.

With e = Σ^{1/2}∇_yU and κ = λ∂U/∂λ in Σ's eigenbasis (paper §3.1–3.2):
    Tweedie             E[x|y] = y − Σ∇_yU
    covariance score    κ_i = E[½(1 − ε_i²) | y],  ε = Σ^{-1/2}(y − x)
    posterior variance  Var[x_i|y] = λ_i(1 − 2κ_i − e_i²): one evaluation, no Hessian
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from linverse.covariance import Covariance, VarianceRange, identity
from linverse.degradations.base import ImageLike, as_tensor, describe
from linverse.measurement import Measurement

Shape = tuple[int, int | None, int | None]


@dataclass(frozen=True)
class Evaluation:
    """An energy and its derivatives at (y, Σ), kept in Σ's eigenbasis, where samplers work.

    `energy` [B] in nats; `mean_coefficients` of E[x|y] and `score_coefficients` of ∇_yU, [B, C, H, W]; `cov_score` κ and `variance`
    Var[x_i|y], of log λ's shape. Where one entry of log λ serves several channels both are the mean over them. `mean` and `score` are the
    images: each costs a transform, so take them once. `pixel_variance` [B, C, H, W] is E[(x−x̂)²|y] pixel by pixel, from energies that
    have learned it. `unknown` [B] marks rows of which the energy knows no more than a bound: their variances mean nothing.
    """

    cov: Covariance
    energy: Tensor
    score_coefficients: Tensor
    cov_score: Tensor
    mean_coefficients: Tensor
    variance: Tensor
    pixel_variance: Tensor | None = None
    unknown: Tensor | None = None

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.mean_coefficients.shape[1:]))
        return f"Evaluation({len(self.energy)} of {shape}, U from {float(self.energy.min()):.1f} to {float(self.energy.max()):.1f} nats)"

    @property
    def mean(self) -> Tensor:
        """E[x|y] in pixels, [B, C, H, W]."""
        return self.cov.synthesis(self.mean_coefficients)

    @property
    def score(self) -> Tensor:
        """∇_yU in pixels, [B, C, H, W]."""
        return self.cov.synthesis(self.score_coefficients)

    @property
    def variance_by_pixel(self) -> Tensor:
        """`pixel_variance` where the energy has learned it, else that of the coefficients around the pixel, [B, C, H, W]."""
        return self.cov.full(self.cov.pool(self.variance)) if self.pixel_variance is None else self.pixel_variance

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Energy, score, covariance score, mean and variance, as they are kept."""
        return self.energy, self.score_coefficients, self.cov_score, self.mean_coefficients, self.variance

    def detach(self) -> Evaluation:
        """The same without its graph."""
        pixels = None if self.pixel_variance is None else self.pixel_variance.detach()
        energy, score, kappa, mean, variance = (t.detach() for t in self.tensors())
        return Evaluation(self.cov.detach(), energy, score, kappa, mean, variance, pixels, self.unknown)

    def where(self, mine: Tensor, other: Evaluation) -> Evaluation:
        """Row by row: self where `mine` [B], else `other` (at the same Σ)."""
        rows = mine.reshape(-1, 1, 1, 1)
        pairs = zip(self.tensors(), other.tensors(), strict=True)
        chosen = [torch.where(mine if a.ndim == 1 else rows, a, b) for a, b in pairs]
        pixels = self.pixel_variance
        if pixels is not None and other.pixel_variance is not None:
            pixels = torch.where(rows, pixels, other.pixel_variance)
        energy, score, kappa, mean, variance = chosen
        unknown = (
            self.unknown
            if other.unknown is None or self.unknown is None
            else torch.where(mine, self.unknown, other.unknown)
        )
        return Evaluation(self.cov, energy, score, kappa, mean, variance, pixels, unknown)


@runtime_checkable
class Energy(Protocol):
    """U(y, Σ), normalised: exp(−U(·, Σ)) integrates to 1 for every Σ in its range."""

    @property
    def range(self) -> VarianceRange:
        """The variances and bases for which the energy is known."""

    @property
    def shape(self) -> Shape:
        """[C, H, W] of the images; None for height and width where any size will do."""

    def __call__(self, y: Tensor, cov: Covariance) -> Tensor:
        """U, [B], nats, float64."""

    def gaussian(self, cov: Covariance) -> tuple[Tensor, Tensor]:
        """Mean m and variance C of the data in Σ's eigenbasis, broadcastable to [B, C, H, W]."""


@runtime_checkable
class SelfEvaluating(Protocol):
    """An energy that knows numerically better forms of its own derivatives."""

    def evaluate_in_basis(self, z: Tensor, cov: Covariance, *, create_graph: bool = False) -> Evaluation:
        """U and its derivatives at y = Qz."""


def check_shapes(energy: Energy, y: Tensor, cov: Covariance) -> None:
    """Refuse (y, Σ) of a wrong shape, and a Σ that is none."""
    if cov.batch == 0 or bool(cov.log_variance.isnan().any()):
        raise ValueError("the covariance is empty, or some of its variances are NaN")
    if not takes(energy.shape, (cov.channels, *cov.size)):
        raise ValueError(
            f"the covariance is for {cov.channels}×{cov.size[0]}×{cov.size[1]} images; the energy takes {size_text(energy.shape)}"
        )
    cov.check_image(y)


def takes(shape: Shape, given: tuple[int, int, int]) -> bool:
    """Whether images of a size are what an energy takes."""
    return all(wanted is None or wanted == found for wanted, found in zip(shape, given, strict=True))


def size_text(shape: Shape) -> str:
    """1×28×28, or 3×any×any."""
    return "×".join("any" if side is None else str(side) for side in shape)


def check_pair(energy: Energy, y: Tensor, cov: Covariance) -> None:
    """Refuse (y, Σ) of a wrong shape; warn, naming the range, when Σ lies outside of what the energy knows."""
    check_shapes(energy, y, cov)
    excess = energy.range.excess(cov)
    if excess:
        warnings.warn(f"Σ has {excess}: the answer is an extrapolation", stacklevel=3)


Movable = TypeVar("Movable", bound=Tensor | Covariance | Measurement)


def in_precision_of(energy: Energy, data: Movable) -> Movable:
    """The data in the precision and on the device of a network's weights; as they are for exact energies, which take any."""
    weights = next(energy.parameters(), None) if isinstance(energy, nn.Module) else None
    if weights is None:
        return data
    moved: Movable = data.to(weights.dtype).to(weights.device)  # type: ignore[assignment]  # `to` keeps the kind
    return moved


def checked_images(energy: Energy, x: ImageLike, name: str = "image") -> Tensor:
    """Images that an energy can be asked about, in its precision: a tensor, an array or lists, [batch ≥ 1, C, H, W], finite."""
    if not callable(energy) or not hasattr(energy, "shape"):
        raise TypeError(
            f"energy is {describe(energy)}; load one with lv.load, or build an exact one of linverse.analytic"
        )
    images = as_tensor(x, name)
    if images.ndim != 4 or images.numel() == 0:
        raise ValueError(
            f"{name} has shape {tuple(images.shape)}; it must be [batch, channels, height, width], at least one"
        )
    if not bool(torch.isfinite(images).all()):
        raise ValueError(f"{name} has {int((~torch.isfinite(images)).sum())} NaN or infinite pixels")
    return in_precision_of(energy, images)


def evaluate(energy: Energy, y: ImageLike, cov: Covariance, *, create_graph: bool = False) -> Evaluation:
    """All that one call of the energy tells: U, its score ∇_yU, the covariance score κ, E[x|y] and Var[x|y].

    y [B, C, H, W] is a noisy image and Σ the covariance of its noise (one for each image, or one for all). The derivatives come from a
    single backward pass, the moments from the derivatives (mathematics §3).

    >>> import torch, linverse as lv
    >>> from linverse.analytic import DiagonalGaussian
    >>> prior = DiagonalGaussian(lv.SpatialCovariance(torch.zeros(1, 1, 2, 2)))  # pixels N(0, 1)
    >>> found = evaluate(prior, torch.ones(1, 1, 2, 2), identity("spatial", (1, 2, 2)))  # seen under noise N(0, 1)
    >>> found.mean[0, 0], found.variance[0, 0]
    (tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]]), tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]]))

    Differentiates the given y and log λ where they require grad, else fresh leaves. With `create_graph` the result can be
    differentiated again (training).
    """
    image, cov = checked_images(energy, y), in_precision_of(energy, cov)
    check_pair(energy, image, cov)
    image, cov = matched(image, cov)
    return evaluate_in_basis(energy, cov.analysis(image), cov, create_graph=create_graph)


def evaluate_in_basis(energy: Energy, z: Tensor, cov: Covariance, *, create_graph: bool = False) -> Evaluation:
    """The same for coefficients z = Qᵀy and one Σ per row, without a word about Σ: for whoever has checked it already."""
    own = getattr(energy, "evaluate_in_basis", None)  # `isinstance` of a protocol costs as much as a small layer
    if own is not None:
        return own(z, cov, create_graph=create_graph)
    return autograd_evaluate(energy, z, cov, create_graph=create_graph)


def matched(y: Tensor, cov: Covariance) -> tuple[Tensor, Covariance]:
    """One Σ for many images, or one image under many Σ: repeated as views, so that each pair keeps derivatives of its own."""
    if y.shape[0] == cov.batch:
        return y, cov
    if cov.batch == 1:
        return y, cov.expand(y.shape[0])
    if y.shape[0] == 1:
        return y.expand(cov.batch, -1, -1, -1), cov
    raise ValueError(
        f"there are {y.shape[0]} images and {cov.batch} covariances; give one covariance each, or one for all"
    )


def autograd_evaluate(
    energy: Callable[[Tensor, Covariance], Tensor], z: Tensor, cov: Covariance, *, create_graph: bool = False
) -> Evaluation:
    """The plain forms, by automatic differentiation in z = Qᵀy and log λ: right for λ ≲ C; the variance cancels at large λ."""
    with torch.enable_grad():
        leaf, log_variance = differentiable(z), differentiable(cov.log_variance)
        leaf_cov = cov.with_log_variance(log_variance)
        u = energy(leaf_cov.synthesis(leaf), leaf_cov)
        score, kappa = torch.autograd.grad(u.sum(), (leaf, log_variance), create_graph=create_graph)
        result = from_derivatives(u, score, kappa / cov.multiplicity, leaf, leaf_cov)
    return result if create_graph else result.detach()


def differentiable(x: Tensor) -> Tensor:
    """A tensor to differentiate by: a new node of x's graph if it has one, else a fresh leaf."""
    return x.view_as(x) if x.requires_grad else x.detach().requires_grad_()


def from_derivatives(energy: Tensor, score: Tensor, kappa: Tensor, z: Tensor, cov: Covariance) -> Evaluation:
    """Tweedie's mean and the one-shot variance, from the coefficients of ∇_yU and κ."""
    mean = z - score * cov.variance
    scaled_square = group_mean(score.square(), cov) * cov.variance
    variance = (cov.variance * (1 - 2 * kappa - scaled_square)).clamp_min(0)
    return Evaluation(cov, energy, score, kappa, mean, variance)


def group_mean(coefficients: Tensor, cov: Covariance) -> Tensor:
    """Mean over the channels that share an entry of log λ."""
    return coefficients.mean(dim=1, keepdim=True) if cov.multiplicity > 1 else coefficients


def fixed_shape(energy: Energy) -> tuple[int, int, int]:
    """[C, H, W] of an energy that takes images of one size; an error for one that takes any."""
    channels, height, width = energy.shape
    if height is None or width is None:
        raise ValueError(f"this takes a model for images of one size; the one given takes {size_text(energy.shape)}")
    return channels, height, width


def sized(energy: Energy, size: tuple[int, int] | None) -> tuple[int, int, int]:
    """[C, H, W] for a size that was asked for; an energy that takes one size needs none."""
    if size is None:
        return fixed_shape(energy)
    shape = (energy.shape[0], *size)
    if not takes(energy.shape, shape):
        raise ValueError(f"images of {size[0]}×{size[1]} were asked for; the model takes {size_text(energy.shape)}")
    return shape


def floor_covariance(energy: Energy, like: Tensor | None = None) -> Covariance:
    """λ_min·I, in pixels if the energy knows them; for images like those given, where the energy takes any size."""
    size = None if like is None or None not in energy.shape else (like.shape[-2], like.shape[-1])
    bases = energy.range.bases
    basis = "spatial" if not bases or "spatial" in bases else bases[0]
    return identity(basis, sized(energy, size), like).isotropic(energy.range.minimum)


@torch.no_grad()
def log_prob(energy: Energy, x: ImageLike, *, chunk: int = 128) -> Tensor:
    """How probable are these images? log p(x), [B], nats, of images at the floor: −U(x, λ_min·I), the density of x + N(0, λ_min).

    A clean image has no density of its own: add noise of variance λ_min first (the same to all that are compared; `score_images` does).

    >>> import torch, linverse as lv
    >>> from linverse.analytic import DiagonalGaussian
    >>> prior = DiagonalGaussian(lv.SpatialCovariance(torch.zeros(1, 1, 2, 2)), limits=lv.VarianceRange(1e-6, 1e3))
    >>> log_prob(prior, torch.zeros(1, 1, 2, 2))  # −½ log 2π for each of four pixels
    tensor([-3.6758], dtype=torch.float64)
    """
    images = checked_images(energy, x)
    cov = floor_covariance(energy, images)
    check_shapes(energy, images, cov)
    return torch.cat([-energy(part, cov.expand(len(part))) for part in images.split(chunk)])
